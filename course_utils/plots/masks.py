"""Lesson 05: who may look at whom, and who does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from course_utils.plots.maps import label_cells
from course_utils.plots.style import FAINT, INK, MAP, new_figure

OPEN = ListedColormap(["#f3f4f6", "#9cc9e6"])  # hidden, open; a cross and a tick say it too


def mask_panels(panels: Mapping[str, tuple[np.ndarray, Sequence[str], Sequence[str]]]) -> Figure:
    """Title -> (mask (T, S), the T tokens that ask, the S tokens that are asked); a tick where one may look."""
    figure, axes = new_figure(3.1 * len(panels) + 0.4, 3.3, columns=len(panels))
    for ax, (title, (mask, rows, columns)) in zip(axes, panels.items(), strict=True):
        draw_mask(ax, mask, rows, columns)
        ax.set_title(title, fontsize=11)
    axes[0].set_ylabel("who asks")
    return figure


def draw_mask(ax: Axes, mask: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    """The mask on the axes given: blue with a tick where True, grey with a cross where False."""
    mask = np.asarray(mask, dtype=bool)
    ax.imshow(mask, cmap=OPEN, vmin=0, vmax=1, aspect="auto")
    for (i, j), seen in np.ndenumerate(mask):
        mark, colour = ("✓", INK) if seen else ("×", FAINT)
        ax.text(j, i, mark, ha="center", va="center", color=colour, fontfamily="DejaVu Sans")
    label_cells(ax, rows, columns, "white")


def influence_maps(panels: Mapping[str, np.ndarray], labels: Sequence[str]) -> Figure:
    """Title -> (T, T), how much output t moves when input s moves; each panel relative to its own largest value."""
    figure, axes = new_figure(4.1 * len(panels), 3.4, columns=len(panels))
    for ax, (title, strength) in zip(axes, panels.items(), strict=True):
        strength = np.asarray(strength, dtype=float)
        image = ax.imshow(strength / strength.max(), cmap=MAP, vmin=0, vmax=1, aspect="auto")
        label_cells(ax, labels, labels)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("input")
    axes[0].set_ylabel("output")
    figure.colorbar(image, ax=axes, label="gradient, relative", fraction=0.03, pad=0.02)
    return figure


def masked_weights(mask: np.ndarray, weights: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """A mask, and beside it the weights that it leaves, with their values; a row of zeros is named."""
    figure, axes = new_figure(8.6, 3.6, columns=2)
    draw_mask(axes[0], mask, rows, columns)
    axes[0].set(title="mask", ylabel="who asks")
    axes[1].imshow(np.asarray(weights, dtype=float), cmap=MAP, vmin=0, vmax=1, aspect="auto")
    label_cells(axes[1], rows, columns)
    for (i, j), weight in np.ndenumerate(np.asarray(weights, dtype=float)):
        colour = "white" if weight > 0.55 else INK
        axes[1].text(j, i, f"{weight:.2f}", ha="center", va="center", color=colour, fontsize=9)
    empty = [row for row, seen in zip(rows, np.asarray(mask).any(axis=1), strict=True) if not seen]
    axes[1].set_title("weights" + (f"; nothing to attend to: {', '.join(empty)}" if empty else ""), fontsize=11)
    return figure
