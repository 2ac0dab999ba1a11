"""Grade one notebook: read it, rebuild it, have it run elsewhere, and judge here what its answers computed.

A cell that ends the kernel, or that cannot be interrupted, keeps the cells after it from running. It is then left out
and the notebook is run again, so that it costs its own exercise and no other.
"""

from __future__ import annotations

import functools
import os
import random
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from course_utils.checks import Exercise, seed_for
from course_utils.grading.inside.channel import Channel
from course_utils.grading.inside.peer import Peer
from course_utils.grading.inside.wire import printable
from course_utils.grading.judge import judge
from course_utils.grading.rebuild import Cell, Rebuilt, as_notebook, rebuild
from course_utils.grading.report import LESSONS, ExerciseReport, NotebookReport, Status
from course_utils.grading.run import SEALED, Outcome, RemoteAnswer, run_answer
from course_utils.grading.sandbox import RunFailed, answers, run_notebook
from course_utils.grading.submission import BadNotebook, read_code_cells
from course_utils.grading.suspicion import suspicions, told

CELL_TIMEOUT = 60.0  # seconds; a first import of torch can take several
WALL_LIMIT = 20 * 60.0  # seconds for one submission, all its runs together
ROUNDS = 12


@dataclass(frozen=True)
class Limits:
    """Seconds for one cell, and for a whole submission."""

    cell: float = CELL_TIMEOUT
    wall: float = WALL_LIMIT


@dataclass(frozen=True)
class Finding:
    """What the grader makes of an exercise, before points."""

    status: Status
    message: str = ""
    misconception: str | None = None


def grade(path: Path, limits: Limits | None = None) -> NotebookReport:
    """The marks for one notebook. Any fault of the file is in the report; the file itself is only read."""
    try:
        return _grade(path, limits or Limits())
    except (BadNotebook, RunFailed) as error:
        return NotebookReport(str(path), "invalid", message=printable(str(error)))
    except Exception as error:
        # One notebook must not stop a class, whatever it has found to stumble over.
        if os.environ.get("COURSE_DEBUG"):
            raise
        said = f"the grader stumbled over it ({type(error).__name__}). Grade it again with `course --debug grade`."
        return NotebookReport(str(path), "invalid", message=said)


def _grade(path: Path, limits: Limits) -> NotebookReport:
    rebuilt = rebuild(read_code_cells(path), path)
    grading = Grading(rebuilt, limits)
    grading.run()
    exercises = tuple(_report(e, grading.finding(e), rebuilt.remarks.get(e.id, "")) for e in rebuilt.exercises)
    message = printable(grading.obstacles(all_passed=all(e.status == "passed" for e in exercises)))
    tampering = tuple(map(printable, (*suspicions(rebuilt.cells), *told(grading.reports))))
    return NotebookReport(str(path), "graded", LESSONS.get(rebuilt.lesson), exercises, message, tampering)


def _report(exercise: Exercise, finding: Finding, remark: str) -> ExerciseReport:
    passed = finding.status == "passed"
    return ExerciseReport(
        exercise.id,
        exercise.title,
        finding.status,
        exercise.points if passed else 0,
        exercise.points,
        finding.misconception,
        printable(" ".join(filter(None, (finding.message, remark)))),
        exercise.bonus,
    )


UNFINISHED = Finding("error")
OPENED = "The notebook opened `{}`, where the course keeps its own answers, so none of its results count."


