"""Marks as data: one entry an exercise, one a notebook, and all of them as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from course_utils.checks import find

Status = Literal["passed", "wrong", "not_attempted", "error", "timeout", "kernel_died", "missing"]

LESSONS = {
    0: "00_start_here",
    1: "01_seq2seq",
    2: "02_bahdanau_attention",
    3: "03_self_attention",
    4: "04_multi_head",
    5: "05_masking",
    6: "06_add_and_norm",
    7: "07_positional_encoding",
    8: "08_transformer",
    9: "09_training_on_gpu",
    10: "10_nested_learning",
}


@dataclass(frozen=True)
class ExerciseReport:
    """The marks for one exercise; ``message`` is what the learner reads. Bonus points are not among those possible."""

    id: str
    title: str
    status: Status
    points: int
    possible: int
    misconception: str | None = None
    message: str = ""
    bonus: bool = False

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "bonus"}


@dataclass(frozen=True)
class NotebookReport:
    """The marks for one notebook.

    ``status`` is ``graded``, or ``invalid`` for a file that cannot be graded. ``message`` then says why; for a graded
    notebook it names cells outside the exercises that stood in the way, if any did. ``tampering`` tells the instructor
    about attempts to earn points in another way than by answering.
    """

    path: str
    status: Literal["graded", "invalid"]
    lesson: str | None = None
    exercises: tuple[ExerciseReport, ...] = ()
    message: str = ""
    tampering: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        return sum(e.points for e in self.exercises)

    @property
    def possible(self) -> int:
        return sum(e.possible for e in self.exercises if not e.bonus)

    def as_json(self) -> dict[str, Any]:
        data = {
            "path": self.path,
            "lesson": self.lesson,
            "status": self.status,
            "points": self.points,
            "possible": self.possible,
            "exercises": [e.as_json() for e in self.exercises],
        }
        said = {"message": self.message, "tampering": list(self.tampering)}
        return data | {name: value for name, value in said.items() if value}


def from_json(data: dict[str, Any]) -> NotebookReport:
    """The inverse of ``NotebookReport.as_json``."""
    entries = (ExerciseReport(**entry, bonus=_is_bonus(entry["id"])) for entry in data["exercises"])
    return NotebookReport(
        data["path"],
        data["status"],
        data["lesson"],
        tuple(entries),
        data.get("message", ""),
        tuple(data.get("tampering", ())),
    )


def _is_bonus(exercise_id: str) -> bool:
    exercise = find(exercise_id)
    return exercise is not None and exercise.bonus


def as_json(reports: Sequence[NotebookReport]) -> dict[str, Any]:
    """The object that ``course grade --json`` prints, the same for one notebook and for many."""
    return {
        "points": sum(r.points for r in reports),
        "possible": sum(r.possible for r in reports),
        "notebooks": [r.as_json() for r in reports],
    }


def falls_short(reports: Sequence[NotebookReport], percent: float) -> bool:
    """True below ``percent`` of the possible points; a notebook that could not be graded falls short by itself."""
    points, possible = sum(r.points for r in reports), sum(r.possible for r in reports)
    return any(r.status == "invalid" for r in reports) or points < possible * percent / 100
