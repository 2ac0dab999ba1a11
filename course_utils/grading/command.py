"""What ``course grade`` does, between the command line and the grader."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from course_utils.grading.classroom import Submission, cluster, grade_class, missing
from course_utils.grading.gradebook import Gradebook, Result
from course_utils.grading.progress import write_atomically
from course_utils.grading.runner import Limits, grade

KEPT = re.compile(r"\.\d{4}-\d\d-\d\d-\d{6}(-\d+)?\.ipynb$")  # a dated copy, see workspace.reset
EVERY = 20.0  # seconds between two lines of progress where there is no terminal


def notebooks(paths: Sequence[Path]) -> list[Submission]:
    """Each notebook once, in order.

    A folder stands for the notebooks in it, without the copies that ``course reset`` kept; what is no file, for the
    learner's own copy of these exercises ("03").
    """
    found = []
    for path in paths:
        if path.is_dir() and path.suffix != ".ipynb":
            found.extend(p for p in sorted(path.glob("*.ipynb")) if not KEPT.search(p.name))
        else:
            found.append(path if path.exists() else _own_copy(path) or path)
    return [Submission(path.stem, path, path.name) for path in dict.fromkeys(found)]


def _own_copy(path: Path) -> Path | None:
    from course_utils.project import ProjectError, find_root
    from course_utils.workspace import resolve

    try:
        return resolve(find_root(), str(path))
    except ProjectError:
        return None


def hint(found: Sequence[Submission]) -> str:
    """Where the learner's own work is, if it is the course's files that are graded; else empty."""
    from course_utils.project import WORKBOOK, ProjectError, find_root

    try:
        root = find_root()
    except ProjectError:
        return ""
    for submission in found:
        own = root / WORKBOOK / "exercises" / submission.path.name
        if submission.path.resolve().parent == root / "exercises" and own.exists():
            return (
                f"These are the course's own files. Yours: {own.relative_to(root)}, or `course grade {own.name[:2]}`."
            )
    return ""


def grade_one_by_one(found: Sequence[Submission], limits: Limits) -> list[Result]:
    """Grade in this process, and keep the marks nowhere."""
    results = []
    with _bar(len(found)) as advance:
        for submission in found:
            results.append(Result(submission.learner, submission.notebook, "", grade(submission.path, limits)))
            advance(submission.path.name)
    return results


def grade_into(
    path: Path, found: Sequence[Submission], limits: Limits, workers: int | None, scheduler: str | None
) -> list[Result]:
    """Grade what the gradebook lacks, and return all that it holds then.

    Raises ClassError and GradebookError.
    """
    with Gradebook(path) as book:
        todo = missing(found, book)
        if todo:
            number = min(workers or os.cpu_count() or 1, len(todo))
            with cluster(number, scheduler) as client, _bar(len(found)) as advance:
                advance("", len(found) - len(todo))
                lost = grade_class(client, todo, book, limits, lambda result: advance(result.learner))
            for submission in lost:
                _say(f"{submission.path}: its worker died each time. Run the same command again to try it once more.")
        return [replace(r, report=replace(r.report, path=f"{r.learner}/{r.notebook}")) for r in book.results()]


def show(results: Sequence[Result], console: Console, as_class: bool) -> None:
    """Tables in the terminal: of each notebook, or of the class."""
    from course_utils.grading.summary import summarise
    from course_utils.grading.tables import print_reports, print_summary

    if as_class:
        print_summary(summarise(results), console)
    else:
        print_reports([result.report for result in results], console)


def export(results: Sequence[Result], csv: Path | None, html: Path | None) -> list[Path]:
    """Write the marks as CSV and as pages, where asked for; returns what was written."""
    from course_utils.grading.pages import write_pages
    from course_utils.grading.summary import as_csv, summarise

    written = []
    summary = summarise(results)
    if csv is not None:
        write_atomically(csv, as_csv(summary))
        written.append(csv)
    if html is not None:
        written.extend(write_pages(summary, html, _exercises())[:1])
    return written


def _exercises() -> Path | None:
    """The course's folder of exercises, if it is at hand."""
    from course_utils.project import ProjectError, find_root

    try:
        return find_root() / "exercises"
    except ProjectError:
        return None


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{60 * task.speed:.0f}/min" if task.speed else "")


@contextmanager
def _bar(total: int) -> Iterator[Callable[..., None]]:
    """A function that counts ``advance(name, count=1)``: on a bar on the terminal, else in a line now and then."""
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    due = monotonic() + EVERY
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("Grading", total=total)

        def advance(name: str, count: int = 1) -> None:
            nonlocal due
            bar.update(task, advance=count, description=f"Graded {name[:30]}" if name else "Grading")
            if not screen.is_terminal and monotonic() >= due:
                due = monotonic() + EVERY
                _say(f"{bar.tasks[0].completed:.0f} of {total} graded")

        yield advance


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
