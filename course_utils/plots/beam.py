"""Lesson 09: what a beam search found."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from course_utils.plots.style import COLOURS, FAINT, new_figure


def hypothesis_bars(found: Sequence[tuple[str, float, int]]) -> Figure:
    """(translation, score, tokens) from best to worst: a bar for each score, the sentence above it.

    A score is a log-probability divided by the length penalty: at most 0, and the nearer to it the better.
    """
    figure, (ax,) = new_figure(9.5, 0.62 * len(found) + 0.9)
    places = range(len(found))
    ax.barh(places, [score for _, score, _ in found], color=COLOURS[0], height=0.28)
    lowest = min((score for _, score, _ in found), default=-1.0)
    for i, (text, score, tokens) in enumerate(found):
        ax.text(lowest * 1.02, i - 0.24, text, ha="left", va="bottom", fontsize=10.5)
        ax.text(0.02 * abs(lowest), i, f"{score:.2f}, {tokens} tokens", va="center", color=FAINT, fontsize=9.5)
    ax.set(xlim=(lowest * 1.04 - 0.01, 0.3 * abs(lowest) + 0.01), xlabel="score (log-probability / length penalty)")
    ax.set_yticks([])
    ax.set_xticks([tick for tick in ax.get_xticks() if lowest * 1.04 <= tick <= 0])
    ax.set_ylim(len(found) - 0.6, -0.85)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="y", visible=False)
    return figure
