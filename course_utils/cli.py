"""The ``course`` command. What a command needs is imported when it runs, so that ``course --help`` is quick."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from course_utils.grading.report import NotebookReport
    from course_utils.grading.runner import Limits

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}  # to the program behind the command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The attention workbook: open it, grade it, build it, test it.",
)


def main() -> None:
    """Run the command; whatever goes wrong in it is said in a sentence."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a console that has no ✓ shows a question mark
            stream.reconfigure(errors="replace")
    try:
        app()
    except Exception as error:
        if os.environ.get("COURSE_DEBUG"):
            raise
        _complain(
            f"Something went wrong inside the course's own code ({type(error).__name__}: {error}).\n"
            f"Please report it at {_home()}/issues with the output of the same command after `course --debug`."
        )
        raise SystemExit(3) from None


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the Python traceback of an unexpected error.")] = False,
) -> None:
    if debug:
        os.environ["COURSE_DEBUG"] = "1"


@app.command(context_settings=PASS_ON)
def lab(context: typer.Context) -> None:
    """Open JupyterLab on the first lesson. Further arguments go to JupyterLab."""
    from course_utils import project

    try:
        code = project.lab(project.find_root(), context.args)
    except project.ProjectError as error:
        _stop(str(error))
    raise typer.Exit(code)


@app.command()
def grade(
    paths: Annotated[list[Path], typer.Argument(help="Notebooks, or folders of notebooks.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    require: Annotated[
        str | None, typer.Option(metavar="N%", help="Exit with 1 below this part of the possible points.")
    ] = None,
    cell_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="The longest that one cell may run.")
    ] = 60.0,
) -> None:
    """Grade notebooks. The files are only read; each is run in a process of its own.

    Exit code 0: graded, whatever the marks. 1: below --require. 2: nothing could be graded.
    """
    percent = _percent(require)
    notebooks = list(_notebooks(paths))
    if not notebooks:
        _stop("There are no notebooks in " + ", ".join(map(str, paths)) + ".")

    from course_utils.grading import report
    from course_utils.grading.runner import Limits

    try:
        reports = _grade_all(notebooks, Limits(cell=cell_timeout))
    except KeyboardInterrupt:
        _complain("Stopped: nothing was graded to its end.")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(report.as_json(reports), indent=1))  # ASCII, right in every console's encoding
    else:
        from course_utils.grading.tables import print_reports

        print_reports(reports, _console())
    for bad in (r for r in reports if r.status == "invalid"):
        _complain(f"{bad.path}: {bad.message}")
    if all(r.status == "invalid" for r in reports):
        raise typer.Exit(2)
    if percent is not None and report.falls_short(reports, percent):
        raise typer.Exit(1)


@app.command()
def progress() -> None:
    """Show which exercises have been passed so far, in the notebooks, on this computer."""
    from course_utils.grading.progress import passed
    from course_utils.grading.tables import print_progress

    print_progress(passed(), _console())


@app.command()
def build(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if anything differs.")] = False,
) -> None:
    """Make the exercises from their solutions, and give all notebooks the same metadata."""
    from course_utils import project
    from course_utils.grading.build import BuildError, differing
    from course_utils.grading.build import build as build_all

    try:
        root = project.find_root()
        changed = list(differing(root)) if check else build_all(root)
    except (project.ProjectError, BuildError) as error:
        _stop(str(error))
    for path in changed:
        print(f"{path.relative_to(root)} {'differs from a fresh build' if check else 'written'}")
    if check and changed:
        _complain("Run `course build` and commit what it writes.")
        raise typer.Exit(1)
    if not changed:
        print("Every notebook is as it should be.")


@app.command()
def train(
    folder: Annotated[Path, typer.Argument(help="Where checkpoints, log and result go.", show_default=False)],
    steps: Annotated[int, typer.Option(min=1, help="Updates in all.")] = 8_000,
    warmup: Annotated[int, typer.Option(min=1, help="Updates until the highest learning rate.")] = 2_000,
    rate: Annotated[float, typer.Option(min=0.0, help="The highest learning rate.")] = 5e-3,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9)] = 0.3,
    budget: Annotated[int, typer.Option(min=64, help="Tokens a batch, a side; smaller if memory is short.")] = 4_096,
    every: Annotated[int, typer.Option(min=1, help="Updates from one checkpoint to the next.")] = 250,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train lesson 09's translator on Multi30k. Stopped and run again, it goes on from the last checkpoint.

    Several GPUs of one machine: torchrun --nproc-per-node 2 -m course_utils.cli train FOLDER
    """
    from course_utils import corpora, translation
    from course_utils.training import OutOfMemory

    settings = translation.Settings(dropout=dropout, budget=budget, steps=steps, rate=rate, warmup=warmup)
    try:
        _, score = translation.run(corpora.multi30k(), folder, settings, every=every, threads=threads, seed=seed)
    except (corpora.CorpusMissing, OutOfMemory) as error:
        _stop(str(error))
    if score is not None:
        print(score)


@app.command(context_settings=PASS_ON)
def test(context: typer.Context) -> None:
    """Run everything that CI runs. Further arguments go to the first pytest."""
    from course_utils import project

    try:
        code = project.test(project.find_root(), context.args, lambda line: print(f"\n== {line}", flush=True))
    except project.ProjectError as error:
        _stop(str(error))
    raise typer.Exit(code)


def _notebooks(paths: Sequence[Path]) -> Iterator[Path]:
    """Each notebook once, in order; a folder stands for the notebooks in it."""
    found = []
    for path in paths:
        is_folder = path.is_dir() and path.suffix != ".ipynb"
        found.extend(sorted(path.glob("*.ipynb")) if is_folder else [path])
    yield from dict.fromkeys(found)


def _grade_all(notebooks: Sequence[Path], limits: Limits) -> list[NotebookReport]:
    """With a bar on the terminal, if there is one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from course_utils.grading.runner import grade as grade_one

    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    reports = []
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("Grading", total=len(notebooks))
        for path in notebooks:
            bar.update(task, description=f"Grading {path.name}")
            reports.append(grade_one(path, limits))
            bar.advance(task)
    return reports


def _percent(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        _stop(f"--require takes a percentage from 0% to 100%, and it is {text}.")
    return percent


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _home() -> str:
    from importlib.metadata import metadata

    return (metadata("course-utils").get_all("Project-URL") or ["Repository, "])[0].split(", ")[1]


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def _stop(text: str) -> NoReturn:
    _complain(text)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
