"""Lesson 01: the recurrent encoder-decoder without attention.

Sutskever, Vinyals and Le (2014), "Sequence to Sequence Learning with Neural Networks", section 2;
Cho et al. (2014), "Learning Phrase Representations using RNN Encoder-Decoder", sections 2.2 and 2.3 (the GRU).
"""

from __future__ import annotations

import torch
from torch import nn

from course_utils.text import PAD


class GRUCell(nn.Module):
    """One step of a gated recurrent unit, gate by gate.

        z = sigmoid(W_z x + U_z h)              how much of the old state to keep
        r = sigmoid(W_r x + U_r h)              how much of it to look at
        n = tanh(W_n x + r * (U_n h))           the new content
        h' = (1 - z) * n + z * h

    The reset gate multiplies *after* the matrix, as in PyTorch; in Cho et al. it multiplies h before it.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.W_z, self.U_z = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.W_r, self.U_r = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.W_n, self.U_n = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """(B, input_size), (B, hidden_size) -> (B, hidden_size)."""
        z = torch.sigmoid(self.W_z(x) + self.U_z(h))
        r = torch.sigmoid(self.W_r(x) + self.U_r(h))
        n = torch.tanh(self.W_n(x) + r * self.U_n(h))
        return (1 - z) * n + z * h


class Encoder(nn.Module):
    """Reads the source with a GRU; hands over every state, and the last one.

    ``bidirectional`` reads it once more from the end (Bahdanau et al. 2015, section 3.2); the states are joined.
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=PAD)
        self.gru = nn.GRU(embedding, hidden, batch_first=True, bidirectional=bidirectional)

    def forward(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, S) ids -> all states (B, S, E) and each sentence's own last state (directions, B, hidden)."""
        lengths = (source != PAD).sum(dim=1)
        # Packed, the GRU stops at each sentence's own end instead of reading padding.
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(source), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, last = self.gru(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return states, last


class Decoder(nn.Module):
    """A GRU language model of the target that starts from the encoder's last state."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=PAD)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, T) ids, (B, hidden) -> logits (B, T, V) and the last state (B, hidden)."""
        states, last = self.gru(self.embedding(tokens), state[None])
        return self.output(states), last[0]


class Seq2Seq(nn.Module):
    """The encoder's last state is all that the decoder ever sees of the source."""

    def __init__(self, source_vocabulary: int, target_vocabulary: int, embedding: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.encoder = Encoder(source_vocabulary, embedding, hidden)
        self.decoder = Decoder(target_vocabulary, embedding, hidden)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(B, S), decoder inputs (B, T) -> logits (B, T, V), with teacher forcing."""
        logits, _ = self.decoder(target, self.start(source))
        return logits

    def start(self, source: torch.Tensor) -> torch.Tensor:
        """The decoder's first state (B, hidden)."""
        _, last = self.encoder(source)
        return last[0]

    def step(self, token: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One token for each sentence (B,) -> logits (B, V) and the next state."""
        logits, state = self.decoder(token[:, None], state)
        return logits[:, 0], state
