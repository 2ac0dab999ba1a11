"""Lesson 02: attention over all encoder states. Lesson 03: self-attention.

Bahdanau, Cho and Bengio (2015), "Neural Machine Translation by Jointly Learning to Align and Translate",
section 3 and appendix A; Luong, Pham and Manning (2015), "Effective Approaches to Attention-based NMT", section 3.1;
Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from course_utils.models.masks import masked_softmax
from course_utils.models.rnn import Encoder
from course_utils.text import PAD


class AdditiveScore(nn.Module):
    """e_j = v . tanh(W s + U h_j), all three learned (Bahdanau et al., appendix A.1.2)."""

    def __init__(self, state_size: int, memory_size: int, size: int) -> None:
        super().__init__()
        self.W = nn.Linear(state_size, size, bias=False)
        self.U = nn.Linear(memory_size, size, bias=False)
        self.v = nn.Linear(size, 1, bias=False)

    def forward(self, s: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
        """State (B, D) against memory (B, S, E) -> scores (B, S)."""
        return self.v(torch.tanh(self.W(s)[:, None] + self.U(H)))[..., 0]


class DotScore(nn.Module):
    """e_j = s . h_j (Luong et al., equation 8, "dot"): nothing to learn, and s and h_j must be of one size."""

    def forward(self, s: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
        """State (B, D) against memory (B, S, D) -> scores (B, S)."""
        return torch.einsum("bd,bsd->bs", s, H)


def attention_weights(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scores (B, S), mask (B, S) True = may attend -> weights (B, S); each row sums to 1 over what may be attended.

    A hidden place gets the score minus infinity *before* the softmax, so that the others share all of the weight.
    Every row of the mask needs one True.
    """
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)


def context_vector(alpha: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
    """Weights (B, S), memory (B, S, E) -> (B, E): c_i = sum_j alpha_ij h_j (Bahdanau et al., equation 5)."""
    return torch.einsum("bs,bse->be", alpha, H)


class AttentionState(NamedTuple):
    """What the decoder carries from step to step. ``alpha`` (B, S) is kept for looking at, nothing reads it."""

    s: torch.Tensor  # (B, D) decoder state
    H: torch.Tensor  # (B, S, E) all encoder states
    mask: torch.Tensor  # (B, S) True = a real word
    alpha: torch.Tensor  # (B, S) where the last step looked


class AttentionSeq2Seq(nn.Module):
    """A bidirectional GRU encoder, and a decoder that looks at all of its states anew at every step."""

    def __init__(self, source_vocabulary: int, target_vocabulary: int, embedding: int = 64, hidden: int = 64) -> None:
        super().__init__()
        self.encoder = Encoder(source_vocabulary, embedding, hidden, bidirectional=True)
        self.first = nn.Linear(hidden, hidden)  # s_0 = tanh(W_s h_1), from the backward reader's last state
        self.score = AdditiveScore(hidden, 2 * hidden, hidden)
        self.embedding = nn.Embedding(target_vocabulary, embedding, padding_idx=PAD)
        self.cell = nn.GRUCell(embedding + 2 * hidden, hidden)
        self.output = nn.Linear(hidden + 2 * hidden + embedding, target_vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(B, S), decoder inputs (B, T) -> logits (B, T, V), with teacher forcing."""
        state = self.start(source)
        logits = []
        for token in target.unbind(dim=1):
            step_logits, state = self.step(token, state)
            logits.append(step_logits)
        return torch.stack(logits, dim=1)

    def start(self, source: torch.Tensor) -> AttentionState:
        H, last = self.encoder(source)
        mask = source != PAD
        return AttentionState(torch.tanh(self.first(last[1])), H, mask, torch.zeros_like(mask, dtype=H.dtype))

    def step(self, token: torch.Tensor, state: AttentionState) -> tuple[torch.Tensor, AttentionState]:
        """One token for each sentence (B,) -> logits (B, V) and the next state."""
        alpha = attention_weights(self.score(state.s, state.H), state.mask)  # from s_{i-1}, the state before
        context = context_vector(alpha, state.H)
        y = self.embedding(token)
        s = self.cell(torch.cat([y, context], dim=-1), state.s)
        logits = self.output(torch.cat([s, context, y], dim=-1))
        return logits, AttentionState(s, state.H, state.mask, alpha)


def scaled_dot_product(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al., equation 1).

    Args:
        Q: queries (..., T, d_k).
        K: keys (..., S, d_k).
        V: values (..., S, d_v).
        mask: broadcasts to (..., T, S), True = may attend; None = everything may.

    Returns:
        The output (..., T, d_v) and the weights (..., T, S).
    """
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5  # score
    weights = scores.softmax(dim=-1) if mask is None else masked_softmax(scores, mask)  # mask, normalise
    return weights @ V, weights  # mix


class SelfAttention(nn.Module):
    """One head: every token asks (W_q), is found by (W_k), and gives (W_v)."""

    def __init__(self, d_model: int, d_k: int) -> None:
        super().__init__()
        self.W_q = nn.Linear(d_model, d_k, bias=False)
        self.W_k = nn.Linear(d_model, d_k, bias=False)
        self.W_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, X: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, T, d_model), mask broadcasting to (B, T, T) -> output (B, T, d_k), weights (B, T, T)."""
        return scaled_dot_product(self.W_q(X), self.W_k(X), self.W_v(X), mask)
