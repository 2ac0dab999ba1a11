"""Lesson 08: the whole Transformer in one picture, and the maps of all its layers and heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from course_utils.plots.style import ATTEND, COLOURS, DECODER, ENCODER, FAINT, INK, MAP, new_figure

NORM = "#f3f4f6"
STEP = 0.86  # from one box to the next


def transformer_picture() -> Figure:
    """Encoder and decoder from bottom to top, with the lesson in which each part was built."""
    figure, (ax,) = new_figure(9.4, 7.6)
    ax.set_axis_off()
    left = [("self-attention", ENCODER, "04, 05"), ("add & norm", NORM, "06"), ("feed-forward", ENCODER, "06")]
    right = [
        ("masked self-attention", DECODER, "04, 05"),
        ("add & norm", NORM, "06"),
        ("cross-attention", ATTEND, "02, 04"),
        ("add & norm", NORM, "06"),
        ("feed-forward", DECODER, "06"),
    ]
    top_left = _stack(ax, 0.0, [*left, ("add & norm", NORM, "06")], "source tokens", "encoder layer")
    top_right = _stack(ax, 5.4, [*right, ("add & norm", NORM, "06")], "target so far", "decoder layer")
    cross = 4 * STEP + 0.25
    _arrow(
        ax, [(0.0, top_left), (0.0, top_left + 0.55), (2.7, top_left + 0.55), (2.7, cross), (3.98, cross)], COLOURS[2]
    )
    ax.text(1.35, top_left + 0.7, "memory (B, S, D)", ha="center", color=COLOURS[2])
    ax.text(3.06, cross + 0.16, "K, V", ha="center", color=COLOURS[2])
    _box(ax, 5.4, top_right + 0.75, "output (tied to the embedding)", NORM, "08")
    _arrow(ax, [(5.4, top_right), (5.4, top_right + 0.42)])
    _arrow(ax, [(5.4, top_right + 1.08), (5.4, top_right + 1.45)])
    ax.text(5.4, top_right + 1.62, "logits (B, T, V)", ha="center", va="center")
    ax.set(xlim=(-2.4, 8.3), ylim=(-0.35, top_right + 1.85))
    return figure


def _stack(ax: Axes, x: float, parts: Sequence[tuple[str, str, str]], below: str, name: str) -> float:
    """One column, from its input at the bottom; returns the height at which its output leaves."""
    ax.text(x, 0.0, f"{below} (ids)", ha="center", va="center")
    _arrow(ax, [(x, 0.17), (x, 0.5)])
    _box(ax, x, STEP, "embedding · √D + position", NORM, "07")
    first = 2 * STEP + 0.25
    _arrow(ax, [(x, STEP + 0.33), (x, first - 0.33)])
    for i, (text, fill, lesson) in enumerate(parts):
        y = first + i * STEP
        _box(ax, x, y, text, fill, lesson)
        if i + 1 < len(parts):
            _arrow(ax, [(x, y + 0.33), (x, y + STEP - 0.33)])
        if text == "add & norm":  # the residual path starts below the sublayer
            start = y - STEP - 0.43
            ends = [(x, start), (x - 1.75, start), (x - 1.75, y), (x - 1.5, y)]
            _arrow(ax, ends, COLOURS[0], width=1.1)
    top = first + (len(parts) - 1) * STEP + 0.33
    ax.add_patch(
        Rectangle((x - 1.95, first - 0.52), 4.35, top - first + 0.68, fill=False, edgecolor=FAINT, linestyle="--")
    )
    ax.text(x + 2.4, top + 0.33, f"{name}, N times", ha="right", va="center", color=FAINT, fontsize=10)
    return top + 0.16


def _box(ax: Axes, x: float, y: float, text: str, fill: str, lesson: str) -> None:
    ax.add_patch(
        FancyBboxPatch((x - 1.4, y - 0.26), 2.8, 0.52, boxstyle="round,pad=0.06", facecolor=fill, edgecolor=FAINT)
    )
    ax.text(x, y, text, ha="center", va="center", fontsize=10)
    ax.text(x + 1.55, y, lesson, ha="left", va="center", fontsize=9, color=FAINT)


def _arrow(ax: Axes, points: Sequence[tuple[float, float]], colour: str = FAINT, width: float = 1.4) -> None:
    """Straight pieces through the points, with a head at the last."""
    xs, ys = zip(*points, strict=True)
    ax.plot(xs, ys, color=colour, linewidth=width, solid_capstyle="round")
    ax.add_patch(
        FancyArrowPatch(points[-2], points[-1], arrowstyle="-|>", mutation_scale=10, color=colour, linewidth=width)
    )


def layer_maps(weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str = "") -> Figure:
    """Weights (layers, h, T, S) as a map for each layer (from top to bottom) and head (from left to right)."""
    layers, h = weights.shape[:2]
    wide, high = max(1.7, 0.25 * len(columns) + 0.4), max(1.6, 0.24 * len(rows) + 0.3)
    figure = Figure(figsize=(wide * h + 1.7, high * layers + 1.3))
    axes = figure.subplots(layers, h, squeeze=False)
    for (layer, head), ax in np.ndenumerate(axes):
        image = ax.imshow(weights[layer, head], cmap=MAP, vmin=0, vmax=1, aspect="auto")
        last, first = layer == layers - 1, head == 0
        ax.set_xticks(range(len(columns)), columns if last else [""] * len(columns), rotation=60, ha="right",
                      rotation_mode="anchor")  # fmt: skip
        ax.set_yticks(range(len(rows)), rows if first else [""] * len(rows))
        ax.grid(False)
        ax.tick_params(length=0, labelsize=9)
        ax.spines[:].set_visible(True)
        if layer == 0:
            ax.set_title(f"head {head + 1}", fontsize=10)
        if head == h - 1:
            ax.text(1.06, 0.5, f"layer {layer + 1}", transform=ax.transAxes, rotation=270, va="center", color=INK)
    figure.colorbar(image, ax=axes, label="attention weight", fraction=0.025, pad=0.05)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
