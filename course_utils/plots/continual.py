"""Lesson 10: learning one thing after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from course_utils.plots.style import COLOURS, FAINT, MARKERS, new_figure


def two_tasks_over_time(panels: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[float]]]) -> Figure:
    """Title -> (steps, accuracy on the old task, on the new one), a panel each."""
    figure, axes = new_figure(3.4 * len(panels), 3.0, columns=len(panels))
    for ax, (title, (steps, old, new)) in zip(axes, panels.items(), strict=True):
        ax.plot(steps, old, marker="o", markersize=5, label="Korean (old)", color=COLOURS[0])
        ax.plot(steps, new, marker="s", markersize=5, label="German (new)", color=COLOURS[1])
        ax.set(xlabel="step of the second phase", ylim=(-0.04, 1.04))
        ax.set_title(title, fontsize=11)
    axes[0].set_ylabel("exact match")
    axes[-1].legend(frameon=False, loc="center right")
    return figure


def trade_off(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Name -> (accuracy on the new task, on the old one) along the second phase. Up and to the right is better."""
    figure, (ax,) = new_figure(6.6, 4.4)
    for (name, (new, old)), marker, colour in zip(curves.items(), MARKERS * 2, COLOURS * 2, strict=False):
        ax.plot(new, old, marker=marker, markersize=6, label=name, color=colour, linewidth=1.4)
    ax.set(
        xlabel="German (new), exact match", ylabel="Korean (old), exact match", xlim=(-0.04, 1.04), ylim=(-0.04, 1.04)
    )
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def update_times(periods: Sequence[int], steps: int = 64) -> Figure:
    """A row a level: at which steps it updates."""
    figure, (ax,) = new_figure(8.5, 0.5 * len(periods) + 1.1)
    for level, period in enumerate(periods):
        times = np.arange(period - 1, steps, period)
        ax.plot(times, np.full(len(times), level), "|", markersize=14, color=COLOURS[level % len(COLOURS)], mew=2)
    ax.set_yticks(range(len(periods)), [f"level {i}, every {p}" for i, p in enumerate(periods)])
    ax.set(xlabel="step", xlim=(-1, steps), ylim=(len(periods) - 0.5, -0.5))
    ax.grid(axis="y", visible=False)
    return figure


def memory_weights(beta: float, shown: int = 50) -> Figure:
    """How much each past gradient weighs in momentum, the newest first, and how many carry half of it."""
    ages = np.arange(shown)
    weights = (1 - beta) * beta**ages
    half = int(np.ceil(np.log(0.5) / np.log(beta))) if 0 < beta < 1 else 1
    figure, (ax,) = new_figure(8.0, 3.0)
    colours = [COLOURS[0] if age < half else "#c7d7e2" for age in ages]
    ax.bar(ages, weights, color=colours, width=0.8)
    ax.set(xlabel="steps ago", ylabel="weight in the momentum", xlim=(-0.8, shown))
    ax.set_title(f"β = {beta:.2f}: the newest {half} (dark) carry half of it", fontsize=11)
    ax.text(shown - 1, weights[0] * 0.85, f"sum of these {shown}: {weights.sum():.2f}", ha="right", color=FAINT)
    return figure
