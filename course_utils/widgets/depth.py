"""Lesson 06: an untrained stack under two switches and a slider."""

from __future__ import annotations

import ipywidgets as ipw
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.models.depth import depth_profile
from course_utils.widgets.explorer import Explorer


def depth_explorer(deepest: int = 64) -> Explorer:
    """Lesson 06: choose path, norm and depth; the gradient's norm and the spread of the numbers, layer by layer."""

    def draw(residual: bool, norm: str, depth: int) -> Figure:
        spread, gradient = depth_profile(depth, residual, norm)
        figure, (left, right) = plots.new_figure(10, 3.5, columns=2)
        figure.get_layout_engine().set(h_pad=0.1)
        plots.draw_layer_lines(left, {"gradient": gradient}, "gradient norm at layer l")
        plots.draw_layer_lines(right, {"spread": spread}, "standard deviation of h at layer l")
        left.set_title(f"gradient: 1 at the output, {gradient[0]:.2g} at the input")
        right.set_title(f"spread: 1 at the input, {spread[-1]:.2g} at the output")
        for ax, values, colour in ((left, gradient, plots.COLOURS[0]), (right, spread, plots.COLOURS[1])):
            ax.title.set_fontsize(10.5)
            ax.lines[0].set_color(colour)
            ax.axhline(1, color=plots.FAINT, linewidth=1, linestyle=":")
            ax.set_ylim(min(0.05, *values) / 2, max(20, *values) * 2)
        return figure

    residual = ipw.ToggleButtons(options=[("path", True), ("no path", False)], value=True, description="residual")
    norm = ipw.ToggleButtons(options=["none", "post", "pre"], value="none", description="norm")
    for buttons in (residual, norm):
        buttons.style.button_width = "6em"
    depths = [d for d in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64) if d <= deepest]
    depth = ipw.SelectionSlider(options=depths, value=32, description="layers", continuous_update=False)
    return Explorer(draw, {"residual": residual, "norm": norm, "depth": depth})
