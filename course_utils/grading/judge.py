"""Compare what an answer did with the reference and with the known mistakes, and say it in words."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_utils.checks import Case, Draw, Exercise, Misconception
from course_utils.grading.compare import first_difference
from course_utils.grading.run import Outcome, one_thread, run_answer


@dataclass(frozen=True)
class Verdict:
    """``status`` is one of passed, wrong, error, not_attempted."""

    status: str
    message: str = ""
    misconception: str | None = None


@one_thread()
def judge(exercise: Exercise, seed: int, outcomes: list[Outcome]) -> Verdict:
    """The verdict on ``outcomes``, which came from the cases that ``seed`` draws."""
    if any(outcome.not_attempted for outcome in outcomes):
        return Verdict("not_attempted")
    cases = exercise.draw_cases(seed)
    if len(outcomes) != len(cases):
        return Verdict("error", "The check did not run to its end. Restart the kernel and run all cells.")
    borrowed = next((o.borrowed for o in outcomes if o.borrowed), None)
    if borrowed:
        return Verdict(
            "wrong",
            f"Your answer calls `{borrowed}` of course_utils, which is the thing to be written here. "
            "Write the computation yourself; the lesson shows its parts.",
            "calls the reference",
        )
    right = _outcomes_of(exercise.reference, exercise, seed)
    wrong_cases = [i for i, (r, o) in enumerate(zip(right, outcomes, strict=True)) if not _same(r, o)]
    if wrong_cases:
        return _explain(exercise, seed, cases, right, outcomes, wrong_cases)
    return _manners(cases, exercise, outcomes) or Verdict("passed", exercise.why)


def check_answer(exercise: Exercise, answer: Callable[..., Any], seed: int) -> Verdict:
    """Run and judge in this process."""
    return judge(exercise, seed, run_answer(exercise, answer, exercise.draw_cases(seed)))


def _explain(
    exercise: Exercise,
    seed: int,
    cases: list[Case],
    right: list[Outcome],
    outcomes: list[Outcome],
    wrong_cases: list[int],
) -> Verdict:
    for misconception in exercise.misconceptions:
        if _recognised(misconception, exercise, seed, right, outcomes):
            return Verdict("wrong", misconception.message, misconception.name)
    first = wrong_cases[0]
    status, text = _describe(right[first], outcomes[first])
    notes = [cases[i].note for i in wrong_cases]
    if all(notes):
        text = f"Right on the ordinary cases, but not {notes[0]}: {text}"
    elif cases[first].note:
        text = f"{cases[first].note[:1].upper()}{cases[first].note[1:]}: {text}"
    return Verdict(status, _sentence(text))


def _recognised(
    misconception: Misconception, exercise: Exercise, seed: int, right: list[Outcome], outcomes: list[Outcome]
) -> bool:
    """True when the answer does what the wrong function does on every case, and the cases tell that from right."""
    return any(_does_the_same(function, exercise, seed, right, outcomes) for function in misconception.functions)


def _does_the_same(
    function: Callable[..., Any], exercise: Exercise, seed: int, right: list[Outcome], outcomes: list[Outcome]
) -> bool:
    told_apart = False
    # One case at a time: most functions differ from the answer on the first.
    for case, r, o in zip(exercise.cases(Draw(seed)), right, outcomes, strict=True):
        [wrong] = run_answer(exercise, function, [case])
        if not _same(wrong, o):
            return False
        told_apart = told_apart or not _same(r, wrong)
    return told_apart


def _outcomes_of(function: Callable[..., Any], exercise: Exercise, seed: int) -> list[Outcome]:
    return run_answer(exercise, function, exercise.draw_cases(seed))


def _same(expected: Outcome, got: Outcome) -> bool:
    if expected.error or got.error:
        return expected.error == got.error
    return first_difference(expected.value, got.value) is None


def _describe(right: Outcome, outcome: Outcome) -> tuple[str, str]:
    if outcome.error and right.error:
        return "wrong", f"a {right.error} is to be raised here, and your code raised {outcome.error}."
    if right.error:
        return "wrong", f"a {right.error} is to be raised here, and your code returned a value."
    if outcome.error:
        on = f" on your line `{outcome.line}`" if outcome.line else ""
        message = textwrap.shorten(outcome.error_message, 200)
        return "error", f"your code raised {outcome.error}{on}" + (f": {message}" if message else ".")
    difference = first_difference(right.value, outcome.value)
    return "wrong", difference.text if difference else ""


def _manners(cases: list[Case], exercise: Exercise, outcomes: list[Outcome]) -> Verdict | None:
    """Right values, and yet something a caller would trip over."""
    for outcome in outcomes:
        if outcome.changed is not None:
            return Verdict(
                "wrong",
                f"The values are right, but your code changed its argument number {outcome.changed + 1} in place, "
                "so whoever called it finds other data than before. Make a new tensor instead.",
                "changes its input",
            )
        if outcome.shares is not None and not exercise.views_allowed:
            return Verdict(
                "wrong",
                f"The values are right, but the result shares its memory with argument number {outcome.shares + 1}: "
                "writing into one changes the other. Return a new tensor.",
                "returns a view of its input",
            )
    return None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
