"""Lesson 04: several attentions side by side.

Vaswani et al. (2017), "Attention Is All You Need", section 3.2.2.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.models.attention import scaled_dot_product


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
