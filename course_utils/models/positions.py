"""Lesson 07: positions as waves.

Vaswani et al. (2017), "Attention Is All You Need", sections 3.4 and 3.5.
"""

from __future__ import annotations

import math

import torch
from torch import nn


def frequencies(d_model: int) -> torch.Tensor:
    """(ceil(d_model / 2),) radians a position: 1 for the first pair, falling to about 1/10000 for the last."""
    return 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)


def positional_encoding(length: int, d_model: int) -> torch.Tensor:
    """(length, d_model): sin(p w_i) at index 2i and cos(p w_i) at index 2i + 1, for p = 0, 1, ...

    Computed in float64 and returned in the default dtype. An odd ``d_model`` ends with a sine.
    """
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies(d_model)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return waves[:, :d_model].to(torch.get_default_dtype())


def shift_matrix(k: int, d_model: int) -> torch.Tensor:
    """M (d_model, d_model) with PE(p + k) = M PE(p) for every p: each pair turns by k w_i. ``d_model`` is even."""
    if d_model % 2:
        raise ValueError(f"A rotation needs pairs, and d_model = {d_model} is odd.")
    turns = [torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in k * frequencies(d_model)]
    return torch.block_diag(*turns).to(torch.get_default_dtype())


class PositionalEmbedding(nn.Module):
    """table[tokens] * sqrt(d_model) + PE, then dropout. The encoding grows by itself when a longer input comes."""

    def __init__(self, vocabulary: int, d_model: int, dropout: float = 0.0, longest: int = 512) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, d_model)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("waves", positional_encoding(longest, d_model), persistent=False)

    def forward(self, tokens: torch.Tensor, start: int = 0) -> torch.Tensor:
        """(B, T) ids -> (B, T, d_model); ``start`` is the position of the first token."""
        end = start + tokens.shape[1]
        if end > self.waves.shape[0]:
            self.waves = positional_encoding(2 * end, self.waves.shape[1]).to(self.waves)
        scale = self.table.embedding_dim**0.5
        return self.dropout(self.table(tokens) * scale + self.waves[start:end])
