"""How the learning rate moves. A schedule gives the factor of the peak rate: ``schedule(step, steps, warmup)``."""

from __future__ import annotations


def warmup_then_decay(step: int, steps: int, warmup: int) -> float:
    """Straight up to 1 over ``warmup`` steps, then straight down to 0 at ``steps``; the first step is 0."""
    return min((step + 1) / max(1, warmup), max(0.0, (steps - step) / max(1, steps - warmup)))


def inverse_root(step: int, _steps: int, warmup: int) -> float:
    """Straight up to 1 over ``warmup`` steps, then falling as 1 / sqrt(step); the first step is 0.

    The curve of ``noam_rate`` with its peak scaled to 1. It does not ask when training will end.
    """
    count, warmup = step + 1, max(1, warmup)
    return min(count / warmup, (warmup / count) ** 0.5)


def noam_rate(step: int, d_model: int, warmup: int) -> float:
    """The rate of Vaswani et al. (2017), equation 3, for step = 1, 2, ...; its peak is (d_model * warmup)^-0.5."""
    if step < 1:
        raise ValueError(f"Steps are counted from 1, and this one is {step}.")
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
