"""Which misconceptions were commonest in a class."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from course_utils.plots.style import new_figure


def misconception_bars(misconceptions: Sequence[tuple[str, str, int]], learners: int, most: int = 12) -> Figure:
    """The ``most`` commonest misconceptions as bars.

    Args:
        misconceptions: (exercise id, name, number of learners), the commonest first.
        learners: how many there are in the class.
    """
    shown = list(misconceptions[:most])[::-1]
    figure, [axes] = new_figure(8.5, 1.2 + 0.42 * max(1, len(shown)))
    names = [textwrap.shorten(f"{exercise_id}  {name}", 56, placeholder=" …") for exercise_id, name, _ in shown]
    counts = [count for *_, count in shown]
    bars = axes.barh(range(len(shown)), counts, height=0.65)
    axes.bar_label(bars, padding=3)
    axes.set_yticks(range(len(shown)), names)
    axes.set_xlim(0, max([*counts, 1]) * 1.12)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(f"learners with this diagnosis, of {learners}")
    axes.set_title("The commonest misconceptions")
    axes.grid(axis="y", visible=False)
    return figure
