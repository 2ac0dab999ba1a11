"""The course's figures. Each function takes arrays and labels, and returns a matplotlib Figure.

Importing this module sets the course's style: Korean glyphs, colour-blind-safe colours (Okabe and Ito), and a light
card as background, which reads equally well in a light and in a dark notebook theme.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
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


use_style()


def new_figure(width: float = 7.5, height: float = 3.6, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A styled figure that shows itself once, as the value of the cell that returns it."""
    figure, axes = plt.subplots(1, columns, figsize=(width, height), squeeze=False)
    plt.close(figure)  # out of pyplot's list: otherwise the notebook would show it a second time
    return figure, list(axes[0])


def loss_curves(losses: Mapping[str, Sequence[float]], smooth: int = 20) -> Figure:
    """Training loss by step, one line a model, each a running mean over ``smooth`` steps."""
    figure, (ax,) = new_figure(7.5, 3.2)
    for name, values in losses.items():
        window = min(smooth, max(1, len(values)))
        ax.plot(np.convolve(values, np.ones(window) / window, mode="valid"), label=name)
    ax.set(xlabel="training step", ylabel="loss per token (nats)", yscale="log")
    ax.yaxis.set_major_formatter("{x:g}")  # the Korean font has no minus sign for 10^-1
    if len(losses) > 1:
        ax.legend(frameon=False)
    return figure


def accuracy_by_length(
    results: Mapping[str, tuple[Sequence[int], Sequence[bool]]],
    seen: int | None = None,
    width: int = 2,
) -> Figure:
    """Share of sentences translated exactly, by source length, one line a model.

    Args:
        results: model name -> (source length of each test sentence, was it translated exactly).
        seen: the greatest length in training; longer ones are shaded.
        width: how many lengths share one point. Bars show two standard errors.
    """
    figure, (ax,) = new_figure(7.5, 3.8)
    for (name, (lengths, right)), marker in zip(results.items(), MARKERS, strict=False):
        middles, means, errors = _by_length(np.asarray(lengths), np.asarray(right, dtype=float), width)
        ax.errorbar(middles, means, errors, label=name, marker=marker, capsize=3)
    if seen is not None:
        ax.axvspan(seen + 0.5, ax.get_xlim()[1], color="#f3f4f6", zorder=0)
        ax.text(seen + 0.6, 1.06, "longer than any in training", color=FAINT, va="bottom")
    ax.set(xlabel="source length (English words)", ylabel="exact match", ylim=(-0.03, 1.05))
    ax.legend(frameon=False, loc="center left" if seen is None else "lower left")
    return figure


def _by_length(lengths: np.ndarray, right: np.ndarray, width: int) -> tuple[list[float], list[float], list[float]]:
    groups = (lengths - 1) // width
    middles, means, errors = [], [], []
    for group in np.unique(groups):
        chosen = right[groups == group]
        mean = chosen.mean()
        middles.append(group * width + (width + 1) / 2)
        means.append(mean)
        errors.append(2 * np.sqrt(mean * (1 - mean) / len(chosen)))
    return middles, means, errors


def attention_map(alpha: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str = "") -> Figure:
    """Weights (T, S) as a map: one row a target token, one column a source token. Each row sums to 1."""
    figure, (ax,) = new_figure(max(4.5, 0.55 * len(columns) + 2.2), max(2.6, 0.36 * len(rows) + 1.5))
    draw_map(ax, alpha, rows, columns)
    ax.set_title(title)
    return figure


def draw_map(ax: Axes, alpha: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    """The map of ``attention_map`` on the axes given."""
    ax.grid(False)
    image = ax.imshow(np.asarray(alpha, dtype=float), cmap=MAP, vmin=0, vmax=1, aspect="auto")
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0)
    ax.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#e5e7eb", linewidth=0.8)
    ax.tick_params(which="minor", length=0)
    ax.figure.colorbar(image, ax=ax, label="attention weight", fraction=0.04, pad=0.02)


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
