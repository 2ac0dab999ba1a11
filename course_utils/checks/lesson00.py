"""Lesson 00: softmax, broadcasting, and a mean that leaves the padding out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from course_utils.checks.exercise import Case, Draw, Exercise, Misconception

# 0.1 -----------------------------------------------------------------------------------------------------------------


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Weights of the same shape as ``x``, positive, and with sum 1 along ``axis``.

    Subtracting the largest score changes no ratio, and no exponential exceeds 1.
    """
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _softmax_cases(draw: Draw) -> Iterator[Case]:
    a, b, c = draw.sizes(3)
    yield Case((draw.array(a, b),))
    yield Case((draw.array(b, c), 0), "with `axis=0`")
    yield Case((draw.array(a, b, c), 1), "with `axis=1` of three")
    yield Case((draw.array(c, b, a), -3), "with `axis=-3` of three")
    yield Case((draw.array(a),), "for one row of scores")
    yield Case((draw.array(b, 1),), "when there is only one score to a row")
    yield Case((draw.array(a, b).astype(np.float32),), "in float32")
    yield Case((1e4 * draw.array(c, b),), "when scores are as far apart as 1e4")
    far_rows = 1e4 * (-1.0) ** np.arange(a)[:, None]
    yield Case((draw.array(a, c) + far_rows,), "when one row lies near +1e4 and the next near -1e4")


def _softmax_like(
    largest: Callable[[np.ndarray, int], np.ndarray | float], total: Callable[[np.ndarray, int], np.ndarray | float]
) -> Callable[..., np.ndarray]:
    """A softmax that subtracts ``largest(x, axis)`` and divides by ``total(exponentials, axis)``."""

    def wrong(x: np.ndarray, axis: int = -1) -> np.ndarray:
        with np.errstate(all="ignore"):
            exponentials = np.exp(x - largest(x, axis))
            return exponentials / total(exponentials, axis)

    return wrong


def _nothing(_x: np.ndarray, _axis: int) -> float:
    return 0.0


def _along(operation: Callable[..., np.ndarray], fixed: int | None = None) -> Callable[..., np.ndarray]:
    return lambda x, axis: operation(x, axis=axis if fixed is None else fixed, keepdims=True)


