"""Drawings of self-attention: the way from word to word, and the soft dictionary look-up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.plots.drawings import _arrow, _box
from course_utils.plots.style import ATTEND, COLOURS, DECODER, ENCODER, FAINT, new_figure


def paths_picture(words: Sequence[str]) -> Figure:
    """The way from the first word to the last one's state, in a recurrent network and in self-attention."""
    figure, (left, right) = new_figure(10, 3.2, columns=2)
    last = len(words) - 1
    for ax, title in ((left, "recurrent network"), (right, "self-attention, one layer")):
        ax.set_axis_off()
        ax.set(title=title, xlim=(-0.9, 1.5 * last + 0.9), ylim=(-0.75, 3.1))
        for i, word in enumerate(words):
            ax.text(1.5 * i, -0.3, word, ha="center", va="center")
    for i in range(len(words)):
        first = i == 0
        _box(left, 1.5 * i, 1.9, f"$h_{i + 1}$", ENCODER)
        _arrow(left, (1.5 * i, 0.0), (1.5 * i, 1.46), COLOURS[1] if first else FAINT, 2.6 if first else 1.3)
        _box(right, 1.5 * i, 1.9, f"$o_{i + 1}$", ATTEND)
    for i in range(last):
        _arrow(left, (1.5 * i + 0.5, 1.9), (1.5 * i + 1.0, 1.9), COLOURS[1], 2.6)
    for i, j in itertools.product(range(len(words)), repeat=2):
        if (i, j) != (0, last):
            _arrow(right, (1.5 * i, 0.0), (1.5 * j, 1.46), "#c4c9d1", 0.8)
    _arrow(right, (0, 0.0), (1.5 * last, 1.46), COLOURS[1], 2.6)
    middle = 0.75 * last
    left.text(middle, 2.75, f"{last} steps, each waits for the one before", ha="center", color=COLOURS[1])
    right.text(middle, 2.75, "1 step, for all outputs at once", ha="center", color=COLOURS[1])
    return figure


def look_up_picture(words: Sequence[str], weights: Sequence[float], asking: int = 0) -> Figure:
    """One word's look-up: its query against every key, a weight for each, and the weighted mix of the values."""
    figure, (ax,) = new_figure(10, 0.95 * len(words) + 1.3)
    ax.set_axis_off()
    ys = [1.15 * (len(words) - 1 - j) for j in range(len(words))]
    middle = (ys[0] + ys[-1]) / 2
    index = asking + 1
    _box(ax, 0, middle, f"$q_{index}$", DECODER)
    ax.text(0, middle - 0.85, f"“{words[asking]}”\nasks", ha="center", va="center", color=FAINT)
    for j, (y, word, weight) in enumerate(zip(ys, words, weights, strict=True)):
        ax.text(2.75, y, word, ha="right", va="center")
        _box(ax, 3.4, y, f"$k_{j + 1}$", ENCODER)
        _arrow(ax, (0.5, middle), (1.65, y), FAINT, 1.0)
        _arrow(ax, (3.9, y), (4.5, y), FAINT, 1.0)
        _draw_weight(ax, 4.6, y, weight, rf"$\alpha_{{{index}{j + 1}}}$ = {weight:.2f}")
        _box(ax, 8.1, y, f"$v_{j + 1}$", ENCODER)
        _arrow(ax, (8.6, y), (10.2, middle), COLOURS[2], 0.6 + 4 * weight)
    _box(ax, 10.7, middle, f"$o_{index}$", ATTEND)
    top = ys[0] + 0.85
    headings = ((0, "query"), (3.4, "keys"), (5.7, "score, then softmax"), (8.1, "values"), (10.7, "output"))
    for x, heading in headings:
        ax.text(x, top, heading, ha="center", va="center", color=FAINT)
    ax.set(xlim=(-0.9, 11.5), ylim=(ys[-1] - 0.65, top + 0.3))
    return figure


def _draw_weight(ax: Axes, x: float, y: float, weight: float, text: str) -> None:
    ax.add_patch(Rectangle((x, y - 0.3), 1.0, 0.6, facecolor="white", edgecolor="#c4c9d1"))
    ax.add_patch(Rectangle((x, y - 0.3), weight, 0.6, facecolor=COLOURS[2]))
    ax.text(x + 1.15, y, text, va="center", color=COLOURS[2])
