"""Lesson 06: the residual path, layer normalisation, and the feed-forward sublayer.

Ba, Kiros and Hinton (2016), "Layer Normalization", equation 4; Vaswani et al. (2017), sections 3.1 and 3.3 (post-norm);
Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture" (pre-norm).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * gamma + beta, over the last axis: each token by itself.

    The variance is the biased one (divided by D), and eps stands inside the root, as in ``F.layer_norm``.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + self.eps) * self.gamma + self.beta


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, the same for every position (Vaswani et al., equation 2)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        return self.outer(torch.relu(self.inner(x)))


class AddAndNorm(nn.Module):
    """The path around a sublayer: post-norm LayerNorm(x + f(x)) as in 2017, or pre-norm x + f(LayerNorm(x))."""

    def __init__(self, d_model: int, norm_first: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """(..., D) -> (..., D); ``sublayer`` keeps the shape."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))
