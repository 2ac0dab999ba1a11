"""``check``: the one line under every exercise."""

from __future__ import annotations

import html
import inspect
import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_utils.checks import Exercise, exercises, find, lessons
from course_utils.grading import progress
from course_utils.grading.judge import check_answer

MARKS = {"passed": "✓", "not_attempted": "○"}  # anything else gets ✗
COLOURS = {"passed": "#0a7d4f", "not_attempted": "#8a8a8a"}  # of the bar; 3 to 1 against both themes
WRONG = "#cf4b42"


@dataclass(frozen=True)
class CheckResult:
    """What ``check`` found. ``status`` is passed, wrong, error or not_attempted."""

    id: str
    title: str
    status: str
    points: int
    possible: int
    message: str = ""
    misconception: str | None = None
    model_answer: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def __str__(self) -> str:
        head = f"{MARKS.get(self.status, '✗')} {self.id} {self.title}: {self._verdict()}"
        return "\n".join([head, *(textwrap.fill(p, 100) for p in self.message.split("\n") if p)])

    def _verdict(self) -> str:
        if self.passed:
            return f"passed, {self.points} of {self.possible} {'point' if self.possible == 1 else 'points'}"
        if self.status == "not_attempted":
            return "not attempted yet"
        return self.misconception or ("your code stopped" if self.status == "error" else "not right yet")

    def _repr_html_(self) -> str:
        head, *rest = str(self).split("\n")
        colour = COLOURS.get(self.status, WRONG)
        # The text keeps the theme's own colour; only the bar is coloured, and the mark says the same without colour.
        parts = [f"<div><b>{html.escape(head)}</b></div>"]
        if rest:
            parts.append(f"<div style='margin-top:.3em'>{_code_spans(html.escape(' '.join(rest)))}</div>")
        if self.model_answer:
            parts.append(
                "<details><summary>One way to write it</summary>"
                f"<pre style='margin:.4em 0'>{html.escape(self.model_answer)}</pre></details>"
            )
        style = f"border-left:4px solid {colour};padding:.3em .8em;max-width:52em;line-height:1.45"
        return f"<div style='{style}'>{''.join(parts)}</div>"

    def _ipython_display_(self) -> None:
        """``check`` has shown the result already; the cell's last value need not be shown again."""


def check(exercise_id: str, answer: Callable[..., Any]) -> CheckResult:
    """Check ``answer`` on fresh random cases, show one line, and return the result.

    Args:
        exercise_id: the exercise, for instance "3.2".
        answer: the function that you wrote, not a call of it.
    """
    result = _check(str(exercise_id), answer)
    _show(result)
    if result.passed:
        progress.record(result.id, result.points)
    return result


def _check(exercise_id: str, answer: Any) -> CheckResult:
    exercise = find(exercise_id)
    if exercise is None:
        return CheckResult(exercise_id, "no such exercise", "error", 0, 0, _known(exercise_id))
    if not callable(answer):
        message = (
            f'Give `check` the function itself, without calling it: `check("{exercise.id}", {exercise.function})`.'
        )
        return CheckResult(exercise.id, exercise.title, "error", 0, exercise.points, message)
    verdict = check_answer(exercise, answer, seed=random.SystemRandom().randrange(2**32))
    passed = verdict.status == "passed"
    return CheckResult(
        exercise.id,
        exercise.title,
        verdict.status,
        exercise.points if passed else 0,
        exercise.points,
        verdict.message,
        verdict.misconception,
        _model_answer(exercise) if passed else "",
    )


def _known(exercise_id: str) -> str:
    lesson = exercise_id.split(".")[0]
    if lesson.isdigit() and int(lesson) in lessons():
        return f"Lesson {lesson} has the exercises {', '.join(e.id for e in exercises(int(lesson)))}."
    return f"Exercises are named like 1.3; lessons with exercises: {', '.join(map(str, lessons()))}."


def _model_answer(exercise: Exercise) -> str:
    try:
        return textwrap.dedent(inspect.getsource(exercise.reference))
    except OSError:
        return ""


def _code_spans(text: str) -> str:
    """`code` as <code>."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return text
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _show(result: CheckResult) -> None:
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        get_ipython = None
    if get_ipython is None or get_ipython() is None:
        print(result)
        return
    display({"text/plain": str(result), "text/html": result._repr_html_()}, raw=True)
