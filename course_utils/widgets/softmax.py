"""Lesson 00: the softmax under two sliders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.explorer import Explorer, slider


def softmax_explorer(scores: Sequence[float]) -> Explorer:
    """Lesson 00: a slider multiplies the scores before the softmax; another adds the same number to all of them."""

    def draw(factor: float, shift: float) -> Figure:
        x = np.asarray(scores, dtype=float) * factor + shift
        weights = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        figure, (left, right) = plots.new_figure(8, 2.9, columns=2)
        left.bar(range(len(x)), x, color=plots.COLOURS[5], width=0.7)
        left.axhline(0, color=plots.FAINT, linewidth=0.8)
        left.set(title="scores", ylim=(-25, 25), xticks=range(len(x)))
        plots.draw_bars(right, weights, [str(i) for i in range(len(x))])
        right.set_title("softmax of the scores")
        return figure

    return Explorer(draw, {"factor": slider("× factor", 1, 0, 6, 0.25), "shift": slider("+ shift", 0, -10, 10, 1)})
