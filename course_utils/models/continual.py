"""Lesson 10: methods against forgetting, and Nested Learning's building blocks in miniature.

Behrouz, Razaviyayn, Zhong and Mirrokni (2025), "Nested Learning: The Illusion of Deep Learning Architectures". Where a
docstring says "our simplification", the paper's construction is larger than what stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import nn


def momentum(gradients: torch.Tensor, beta: float) -> torch.Tensor:
    """m_t = beta m_{t-1} + (1 - beta) g_t from m_0 = 0; gradients (T, ...) -> all m_t (T, ...)."""
    memory, history = torch.zeros_like(gradients[0]), []
    for gradient in gradients:
        memory = beta * memory + (1 - beta) * gradient
        history.append(memory)
    return torch.stack(history)


def momentum_by_descent(memory: torch.Tensor, gradient: torch.Tensor, beta: float) -> torch.Tensor:
    """One step of gradient descent, of size 1 - beta, on L(m) = -<m, g> + |m|^2 / 2.

    The first term asks m to agree with the gradient, the second keeps it small. The step gives
    m - (1 - beta)(m - g) = beta m + (1 - beta) g: momentum is itself an optimiser, one level further in, and what it
    trains is a memory of gradients.
    """
    slope = memory - gradient
    return memory - (1 - beta) * slope


class DeepMomentum(nn.Module):
    """Momentum whose memory is a small network instead of one vector (our simplification).

    ``remember`` makes one step of gradient descent on |f(g) - g|^2 / 2, so that f recalls gradients like those it has
    seen; what it recalls for the newest gradient is the step to take. A linear f with weight decay is plain momentum's
    relative; with a bend in the middle it can keep more than one direction apart.
    """

    def __init__(self, size: int, hidden: int = 32, rate: float = 0.1) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, hidden, bias=False), nn.Tanh(), nn.Linear(hidden, size, bias=False))
        self.rate = rate

    def remember(self, gradient: torch.Tensor) -> torch.Tensor:
        """(size,) -> (size,): store the gradient, return what the memory now recalls for it."""
        error = (self.net(gradient) - gradient).square().sum() / 2
        slopes = torch.autograd.grad(error, list(self.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(self.parameters(), slopes, strict=True):
                parameter -= self.rate * slope
            return self.net(gradient)


def due_levels(step: int, periods: Sequence[int]) -> list[int]:
    """The levels that update at ``step`` = 0, 1, ...: a level is due when it has gathered ``period`` gradients."""
    return [level for level, period in enumerate(periods) if (step + 1) % period == 0]


class ContinuumOptimiser:
    """A continuum memory system's updates: level l moves every ``periods[l]`` steps, by what it has accumulated.

    The paper chains MLP blocks of different update frequency; here the levels are groups of an existing model's
    parameters, and each level's mean gradient over its period goes through Adam (our simplification).
    """

    def __init__(self, levels: Sequence[Iterable[nn.Parameter]], periods: Sequence[int], rate: float) -> None:
        if len(levels) != len(periods) or any(period < 1 for period in periods):
            raise ValueError("There must be one period of at least 1 for each level.")
        self.levels, self.periods, self.steps = [list(level) for level in levels], list(periods), 0
        self.optimisers = [torch.optim.Adam(level, lr=rate) for level in self.levels]

    def zero_grad(self) -> None:
        """Forget the gradients of the levels that have just used theirs; the others go on adding up."""
        for level in due_levels(self.steps - 1, self.periods):
            self.optimisers[level].zero_grad()

    def step(self) -> None:
        due = due_levels(self.steps, self.periods)
        self.steps += 1
        for level in due:
            for parameter in self.levels[level]:
                if parameter.grad is not None:
                    parameter.grad /= self.periods[level]
            self.optimisers[level].step()

    def scale(self, factor: float, peak: float) -> None:
        """Set the rate of every level to ``factor`` times ``peak``."""
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = factor * peak


def fisher(model: nn.Module, losses: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    """The diagonal of the empirical Fisher information: the mean squared gradient of each weight, scaled to mean 1.

    Kirkpatrick et al. (2017), section 2. At convergence the raw numbers are tiny (1e-11 here), and a penalty with them
    does nothing; scaled, lambda has the same meaning for every model.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    total, count = [torch.zeros_like(p) for p in parameters], 0
    for loss in losses:
        for sum_, gradient in zip(total, torch.autograd.grad(loss, parameters), strict=True):
            sum_ += gradient.square()
        count += 1
    mean = sum(t.sum() for t in total) / sum(t.numel() for t in total)
    return [t / mean for t in total] if count else total


def ewc_penalty(model: nn.Module, importance: Sequence[torch.Tensor], strength: float) -> Callable[[], torch.Tensor]:
    """Elastic weight consolidation: strength / 2 * sum F_i (w_i - w_i*)^2, w* being the weights now (equation 3)."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    anchors = [p.detach().clone() for p in parameters]

    def penalty() -> torch.Tensor:
        parts = [(f * (p - a).square()).sum() for f, p, a in zip(importance, parameters, anchors, strict=True)]
        return strength / 2 * sum(parts)

    return penalty


def forgetting(accuracy: torch.Tensor) -> float:
    """Mean over earlier tasks of (best accuracy ever - accuracy at the end).

    ``accuracy`` (tasks, tasks): row i is measured after training on task i, column j is task j (Chaudhry et al. 2018).
    """
    earlier = accuracy[:, :-1]
    return (earlier.max(dim=0).values - earlier[-1]).mean().item()
