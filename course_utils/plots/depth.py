"""Lesson 06: the path around a sublayer, which numbers a norm averages, and curves over the layers of a stack."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from course_utils.plots.style import ATTEND, COLOURS, DECODER, ENCODER, FAINT, new_figure, plain_log_ticks

PATH = COLOURS[1]
_STYLES = ("-", "--", "-.", ":")


def residual_picture() -> Figure:
    """One sublayer with a path around it: x goes through f, and past it."""
    figure, (ax,) = new_figure(6.4, 2.0)
    ax.set_axis_off()
    ax.text(-0.2, 0, "x", ha="center", va="center", fontsize=13)
    _arrow(ax, (0.1, 0), (3.92, 0), PATH, 3.0)
    ax.text(2.0, -0.2, "the residual path", ha="center", va="top", color=PATH)
    _branch(ax, 0.6, 4.2, "sublayer f")
    _sum(ax, 4.2)
    _arrow(ax, (4.48, 0), (5.3, 0), PATH, 3.0)
    ax.text(5.45, 0, "x + f(x)", ha="left", va="center", fontsize=13)
    ax.set(xlim=(-0.5, 6.9), ylim=(-0.7, 1.75), aspect="equal")
    return figure


def norm_paths_picture() -> Figure:
    """Two sublayers with post-norm and with pre-norm; the path from the first state to the last is thick."""
    figure = new_figure(10, 4.4)[0]
    figure.clear()
    upper, lower = figure.subplots(2, 1)
    for ax, title in ((upper, "post-norm (2017): every norm is on the path"),
                      (lower, "pre-norm: the path runs free, the norms are in the branches")):  # fmt: skip
        ax.set_axis_off()
        ax.set(title=title, xlim=(-0.6, 12.3), ylim=(-0.75, 1.75), aspect="equal")
        ax.text(-0.3, 0, "$h_0$", ha="center", va="center")
    for i, name in enumerate(("attention", "feed-forward")):
        start = 0.1 + i * 5.6
        last = f"$h_{i + 1}$"
        _arrow(upper, (start, 0), (start + 2.92, 0), PATH, 3.0)
        _branch(upper, start + 0.35, start + 3.2, name)
        _sum(upper, start + 3.2)
        _arrow(upper, (start + 3.48, 0), (start + 3.95, 0), PATH, 3.0)
        _box(upper, start + 4.4, 0, 0.8, "norm", DECODER, PATH)
        _arrow(upper, (start + 4.85, 0), (start + 5.15, 0), PATH, 3.0, head=i == 1)
        upper.text(start + 5.4, 0, last, ha="center", va="center")

        _arrow(lower, (start, 0), (start + 4.12, 0), PATH, 3.0)
        _branch(lower, start + 0.35, start + 4.4, name, norm=True)
        _sum(lower, start + 4.4)
        _arrow(lower, (start + 4.68, 0), (start + 5.15, 0), PATH, 3.0, head=i == 1)
        lower.text(start + 5.4, 0, last, ha="center", va="center")
    return figure


def _with_room(figure: Figure) -> Figure:
    """More room at the edges: the Korean font's letters reach below the box that the layout reserves for them."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(h_pad=0.1)
    return figure


def _branch(ax: Axes, start: float, end: float, text: str, norm: bool = False) -> None:
    """From the path up, through a sublayer, and down to the sum at ``end``."""
    y, first = 1.2, start + 0.35
    ax.plot([start, start, first], [0, y, y], color=FAINT, linewidth=1.3, solid_joinstyle="round")
    if norm:
        _box(ax, first + 0.42, y, 0.8, "norm", DECODER, FAINT)
        first += 0.85
        ax.plot([first, first + 0.25], [y, y], color=FAINT, linewidth=1.3)
        first += 0.25
    width = 1.75
    _box(ax, first + width / 2, y, width, text, ENCODER if text != "attention" else ATTEND, FAINT)
    ax.plot([first + width + 0.02, end], [y, y], color=FAINT, linewidth=1.3)
    _arrow(ax, (end, y), (end, 0.26), FAINT, 1.3)


def _sum(ax: Axes, x: float) -> None:
    ax.add_patch(Circle((x, 0), 0.26, facecolor="white", edgecolor=PATH, linewidth=1.8, zorder=3))
    ax.text(x, 0, "+", ha="center", va="center", zorder=4, fontsize=13)


