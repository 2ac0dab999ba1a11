"""Lesson 10: measuring forgetting, levels of different frequency, and momentum as a memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from course_utils.checks.exercise import Case, Draw, Exercise, Misconception

# 10.1 ----------------------------------------------------------------------------------------------------------------


def forgetting(accuracy: torch.Tensor) -> float:
    """accuracy (n, n), row i after training on task i, column j on task j: mean over j < n of best - final."""
    earlier = accuracy[:, :-1]
    return (earlier.max(dim=0).values - earlier[-1]).mean().item()


def _accuracy_cases(draw: Draw) -> Iterator[Case]:
    def table(n: int) -> torch.Tensor:
        return torch.rand(n, n, generator=draw.torch, dtype=torch.float64)

    yield Case((table(draw.integer(3, 4)),))
    yield Case((table(draw.integer(5, 7)),))
    yield Case((table(2),), "for two tasks")
    kept = table(4)
    kept[-1] = 1.0
    yield Case((kept,), "when nothing was forgotten")
    late = table(4)
    late[2, :3] = 1.0
    yield Case((late,), "when the best came later than the training")


def _lost(
    best: Callable[[torch.Tensor], torch.Tensor], tasks: slice = slice(None, -1), sign: float = 1.0
) -> Callable[[torch.Tensor], float]:
    return lambda accuracy: sign * (best(accuracy) - accuracy[-1])[tasks].mean().item()


FORGETTING = Exercise(
    id="10.1",
    title="Forgetting",
    points=2,
    function="forgetting",
    reference=forgetting,
    cases=_accuracy_cases,
    bonus=True,
    misconceptions=(
        Misconception(
            "last column",
            lambda accuracy: (accuracy[:, :-1].max(dim=1).values - accuracy[:, -1]).mean().item(),
            "You took the last *column* for the end. A column is a task, seen over time; the end of training is the "
            "last row.",
            also=(lambda accuracy: (accuracy.max(dim=1).values - accuracy[:, -1])[:-1].mean().item(),),
        ),
        Misconception(
            "final minus best",
            _lost(lambda a: a.max(dim=0).values, sign=-1.0),
            "Your number is negative where something was forgotten. Forgetting is what was lost: the best minus what "
            "is left.",
        ),
        Misconception(
            "includes the last task",
            _lost(lambda a: a.max(dim=0).values, slice(None)),
            "The last task is in your mean. It has only just been learned, so there was no time to forget it; it pulls "
            "the mean towards zero.",
        ),
        Misconception(
            "first against last",
            _lost(lambda a: a[0]),
            "You compare the end with the very beginning, after the first task. A task that came later had not been "
            "learned then.",
        ),
        Misconception(
            "just after learning",
            _lost(lambda a: a.diagonal()),
            "You compare the end with the moment just after each task was trained. A later task may have improved it "
            "first; what can be lost is the best it ever was.",
        ),
        Misconception(
            "sum",
            lambda accuracy: (accuracy[:, :-1].max(dim=0).values - accuracy[-1, :-1]).sum().item(),
            "You added up over tasks. A mean can be compared between three tasks and ten.",
        ),
        Misconception(
            "only the first task",
            lambda accuracy: (accuracy[:, 0].max() - accuracy[-1, 0]).item(),
            "You looked at the first task alone. With two tasks that is all there is; with more, each earlier one "
            "counts.",
        ),
    ),
    why="Each earlier task's best minus what is left of it; the newest task has had no time to be forgotten.",
)

# 10.2 ----------------------------------------------------------------------------------------------------------------


def due_levels(step: int, periods: Sequence[int]) -> list[int]:
    """The levels that update at ``step`` = 0, 1, ...: level l has gathered ``periods[l]`` gradients since last time."""
    return _due(1)(step, periods)


def _due(offset: int) -> Callable[[int, Sequence[int]], list[int]]:
    return lambda step, periods: [level for level, period in enumerate(periods) if (step + offset) % period == 0]


def _due_cases(draw: Draw) -> Iterator[Case]:
    periods = [1, 4, 16]
    yield Case((draw.integer(1, 30) * 4 - 1, periods))
    yield Case((draw.integer(1, 9) * 16 - 1, periods))
    yield Case((draw.integer(1, 9) * 16 + 1, periods))
    yield Case((0, periods), "at step 0")
    yield Case((15, [1, 8, 64]), "at step 15")
    yield Case((16, [1, 8, 64]), "at step 16")
    yield Case((63, [1, 8, 64]), "at step 63")
    yield Case((11, [3, 2, 5]), "when periods are not in order")
    yield Case((2, [5, 7]), "when no level is due")
    yield Case((draw.integer(0, 50), [1, 1]), "when every level has period 1")


DUE_LEVELS = Exercise(
    id="10.2",
    title="Which levels are due?",
    points=2,
    function="due_levels",
    reference=due_levels,
    cases=_due_cases,
    bonus=True,
    misconceptions=(
        Misconception(
            "every level",
            lambda step, periods: list(range(len(periods))),
            "All levels update at every step. Then there is one frequency, and the slow levels are as forgetful as the "
            "fast ones.",
        ),
        Misconception(
            "off by one at step 0",
            _due(0),
            "At step 0 all your levels are due, although the slow ones have seen a single gradient. Steps are counted "
            "from 0, so after step 0 a level has gathered one gradient.",
        ),
        Misconception(
            "off by one the other way",
            _due(2),
            "Your levels are due one step too early: at step s a level has gathered s + 1 gradients since the start.",
            also=(_due(-1),),
        ),
        Misconception(
            "the periods instead of the levels",
            lambda step, periods: [period for period in periods if (step + 1) % period == 0],
            "You return the periods of the levels that are due. Asked are the levels, counted from 0.",
        ),
        Misconception(
            "booleans",
            lambda step, periods: [(step + 1) % period == 0 for period in periods],
            "You return for each level whether it is due. Asked is the list of those that are.",
        ),
        Misconception(
            "levels that wait",
            lambda step, periods: [level for level, period in enumerate(periods) if (step + 1) % period],
            "You return the levels that are *not* due.",
        ),
        Misconception(
            "only the slowest",
            lambda step, periods: _due(1)(step, periods)[-1:],
            "One level only. Whenever a slow level is due, the faster ones, whose periods divide its own, are due "
            "as well.",
        ),
        Misconception(
            "at least the period",
            lambda step, periods: [level for level, period in enumerate(periods) if step + 1 >= period],
            "Once its period has passed, your level is due at every step. It is due once in a period.",
        ),
    ),
    why="A level with period C moves once in C steps, by what those C gradients add up to.",
)

# 10.3 ----------------------------------------------------------------------------------------------------------------


def momentum_as_memory(gradients: torch.Tensor, beta: float) -> torch.Tensor:
    """gradients (T, ...) -> the momentum after all of them: sum over t of (1 - beta) beta^(T - 1 - t) g_t."""
    return _weighted(lambda T, beta: (1 - beta) * _back(T, beta))(gradients, beta)


def _weighted(weights: Callable[[int, float], torch.Tensor]) -> Callable[[torch.Tensor, float], torch.Tensor]:
    return lambda gradients, beta: torch.tensordot(
        weights(len(gradients), beta).to(gradients.dtype), gradients, dims=([0], [0])
    )


def _back(T: int, beta: float) -> torch.Tensor:
    """beta to the power of how long ago each gradient was."""
    return beta ** torch.arange(T - 1, -1, -1, dtype=torch.float64)


def _momentum_cases(draw: Draw) -> Iterator[Case]:
    def numbers(*shape: int) -> torch.Tensor:
        return draw.normal(*shape, dtype=torch.float32)  # powers of beta are float32 unless one asks for more

    T, D = draw.sizes(2, low=4)
    yield Case((numbers(T, D), 0.9))
    yield Case((numbers(T + 9, D), 0.7))
    yield Case((numbers(T, D, 3), 0.8), "for gradients of a matrix")
    yield Case((numbers(1, D), 0.9), "with a single gradient")
    yield Case((numbers(T, D), 0.0), "when beta is 0")
    yield Case((numbers(200, D), 0.99), "for 200 gradients")


MOMENTUM_AS_MEMORY = Exercise(
    id="10.3",
    title="Momentum as a memory",
    points=2,
    function="momentum_as_memory",
    reference=momentum_as_memory,
    cases=_momentum_cases,
    bonus=True,
    misconceptions=(
        Misconception(
            "weights reversed",
            _weighted(lambda T, beta: (1 - beta) * _back(T, beta).flip(0)),
            "Your oldest gradient weighs most. Momentum forgets: the newest has weight 1 − β, and each step further "
            "back loses a factor of β.",
        ),
        Misconception(
            "factor missing or doubled",
            _weighted(_back),
            "The factor 1 − β is not there once for each gradient. Every gradient enters with 1 − β, once, and is then "
            "multiplied by β at every later step.",
            also=(
                _weighted(lambda T, beta: (1 - beta) ** 2 * _back(T, beta)),
                _weighted(lambda T, beta: torch.cat([_back(T, beta)[:-1] * (1 - beta), torch.ones(1)])),
            ),
        ),
        Misconception(
            "one power too many",
            _weighted(lambda T, beta: (1 - beta) * beta * _back(T, beta)),
            "The newest gradient has been multiplied by β already. It has only just come in.",
        ),
        Misconception(
            "starts with the first gradient",
            _weighted(lambda T, beta: torch.cat([_back(T, beta)[:1], (1 - beta) * _back(T, beta)[1:]])),
            "Your memory starts with the first gradient in full. It starts at zero, so the first one enters with 1 − β "
            "as all others do.",
        ),
        Misconception(
            "weights made to sum to 1",
            _weighted(lambda T, beta: _back(T, beta) / _back(T, beta).sum()),
            "Your weights sum to 1. Adam corrects its averages in this way; plain momentum from zero has weights that "
            "sum to 1 − β^T, less than 1 at the start.",
        ),
        Misconception(
            "beta and 1 − beta exchanged",
            _weighted(lambda T, beta: beta * _back(T, 1 - beta)),
            "β and 1 − β have changed places. β is what is kept.",
        ),
        Misconception(
            "mean",
            lambda gradients, beta: gradients.mean(dim=0),
            "All gradients weigh the same, and β has no say.",
        ),
        Misconception(
            "all steps instead of the last",
            lambda gradients, beta: torch.stack(
                [_weighted(lambda T, b: (1 - b) * _back(T, b))(gradients[: t + 1], beta) for t in range(len(gradients))]
            ),
            "You return the momentum of every step. Asked is the one after the last gradient.",
        ),
    ),
    why="Momentum is a memory in which every gradient fades by β a step: with β = 0.9 half of it is the last seven.",
)

EXERCISES = (FORGETTING, DUE_LEVELS, MOMENTUM_AS_MEMORY)
