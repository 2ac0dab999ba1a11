"""Lesson 08: the Transformer of 2017, put together from the parts of lessons 03 to 07.

Vaswani et al. (2017), "Attention Is All You Need", section 3 and figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from course_utils.models.masks import decoder_mask, padding_mask
from course_utils.models.multi_head import MultiHeadAttention
from course_utils.models.normalization import AddAndNorm, FeedForward, LayerNorm
from course_utils.models.positions import PositionalEmbedding

Cache = tuple[torch.Tensor, torch.Tensor]  # keys and values, each (B, h, length, d_k)
Weights = dict[str, list[torch.Tensor]]  # "encoder", "decoder", "cross" -> one (B, h, T, S) a layer


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; a residual path around each (section 3.1)."""

    def __init__(self, d_model: int, h: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.around_attention = AddAndNorm(d_model, norm_first, dropout)
        self.around_ffn = AddAndNorm(d_model, norm_first, dropout)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None, keep: list[torch.Tensor] | None = None
    ) -> torch.Tensor:
        """(B, S, D), mask (B, 1, 1, S) -> (B, S, D); the weights are appended to ``keep`` when it is given."""
        x = self.around_attention(x, lambda y: _kept(self.attention(y, y, mask, keep is not None), keep))
        return self.around_ffn(x, self.ffn)


