"""The ``course`` command. What a command needs is imported when it runs, so that ``course --help`` is quick."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

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


@app.command(context_settings=PASS_ON, options_metavar="[LESSON] [OPTIONS]")
def lab(
    context: typer.Context,
    repository: Annotated[
        bool, typer.Option("--repository", help="Open the course's own folders, for maintainers, not the working copy.")
    ] = False,
) -> None:
    """Open JupyterLab on your working copy of the course, in the folder workbook: lab 03 opens lesson 03.

    The working copy is brought up to date first; files that you worked on stay as they are. Further arguments
    go to JupyterLab.
    """
    from course_utils import project

    arguments = list(context.args)
    lesson = arguments.pop(0) if arguments and not arguments[0].startswith("-") else None
    try:
        code = project.lab(project.find_root(), arguments, lesson, repository, _say)
    except project.ProjectError as error:
        _stop(str(error))
    raise typer.Exit(code)


@app.command()
def reset(
    notebooks: Annotated[
        list[str], typer.Argument(metavar="NUMBER...", help="Such as 03; names and paths do, too.", show_default=False)
    ],
    lesson: Annotated[bool, typer.Option("--lesson", help="The lesson's notebook, not its exercises.")] = False,
) -> None:
    """Start a notebook of exercises afresh in your working copy. Yours is kept beside it, with the date in its name."""
    from course_utils import project, workspace

    try:
        for sentence in workspace.reset(project.find_root(), notebooks, lesson):
            print(sentence)
    except project.ProjectError as error:
        _stop(str(error))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is wrong with this environment, and what to do about it.

    Exit code 0: all that the course needs is there. 1: something is broken.
    """
    from course_utils import doctor as examination
    from course_utils import project

    try:
        root = project.find_root()
    except project.ProjectError:  # an installed course-utils, as in Colab
        root = None
    findings = examination.examine(root)
    if as_json:
        print(json.dumps(examination.as_json(findings), indent=1))
    else:
        for finding in findings:
            print(f"{examination.MARKS[finding.level]} {finding.about}: {finding.text}")
    if examination.is_broken(findings):
        raise typer.Exit(1)


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
    html: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a page for each learner and one for the class.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one line of marks for each learner.")] = None,
    gradebook: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A class: one folder a learner; marks are kept here, graded once."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes for a class; one for each core.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="A running Dask cluster instead, for a class.")
    ] = None,
) -> None:
    """Grade notebooks. The files are only read; each is run in processes of its own.

    A class: course grade submissions/ --gradebook grades.sqlite. Stopped and run again, it grades what is missing.

    Exit code 0: graded, whatever the marks. 1: below --require. 2: nothing could be graded.
    """
    percent = _percent(require)
    if gradebook is None and (workers or scheduler):
        _stop("--workers and --scheduler are for a class: name a file for its marks with --gradebook.")

    from course_utils.grading import warm

    if gradebook is None:
        warm.nursery()  # it imports torch while we do
    from course_utils.grading import command, report
    from course_utils.grading.classroom import ClassError, submissions
    from course_utils.grading.gradebook import GradebookError
    from course_utils.grading.runner import Limits

    limits = Limits(cell=cell_timeout)
    found = submissions(paths) if gradebook is not None else command.notebooks(paths)
    if not found:
        _stop("There are no notebooks in " + ", ".join(map(str, paths)) + ".")
    try:
        if gradebook is None:
            results = command.grade_one_by_one(found, limits)
        else:
            results = command.grade_into(gradebook, found, limits, workers, scheduler)
    except KeyboardInterrupt:
        kept = "nothing was graded to its end" if gradebook is None else "what is graded is kept; run it again to go on"
        _complain(f"Stopped: {kept}.")
        raise typer.Exit(130) from None
    except (ClassError, GradebookError) as error:
        _stop(str(error))
    reports = [result.report for result in results]
    if as_json:
        print(json.dumps(report.as_json(reports), indent=1))  # ASCII, right in every console's encoding
    else:
        command.show(results, _console(), as_class=gradebook is not None)
    try:
        for written in command.export(results, csv, html):
            _complain(f"Written: {written}")
    except OSError as error:
        _stop(f"{error.filename or 'A file'} could not be written ({error.strerror}).")
    for bad in (r for r in reports if r.status == "invalid"):
        _complain(f"{bad.path}: {bad.message}")
    if gradebook is None and (where := command.hint(found)):
        _complain(where)
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
def screenshots(
    folder: Annotated[Path, typer.Argument(help="Where the pictures go.")] = Path("screenshots"),
    lesson: Annotated[list[str] | None, typer.Option(help="A lesson's number, several times for several.")] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the lessons before, so that the explorers are alive.")
    ] = False,
) -> None:
    """Take pictures of every figure of the lessons in JupyterLab, in the light and in the dark theme."""
    from course_utils import project
    from course_utils import screenshots as pictures

    count = 0
    try:
        pictures.find_browser()
        for path in pictures.take(project.find_root(), folder, [f"{int(n):02d}" for n in lesson or ()], run):
            print(path, flush=True)
            count += 1
    except (project.ProjectError, pictures.NoBrowser) as error:
        _stop(str(error))
    except ValueError:
        _stop("--lesson takes a number, such as 03.")
    except Exception as error:  # whatever a browser stumbles over
        _stop(f"The browser could not go on after {count} pictures: {pictures.described(error)}")


