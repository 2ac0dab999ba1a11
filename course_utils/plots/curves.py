"""Curves: loss by step, accuracy by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from course_utils.plots.style import FAINT, MARKERS, new_figure, plain_log_ticks


def loss_curves(losses: Mapping[str, Sequence[float]], smooth: int = 20) -> Figure:
    """Training loss by step, one line a model, each a running mean over ``smooth`` steps."""
    figure, (ax,) = new_figure(7.5, 3.2)
    for name, values in losses.items():
        window = min(smooth, max(1, len(values)))
        ax.plot(np.convolve(values, np.ones(window) / window, mode="valid"), label=name)
    ax.set(xlabel="training step", ylabel="loss per token (nats)", yscale="log")
    plain_log_ticks(ax.yaxis)
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
        width: how many lengths share one point. Bars are 95% confidence intervals (Wilson).
    """
    figure, (ax,) = new_figure(7.5, 3.8)
    for (name, (lengths, right)), marker in zip(results.items(), MARKERS, strict=False):
        middles, means, errors = _by_length(np.asarray(lengths), np.asarray(right, dtype=float), width)
        ax.errorbar(middles, means, errors, label=name, marker=marker, capsize=3)
    if seen is not None:
        ax.axvspan(seen + 0.5, ax.get_xlim()[1], color="#f3f4f6", zorder=0)
        ax.text(seen + 0.6, 1.06, "longer than any in training", color=FAINT, va="bottom")
    ax.set(xlabel="source length (English words)", ylabel="exact match", ylim=(-0.03, 1.05))
    if len(results) > 1:
        ax.legend(frameon=False, loc="center left" if seen is None else "lower left")
    return figure


def _by_length(lengths: np.ndarray, right: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle of each group of lengths, share of right ones, and (2, groups) distances to Wilson's 95% interval."""
    groups = (lengths - 1) // width
    found = np.unique(groups)
    count = np.array([(groups == g).sum() for g in found])
    mean = np.array([right[groups == g].mean() for g in found])
    z = 1.96
    middle = (mean + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(mean * (1 - mean) / count + (z / (2 * count)) ** 2) / (1 + z**2 / count)
    errors = np.stack([mean - (middle - half), (middle + half) - mean]).clip(min=0)
    return found * width + (width + 1) / 2, mean, errors