def _of_all(operation: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, _axis: operation(x)


SOFTMAX = Exercise(
    id="0.1",
    title="Softmax",
    points=2,
    function="softmax",
    reference=softmax,
    cases=_softmax_cases,
    misconceptions=(
        Misconception(
            "no largest score subtracted",
            _softmax_like(_nothing, _along(np.sum)),
            "Your formula is the one in the book, and for ordinary scores it gives the right weights. "
            "A computer's largest number is about e to the 709, so a score of 1e4 becomes infinite, and infinity "
            "divided by infinity is NaN. Only differences between scores matter, so you may shift a whole row before "
            "the exponential: choose the shift that makes no exponent positive.",
        ),
        Misconception(
            "largest of the whole array",
            _softmax_like(_of_all(np.max), _along(np.sum)),
            "You shift every row by one and the same number, the largest of the whole array. "
            "Nothing overflows any more, which is why it looks safe. "
            "A row that lies far below that number turns into zeros only, though, and then divides zero by zero: "
            "each row needs a largest score of its own.",
        ),
        Misconception(
            "wrong axis",
            _softmax_like(_along(np.max, -1), _along(np.sum, -1)),
            "You normalise along the same axis whatever `axis` says. With the default the two are the same, which is "
            "why it looked right. The axis that you name is the one whose weights are to sum to 1, and attention will "
            "need another one than the last.",
            also=(
                _softmax_like(_nothing, _along(np.sum, -1)),
                _softmax_like(_of_all(np.max), _along(np.sum, -1)),
                _softmax_like(_along(np.max), _along(np.sum, -1)),
                _softmax_like(_along(np.max, 0), _along(np.sum, 0)),
                _softmax_like(_nothing, _along(np.sum, 0)),
                _softmax_like(_of_all(np.max), _along(np.sum, 0)),
                _softmax_like(_along(np.max), _along(np.sum, 0)),
            ),
        ),
        Misconception(
            "normalised over the whole array",
            _softmax_like(_of_all(np.max), _of_all(np.sum)),
            "All your weights together sum to 1. For a single row that is a softmax, which is why a first try looked "
            "right. Every row along `axis` is a choice of its own, and each has a whole 1 to share out.",
            also=(
                _softmax_like(_nothing, _of_all(np.sum)),
                _softmax_like(_along(np.max), _of_all(np.sum)),
                _softmax_like(_along(np.max, -1), _of_all(np.sum)),
            ),
        ),
        Misconception(
            "mean subtracted",
            _softmax_like(_along(np.mean), _along(np.sum)),
            "You are right that a shift changes nothing, and you shift by the mean. That helps when all scores of a "
            "row are large together. When they are far apart, one of them still lies thousands above the mean, and its "
            "exponential is infinite: the shift has to be by the one that would overflow first.",
        ),
    ),
    why="Softmax sees only differences of scores, so the shift that keeps the computer safe costs nothing.",
)

# 0.2 -----------------------------------------------------------------------------------------------------------------


def outer_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n,), (m,) -> (n, m): element [i, j] is a[i] - b[j]."""
    return a[:, None] - b[None, :]


def _outer_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        n, m = draw.sizes(2)
        yield Case((draw.array(n), draw.array(m)))
    n, m = draw.sizes(2)
    yield Case((draw.array(n).astype(np.float32), draw.array(m).astype(np.float32)), "in float32")
    yield Case((draw.array(1), draw.array(4)), "when `a` has a single element")
    yield Case((draw.array(5), draw.array(1)), "when `b` has a single element")


OUTER_DIFFERENCE = Exercise(
    id="0.2",
    title="Outer difference",
    points=1,
    function="outer_difference",
    reference=outer_difference,
    cases=_outer_cases,
    misconceptions=(
        Misconception(
            "transposed",
            lambda a, b: a[None, :] - b[:, None],
            "Every number is there, and rows and columns have changed places: your result has one row for each element "
            "of `b`. With vectors of equal length the shape would not have shown it. The first axis belongs to `a`, so "
            "`a` has to run downwards and `b` across.",
        ),
        Misconception(
            "sign",
            lambda a, b: b[None, :] - a[:, None],
            "The places are right and every sign is turned: you take `a` away from `b`. A distance would not notice. "
            "A difference does, and the task asks how far each a lies above each b.",
        ),
        Misconception(
            "roles of a and b swapped",
            lambda a, b: b[:, None] - a[None, :],
            "You computed the same table for the two vectors in the other order: rows belong to `b`, and `a` is taken "
            "away. That one is the negative of the transpose of what is asked, so both the place and the sign of each "
            "number differ.",
        ),
        Misconception(
            "distance",
            lambda a, b: np.abs(a[:, None] - b[None, :]),
            "You dropped the sign, so this is the distance between a and b. Where a is the larger the two agree, which "
            "is why part of the table looked right. A difference also says which of the two is larger.",
        ),
        Misconception(
            "product",
            lambda a, b: np.outer(a, b),
            "This is the outer product, which multiplies each pair. The way the pairs are formed is right. "
            "What is asked for each pair is the difference.",
        ),
    ),
    why="An axis of length 1 is stretched to meet the other; that is all broadcasting is.",
)

# 0.3 -----------------------------------------------------------------------------------------------------------------


def masked_mean(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """(B, T, D), (B,) -> (B, D): each sentence's mean over its own first ``lengths`` places."""
    places = torch.arange(x.shape[1], device=x.device)  # (T,)
    real = places < lengths[:, None]  # (B, T)
    return (x * real[:, :, None]).sum(dim=1) / lengths[:, None]