class DecoderLayer(nn.Module):
    """Masked self-attention, then a look at the encoder's output, then feed-forward."""

    def __init__(self, d_model: int, h: int, d_ff: int, dropout: float = 0.1, norm_first: bool = False) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.around_self = AddAndNorm(d_model, norm_first, dropout)
        self.around_cross = AddAndNorm(d_model, norm_first, dropout)
        self.around_ffn = AddAndNorm(d_model, norm_first, dropout)

    def forward(
        self,
        x: torch.Tensor,
        memory: Cache,
        self_mask: torch.Tensor | None,
        memory_mask: torch.Tensor | None,
        past: Cache | None = None,
        keep: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """One layer, over a whole target or over its newest tokens.

        Args:
            x: (B, T, D).
            memory: keys and values of the encoder's output, from ``cross_attention.keys_values``.
            self_mask: broadcasts to (B, h, T, past length + T).
            memory_mask: (B, 1, 1, S).
            past: keys and values of the tokens before ``x``, or None at the start.
            keep: two lists that get the weights of self- and cross-attention.

        Returns:
            (B, T, D), and the keys and values of all tokens so far.
        """
        now: list[Cache] = []

        def look_back(y: torch.Tensor) -> torch.Tensor:
            now.append(_joined(past, self.self_attention.keys_values(y)))
            found = self.self_attention.look_up(y, *now[0], self_mask, keep is not None)
            return _kept(found, keep and keep[0])

        def look_across(y: torch.Tensor) -> torch.Tensor:
            # The query is this layer's own state; keys and values come from the encoder.
            found = self.cross_attention.look_up(y, *memory, memory_mask, keep is not None)
            return _kept(found, keep and keep[1])

        x = self.around_self(x, look_back)
        x = self.around_cross(x, look_across)
        return self.around_ffn(x, self.ffn), now[0]


def _kept(found: tuple[torch.Tensor, torch.Tensor | None], keep: list[torch.Tensor] | None) -> torch.Tensor:
    output, weights = found
    if keep is not None and weights is not None:
        keep.append(weights.detach())
    return output


def _joined(past: Cache | None, new: Cache) -> Cache:
    return new if past is None else (torch.cat([past[0], new[0]], dim=2), torch.cat([past[1], new[1]], dim=2))


@dataclass(frozen=True)
class DecodingState:
    """What a decoder keeps between steps; nothing of it is computed twice."""

    memory: list[Cache]  # a layer's keys and values of the encoder's output
    memory_mask: torch.Tensor  # (B, 1, 1, S)
    past: list[Cache | None]  # a layer's keys and values of the tokens written so far
    length: int  # how many those are

    def select(self, rows: torch.Tensor) -> DecodingState:
        """The state of the sentences ``rows``, in that order; a row may come twice (beam search)."""

        def pick(cache: Cache | None) -> Cache | None:
            return None if cache is None else (cache[0][rows], cache[1][rows])

        return replace(
            self,
            memory=[pick(cache) for cache in self.memory],
            memory_mask=self.memory_mask[rows],
            past=[pick(cache) for cache in self.past],
        )


class Transformer(nn.Module):
    """The encoder-decoder. Defaults are the paper's base model (table 3).

    Args:
        source_vocabulary, target_vocabulary: sizes.
        d_model, h, d_ff, N, dropout: as in the paper.
        norm_first: pre-norm layers, and a norm at the end of each stack; False is the paper's post-norm.
        tied: "none", "target" (output weights = target embedding, section 3.4) or "all" (one table for everything,
            which needs one vocabulary for both languages).
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        d_model: int = 512,
        h: int = 8,
        d_ff: int = 2048,
        N: int = 6,
        dropout: float = 0.1,
        norm_first: bool = False,
        tied: str = "target",
    ) -> None:
        super().__init__()
        self.source_embedding = PositionalEmbedding(source_vocabulary, d_model, dropout)
        self.target_embedding = PositionalEmbedding(target_vocabulary, d_model, dropout)
        sizes = (d_model, h, d_ff, dropout, norm_first)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(N))
        self.encoder_norm = LayerNorm(d_model) if norm_first else nn.Identity()
        self.decoder_norm = LayerNorm(d_model) if norm_first else nn.Identity()
        self.output = nn.Linear(d_model, target_vocabulary, bias=False)
        self._initialise(d_model)
        self._tie(tied)

    def _initialise(self, d_model: int) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for embedding in (self.source_embedding, self.target_embedding):
            # times sqrt(d_model) this is of size 1, like the waves added to it; and right for logits when tied
            nn.init.normal_(embedding.table.weight, std=d_model**-0.5)

    def _tie(self, tied: str) -> None:
        if tied not in ("none", "target", "all"):
            raise ValueError(f'tied is "none", "target" or "all", and it is {tied!r}.')
        if tied == "all":
            if self.source_embedding.table.num_embeddings != self.target_embedding.table.num_embeddings:
                raise ValueError('tied="all" needs one vocabulary for both languages.')
            self.source_embedding.table.weight = self.target_embedding.table.weight
        if tied != "none":
            self.output.weight = self.target_embedding.table.weight

    def encode(self, source: torch.Tensor, keep: list[torch.Tensor] | None = None) -> torch.Tensor:
        """(B, S) ids -> memory (B, S, D)."""
        x, mask = self.source_embedding(source), padding_mask(source)
        for layer in self.encoder:
            x = layer(x, mask, keep)
        return self.encoder_norm(x)

    def decode(
        self, target: torch.Tensor, state: DecodingState, mask: torch.Tensor | None, keep: Weights | None = None
    ) -> tuple[torch.Tensor, DecodingState]:
        """The newest tokens (B, T) after the ``state.length`` before them -> logits (B, T, V) and the next state."""
        x, past = self.target_embedding(target, start=state.length), []
        lists = None if keep is None else (keep["decoder"], keep["cross"])
        for layer, memory, before in zip(self.decoder, state.memory, state.past, strict=True):
            x, cache = layer(x, memory, mask, state.memory_mask, before, lists)
            past.append(cache)
        logits = self.output(self.decoder_norm(x))
        return logits, replace(state, past=past, length=state.length + target.shape[1])

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(B, S), decoder inputs (B, T) -> logits (B, T, V), with teacher forcing."""
        return self.decode(target, self.start(source), decoder_mask(target))[0]

    def start(self, source: torch.Tensor, keep: list[torch.Tensor] | None = None) -> DecodingState:
        memory = self.encode(source, keep)
        cross = [layer.cross_attention.keys_values(memory) for layer in self.decoder]
        return DecodingState(cross, padding_mask(source), [None] * len(self.decoder), length=0)

    def step(self, token: torch.Tensor, state: DecodingState) -> tuple[torch.Tensor, DecodingState]:
        """One token for each sentence (B,) -> logits (B, V) and the next state. It may see all that is cached."""
        logits, state = self.decode(token[:, None], state, mask=None)
        return logits[:, 0], state

    @torch.no_grad()
    def attention_weights(self, source: torch.Tensor, target: torch.Tensor) -> Weights:
        """The weights of every layer and head: "encoder" (B, h, S, S), "decoder" (B, h, T, T), "cross" (B, h, T, S)."""
        weights: Weights = {"encoder": [], "decoder": [], "cross": []}
        self.decode(target, self.start(source, weights["encoder"]), decoder_mask(target), weights)
        return weights
