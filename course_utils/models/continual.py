"""Lesson 10: methods against forgetting, and Nested Learning's building blocks in miniature.

Behrouz, Razaviyayn, Zhong and Mirrokni (2025), "Nested Learning: The Illusion of Deep Learning Architectures".
Equations and sections are those of the text on arXiv, 2512.24695; the shorter NeurIPS text numbers them otherwise.
Where a docstring says "our simplification", the paper's construction is larger than what stands here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import nn

from course_utils.models.normalization import FeedForward


def momentum(gradients: torch.Tensor, beta: float) -> torch.Tensor:
    """m_t = beta m_{t-1} + (1 - beta) g_t from m_0 = 0; gradients (T, ...) -> all m_t (T, ...).

    The paper's equation 33 has the two factors as free rates alpha and eta, and the minus sign of the descent inside m.
    """
    memory, history = torch.zeros_like(gradients[0]), []
    for gradient in gradients:
        memory = beta * memory + (1 - beta) * gradient
        history.append(memory)
    return torch.stack(history)


def momentum_by_descent(memory: torch.Tensor, gradient: torch.Tensor, beta: float) -> torch.Tensor:
    """One step of gradient descent, of size 1 - beta, on L(m) = -<m, g> + |m|^2 / 2.

    The first term asks m to agree with the gradient, the second keeps it small. The step gives
    m - (1 - beta)(m - g) = beta m + (1 - beta) g: momentum is itself an optimiser, one level further in, and what it
    trains is a memory of gradients. The paper's equation 34 is the first term; the second is the "l2-regularization"
    that its text adds for alpha other than 1.
    """
    slope = memory - gradient
    return memory - (1 - beta) * slope


class DeepMomentum(nn.Module):
    """Deep momentum (the paper's equation 50): the memory of gradients is a small network m, and m(u) is the step.

    W' = W + m'(u) and m' = alpha m - rate * dL2/dm, where u is the newest gradient. The paper leaves the inner
    objective L2 open. Here it is |m(u) + u|^2 / 2, as in its delta momentum (equations 48 and 49): m learns to answer a
    gradient with the way down (our choice, and so are the two layers).
    """

    def __init__(
        self, size: int, hidden: int = 32, rate: float = 0.1, alpha: float = 1.0, linear: bool = False
    ) -> None:
        super().__init__()
        layers = [nn.Linear(size, hidden, bias=False), nn.Tanh(), nn.Linear(hidden, size, bias=False)]
        self.net = nn.Linear(size, size, bias=False) if linear else nn.Sequential(*layers)
        self.rate, self.alpha = rate, alpha

    def remember(self, gradient: torch.Tensor) -> torch.Tensor:
        """(size,) -> (size,): store the newest gradient, return the step that the memory now answers it with."""
        with torch.enable_grad():
            error = (self.net(gradient) + gradient).square().sum() / 2
        slopes = torch.autograd.grad(error, list(self.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(self.parameters(), slopes, strict=True):
                parameter.mul_(self.alpha).sub_(self.rate * slope)
            return self.net(gradient)


def due_levels(step: int, periods: Sequence[int]) -> list[int]:
    """The levels that update at ``step`` = 0, 1, ...: a level is due when it has gathered ``period`` gradients."""
    return [level for level, period in enumerate(periods) if (step + 1) % period == 0]


class ContinuumMemory(nn.Module):
    """A continuum memory system (the paper's equation 70): y = MLP_k(... MLP_1(x)), position by position.

    Each block is to be updated at its own frequency, which ``ContinuumOptimiser`` does. The width is shared out, so
    that the chain has about as many parameters as one feed-forward layer of width ``d_ff``.
    """

    def __init__(self, d_model: int, d_ff: int, levels: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(FeedForward(d_model, max(1, d_ff // levels)) for _ in range(levels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        for block in self.blocks:
            x = block(x)
        return x


class ContinuumOptimiser:
    """A continuum memory system's updates (equation 71): level l moves every C_l = ``periods[l]`` steps, by what it has
    accumulated.

    The equation sums the errors of an arbitrary optimiser from i - C_l to i, which taken literally are C_l + 1 terms;
    here they are the C_l since the last update. They are gradients, all taken at the weights of that update, and their
    mean goes through Adam (our simplification), so that one rate serves all levels. No level's start is learned by
    another (equations 72 and 73).
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

    def step(self, clip: float = math.inf) -> None:
        """Move the levels that are due by the mean of their gathered gradients, of norm at most ``clip`` a level.

        Clipped is the finished mean only. Clipping all of ``.grad`` at every step would shrink what a slow level has
        gathered again and again, until little but the newest gradient is left of it.
        """
        due = due_levels(self.steps, self.periods)
        self.steps += 1
        for level in due:
            for parameter in self.levels[level]:
                if parameter.grad is not None:
                    parameter.grad /= self.periods[level]
            nn.utils.clip_grad_norm_(self.levels[level], clip)
            self.optimisers[level].step()

    def scale(self, factor: float, peak: float) -> None:
        """Set the rate of every level to ``factor`` times ``peak``."""
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = factor * peak


def fisher(model: nn.Module, losses: Iterator[torch.Tensor], equal_votes: bool = False) -> list[torch.Tensor]:
    """The diagonal of the empirical Fisher information: the mean squared gradient of each weight, scaled to mean 1.

    Kirkpatrick et al. (2017), section 2. At convergence the raw numbers are tiny (1e-11 here), and a penalty with them
    does nothing; scaled, lambda has the same meaning for every model.

    Args:
        losses: one for each old example.
        equal_votes: scale each example's squared gradients to the same sum first. Without it, a single example that is
            not yet learned can outweigh all others together, and then nothing but that one is protected.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    total, count = [torch.zeros_like(p) for p in parameters], 0
    for loss in losses:
        squares = [gradient.square() for gradient in torch.autograd.grad(loss, parameters)]
        votes = sum(square.sum() for square in squares) if equal_votes else 1.0
        for sum_, square in zip(total, squares, strict=True):
            sum_ += square / votes
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
