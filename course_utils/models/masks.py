"""Lesson 05: who may look at whom. Every mask is boolean and True means "may attend".

Vaswani et al. (2017), "Attention Is All You Need", section 3.2.3.
"""

from __future__ import annotations

import torch

from course_utils.text import PAD


def padding_mask(tokens: torch.Tensor, pad: int = PAD) -> torch.Tensor:
    """(B, S) ids -> (B, 1, 1, S): no query of any head may look at padding."""
    return (tokens != pad)[:, None, None, :]


def causal_mask(length: int, device: torch.device | str | None = None) -> torch.Tensor:
    """(T, T): position t may look at itself and at what comes before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def decoder_mask(tokens: torch.Tensor, pad: int = PAD) -> torch.Tensor:
    """(B, T) ids -> (B, 1, T, T): neither padding nor the future."""
    return padding_mask(tokens, pad) & causal_mask(tokens.shape[1], tokens.device)


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis where ``mask`` is True; exact zeros elsewhere.

    Hidden scores become minus infinity before the softmax, which is right in every dtype. A row with nothing to attend
    to would be 0/0 = NaN; it becomes all zeros, as in ``F.scaled_dot_product_attention``.
    """
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)
