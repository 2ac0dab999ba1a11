"""The exercises, one module a lesson; ``exercises()`` and ``find()`` load them when they are asked for."""

from __future__ import annotations

import importlib
import pkgutil
import re

from course_utils.checks.exercise import Case, Draw, Exercise, Misconception, TooManySteps, seed_for

__all__ = [
    "Case",
    "Draw",
    "Exercise",
    "Misconception",
    "TooManySteps",
    "exercises",
    "find",
    "lessons",
    "seed_for",
]


def lessons() -> list[int]:
    """The numbers of the lessons that have graded exercises."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(int(name.removeprefix("lesson")) for name in names if re.fullmatch(r"lesson\d\d", name))


def exercises(lesson: int) -> tuple[Exercise, ...]:
    """The exercises of one lesson, in order; empty for a lesson that has none."""
    if lesson not in lessons():
        return ()
    return importlib.import_module(f"{__name__}.lesson{lesson:02d}").EXERCISES


def find(exercise_id: str) -> Exercise | None:
    """The exercise with this id ("3.2"), or None."""
    match = re.fullmatch(r"(\d{1,2})\.(\d{1,2})", exercise_id)
    if match is None:
        return None
    return next((e for e in exercises(int(match[1])) if e.id == exercise_id), None)
