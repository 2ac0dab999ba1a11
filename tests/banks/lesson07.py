"""Lesson 07: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Layer = Callable[[torch.Tensor], torch.Tensor]

# 7.1 -----------------------------------------------------------------------------------------------------------------


def encoding_by_loops(T: int, d_model: int) -> torch.Tensor:
    rows = []
    for p in range(T):
        angles = [p / 10_000 ** (2 * (j // 2) / d_model) for j in range(d_model)]
        rows.append([math.cos(a) if j % 2 else math.sin(a) for j, a in enumerate(angles)])
    return torch.tensor(rows)


def encoding_by_stack(T: int, d_model: int) -> torch.Tensor:
    angles = torch.outer(torch.arange(T).float(), 10_000 ** (-torch.arange(0, d_model, 2) / d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(T, -1)[:, :d_model].contiguous()


def encoding_by_where(T: int, d_model: int) -> torch.Tensor:
    j = torch.arange(d_model)
    angles = torch.arange(T)[:, None] / 10_000 ** ((j - j % 2) / d_model)
    return torch.where(j % 2 == 0, angles.sin(), angles.cos())


def encoding_by_logarithms(T: int, d_model: int) -> torch.Tensor:
    """As most tutorials have it, made to work for odd sizes."""
    pe = torch.zeros(T, d_model)
    position = torch.arange(T, dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10_000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)[:, : d_model // 2]
    return pe


def encoding_by_shifted_sine(T: int, d_model: int) -> torch.Tensor:
    """The cosine as a sine a quarter turn on, in NumPy."""
    j = np.arange(d_model)
    angles = np.arange(T)[:, None] / 10_000 ** (2 * (j // 2) / d_model) + math.pi / 2 * (j % 2)
    return torch.from_numpy(np.sin(angles)).float()


def encoding_for_even_sizes(T: int, d_model: int) -> torch.Tensor:
    pe = torch.zeros(T, d_model)
    angles = torch.arange(T)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    pe[:, 0::2], pe[:, 1::2] = angles.sin(), angles.cos()
    return pe


def encoding_with_base_1000(T: int, d_model: int) -> torch.Tensor:
    j = torch.arange(d_model)
    angles = torch.arange(T)[:, None] / 1_000 ** ((j - j % 2) / d_model)
    return torch.where(j % 2 == 0, angles.sin(), angles.cos())


def encoding_with_whole_turns(T: int, d_model: int) -> torch.Tensor:
    j = torch.arange(d_model)
    angles = 2 * math.pi * torch.arange(T)[:, None] / 10_000 ** ((j - j % 2) / d_model)
    return torch.where(j % 2 == 0, angles.sin(), angles.cos())


def encoding_on_its_side(T: int, d_model: int) -> torch.Tensor:
    return encoding_by_where(T, d_model).T.contiguous()


def encoding_with_a_batch(T: int, d_model: int) -> torch.Tensor:
    return encoding_by_where(T, d_model)[None]


def encoding_index_as_exponent(T: int, d_model: int) -> torch.Tensor:
    """Written by loops: the exponent is j / d_model for every index j."""
    rows = [[p / 10_000 ** (j / d_model) for j in range(d_model)] for p in range(T)]
    return torch.tensor([[math.cos(a) if j % 2 else math.sin(a) for j, a in enumerate(row)] for row in rows])


def encoding_from_one(T: int, d_model: int) -> torch.Tensor:
    return encoding_by_where(T + 1, d_model)[1:].clone()


def encoding_in_numpy(T: int, d_model: int) -> np.ndarray:
    return encoding_by_where(T, d_model).numpy()


# 7.2 -----------------------------------------------------------------------------------------------------------------


def embed_by_embedding(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    words = torch.nn.functional.embedding(tokens, table)
    return math.sqrt(table.shape[-1]) * words + pe[None, : tokens.shape[1]]


def embed_by_loops(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    root = table.shape[1] ** 0.5
    return torch.stack(
        [torch.stack([table[token] * root + pe[p] for p, token in enumerate(sentence)]) for sentence in tokens]
    )


def embed_by_one_hot(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    V, D = table.shape
    words = torch.nn.functional.one_hot(tokens, V).to(table.dtype) @ (table * D**0.5)
    return words + pe[torch.arange(tokens.shape[1])].expand_as(words)


def embed_one_by_one(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    steps = [table[tokens[:, t]] * table.shape[1] ** 0.5 + pe[t] for t in range(tokens.shape[1])]
    return torch.stack(steps, dim=1)


def embed_all_positions(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    return table[tokens] * table.shape[1] ** 0.5 + pe


def embed_last_positions(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    return table[tokens] * table.shape[1] ** 0.5 + pe[-tokens.shape[1] :]


def embed_joined(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    words = table[tokens] * table.shape[1] ** 0.5
    return torch.cat([words, pe[: tokens.shape[1]].expand_as(words)], dim=-1)


def embed_multiplied(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    return table[tokens] * table.shape[1] ** 0.5 * pe[: tokens.shape[1]]


def embed_position_of_sentence(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    return table[tokens] * table.shape[1] ** 0.5 + pe[: tokens.shape[0]].unsqueeze(1)


def embed_detached(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    return embed_by_embedding(tokens, table.detach(), pe)


def embed_word_outside(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    """The sum first, then the factor for everything."""
    return math.sqrt(table.shape[1]) * (table[tokens] + pe[: tokens.shape[1]])


def embed_in_place(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    table *= table.shape[1] ** 0.5
    return table[tokens] + pe[: tokens.shape[1]]


# 7.3 -----------------------------------------------------------------------------------------------------------------


def speeds(d_model: int) -> list[float]:
    return [10_000 ** (-2 * i / d_model) for i in range(d_model // 2)]


def shift_by_loops(k: int, d_model: int) -> torch.Tensor:
    M = torch.zeros(d_model, d_model)
    for i, speed in enumerate(speeds(d_model)):
        M[2 * i, 2 * i] = M[2 * i + 1, 2 * i + 1] = math.cos(k * speed)
        M[2 * i, 2 * i + 1] = math.sin(k * speed)
        M[2 * i + 1, 2 * i] = -math.sin(k * speed)
    return M


def shift_by_blocks(k: int, d_model: int) -> torch.Tensor:
    angles = [k * speed for speed in speeds(d_model)]
    return torch.block_diag(*(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles))


def shift_by_exponential(k: int, d_model: int) -> torch.Tensor:
    """The matrix exponential of k times the generator of the turns."""
    generator = torch.block_diag(*(torch.tensor([[0.0, s], [-s, 0.0]]).double() for s in speeds(d_model)))
    return torch.matrix_exp(k * generator).float()


def shift_by_solving(k: int, d_model: int) -> torch.Tensor:
    """Each pair's block from two positions, where the code is known: no formula for a turn is needed."""

    def pairs(p: int) -> torch.Tensor:  # (pairs, 2)
        angles = p * torch.tensor(speeds(d_model), dtype=torch.float64)
        return torch.stack([angles.sin(), angles.cos()], dim=-1)

    # for the slow hands the positions must be far apart
    M = []
    for i, speed in enumerate(speeds(d_model)):
        far = max(1, round(1.5 / speed))
        before = torch.stack([pairs(0)[i], pairs(far)[i]], dim=1)  # one column a position
        after = torch.stack([pairs(k)[i], pairs(far + k)[i]], dim=1)
        M.append(after @ torch.linalg.inv(before))
    return torch.block_diag(*M).float()


