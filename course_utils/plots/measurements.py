"""Measured curves: one quantity against another, several lines, on plain or logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from course_utils.plots.style import MARKERS, new_figure, plain_log_ticks


def measured_lines(
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    *,
    log: str = "",
    dashed: Sequence[str] = (),
    height: float = 3.2,
    markers: bool = True,
) -> Figure:
    """The lines of ``draw_lines`` in a figure of their own."""
    figure, (ax,) = new_figure(7.5, height)
    draw_lines(ax, x, lines, xlabel, ylabel, log=log, dashed=dashed, markers=markers)
    return figure


def draw_lines(
    ax: Axes,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    *,
    log: str = "",
    dashed: Sequence[str] = (),
    markers: bool = True,
) -> None:
    """Line name -> its values at ``x``.

    Args:
        log: "x", "y" or "xy" for logarithmic axes. A logarithmic x axis has its ticks at the points measured.
        dashed: names of lines that were computed, not measured: drawn dashed and without markers.
        markers: False for lines of so many points that markers would hide them.
    """
    for (name, values), marker in zip(lines.items(), MARKERS, strict=False):
        style = {"linestyle": "--", "linewidth": 1.4} if name in dashed else {"marker": marker, "markersize": 5}
        ax.plot(x, values, label=name, **style if markers or name in dashed else {})
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if "x" in log:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator(list(x)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:g}")
    if "y" in log:
        ax.set_yscale("log")
        plain_log_ticks(ax.yaxis)
    if len(lines) > 1:
        ax.legend(frameon=False)
