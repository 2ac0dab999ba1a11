"""Attention weights as maps and as bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils.plots.style import COLOURS, MAP, new_figure


def attention_map(alpha: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str = "") -> Figure:
    """Weights (T, S) as a map: one row a target token, one column a source token. Each row sums to 1."""
    figure, (ax,) = new_figure(max(4.5, 0.55 * len(columns) + 2.2), max(2.6, 0.36 * len(rows) + 1.5))
    draw_map(ax, alpha, rows, columns)
    ax.set_title(title)
    return figure


def draw_map(ax: Axes, alpha: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    """The map of ``attention_map`` on the axes given."""
    image = ax.imshow(np.asarray(alpha, dtype=float), cmap=MAP, vmin=0, vmax=1, aspect="auto")
    label_cells(ax, rows, columns)
    ax.figure.colorbar(image, ax=ax, label="attention weight", fraction=0.04, pad=0.02)


def label_cells(ax: Axes, rows: Sequence[str], columns: Sequence[str], line: str = "#e5e7eb") -> None:
    """Names for the rows and columns of a picture of cells, and lines between the cells."""
    ax.grid(False)
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color=line, linewidth=1)
    ax.tick_params(which="both", length=0)


def weight_bars(weights: np.ndarray, labels: Sequence[str], title: str = "", colour: str = COLOURS[0]) -> Figure:
    """One distribution as bars with their values."""
    figure, (ax,) = new_figure(max(4.5, 0.6 * len(labels) + 1.5), 2.8)
    draw_bars(ax, weights, labels, colour)
    ax.set_title(title)
    return figure


def draw_bars(ax: Axes, weights: np.ndarray, labels: Sequence[str], colour: str = COLOURS[0]) -> None:
    """The bars of ``weight_bars`` on the axes given; a bar under 0.005 gets no number."""
    bars = ax.bar(range(len(labels)), weights, color=colour, width=0.7)
    ax.bar_label(bars, [f"{w:.2f}" if w >= 0.005 else "" for w in weights], padding=2, fontsize=9)
    ax.set_xticks(
        range(len(labels)), labels, rotation=45 if len(labels) > 6 else 0, ha="right" if len(labels) > 6 else "center"
    )
    ax.set(ylim=(0, 1.12), ylabel="weight")
    ax.grid(axis="x", visible=False)
