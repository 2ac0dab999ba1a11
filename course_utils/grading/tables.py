"""Marks for people: tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from course_utils.checks import exercises, lessons
from course_utils.grading.report import LESSONS, ExerciseReport, NotebookReport
from course_utils.grading.summary import Summary

WORDS = {
    "passed": "[green]✓ passed[/]",
    "wrong": "[red]✗ wrong[/]",
    "not_attempted": "[dim]○ not attempted[/]",
    "error": "[red]✗ error[/]",
    "timeout": "[red]✗ timed out[/]",
    "kernel_died": "[red]✗ kernel died[/]",
    "missing": "[yellow]○ missing[/]",
}


def print_reports(reports: Sequence[NotebookReport], console: Console) -> None:
    """One table a notebook, the diagnosis of what was not passed under it, and a total for several."""
    graded = [report for report in reports if report.status == "graded"]
    for report in graded:
        _print_notebook(report, console)
    if len(graded) > 1:
        points, possible = sum(r.points for r in graded), sum(r.possible for r in graded)
        console.print(f"[bold]All {len(graded)} notebooks: {_points(points, possible)}[/]")


def _print_notebook(report: NotebookReport, console: Console) -> None:
    table = Table(title=escape(report.path), title_justify="left", title_style="bold", show_footer=True)
    table.add_column("Exercise")
    table.add_column("", "Total")
    table.add_column("Result")
    table.add_column("Points", f"{report.points}/{report.possible}", justify="right")
    for e in report.exercises:
        name = f"{e.title} (bonus)" if e.bonus else e.title
        table.add_row(e.id, escape(name), WORDS[e.status], f"{e.points}/{e.possible}")
    console.print(table)
    for e in report.exercises:
        if e.message:
            console.print(Padding(f"[bold]{e.id}[/] {_diagnosis(e)}", (0, 0, 0, 2)))
    if report.message:
        console.print(Padding(escape(report.message), (0, 0, 0, 2)))
    for sentence in report.tampering:
        console.print(Padding(f"[yellow]For the instructor:[/] {escape(sentence)}", (0, 0, 0, 2)))
    console.print()


def _diagnosis(exercise: ExerciseReport) -> str:
    name = f"[italic]{escape(exercise.misconception)}[/]: " if exercise.misconception else ""
    return name + escape(exercise.message)


def print_summary(summary: Summary, console: Console) -> None:
    """A class: points by exercise, the commonest misconceptions, and points by learner."""
    table = Table("Exercise", "", title="Points by exercise", title_justify="left", title_style="bold")
    for name in ("Passed", "Tried", "Mean points"):
        table.add_column(name, justify="right")
    for e in summary.exercises:
        table.add_row(e.id, escape(e.title), str(e.passed), str(e.tried), f"{e.mean:.1f} of {e.possible}")
    console.print(table)
    if summary.misconceptions:
        console.print("[bold]The commonest misconceptions[/]")
        for exercise_id, name, count in summary.misconceptions[:12]:
            console.print(f"  {count:3}  {exercise_id} {escape(name)}")
    table = Table("Learner", title="Learners", title_justify="left", title_style="bold")
    table.add_column("Points", justify="right")
    table.add_column("Remarks")
    for learner in summary.learners:
        points = f"{learner.points} of {learner.possible}"
        table.add_row(escape(learner.name), points, escape("\n".join(learner.remarks)))
    console.print(table)


def print_progress(passed: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    """Every exercise of every lesson, with the points of those in ``passed``."""
    table = Table("Lesson", "Exercises", show_footer=True)
    table.columns[1].footer = "Total"
    total = possible = 0
    table.add_column("Points", justify="right")
    for lesson in lessons():
        own = exercises(lesson)
        got = sum(e.points for e in own if e.id in passed)
        of = sum(e.points for e in own if not e.bonus)
        marks = "  ".join(f"[green]✓ {e.id}[/]" if e.id in passed else f"[dim]○ {e.id}[/]" for e in own)
        table.add_row(LESSONS.get(lesson, str(lesson)), marks, f"{got}/{of}")
        total, possible = total + got, possible + of
    table.columns[2].footer = f"{total}/{possible}"
    console.print(table)
    if not passed:
        console.print("Nothing passed yet: each check that passes in a notebook is noted here.")


def _points(points: int, possible: int) -> str:
    return f"{points} of {possible} {'point' if possible == 1 else 'points'}"
