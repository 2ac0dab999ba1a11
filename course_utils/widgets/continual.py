"""Lesson 10: what momentum remembers, and when slow levels move."""

from __future__ import annotations

import ipywidgets as ipw

from course_utils import plots
from course_utils.widgets.explorer import Explorer


def memory_explorer() -> Explorer:
    """A slider for momentum's beta, and the weight of each past gradient."""
    beta = ipw.FloatSlider(value=0.9, min=0.0, max=0.99, step=0.01, description="beta", continuous_update=False)
    return Explorer(lambda beta: plots.memory_weights(beta), {"beta": beta})


def frequency_explorer() -> Explorer:
    """Three sliders for the periods of three levels, and the steps at which each one updates."""

    def period(value: int, label: str) -> ipw.IntSlider:
        return ipw.IntSlider(value=value, min=1, max=64, description=label, continuous_update=False)

    controls = {f"level_{i}": period(value, f"level {i}") for i, value in enumerate((1, 8, 64))}
    return Explorer(lambda **periods: plots.update_times(list(periods.values())), controls)
