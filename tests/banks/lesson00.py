"""Lesson 00: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# 0.1 -----------------------------------------------------------------------------------------------------------------


def softmax_by_moving_the_axis(x: np.ndarray, axis: int = -1) -> np.ndarray:
    y = np.moveaxis(x, axis, -1)
    e = np.exp(y - np.max(y, -1)[..., None])
    return np.moveaxis(e / e.sum(-1)[..., None], -1, axis)


def softmax_row_by_row(x: np.ndarray, axis: int = -1) -> np.ndarray:
    def one(row: np.ndarray) -> np.ndarray:
        e = np.exp(row - max(row))
        return e / sum(e)

    return np.apply_along_axis(one, axis, x)


def softmax_by_logsumexp(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.exp(x - np.logaddexp.reduce(x, axis=axis, keepdims=True))


def softmax_of_torch(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return torch.softmax(torch.tensor(x), dim=axis).numpy()


def softmax_with_clipped_exponents(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(np.clip(x, -50, 50))
    return e / e.sum(axis=axis, keepdims=True)


def softmax_base_two(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = 2.0 ** (x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def softmax_in_place(x: np.ndarray, axis: int = -1) -> np.ndarray:
    x -= x.max(axis=axis, keepdims=True)
    np.exp(x, out=x)
    return x / x.sum(axis=axis, keepdims=True)


# 0.2 -----------------------------------------------------------------------------------------------------------------


def difference_by_ufunc(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.subtract.outer(a, b)


def difference_by_loops(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([[x - y for y in b] for x in a])


def difference_by_reshape(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.reshape(-1, 1) - b.reshape(1, -1)


def difference_by_tiles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.repeat(a[:, None], len(b), axis=1) - np.tile(b, (len(a), 1))


def difference_of_equal_lengths(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a - b


def difference_flat(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a[:, None] - b).ravel()


# 0.3 -----------------------------------------------------------------------------------------------------------------


def mean_by_loop(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.stack([row[: int(n)].mean(dim=0) for row, n in zip(x, lengths, strict=True)])


def mean_by_einsum(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    real = (torch.arange(x.shape[1]) < lengths.unsqueeze(1)).to(x.dtype)
    return torch.einsum("btd,bt->bd", x, real / real.sum(1, keepdim=True))


def mean_by_cumulative_sum(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    real = torch.arange(x.shape[1])[None, :, None] < lengths[:, None, None]
    total = torch.where(real, x, torch.zeros_like(x)).sum(1)
    return total / lengths.view(-1, 1)


def mean_of_the_last(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.stack([row[-int(n) :].mean(dim=0) for row, n in zip(x, lengths, strict=True)])


def mean_of_the_longest(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x[:, : int(lengths.max())].mean(dim=1)


def mean_over_features(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x.mean(dim=2)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "0.1": [softmax_by_moving_the_axis, softmax_row_by_row, softmax_by_logsumexp, softmax_of_torch],
    "0.2": [difference_by_ufunc, difference_by_loops, difference_by_reshape, difference_by_tiles],
    "0.3": [mean_by_loop, mean_by_einsum, mean_by_cumulative_sum],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "0.1": [(softmax_with_clipped_exponents, None), (softmax_base_two, None), (softmax_in_place, "changes its input")],
    "0.2": [(difference_of_equal_lengths, None), (difference_flat, None)],
    "0.3": [(mean_of_the_last, None), (mean_of_the_longest, None), (mean_over_features, None)],
}
