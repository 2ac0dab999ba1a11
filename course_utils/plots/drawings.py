"""Drawings: tables for broadcasting, and models unrolled over a sentence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from course_utils.plots.style import ATTEND, COLOURS, DECODER, ENCODER, FAINT, INK, new_figure


def draw_table(ax: Axes, array: np.ndarray, title: str, out_of: tuple[int, int]) -> None:
    """A 2-D array as a table of ``out_of`` cells; cells that broadcasting only stretches are drawn faintly."""
    rows, columns = array.shape
    ax.set_axis_off()
    ax.set(xlim=(-0.6, out_of[1] - 0.4), ylim=(out_of[0] - 0.4, -0.6), aspect="equal", title=title)
    for i, j in itertools.product(range(out_of[0]), range(out_of[1])):
        real = i < rows and j < columns
        face, ink = (ENCODER, INK) if real else ("white", "#9ca3af")
        ax.add_patch(
            Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=face, edgecolor="#c4c9d1", linestyle="-" if real else ":")
        )
        ax.text(j, i, str(array[min(i, rows - 1), min(j, columns - 1)]), ha="center", va="center", color=ink)


def seq2seq_picture(source: Sequence[str], target: Sequence[str], attention: bool = False) -> Figure:
    """The encoder-decoder unrolled over a sentence: one vector hands over, or (``attention``) all states do.

    With attention, the first decoder step's view of the source is drawn.
    """
    figure, (ax,) = new_figure(1.35 * (len(source) + len(target)) + 1, 3.4 if attention else 2.5)
    ax.set_axis_off()
    xs = np.arange(len(source)) * 1.5
    ys = np.arange(len(target)) * 1.5 + xs[-1] + 3.0
    states = [_box(ax, x, 0, f"$h_{i + 1}$", ENCODER) for i, x in enumerate(xs)]
    decoder = [_box(ax, x, 0, f"$s_{i + 1}$", DECODER) for i, x in enumerate(ys)]
    for row in (states, decoder):
        for left, right in itertools.pairwise(row):
            _arrow(ax, (left + 0.5, 0), (right - 0.5, 0))
    for x, word in zip(xs, source, strict=True):
        _arrow(ax, (x, -0.95), (x, -0.42))
        ax.text(x, -1.2, word, ha="center", va="center")
    for x, word, fed in zip(ys, target, ["<bos>", *target], strict=False):
        _arrow(ax, (x, -0.95), (x, -0.42))
        ax.text(x, -1.2, fed, ha="center", va="center", color=FAINT)
        _arrow(ax, (x, 0.42), (x, 0.85))
        ax.text(x, 1.08, word, ha="center", va="center")
    if attention:
        _draw_attention(ax, xs, ys[0])
    else:
        _arrow(ax, (xs[-1] + 0.5, 0), (ys[0] - 0.5, 0), colour=COLOURS[1], width=2.6)
        ax.text((xs[-1] + ys[0]) / 2, 0.22, "one vector", ha="center", va="bottom", color=COLOURS[1])
    ax.text(xs.mean(), -1.75, "encoder", ha="center", color=FAINT)
    ax.text(ys.mean(), -1.75, "decoder", ha="center", color=FAINT)
    ax.set(xlim=(-0.9, ys[-1] + 0.9), ylim=(-2.0, 3.0 if attention else 1.4))
    return figure


def _draw_attention(ax: Axes, xs: np.ndarray, step: float) -> None:
    middle = xs[-1] + 1.3
    _box(ax, middle, 2.2, "$c_1$", ATTEND)
    for j, (x, weight) in enumerate(zip(xs, np.linspace(2.8, 0.7, len(xs)), strict=True)):
        _arrow(ax, (x, 0.42), (middle - 0.5, 2.2), colour=COLOURS[2], width=weight)
        ax.text(x - 0.05, 0.62, rf"$\alpha_{{1{j + 1}}}$", ha="right", color=COLOURS[2])
    _arrow(ax, (middle + 0.4, 1.8), (step - 0.3, 0.42), colour=COLOURS[2], width=2.0)
    ax.text(
        middle + 0.65,
        2.2,
        r"$c_1=\sum_j\, \alpha_{1j}\, h_j$,  and anew for $c_2, c_3, \ldots$",
        va="center",
        color=COLOURS[2],
    )


def _box(ax: Axes, x: float, y: float, text: str, fill: str) -> float:
    ax.add_patch(
        FancyBboxPatch((x - 0.42, y - 0.36), 0.84, 0.72, boxstyle="round,pad=0.05", facecolor=fill, edgecolor=FAINT)
    )
    ax.text(x, y, text, ha="center", va="center")
    return x


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = FAINT, width: float = 1.3
) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=colour, linewidth=width))