@dataclass
class Grading:
    """The evidence about one notebook, gathered in as many runs as it takes."""

    rebuilt: Rebuilt
    limits: Limits
    checks: dict[str, Finding] = field(default_factory=dict)  # what the checks found; the first word counts
    failures: dict[str, Finding] = field(default_factory=dict)  # what went wrong in an answer's own cells
    strays: dict[int, str] = field(default_factory=dict)  # the same in cells that belong to no exercise
    left_out: list[str] = field(default_factory=list)  # such cells without which the notebook had to be run again
    reports: list[dict[str, str]] = field(default_factory=list)  # what the watch told

    def run(self) -> None:
        """Run the notebook, and again without each cell that kept the rest from running."""
        cells = list(self.rebuilt.cells)
        ends_at = monotonic() + self.limits.wall
        for _ in range(ROUNDS):
            remaining = ends_at - monotonic()
            if remaining <= 0 or not any(cell.is_check for cell in cells):
                return
            entries = self._round(cells, remaining)
            if not entries or not entries[-1]["died"]:
                return
            cells = self._without_culprit(cells, entries)

    def _round(self, cells: list[Cell], seconds: float) -> list[dict[str, Any]]:
        """One run: what each cell did, in order. A cell that was running when time was up gets an entry too."""
        said: dict[str, list[Finding]] = {}

        def talk(channel: Channel, hello: dict[str, Any]) -> None:
            exercise = next((e for e in self.rebuilt.exercises if e.id == hello.get("exercise")), None)
            if exercise is not None:
                found = said.setdefault(exercise.id, [])
                found.append(UNFINISHED)
                found[-1] = self._judged(exercise, channel, hello)

        record = run_notebook(functools.partial(as_notebook, cells), self.limits.cell, seconds, talk)
        cut_short = {"ok": False, "died": True, "timed_out": True, "error": None}
        entries = [*record.cells, *([] if record.running is None else [cut_short])]
        self.reports.extend(report for report in record.reports if report not in self.reports)
        for cell, entry in zip(cells, entries, strict=False):
            self._note(cell, entry, said)
        return entries

    def _judged(self, exercise: Exercise, channel: Channel, hello: dict[str, Any]) -> Finding:
        """Call the answer over ``channel`` and form the verdict; here, where the answer cannot reach."""
        patched = hello.get("patched")
        for name in patched[:20] if isinstance(patched, list) else ():
            self.reports.append({"what": "replaces", "detail": str(name)[:100]})
        if not hello.get("defined"):
            return Finding("missing", f"The notebook defines no function `{exercise.function}`.")
        peer = Peer(channel, offers=True)
        seed = seed_for(exercise.id, self.rebuilt.digest)
        try:
            outcomes = run_shuffled(exercise, RemoteAnswer(peer), seed)
            peer.end()
            verdict = judge(exercise, seed, outcomes)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return Finding("error", f"What your `{exercise.function}` returned cannot be compared: {error}.")
        message = "" if verdict.status == "passed" else verdict.message
        return Finding(verdict.status, message, verdict.misconception)

    def finding(self, exercise: Exercise) -> Finding:
        """The verdict on one exercise after all runs."""
        if exercise.id not in self.rebuilt.found:
            return Finding("missing", f"There is no cell that begins with the comment `# Exercise {exercise.id}`.")
        checked, failed = self.checks.get(exercise.id), self.failures.get(exercise.id)
        if checked is not None and checked.status == "passed" and (opened := self._opened()):
            return Finding("wrong", OPENED.format(opened), "reads the course's own files")
        if checked is None:
            return failed or Finding(
                "timeout", "The run was stopped before it came to this: the notebook takes too long, or ends too often."
            )
        return failed if failed and checked.status == "missing" else checked

    def obstacles(self, all_passed: bool) -> str:
        """What happened outside the exercises and may explain what happened inside them."""
        return " ".join([*self.left_out, *([] if all_passed else list(self.strays.values())[:1])])

    def _opened(self) -> str:
        """A file of the course that the notebook opened: the right answers stand in some of them."""
        for report in self.reports:
            if report["what"] == "reads" and os.path.realpath(report["detail"]).startswith(answers()):
                return report["detail"]
            if report["what"] == "starts a program on" and any(place in report["detail"] for place in answers()):
                return report["detail"]
        return ""

    def _note(self, cell: Cell, entry: dict[str, Any], said: dict[str, list[Finding]]) -> None:
        if cell.is_check:
            exercise = next(e for e in self.rebuilt.exercises if e.id == cell.exercises[0])
            found = _found(exercise, entry, said.get(exercise.id, []), self.limits.cell)
            self.checks.setdefault(exercise.id, found)
            return
        failure = _failure(entry, self.limits.cell)
        if failure is None or SEALED in (entry["error"] or {}).get("name", ""):
            return  # a cell that shows one of the course's models: they are not there while grading
        status, text = failure
        for exercise_id in cell.exercises:
            self.failures.setdefault(exercise_id, Finding(status, f"The cell with your answer {text}"))
        if not cell.exercises and entry["died"]:
            self.left_out.append(f"{cell.name} {text} It was left out, and the rest was graded without it.")
        elif not cell.exercises:
            self.strays.setdefault(cell.number, f"{cell.name} {text}")

    def _without_culprit(self, cells: list[Cell], entries: list[dict[str, Any]]) -> list[Cell]:
        """The cells for another run: without the one that ended the last, and without what has been settled."""
        culprit = cells[len(entries) - 1]
        answers_out = set() if culprit.is_check else set(culprit.exercises)
        stuck = {i for i, entry in enumerate(entries) if entry["died"] or entry["timed_out"]}
        return [
            cell
            for i, cell in enumerate(cells)
            if i not in stuck
            and not answers_out.intersection(cell.exercises)
            and not (cell.is_check and cell.exercises[0] in self.checks)
        ]


def run_shuffled(exercise: Exercise, answer: RemoteAnswer, seed: int) -> list[Outcome]:
    """The outcomes in the order of the cases, which are called in another: what is right is not told by its place."""
    cases = exercise.draw_cases(seed)
    order = random.Random(f"{seed} order").sample(range(len(cases)), len(cases))
    outcomes = run_answer(exercise, answer, [cases[i] for i in order])
    if len(outcomes) < len(cases):  # not attempted
        return outcomes
    return [outcomes[order.index(i)] for i in range(len(cases))]


def _found(exercise: Exercise, entry: dict[str, Any], said: list[Finding], cell_timeout: float) -> Finding:
    """A pass needs a check cell that ran well, and exactly one check that reached the grader."""
    failure = _failure(entry, cell_timeout)
    if failure is not None:
        status, text = failure
        return Finding(status, f"Calling your `{exercise.function}` {text}")
    if len(said) != 1 or said[0] is UNFINISHED:
        return Finding("error", "The check of this exercise left no result that can be trusted.")
    return said[0]


def _failure(entry: dict[str, Any], cell_timeout: float) -> tuple[Status, str] | None:
    """(status, the end of a sentence) for a cell that did not run well."""
    if entry["timed_out"]:
        return "timeout", f"took more than {cell_timeout:g} s and was stopped. Look for a loop that never ends."
    if entry["died"]:
        return (
            "kernel_died",
            "ended the Python process. Look for `exit()`, a crash in native code, too much memory, many processes.",
        )
    if entry["ok"]:
        return None
    error = entry["error"] or {"name": "", "message": ""}
    shown = textwrap.shorten(": ".join(filter(None, error.values())), 200) or "an error without a name"
    return "error", f"stopped with {shown}."
