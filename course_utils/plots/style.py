"""The course's style: Korean glyphs, colour-blind-safe colours, and a light card as background.

The colours are Okabe and Ito's, the last two darkened to stand out from white by 3 to 1. The card reads equally
well in a light and in a dark notebook theme.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B97A00", "#3A93D0")
MARKERS = "osD^vP"
INK, FAINT = "#1f2328", "#6b7280"
ENCODER, DECODER, ATTEND = "#d6e9f5", "#fbe3d3", "#d5efe6"  # box fills of the drawings
MAP = "Blues"  # one hue, so that only lightness carries the value
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.unicode_minus": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "figure.figsize": (7.5, 3.6),
    "font.size": 11,
    "grid.color": "#e5e7eb",
    "lines.linewidth": 2,
    "savefig.facecolor": "white",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def korean_font() -> str | None:
    """Register NanumGothic from the package that brings it; its family name, or None where it is missing."""
    # Found, not imported: importing it needs distutils, which Python 3.12 dropped.
    spec = importlib.util.find_spec("koreanize_matplotlib")
    if spec is None or spec.origin is None:
        return None
    files = sorted((Path(spec.origin).parent / "fonts").glob("NanumGothic*.ttf"))
    for file in files:
        font_manager.fontManager.addfont(str(file))
    return "NanumGothic" if files else None


def use_style() -> None:
    """Apply the course's style to every figure made from now on."""
    family = korean_font()
    plt.rcParams.update(STYLE)
    plt.rcParams["font.family"] = [family, "DejaVu Sans"] if family else ["DejaVu Sans"]


def new_figure(width: float = 7.5, height: float = 3.6, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A styled figure that shows itself once, as the value of the cell that returns it."""
    figure, axes = plt.subplots(1, columns, figsize=(width, height), squeeze=False)
    plt.close(figure)  # out of pyplot's list: otherwise the notebook would show it a second time
    return figure, list(axes[0])


def plain_log_ticks(axis: Axis) -> None:
    """Plain numbers on a logarithmic axis: the Korean font has no minus sign for 10^-1."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