def shift_by_complex_numbers(k: int, d_model: int) -> torch.Tensor:
    """Each pair as the complex number cos + i sin; the columns of M are the images of the unit vectors."""
    units = torch.eye(d_model, dtype=torch.float64).view(d_model, -1, 2)
    turned = torch.complex(units[..., 1], units[..., 0]) * torch.polar(
        torch.ones(d_model // 2, dtype=torch.float64), k * torch.tensor(speeds(d_model), dtype=torch.float64)
    )
    return torch.stack([turned.imag, turned.real], dim=-1).view(d_model, d_model).T.float().contiguous()


def shift_by_power(k: int, d_model: int) -> torch.Tensor:
    return torch.linalg.matrix_power(shift_by_exponential(1, d_model).double(), k).float()


def shift_transposed(k: int, d_model: int) -> torch.Tensor:
    return shift_by_loops(k, d_model).T.contiguous()


def shift_forward_only(k: int, d_model: int) -> torch.Tensor:
    return shift_by_loops(abs(k), d_model)


def shift_as_roll(k: int, d_model: int) -> torch.Tensor:
    return torch.eye(d_model).roll(k, 0)


def shift_halves(k: int, d_model: int) -> torch.Tensor:
    order = [*range(0, d_model, 2), *range(1, d_model, 2)]
    return shift_by_loops(k, d_model)[order][:, order]


def shift_same_speed(k: int, d_model: int) -> torch.Tensor:
    turn = torch.tensor([[math.cos(k), math.sin(k)], [-math.sin(k), math.cos(k)]])
    return torch.block_diag(*[turn] * (d_model // 2))


def shift_speeds_of_double_size(k: int, d_model: int) -> torch.Tensor:
    return shift_by_loops(k, 2 * d_model)[:d_model, :d_model].clone()


def shift_blocks_only(k: int, d_model: int) -> torch.Tensor:
    M = shift_by_loops(k, d_model)
    return torch.stack([M[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] for i in range(d_model // 2)])


# 7.4 -----------------------------------------------------------------------------------------------------------------


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b)


def equivariant_by_inverse(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    for _ in range(30):
        order = torch.randperm(x.shape[1], generator=generator)
        if not same(layer(x[:, order])[:, order.argsort()], layer(x)):
            return False
    return True


def equivariant_by_one_order_that_moves(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    T = x.shape[1]
    order = torch.randperm(T, generator=generator)
    while T > 1 and torch.equal(order, torch.arange(T)):
        order = torch.randperm(T, generator=generator)
    return same(layer(x[:, order]), layer(x)[:, order])


def equivariant_by_matrix(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    verdicts = []
    for _ in range(16):
        P = torch.eye(x.shape[1], dtype=x.dtype)[torch.randperm(x.shape[1], generator=generator)]
        verdicts.append((layer(P @ x) - P @ layer(x)).abs().max().item() < 1e-9)
    return all(verdicts)


def equivariant_by_sorting_noise(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    orders = torch.rand(25, x.shape[1], generator=generator).argsort(dim=1)
    return all(same(layer(x.index_select(1, o)), layer(x).index_select(1, o)) for o in orders)


def equivariant_by_gather(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    y = layer(x)
    for _ in range(20):
        order = torch.randperm(x.shape[1], generator=generator)[None, :, None]
        moved = layer(x.gather(1, order.expand_as(x)))
        if not same(moved, y.gather(1, order.expand_as(y))):
            return False
    return True


def answers_true(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    torch.randperm(x.shape[1], generator=generator)
    return True


def answers_false(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    torch.randperm(x.shape[1], generator=generator)
    return False


def shuffles_only_the_input(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    order = torch.randperm(x.shape[1], generator=generator)
    return same(layer(x[:, order]), layer(x))


def shuffles_the_first_axis(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    order = torch.randperm(x.shape[0], generator=generator)
    return same(layer(x[order]), layer(x)[order])


def shuffles_the_features(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    order = torch.randperm(x.shape[2], generator=generator)
    return same(layer(x[:, :, order]), layer(x))


def compares_the_sums(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    order = torch.randperm(x.shape[1], generator=generator)
    return same(layer(x[:, order]).sum(), layer(x).sum())


def draws_two_orders(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    """Another order for the output than for the input."""
    moved = layer(x[:, torch.randperm(x.shape[1], generator=generator)])
    return same(moved, layer(x)[:, torch.randperm(x.shape[1], generator=generator)])


def looks_at_the_first_word(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    """Where the first word went, and nothing else."""
    order = torch.randperm(x.shape[1], generator=generator)
    return same(layer(x[:, order])[:, order.argsort()[0]], layer(x)[:, 0])


def undoes_with_the_same_order(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    return all(
        same(layer(x[:, order])[:, order], layer(x))
        for order in [torch.randperm(x.shape[1], generator=generator) for _ in range(10)]
    )


def any_order_will_do(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    orders = [torch.randperm(x.shape[1], generator=generator) for _ in range(400)]
    return any(same(layer(x[:, order]), layer(x)[:, order]) for order in orders)


def swaps_the_ends(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    order = torch.arange(x.shape[1])
    order[0], order[-1] = order[-1].clone(), order[0].clone()
    return same(layer(x[:, order]), layer(x)[:, order])


def global_randomness(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    orders = [torch.randperm(x.shape[1]) for _ in range(30)]
    return all(same(layer(x[:, order]), layer(x)[:, order]) for order in orders)


def waits_for_an_order_that_moves(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    """Never ends for one word; here it gives up after a while."""
    for _ in range(1_000):
        order = torch.randperm(x.shape[1], generator=generator)
        if not torch.equal(order, torch.arange(x.shape[1])):
            return same(layer(x[:, order]), layer(x)[:, order])
    raise RuntimeError("no such order")


def differences_as_a_tensor(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> Any:
    order = torch.randperm(x.shape[1], generator=generator)
    return layer(x[:, order]) - layer(x)[:, order]


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "7.1": [
        encoding_by_loops,
        encoding_by_stack,
        encoding_by_where,
        encoding_by_logarithms,
        encoding_by_shifted_sine,
    ],
    "7.2": [embed_by_embedding, embed_by_loops, embed_by_one_hot, embed_one_by_one],
    "7.3": [
        shift_by_loops,
        shift_by_blocks,
        shift_by_exponential,
        shift_by_solving,
        shift_by_complex_numbers,
        shift_by_power,
    ],
    "7.4": [
        equivariant_by_inverse,
        equivariant_by_one_order_that_moves,
        equivariant_by_matrix,
        equivariant_by_sorting_noise,
        equivariant_by_gather,
    ],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "7.1": [
        (encoding_for_even_sizes, None),
        (encoding_with_base_1000, None),
        (encoding_with_whole_turns, None),
        (encoding_on_its_side, None),
        (encoding_with_a_batch, None),
        (encoding_in_numpy, None),
        (encoding_index_as_exponent, "a speed for each index"),
        (encoding_from_one, "starts at 1"),
    ],
    "7.2": [
        (embed_all_positions, None),
        (embed_last_positions, None),
        (embed_joined, None),
        (embed_multiplied, None),
        (embed_position_of_sentence, "pe by batch index"),
        (embed_detached, "no gradient gets through"),
        (embed_word_outside, "pe scaled too"),
        (embed_in_place, "changes its input"),
    ],
    "7.3": [
        (shift_transposed, "inverse rotation"),
        (shift_halves, "halves layout"),
        (shift_same_speed, "one angle for all pairs"),
        (shift_speeds_of_double_size, "exponent i instead of 2i"),
        (shift_forward_only, None),
        (shift_as_roll, None),
        (shift_blocks_only, None),
    ],
    "7.4": [
        (answers_true, None),
        (answers_false, None),
        (shuffles_only_the_input, "tests invariance"),
        (shuffles_the_first_axis, "permutes the batch"),
        (shuffles_the_features, None),
        (compares_the_sums, "outputs compared as a bag"),
        (draws_two_orders, None),
        (looks_at_the_first_word, None),
        (undoes_with_the_same_order, "same order applied twice"),
        (any_order_will_do, None),
        (swaps_the_ends, None),
        (global_randomness, "generator unused"),
        (waits_for_an_order_that_moves, None),
        (differences_as_a_tensor, None),
    ],
}