@app.command()
def publish(
    repository: Annotated[
        str | None, typer.Argument(metavar="OWNER/NAME", help="As in its address on GitHub.", show_default=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a file names another than pyproject.toml.")
    ] = False,
) -> None:
    """Make the course name this repository on GitHub: in pyproject.toml, the Colab badges and the set-up cells."""
    from course_utils import project
    from course_utils.publish import PublishError, strangers
    from course_utils.publish import publish as publish_as

    if (repository is None) != check:
        _stop("Name the repository as OWNER/NAME, or write --check alone to compare the files with pyproject.toml.")
    try:
        root = project.find_root()
        if repository is None:
            _name_strangers(root, strangers(root))
            return
        here = Path.cwd().resolve()
        if root not in (here, *here.parents):  # nobody means to change a folder that they are not in
            _stop(f"This is not the course's folder. It is {root}: go there and run the command again.")
        written = publish_as(root, repository)
    except (project.ProjectError, PublishError) as error:
        _stop(str(error))
    for path in written:
        print(f"{path.relative_to(root)} written")
    print(f"Every file of the course names {repository}.")


@app.command()
def site(
    folder: Annotated[
        Path | None, typer.Argument(help="Where the pages go.", show_default="site in the course's folder")
    ] = None,
) -> None:
    """Make web pages of all lessons, exercises and solutions, for reading; needs no network and no kernel.

    Exit code 1: a link or picture inside the pages is broken, and the folder was left as it was.
    """
    from course_utils import project
    from course_utils.site import SiteError

    try:
        root = project.find_root()
        target = folder or root / "site"
        broken = _build_site(root, target)
    except (project.ProjectError, SiteError) as error:
        _stop(str(error))
    if broken:
        print("\n".join(broken))
        _complain(f"{len(broken)} broken. The pages were not put into {target}.")
        raise typer.Exit(1)
    print(f"The pages are in {target}. Open {target / 'index.html'} in a browser.")


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


def _name_strangers(root: Path, found: dict[Path, list[str]]) -> None:
    """What `course publish --check` says, and its exit code."""
    for path, names in found.items():
        print(f"{path.relative_to(root)} names {', '.join(names)}")
    if found:
        _complain("pyproject.toml names another repository. Run `course publish OWNER/NAME` and commit what it writes.")
        raise typer.Exit(1)
    print("Every file of the course names the same repository.")


def _build_site(root: Path, target: Path) -> list[str]:
    """With a bar on the terminal, if there is one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from course_utils import site as pages

    if importlib.util.find_spec("nbconvert") is None:
        raise pages.SiteError("nbconvert is not installed here. Install it with: pip install 'course-utils[lab]'")
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("Pages", total=pages.page_count(root), completed=-1)
        return pages.build(root, target, lambda name: bar.update(task, description=name, advance=1))


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


def _say(text: str) -> None:
    print(text, flush=True)  # before whatever a program started next prints


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def _stop(text: str) -> NoReturn:
    _complain(text)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
