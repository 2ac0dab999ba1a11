"""Lesson 07: the sinusoids under two sliders."""

from __future__ import annotations

import ipywidgets as ipw
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.explorer import Explorer

BASES = (5, 10, 30, 100, 1_000, 10_000, 100_000)


def positions_explorer(length: int = 64, d_model: int = 32) -> Explorer:
    """Lesson 07: choose a position and how slow the slowest hand is.

    Left the clock hands of that position, in the middle its row in the heat map, right its dot product with the code of
    every other position. ``base`` is the 10,000 of the formula: the larger, the slower the last hands.
    """

    def draw(position: int, base: int) -> Figure:
        speeds = float(base) ** (-np.arange(0, d_model, 2) / d_model)  # (d_model / 2,) radians a position
        angles = np.arange(length)[:, None] * speeds
        codes = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)  # (length, d_model)
        figure, (hands, heat, products) = plots.new_figure(11, 3.3, columns=3)
        _draw_hands(hands, angles[position], f"position {position}")
        plots.draw_position_map(heat, codes, position)
        heat.set_title("its row in the map")
        products.plot(codes @ codes[position])
        products.axvline(position, color=plots.FAINT, linewidth=0.9)
        products.set(
            title="its dot product with each position", xlabel="position", ylim=(-d_model / 2, d_model / 2 + 1)
        )
        return figure

    place = ipw.IntSlider(value=10, min=0, max=length - 1, description="position", continuous_update=False)
    base = ipw.SelectionSlider(
        options=[(f"{b:,}", b) for b in BASES], value=10_000, description="base", continuous_update=False
    )
    return Explorer(draw, {"position": place, "base": base})


def _draw_hands(ax: Axes, angles: np.ndarray, title: str) -> None:
    columns = 4
    rows = -(-len(angles) // columns)
    ax.set_axis_off()
    ax.set(xlim=(-0.6, columns - 0.4), ylim=(0.4 - rows, 0.6), aspect="equal", title=title)
    for i, angle in enumerate(angles):
        plots.draw_hand(ax, i % columns, -(i // columns), angle)
