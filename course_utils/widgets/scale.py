"""Lesson 03: what the width of query and key does to the softmax."""

from __future__ import annotations

import ipywidgets as ipw
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.explorer import Explorer


def scale_explorer(keys: int = 16, widest: int = 10) -> Explorer:
    """Lesson 03: a slider over d_k (1 to 2**widest), and one that draws other random vectors of the same width."""

    def draw(d_k: int, sample: int) -> Figure:
        rng = np.random.default_rng([sample, d_k])
        scores = rng.normal(size=(keys, d_k)) @ rng.normal(size=d_k)
        figure, axes = plots.new_figure(9.5, 3.1, columns=2)
        _draw_weights(axes[0], scores, rf"softmax of $q\cdot k$,  $d_k$ = {d_k}", plots.COLOURS[1])
        _draw_weights(axes[1], scores / np.sqrt(d_k), r"softmax of $q\cdot k\,/\sqrt{d_k}$", plots.COLOURS[0])
        return figure

    width = ipw.SelectionSlider(
        options=[(str(2**p), 2**p) for p in range(widest + 1)], value=64, description="d_k", continuous_update=False
    )
    sample = ipw.IntSlider(value=0, min=0, max=20, description="sample", continuous_update=False)
    return Explorer(draw, {"d_k": width, "sample": sample})


def _draw_weights(ax: Axes, scores: np.ndarray, title: str, colour: str) -> None:
    weights = np.exp(scores - scores.max())
    weights = weights / weights.sum()
    even = 1 / len(weights)
    ax.bar(range(1, len(weights) + 1), weights, color=colour, width=0.7)
    ax.axhline(even, color=plots.FAINT, linewidth=1, linestyle=":")
    ax.text(len(weights) + 0.6, even + 0.015, "even", ha="right", va="bottom", color=plots.FAINT, fontsize=9)
    measured = f"spread of the scores {scores.std():.1f}, largest weight {weights.max():.2f}"
    ax.set(title=f"{title}\n{measured}", xlabel="key", ylabel="weight", ylim=(0, 1.05))
    ax.set_xticks([1, *range(4, len(weights) + 1, 4)])
    ax.title.set_fontsize(10.5)
    ax.grid(axis="x", visible=False)
