"""Lesson 00: NumPy and torch warm-up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course_utils.checks.exercise import Case, Draw, Exercise, Misconception


def outer_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n,), (m,) -> (n, m): element [i, j] is a[i] - b[j]."""
    return a[:, None] - b[None, :]


def _outer_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(3):
        n, m = draw.sizes(2)
        yield Case((draw.array(n), draw.array(m)))
    yield Case((draw.array(1), draw.array(4)), "when `a` has a single element")


EXERCISES = (
    Exercise(
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
                "Your result has one row per element of `b`. Rows belong to `a`: give `a` the new axis at its end.",
            ),
        ),
        why="An axis of length 1 is stretched to meet the other; that is all broadcasting is.",
    ),
)