def _box(ax: Axes, x: float, y: float, width: float, text: str, fill: str, edge: str) -> None:
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - 0.28), width, 0.56, boxstyle="round,pad=0.04", facecolor=fill, edgecolor=edge, zorder=3
        )
    )
    ax.text(x, y, text, ha="center", va="center", zorder=4)


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float, head: bool = True
) -> None:
    style = "-|>" if head else "-"
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle=style, mutation_scale=13, color=colour, linewidth=width, shrinkA=0, shrinkB=0
        )
    )


def averaged_numbers_picture(sentences: int = 2, tokens: int = 4, width: int = 5) -> Figure:
    """A batch (B, T, D) three times; the numbers that share one mean and one variance have one colour."""
    groups = (
        ("✓  over the features\nof one token: LayerNorm", lambda b, t, d: (b * tokens + t) % len(_TINTS)),
        ("✗  over the tokens\nof one sentence", lambda b, t, d: (d + 3 * b) % len(_TINTS)),
        ("✗  over the batch and\nall tokens: batch norm", lambda b, t, d: d % len(_TINTS)),
    )
    figure, axes = new_figure(9.5, 0.36 * sentences * (tokens + 1) + 1.15, columns=3)
    for k, (ax, (title, colour)) in enumerate(zip(axes, groups, strict=True)):
        ax.set_axis_off()
        ax.set(title=title, xlim=(-2.6, width + 0.3), ylim=(sentences * (tokens + 0.9), -0.9), aspect="equal")
        ax.title.set_fontsize(11)
        ax.text(width / 2, -0.4, "D features", ha="center", va="center", color=FAINT, fontsize=10)
        for b, t, d in itertools.product(range(sentences), range(tokens), range(width)):
            y = b * (tokens + 0.7) + t
            ax.add_patch(Rectangle((d, y), 1, 1, facecolor=_TINTS[colour(b, t, d)], edgecolor="white", linewidth=1.5))
            if d == 0 and k == 0:
                ax.text(-0.2, y + 0.5, f"token {t + 1}", ha="right", va="center", fontsize=9)
        for b in range(sentences):
            middle = b * (tokens + 0.7) + tokens / 2
            ax.text(-2.35, middle, f"sentence {b + 1}", rotation=90, ha="center", va="center", color=FAINT, fontsize=10)
    return _with_room(figure)


_TINTS = ("#8fc1e3", "#f0ab84", "#8fd3ba", "#e3b3cd", "#f2cd80", "#b9dff5", "#c9b8e8", "#c7cdd4")


def layer_lines(
    lines: Mapping[str, Sequence[float]], ylabel: str, xlabel: str = "layer l (0 = the input)", height: float = 3.2
) -> Figure:
    """One value a layer, 0 to depth, on a logarithmic axis; a zero (too small for the number format) ends its line."""
    figure, (ax,) = new_figure(7.5, height)
    draw_layer_lines(ax, lines, ylabel, xlabel)
    return _with_room(figure)


def loss_panels(panels: Mapping[str, Mapping[str, Sequence[float]]], smooth: int = 20) -> Figure:
    """Panel title -> model name -> training losses: a running mean over ``smooth`` steps, one set of axes for all.

    Panels name the same models; they share a legend.
    """
    figure, axes = new_figure(10, 3.6, columns=len(panels))
    for ax, (title, losses) in zip(axes, panels.items(), strict=True):
        for values, style in zip(losses.values(), itertools.cycle(_STYLES)):
            ax.plot(np.convolve(values, np.ones(smooth) / smooth, mode="valid"), linestyle=style)
        ax.set(title=title, xlabel="training step", ylabel="loss (nats)", yscale="log")
    low = min(ax.get_ylim()[0] for ax in axes)
    high = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, high)
        plain_log_ticks(ax.yaxis)
    names = list(next(iter(panels.values())))
    figure.legend(axes[0].lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return _with_room(figure)


def draw_layer_lines(
    ax: Axes, lines: Mapping[str, Sequence[float]], ylabel: str, xlabel: str = "layer l (0 = the input)"
) -> None:
    """The lines of ``layer_lines`` on ``ax``."""
    for (name, values), style in zip(lines.items(), itertools.cycle(_STYLES)):
        ax.plot(range(len(values)), [v if v > 0 else float("nan") for v in values], label=name, linestyle=style)
    ax.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    plain_log_ticks(ax.yaxis)
    if len(lines) > 1:
        ax.legend(frameon=False)
