"""Lesson 06: a stack of feed-forward sublayers, with or without residual paths and norms.

For looking at depth itself: no attention, so that every token is by itself.
"""

from __future__ import annotations

import torch
from torch import nn

from course_utils.models.normalization import FeedForward, LayerNorm


class Stack(nn.Module):
    """``depth`` feed-forward sublayers f, one after the other.

    Args:
        residual: h + f(h) in place of f(h).
        norm: "none", "post" (a norm of the result) or "pre" (of what f reads).
    """

    def __init__(self, depth: int, residual: bool, norm: str = "none", d_model: int = 64) -> None:
        super().__init__()
        self.residual, self.norm = residual, norm
        self.sublayers = nn.ModuleList(FeedForward(d_model, 4 * d_model) for _ in range(depth))
        self.norms = nn.ModuleList(LayerNorm(d_model) for _ in range(depth))
        for parameter in self.sublayers.parameters():
            nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)

    def states(self, h: torch.Tensor, path_only: bool = False) -> list[torch.Tensor]:
        """(..., D) -> h_0 ... h_depth, each (..., D). ``path_only`` lets no gradient through the sublayers."""
        states = [h]
        for f, norm in zip(self.sublayers, self.norms, strict=True):
            y = f(norm(h)) if self.norm == "pre" else f(h)
            y = y.detach() if path_only else y
            y = h + y if self.residual else y
            h = norm(y) if self.norm == "post" else y
            states.append(h)
        return states

    def forward(self, h: torch.Tensor, path_only: bool = False) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        return self.states(h, path_only)[-1]


def depth_profile(depth: int, residual: bool, norm: str, seed: int = 0) -> tuple[list[float], list[float]]:
    """An untrained ``Stack`` in float64: the spread of h_0 ... h_depth, and the gradient's norm at each.

    The gradient starts at h_depth with norm 1 and a random direction.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stack = Stack(depth, residual, norm).double()
        x, direction = torch.randn(2, 100, 64, dtype=torch.float64)
    states = stack.states(x.requires_grad_())
    gradients = torch.autograd.grad(states[-1], states, direction / direction.norm())
    return [h.std().item() for h in states], [g.norm().item() for g in gradients]
