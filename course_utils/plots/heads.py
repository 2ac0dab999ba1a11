"""Lesson 04: how heads share out a token's numbers, and the maps of several heads side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from course_utils.plots.style import COLOURS, ENCODER, FAINT, INK, MAP, new_figure

TINTS = ("#cfe3f1", "#f8d9c4", "#cdeae0", "#f2dbe6", "#f9e6bf", "#dceefa")  # light enough to write on


def reach_picture(first: tuple[str, float], last: tuple[str, float]) -> Figure:
    """What one head and two heads can return from two words whose values hold one number in each of two halves."""
    (word, low), (other, high) = first, last
    figure, (ax,) = new_figure(6.4, 4.2)
    ax.add_patch(Rectangle((low, low), high - low, high - low, facecolor=TINTS[1], edgecolor=COLOURS[1], linestyle=":"))
    ax.plot([low, high], [low, high], color=COLOURS[0], linewidth=3)
    ax.plot([low, high], [low, high], "o", color=COLOURS[0], markersize=9)
    middle = (low + high) / 2
    ax.plot(middle, middle, "s", color=COLOURS[0], markersize=9)
    ax.plot(low, high, "*", color=COLOURS[1], markersize=17)
    _note(ax, low, low, f"value of {word}", (10, -12))
    _note(ax, high, high, f"value of {other}", (12, 0))
    _note(ax, middle, middle, "half and half", (14, -6), colour=COLOURS[0])
    _note(ax, low, high, f"first half from {word}, second half from {other}", (-8, 18), colour=COLOURS[1])
    _note(ax, low, high, "two heads:\nanywhere in this square", (10, -26), colour=COLOURS[1])
    _note(ax, middle, low, "one head:\nonly on this line", (0, 42), colour=COLOURS[0])
    ax.set(
        xlim=(low - 0.5, high + 1.4), ylim=(low - 0.5, high + 0.6), aspect="equal",
        xlabel="first half of the result", ylabel="second half",
    )  # fmt: skip
    return figure


def _note(
    ax: Axes, x: float, y: float, text: str, shift: tuple[float, float], ha: str = "left", colour: str = INK
) -> None:
    ax.annotate(text, (x, y), xytext=shift, textcoords="offset points", color=colour, ha=ha, va="center")


def multi_head_picture(h: int = 2) -> Figure:
    """Query and memory go through h attentions side by side, are joined, and mixed by W_o."""
    figure, (ax,) = new_figure(9.6, 1.25 * h + 1.5)
    ax.set_axis_off()
    rows = [1.25 * (h - 1) / 2 - 1.25 * i for i in range(h)]
    ax.text(0, 0.75, "query (T, D)", ha="center", va="center")
    ax.text(0, -0.75, "memory (S, D)", ha="center", va="center")
    for i, y in enumerate(rows):
        tint, colour = TINTS[i % len(TINTS)], COLOURS[i % len(COLOURS)]
        for start, shift in ((0.75, 0.18), (-0.75, -0.18)):
            _arrow(ax, (0.85, start), (1.85, y + shift))
        _box(ax, 2.85, y, 1.9, f"$W_q^{{({i + 1})}}, W_k^{{({i + 1})}}, W_v^{{({i + 1})}}$", tint, colour)
        _arrow(ax, (3.85, y), (4.5, y))
        _box(ax, 5.4, y, 1.7, "attention", tint, colour)
        _arrow(ax, (6.3, y), (7.1, _slot(i, h)))
        _box(ax, 7.45, _slot(i, h), 0.6, "", tint, colour, height=_slot(0, 2) * 2 * 1.6 / h, pad=0.0)
        ax.text(7.45, _slot(i, h), f"$head_{i + 1}$", ha="center", va="center", fontsize=10)
    ax.text(7.45, 1.0, "joined", ha="center", va="bottom", color=FAINT)
    ax.text(7.45, -1.0, "(T, D)", ha="center", va="top", color=FAINT)
    ax.text(5.4, rows[-1] - 0.6, "each (T, D/h)", ha="center", va="center", color=FAINT)
    _arrow(ax, (7.8, 0), (8.5, 0))
    _box(ax, 8.95, 0, 0.8, "$W_o$", ENCODER, FAINT)
    _arrow(ax, (9.4, 0), (10.0, 0))
    ax.text(10.65, 0, "output\n(T, D)", ha="center", va="center")
    ax.set(xlim=(-0.95, 11.3), ylim=(rows[-1] - 0.8, max(rows[0] + 0.45, 1.3)))
    return figure


def _slot(i: int, h: int) -> float:
    return 0.8 - 1.6 * (i + 0.5) / h


def _box(
    ax: Axes, x: float, y: float, width: float, text: str, fill: str, edge: str, height: float = 0.62, pad: float = 0.04
) -> None:
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle=f"round,pad={pad}", facecolor=fill, edgecolor=edge
        )
    )
    ax.text(x, y, text, ha="center", va="center")


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=FAINT, linewidth=1.3))


def split_picture(words: Sequence[str], width: int = 6, h: int = 2) -> Figure:
    """A sentence's (T, D) numbers shared out among h heads: by columns, as it should be, and by a bare reshape.

    Every word has a colour and a letter, every number its place from 1 to D.
    """
    rows, part = len(words), width // h
    cells = [[(t, d) for d in range(width)] for t in range(rows)]
    by_columns = [[row[i * part : (i + 1) * part] for row in cells] for i in range(h)]
    running = [cell for row in cells for cell in row]
    as_they_lie = [[running[(i * rows + t) * part : (i * rows + t + 1) * part] for t in range(rows)] for i in range(h)]
    figure, axes = new_figure(9.8, 0.33 * (h * (rows + 1.4) + 0.3) + 0.3, columns=3)
    letters = [f"{word}  {chr(97 + t)}" for t, word in enumerate(words)]
    _blocks(axes[0], [cells], ["x: (T, D)"], letters, cuts=h)
    titles = [f"head {i + 1}: (T, D/h)" for i in range(h)]
    _blocks(axes[1], by_columns, titles, letters)
    _blocks(axes[2], as_they_lie, titles, [f"row {t + 1}" for t in range(rows)])
    for ax, title in zip(axes, ("one row a word", "✓  split by columns", "✗  reshape alone"), strict=True):
        ax.set(title=title, xlim=(-3.3, 1.05 * width), ylim=(h * (rows + 1.4) - 1.2, -0.9), aspect="equal")
    return figure


def _blocks(
    ax: Axes,
    blocks: Sequence[Sequence[Sequence[tuple[int, int]]]],
    titles: Sequence[str],
    labels: Sequence[str],
    cuts: int = 1,
) -> None:
    """Matrices of (word, number) cells under each other; thick lines cut them into ``cuts`` groups of columns."""
    ax.set_axis_off()
    rows, width = len(blocks[0]), len(blocks[0][0])
    for b, (block, title) in enumerate(zip(blocks, titles, strict=True)):
        top = b * (rows + 1.4)
        ax.text(0, top - 0.4, title, va="center", color=FAINT)
        for t, row in enumerate(block):
            ax.text(-0.25, top + t + 0.5, labels[t], ha="right", va="center", fontsize=10)
            for d, (word, number) in enumerate(row):
                ax.add_patch(
                    Rectangle((d, top + t), 1, 1, facecolor=TINTS[word % len(TINTS)], edgecolor="white", linewidth=1.5)
                )
                ax.text(d + 0.5, top + t + 0.5, f"{chr(97 + word)}{number + 1}", ha="center", va="center", fontsize=10)
        for p in range(1, cuts):
            ax.plot([p * width / cuts] * 2, [top - 0.1, top + rows + 0.1], color=INK, linewidth=2)


def head_maps(alpha: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str = "") -> Figure:
    """Weights (h, T, S) as h maps beside each other, long sentences two in a row; each row of each map sums to 1."""
    across = len(alpha) if len(columns) <= 8 else 2
    down = math.ceil(len(alpha) / across)
    wide, high = max(2.0, 0.24 * len(columns) + 0.75), max(2.5, 0.27 * len(rows) + 1.2)
    figure = Figure(figsize=(wide * across + 0.8, high * down + 0.4))
    axes = figure.subplots(down, across, squeeze=False)
    for i, ax in enumerate(axes.flat):
        if i >= len(alpha):
            ax.set_axis_off()
            continue
        image = ax.imshow(np.asarray(alpha[i], dtype=float), cmap=MAP, vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(rows)), rows if i % across == 0 else [""] * len(rows))
        ax.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        ax.grid(False, which="major")
        ax.grid(which="minor", color="#e5e7eb", linewidth=0.8)
        ax.tick_params(which="both", length=0, labelsize=9)
        ax.set_title(f"head {i + 1}")
    figure.colorbar(image, ax=axes, label="attention weight", fraction=0.03, pad=0.01)
    figure.suptitle(title, x=0.01, ha="left")
    return figure
