"""What a class's marks say together: points by learner and by exercise, and the commonest misconceptions."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from course_utils.checks import find
from course_utils.grading.gradebook import Result
from course_utils.grading.report import ExerciseReport

SEEN = ("passed", "wrong", "error", "timeout", "kernel_died")  # an attempt was made


@dataclass
class Learner:
    """One learner's notebooks. An exercise that was handed in twice counts once, with the better mark."""

    name: str
    results: list[Result] = field(default_factory=list)

    @property
    def best(self) -> dict[str, ExerciseReport]:
        """Exercise id -> the report with the most points."""
        found: dict[str, ExerciseReport] = {}
        for result in self.results:
            for exercise in result.report.exercises:
                known = found.get(exercise.id)
                if known is None or exercise.points > known.points:
                    found[exercise.id] = exercise
        return found

    @property
    def points(self) -> int:
        return sum(e.points for e in self.best.values())

    @property
    def possible(self) -> int:
        return sum(e.possible for e in self.best.values() if not e.bonus)

    @property
    def remarks(self) -> list[str]:
        """What could not be graded, and what the instructor should know."""
        found = []
        for result in self.results:
            said = [result.report.message] if result.report.status == "invalid" else []
            found.extend(f"{result.notebook}: {text}" for text in (*said, *result.report.tampering))
        return found


@dataclass(frozen=True)
class Exercise:
    """How the class did in one exercise. ``passed`` and ``tried`` count learners; ``mean`` is over all of them."""

    id: str
    title: str
    possible: int
    mean: float
    passed: int
    tried: int


@dataclass(frozen=True)
class Summary:
    learners: list[Learner]
    exercises: list[Exercise]
    misconceptions: list[tuple[str, str, int]]  # (exercise id, name, learners), the commonest first


def summarise(results: Iterable[Result]) -> Summary:
    learners: dict[str, Learner] = {}
    for result in results:
        learners.setdefault(result.learner, Learner(result.learner)).results.append(result)
    by_exercise: dict[str, list[ExerciseReport]] = defaultdict(list)
    mistakes: Counter[tuple[str, str]] = Counter()
    for learner in learners.values():
        for exercise in learner.best.values():
            by_exercise[exercise.id].append(exercise)
            if exercise.misconception:
                mistakes[exercise.id, exercise.misconception] += 1
    ordered = sorted(by_exercise, key=order)
    commonest = sorted(mistakes.items(), key=lambda item: (-item[1], order(item[0][0]), item[0][1]))
    return Summary(
        [learners[name] for name in sorted(learners)],
        [_exercise(by_exercise[exercise_id]) for exercise_id in ordered],
        [(exercise_id, name, count) for (exercise_id, name), count in commonest],
    )


def _exercise(reports: list[ExerciseReport]) -> Exercise:
    first = reports[0]
    return Exercise(
        first.id,
        first.title,
        first.possible,
        sum(e.points for e in reports) / len(reports),
        sum(e.status == "passed" for e in reports),
        sum(e.status in SEEN for e in reports),
    )


def order(exercise_id: str) -> tuple[int, ...]:
    """Exercise 10.2 comes after 2.10."""
    return tuple(int(part) for part in exercise_id.split("."))


def message_of(exercise_id: str, misconception: str) -> str:
    """What the learner is told about a misconception; empty for one that is not listed with its exercise."""
    exercise = find(exercise_id)
    known = exercise.misconceptions if exercise else ()
    return next((m.message for m in known if m.name == misconception), "")


def as_csv(summary: Summary) -> str:
    """One line a learner: points, a column for each exercise, and remarks. An empty field: not handed in."""
    text = io.StringIO()
    ids = [e.id for e in summary.exercises]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["learner", "points", "possible", *ids, "remarks"])
    for learner in summary.learners:
        marks: Mapping[str, ExerciseReport] = learner.best
        points = [marks[i].points if i in marks else "" for i in ids]
        row = [
            _harmless(learner.name),
            learner.points,
            learner.possible,
            *points,
            _harmless(" | ".join(learner.remarks)),
        ]
        writer.writerow(row)
    return text.getvalue()


def _harmless(text: str) -> str:
    """A name that a spreadsheet would take for a formula, as text."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
