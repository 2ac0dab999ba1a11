"""An exercise as data: a reference, random cases, and the mistakes that people really make."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Case:
    """One call of the answer. ``note`` says in words what is special about it ("with one source word")."""

    args: tuple[Any, ...]
    note: str = ""


@dataclass(frozen=True)
class Misconception:
    """A known wrong function, and what to say to the person who wrote it (about the idea, not the numbers).

    ``also`` holds the same mistake as it looks in other hands, often together with a second, smaller slip.
    """

    name: str
    function: Callable[..., Any]
    message: str
    also: tuple[Callable[..., Any], ...] = ()

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.function, *self.also


class NoGradient(Exception):
    """The arguments carry a gradient and the result does not: training could not reach what lies behind it."""


def call(answer: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """One plain call. Raises NoGradient when ``Draw.tracked`` arguments give a result without their gradient."""
    value = answer(*args)
    if any(isinstance(a, torch.Tensor) and a.requires_grad for a in args) and _cut_off(value):
        raise NoGradient("no gradient gets from the result back to the arguments")
    return value


def _cut_off(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_cut_off, value))
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() and not value.requires_grad
    return isinstance(value, float)


def _loses_the_gradient(*_args: Any) -> Any:
    raise NoGradient


# For every exercise whose arguments are ``Draw.tracked``.
NO_GRADIENT = Misconception(
    "no gradient gets through",
    _loses_the_gradient,
    "Somewhere on the way your numbers leave torch's record of how they were computed: `.item()`, `.tolist()`, "
    "`.detach()`, `.numpy()`, `torch.no_grad()` and `torch.tensor(...)` around results all do that. The printed "
    "numbers look the same, which is why nothing seems wrong. In training no gradient would come back through this "
    "function, and the weights before it would never learn.",
)


@dataclass(frozen=True)
class Exercise:
    """Everything that ``check`` and ``course grade`` know about one exercise.

    ``cases`` draws fresh arguments from a ``Draw``. ``drive`` says how the answer is used where one plain call is
    not enough (a decoder step that is run several times). ``views_allowed`` is for answers that only slice or reshape.
    """

    id: str
    title: str
    points: int
    function: str  # the name that the learner defines
    reference: Callable[..., Any]
    cases: Callable[[Draw], Iterable[Case]]
    misconceptions: tuple[Misconception, ...]
    why: str  # one sentence, shown after a pass
    drive: Callable[[Callable[..., Any], tuple[Any, ...]], Any] = call
    views_allowed: bool = False
    bonus: bool = False

    @property
    def lesson(self) -> int:
        return int(self.id.split(".")[0])

    def draw_cases(self, seed: int) -> list[Case]:
        """The same seed gives the same cases, in this process or another."""
        return list(self.cases(Draw(seed)))


class TooManySteps(Exception):
    """Raised by a case's own callables when an answer keeps calling them for ever."""


def seed_for(exercise_id: str, salt: str = "") -> int:
    """A seed that depends on the exercise alone, so that grading twice gives the same marks."""
    return int.from_bytes(hashlib.sha256(f"{exercise_id}/{salt}".encode()).digest()[:6], "big")


class Draw:
    """A source of random arguments in NumPy and in torch, from one seed."""

    def __init__(self, seed: int) -> None:
        self.python = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def sizes(self, count: int, low: int = 2, high: int = 9) -> list[int]:
        """``count`` sizes, all different, so that a wrong axis cannot hide."""
        return self.python.sample(range(low, high + 1), count)

    def integer(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return self.python.randint(low, high)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.randn(*shape, generator=self.torch, dtype=torch.float64).to(dtype)

    def tracked(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """As ``normal``, within a computation that is to be differentiated."""
        # A clone, since torch forbids changing a leaf in place: ``check`` has better words for that.
        return self.normal(*shape, dtype=dtype).requires_grad_().clone()

    def array(self, *shape: int) -> np.ndarray:
        return self.numpy.normal(size=shape)

    def lengths(self, batch: int, longest: int, shortest: int = 1) -> torch.Tensor:
        """(batch,) lengths, one of them ``longest`` and, for a batch of two or more, one of them shorter."""
        drawn = [
            longest,
            *(self.python.randint(shortest, max(shortest, longest - 1)) for _ in range(batch - 1)),
        ]
        self.python.shuffle(drawn)
        return torch.tensor(drawn)

    def padding_mask(self, batch: int, length: int) -> torch.Tensor:
        """(batch, length), True = a real token; every row has one at least."""
        return torch.arange(length) < self.lengths(batch, length)[:, None]
