"""Lesson 04: several attentions side by side.

Vaswani et al. (2017), "Attention Is All You Need", section 3.2.2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.models.attention import scaled_dot_product
from course_utils.models.rnn import Encoder
from course_utils.text import PAD


def split_heads(x: torch.Tensor, h: int) -> torch.Tensor:
    """(B, T, D) -> (B, h, T, D/h): head i gets the i-th block of every token. ValueError if h does not fit."""
    batch, length, d_model = x.shape
    if d_model % h:
        raise ValueError(f"{d_model} numbers cannot be shared out evenly among {h} heads.")
    return x.view(batch, length, h, d_model // h).transpose(1, 2)


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    """(B, h, T, d_k) -> (B, T, h * d_k), the inverse of ``split_heads``."""
    batch, h, length, d_k = x.shape
    return x.transpose(1, 2).reshape(batch, length, h * d_k)


class MultiHeadAttention(nn.Module):
    """Project, split into h heads, attend in each, merge, and mix the heads with W_o."""

    def __init__(self, d_model: int, h: int, bias: bool = True) -> None:
        super().__init__()
        if d_model % h:
            raise ValueError(f"d_model = {d_model} is not divisible by h = {h}.")
        self.h = h
        self.W_q = nn.Linear(d_model, d_model, bias)
        self.W_k = nn.Linear(d_model, d_model, bias)
        self.W_v = nn.Linear(d_model, d_model, bias)
        self.W_o = nn.Linear(d_model, d_model, bias)

    def keys_values(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Memory (B, S, D) -> its keys and values, each (B, h, S, d_k). They do not depend on who asks."""
        return split_heads(self.W_k(memory), self.h), split_heads(self.W_v(memory), self.h)

    def look_up(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``forward`` with the memory's keys and values given, as a decoder that keeps them does."""
        q = split_heads(self.W_q(query), self.h)
        if need_weights:
            heads, weights = scaled_dot_product(q, keys, values, mask)
        else:
            heads, weights = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask), None
        return self.W_o(merge_heads(heads)), weights

    def forward(
        self, query: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor | None = None, need_weights: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Query (B, T, D) looks at memory (B, S, D).

        Args:
            query: what asks; the same tensor as ``memory`` in self-attention.
            memory: what is asked.
            mask: broadcasts to (B, h, T, S), True = may attend.
            need_weights: also return the weights (B, h, T, S). Without them torch's fused kernel does the work.

        Returns:
            The output (B, T, D), and the weights or None.
        """
        return self.look_up(query, *self.keys_values(memory), mask, need_weights)


class MultiHeadState(NamedTuple):
    """What the decoder carries from step to step. ``alpha`` (B, h, S) is kept for looking at, nothing reads it."""

    s: torch.Tensor  # (B, D) decoder state
    keys: torch.Tensor  # (B, h, S, d_k) of all encoder states, computed once
    values: torch.Tensor  # (B, h, S, d_k)
    mask: torch.Tensor  # (B, 1, 1, S) True = a real word
    alpha: torch.Tensor  # (B, h, S) where each head looked at the last step


class MultiHeadSeq2Seq(nn.Module):
    """Lesson 02's recurrent encoder-decoder, with h scaled dot products in the place of the additive score."""

    def __init__(
        self, source_vocabulary: int, target_vocabulary: int, d_model: int = 96, h: int = 4, embedding: int = 64
    ) -> None:
        super().__init__()
        self.encoder = Encoder(source_vocabulary, embedding, d_model // 2, bidirectional=True)
        self.first = nn.Linear(d_model // 2, d_model)  # s_0, from the backward reader's last state
        self.attention = MultiHeadAttention(d_model, h)
        self.embedding = nn.Embedding(target_vocabulary, embedding, padding_idx=PAD)
        self.cell = nn.GRUCell(embedding + d_model, d_model)
        self.output = nn.Linear(2 * d_model + embedding, target_vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(B, S), decoder inputs (B, T) -> logits (B, T, V), with teacher forcing."""
        state = self.start(source)
        logits = []
        for token in target.unbind(dim=1):
            step_logits, state = self.step(token, state)
            logits.append(step_logits)
        return torch.stack(logits, dim=1)

    def start(self, source: torch.Tensor) -> MultiHeadState:
        H, last = self.encoder(source)
        keys, values = self.attention.keys_values(H)
        mask = (source != PAD)[:, None, None, :]
        return MultiHeadState(torch.tanh(self.first(last[1])), keys, values, mask, keys.new_zeros(keys.shape[:3]))

    def step(self, token: torch.Tensor, state: MultiHeadState) -> tuple[torch.Tensor, MultiHeadState]:
        """One token for each sentence (B,) -> logits (B, V) and the next state."""
        query = state.s[:, None]  # (B, 1, D): the state before the step asks, in every head
        found, alpha = self.attention.look_up(query, state.keys, state.values, state.mask, need_weights=True)
        context, y = found[:, 0], self.embedding(token)
        s = self.cell(torch.cat([y, context], dim=-1), state.s)
        logits = self.output(torch.cat([s, context, y], dim=-1))
        return logits, state._replace(s=s, alpha=alpha[:, :, 0])
