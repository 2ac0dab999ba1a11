"""Lesson 02: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# 2.1 -----------------------------------------------------------------------------------------------------------------


def additive_by_einsum(s: Tensor, H: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    inner = torch.einsum("ad,bd->ba", W, s)[:, None, :] + torch.einsum("ae,bse->bsa", U, H)
    return torch.einsum("a,bsa->bs", v, inner.tanh())


def additive_by_loop(s: Tensor, H: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    scores = [v @ torch.tanh(W @ s[:, :, None] + U @ H[:, j, :, None]) for j in range(H.shape[1])]  # (B, 1)
    return torch.cat(scores, dim=1)


def additive_by_concatenation(s: Tensor, H: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    both = torch.cat([s[:, None].expand(-1, H.shape[1], -1), H], dim=-1)
    return F.linear(torch.tanh(F.linear(both, torch.cat([W, U], dim=1))), v[None]).squeeze(-1)


def additive_scaled(s: Tensor, H: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    return additive_by_einsum(s, H, W, U, v) / v.numel() ** 0.5


def additive_normalised(s: Tensor, H: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    return additive_by_einsum(s, H, W, U, v / v.norm())


# 2.2 -----------------------------------------------------------------------------------------------------------------


def weights_by_where(scores: Tensor, mask: Tensor) -> Tensor:
    hidden = torch.full_like(scores, float("-inf"))
    return F.softmax(torch.where(mask, scores, hidden), dim=1)


def weights_by_exponentials(scores: Tensor, mask: Tensor) -> Tensor:
    largest = scores.masked_fill(~mask, float("-inf")).amax(dim=1, keepdim=True)
    e = torch.exp((scores - largest).masked_fill(~mask, 0)) * mask
    return e / e.sum(dim=1, keepdim=True)


def weights_row_by_row(scores: Tensor, mask: Tensor) -> Tensor:
    rows = []
    for row, real in zip(scores, mask, strict=True):
        rows.append(torch.zeros_like(row).masked_scatter(real, row[real].softmax(0)))
    return torch.stack(rows)


def weights_of_the_last(scores: Tensor, mask: Tensor) -> Tensor:
    return F.one_hot(scores.masked_fill(~mask, float("-inf")).argmax(1), scores.shape[1]).to(scores.dtype)


def weights_minus_one_hundred(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores - 10.0 * ~mask).softmax(dim=-1)


# 2.3 -----------------------------------------------------------------------------------------------------------------


def context_by_product(alpha: Tensor, H: Tensor) -> Tensor:
    return (alpha.unsqueeze(1) @ H).squeeze(1)


def context_by_sum(alpha: Tensor, H: Tensor) -> Tensor:
    return (alpha[..., None] * H).sum(dim=1)


def context_by_loop(alpha: Tensor, H: Tensor) -> Tensor:
    return sum(alpha[:, j, None] * H[:, j] for j in range(H.shape[1]))


def context_largest(alpha: Tensor, H: Tensor) -> Tensor:
    return (alpha[..., None] * H).amax(dim=1)


def context_first(alpha: Tensor, H: Tensor) -> Tensor:
    return H[:, 0].clone()


# 2.4 -----------------------------------------------------------------------------------------------------------------

Score = Callable[[Tensor, Tensor], Tensor]


def step_in_short(y: Tensor, s: Tensor, H: Tensor, mask: Tensor, score: Score, cell: Score) -> tuple[Tensor, ...]:
    alpha = weights_by_where(score(s, H), mask)
    context = context_by_product(alpha, H)
    return cell(torch.hstack([y, context]), s), context, alpha


def step_by_einsum(y: Tensor, s: Tensor, H: Tensor, mask: Tensor, score: Score, cell: Score) -> tuple[Tensor, ...]:
    e = score(s, H)
    e = torch.where(mask, e, torch.tensor(float("-inf"), dtype=e.dtype))
    alpha = torch.softmax(e, -1)
    context = torch.einsum("bs,bse->be", alpha, H)
    return cell(torch.concat((y, context), 1), s), context, alpha


def step_as_a_list(y: Tensor, s: Tensor, H: Tensor, mask: Tensor, score: Score, cell: Score) -> list[Tensor]:
    alpha = weights_by_exponentials(score(s, H), mask)
    context = context_by_loop(alpha, H)
    new = cell(torch.cat([y, context], dim=-1), s)
    return [new, context, alpha]


def step_adds(y: Tensor, s: Tensor, H: Tensor, mask: Tensor, score: Score, cell: Score) -> tuple[Tensor, ...]:
    alpha = weights_by_where(score(s, H), mask)
    context = context_by_product(alpha, H)
    return cell(torch.cat([y, context], dim=-1), s) + s, context, alpha


def step_with_the_mean(y: Tensor, s: Tensor, H: Tensor, mask: Tensor, score: Score, cell: Score) -> tuple[Tensor, ...]:
    alpha = weights_by_where(score(s, H), mask)
    return cell(torch.cat([y, H.mean(1)], dim=-1), s), H.mean(1), alpha


# 2.5 -----------------------------------------------------------------------------------------------------------------


def dot_by_product(s: Tensor, H: Tensor) -> Tensor:
    return (H @ s[:, :, None]).squeeze(-1)


def dot_by_sum(s: Tensor, H: Tensor) -> Tensor:
    return (s.unsqueeze(1) * H).sum(-1)


def dot_by_loop(s: Tensor, H: Tensor) -> Tensor:
    return torch.stack([states @ state for state, states in zip(s, H, strict=True)])


def dot_tanh(s: Tensor, H: Tensor) -> Tensor:
    return dot_by_sum(s, H).tanh()


def dot_of_the_states_alone(s: Tensor, H: Tensor) -> Tensor:
    return H.sum(-1)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "2.1": [additive_by_einsum, additive_by_loop, additive_by_concatenation],
    "2.2": [weights_by_where, weights_by_exponentials, weights_row_by_row],
    "2.3": [context_by_product, context_by_sum, context_by_loop],
    "2.4": [step_in_short, step_by_einsum, step_as_a_list],
    "2.5": [dot_by_product, dot_by_sum, dot_by_loop],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "2.1": [(additive_scaled, None), (additive_normalised, None)],
    "2.2": [(weights_of_the_last, None), (weights_minus_one_hundred, None)],
    "2.3": [(context_largest, None), (context_first, None)],
    "2.4": [(step_adds, None), (step_with_the_mean, None)],
    "2.5": [(dot_tanh, None), (dot_of_the_states_alone, None)],
}