def _mean_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, T, D = draw.sizes(3)
        yield Case((draw.normal(B, T, D), draw.lengths(B, T)))
    B, T, D = draw.sizes(3, low=3)
    yield Case((draw.normal(B, T + 2, D), draw.lengths(B, T)), "when even the longest sentence is padded")
    yield Case((draw.normal(1, T, D), torch.tensor([2])), "with a batch of one sentence")
    yield Case((draw.normal(B, 1, D), torch.ones(B, dtype=torch.int64)), "when every sentence is a single word")
    yield Case((draw.normal(B, T, D), torch.full((B,), T)), "when nothing is padded")
    yield Case((draw.normal(B, T, D, dtype=torch.float32), draw.lengths(B, T)), "in float32")


def _sum_of_first(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """(B, T, D), (B,) -> (B, D): the sum over the first ``counts`` places."""
    return (x * (torch.arange(x.shape[1]) < counts[:, None])[..., None]).sum(dim=1)


MASKED_MEAN = Exercise(
    id="0.3",
    title="Masked mean",
    points=2,
    function="masked_mean",
    reference=masked_mean,
    cases=_mean_cases,
    misconceptions=(
        Misconception(
            "divides by T",
            lambda x, n: _sum_of_first(x, n) / x.shape[1],
            "You left the padding out of the sum and kept it in the count. Where a sentence fills the tensor the two "
            "counts are equal, which is why some rows are right. A sentence of 2 words in a tensor of 8 comes out four "
            "times too small: divide by the number of things that you added.",
        ),
        Misconception(
            "averages the padding",
            lambda x, n: x.mean(dim=1),
            "Your mean runs over all T places, and `lengths` has no influence. In this check the padding holds numbers "
            "of its own, as it does after a layer with a bias. What stands there must not matter.",
            also=(lambda x, n: x[:, : n.max()].mean(dim=1),),
        ),
        Misconception(
            "adds the padding",
            lambda x, n: x.sum(dim=1) / n[:, None],
            "You divide by the right count, but the sum still holds the padding. With padding of zeros that gives the "
            "right mean, which is why it looks right. Here the padding is not zero, so it has to be left out of the "
            "sum as well.",
        ),
        Misconception(
            "off by one",
            lambda x, n: _sum_of_first(x, n + 1) / n[:, None],
            "Your sum is one place too long or too short. A sentence of length n fills the places 0 to n - 1, since "
            "counting starts at zero: the place with number n is the first of the padding.",
            also=(
                lambda x, n: _sum_of_first(x, n + 1) / (n + 1)[:, None],
                lambda x, n: _sum_of_first(x, n - 1) / n[:, None],
                lambda x, n: _sum_of_first(x, n - 1) / (n - 1)[:, None],
                lambda x, n: _sum_of_first(x, n - 1) / (n - 1).clamp(min=1)[:, None],
                lambda x, n: _sum_of_first(x, n + 1) / (n + 1).clamp(max=x.shape[1])[:, None],
                lambda x, n: _sum_of_first(x, n) / (n + 1)[:, None],
            ),
        ),
        Misconception(
            "sum instead of mean",
            lambda x, n: _sum_of_first(x, n),
            "You added up the right words and did not divide. For sentences of one word the two are the same. "
            "A sum grows with the length of the sentence; a mean does not, and that is the point of taking one.",
        ),
        Misconception(
            "one mean for the whole batch",
            lambda x, n: (_sum_of_first(x, n).sum(dim=0) / n.sum()).expand(x.shape[0], -1),
            "Every row of your result is the same: you averaged over the real words of all sentences together. "
            "The padding is left out as it should be. Each sentence is to have a mean of its own.",
            also=(lambda x, n: _sum_of_first(x, n).sum(dim=0) / n.sum(),),
        ),
    ),
    why="The mask belongs in the sum and in the count; forget one of them and short sentences come out wrong.",
)

EXERCISES = (SOFTMAX, OUTER_DIFFERENCE, MASKED_MEAN)
