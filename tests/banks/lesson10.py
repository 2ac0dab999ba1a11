"""Lesson 10: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# 10.1 ----------------------------------------------------------------------------------------------------------------


def forgetting_by_loop(accuracy: Tensor) -> float:
    n = len(accuracy)
    return sum(max(accuracy[i][j].item() for i in range(n)) - accuracy[n - 1][j].item() for j in range(n - 1)) / (n - 1)


def forgetting_by_amax(accuracy: Tensor) -> Tensor:
    return (accuracy.amax(0) - accuracy[-1])[:-1].mean()


def forgetting_with_numpy(accuracy: Tensor) -> float:
    table = accuracy.numpy()[:, :-1]
    return float((table.max(axis=0) - table[-1]).mean())


def forgetting_of_the_worst(accuracy: Tensor) -> float:
    return (accuracy.amax(0) - accuracy[-1])[:-1].max().item()


def forgetting_relative(accuracy: Tensor) -> float:
    best = accuracy.amax(0)
    return ((best - accuracy[-1]) / best)[:-1].mean().item()


# 10.2 ----------------------------------------------------------------------------------------------------------------


def due_by_filter(step: int, periods: Sequence[int]) -> list[int]:
    return list(filter(lambda level: not (step + 1) % periods[level], range(len(periods))))


def due_by_division(step: int, periods: Sequence[int]) -> list[int]:
    return [i for i, p in enumerate(periods) if (step + 1) // p != step // p]


def due_by_loop(step: int, periods: Sequence[int]) -> list[int]:
    levels = []
    for i in range(len(periods)):
        if step % periods[i] == periods[i] - 1:
            levels.append(i)
    return levels


def due_reversed(step: int, periods: Sequence[int]) -> list[int]:
    return due_by_loop(step, periods)[::-1]


def due_counted_from_one(step: int, periods: Sequence[int]) -> list[int]:
    return [level + 1 for level in due_by_loop(step, periods)]


# 10.3 ----------------------------------------------------------------------------------------------------------------


def memory_by_recursion(gradients: Tensor, beta: float) -> Tensor:
    m = torch.zeros_like(gradients[0])
    for g in gradients:
        m = beta * m + (1 - beta) * g
    return m


def memory_by_einsum(gradients: Tensor, beta: float) -> Tensor:
    T = len(gradients)
    ages = torch.arange(T, dtype=gradients.dtype).flip(0)
    return torch.einsum("t,t...->...", (1 - beta) * beta**ages, gradients)


def memory_by_horner(gradients: Tensor, beta: float) -> Tensor:
    total = (1 - beta) * gradients[0]
    for g in gradients[1:]:
        total = torch.lerp(g, total, beta) if beta else g.clone()
    return total


def memory_of_the_last(gradients: Tensor, beta: float) -> Tensor:
    return (1 - beta) * gradients[-1]


def memory_of_squares(gradients: Tensor, beta: float) -> Tensor:
    return memory_by_recursion(gradients**2, beta)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "10.1": [forgetting_by_loop, forgetting_by_amax, forgetting_with_numpy],
    "10.2": [due_by_filter, due_by_division, due_by_loop],
    "10.3": [memory_by_recursion, memory_by_einsum, memory_by_horner],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "10.1": [(forgetting_of_the_worst, None), (forgetting_relative, None)],
    "10.2": [(due_reversed, None), (due_counted_from_one, None)],
    "10.3": [(memory_of_the_last, None), (memory_of_squares, None)],
}
