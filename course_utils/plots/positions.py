"""Positions: clock hands, the heat map of the codes, and scores by distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from course_utils.plots.style import COLOURS, ENCODER, FAINT, new_figure

SIGNED_MAP = "RdBu_r"  # zero is white, and red and blue stay apart for the colour-blind


def draw_hand(ax: Axes, x: float, y: float, angle: float, radius: float = 0.4, colour: str = COLOURS[0]) -> None:
    """A clock at (x, y) whose hand starts at twelve and has turned clockwise by ``angle`` radians.

    Its tip stands ``sin(angle)`` to the right and ``cos(angle)`` up, in radii: the two numbers of one pair.
    """
    ax.add_patch(Circle((x, y), radius, facecolor=ENCODER, edgecolor=FAINT, linewidth=0.9))
    tip = (x + radius * np.sin(angle), y + radius * np.cos(angle))
    ax.plot([x, tip[0]], [y, tip[1]], color=colour, linewidth=2.4, solid_capstyle="round")
    ax.plot(*tip, marker="o", markersize=4, color=colour)


def hands_picture(angles: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Angles (positions, pairs) in radians as clocks: one row a position, one column a pair of numbers."""
    angles = np.asarray(angles)
    count, pairs = angles.shape
    figure, (ax,) = new_figure(1.25 * pairs + 2.2, 1.05 * count + 0.7)
    ax.set_axis_off()
    ax.set(xlim=(-1.9, pairs - 0.4), ylim=(-count + 0.4, 1.1), aspect="equal")
    for p in range(count):
        ax.text(-0.75, -p, rows[p], ha="right", va="center")
        for i in range(pairs):
            draw_hand(ax, i, -p, angles[p, i], colour=COLOURS[i % len(COLOURS)])
    for i, text in enumerate(columns):
        ax.text(i, 0.6, text, ha="center", va="bottom", fontsize=9, color=FAINT)
    return figure


def position_map(codes: np.ndarray, marked: int | None = None) -> Figure:
    """Codes (positions, d_model) between -1 and 1 as a heat map; the row ``marked`` is framed."""
    figure, (ax,) = new_figure(7.5, 4.2)
    draw_position_map(ax, codes, marked)
    return figure


def draw_position_map(ax: Axes, codes: np.ndarray, marked: int | None = None) -> None:
    """The map of ``position_map`` on the axes given."""
    ax.grid(False)
    image = ax.imshow(np.asarray(codes), cmap=SIGNED_MAP, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    ax.set(xlabel="index in the code", ylabel="position")
    if marked is not None:
        ax.axhspan(marked - 0.5, marked + 0.5, facecolor="none", edgecolor="black", linewidth=1.4)
    ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)


def distance_panels(
    panels: Mapping[str, tuple[Sequence[float], np.ndarray]], ylabel: str = "score", labels: Sequence[str] = ()
) -> Figure:
    """Curves by distance side by side, each panel with its own scale.

    Args:
        panels: title -> (distances (n,), curves (lines, n)). A distance without a value is NaN.
        ylabel: what the curves are, for the first panel.
        labels: names of the lines; a legend stands in the last panel.
    """
    figure, axes = new_figure(2.9 * len(panels), 3.0, columns=len(panels))
    for ax, (title, (distances, curves)) in zip(axes, panels.items(), strict=True):
        for values, colour in zip(np.atleast_2d(curves), COLOURS, strict=False):
            ax.plot(distances, values, color=colour, linewidth=1.6)
        ax.axvline(0, color=FAINT, linewidth=0.8)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("distance: key − query", fontsize=9)
        ax.tick_params(labelsize=8)
    axes[0].set_ylabel(ylabel, fontsize=9)
    if labels:
        axes[-1].legend(axes[-1].get_lines()[: len(labels)], labels, frameon=False, fontsize=8)
    return figure
