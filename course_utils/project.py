"""The course's folder on disk, and the programs that run in it: JupyterLab, and everything that CI checks."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

START = Path("notebooks", "00_start_here.ipynb")


class ProjectError(Exception):
    """The course's folder, or a program that it needs, is not there; the text says what to do."""


def find_root(start: Path | None = None) -> Path:
    """The nearest folder upwards that holds the lessons, else the one beside this package. Raises ProjectError."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (folder / START).is_file():
            return folder
    raise ProjectError(f"The course was not found: neither {here} nor a folder above it holds {START}.")


def lab(root: Path, extra: Sequence[str] = ()) -> int:
    """Open JupyterLab on the first lesson; returns its exit code."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise ProjectError("JupyterLab is not installed here. Install it with: pip install 'course-utils[lab]'")
    command = [sys.executable, "-m", "jupyterlab", f"--LabApp.default_url=/lab/tree/{START.as_posix()}", *extra]
    return _call(command, root)


def test(root: Path, extra: Sequence[str], say: Callable[[str], None]) -> int:
    """Run everything that CI runs, the quick things first, up to the first failure; returns its exit code.

    Args:
        root: the course's folder.
        extra: more arguments for the first pytest.
        say: prints one line.
    """
    with tempfile.TemporaryDirectory(prefix="course-test-") as home:
        env = {**os.environ, "COURSE_HOME": home}
        for name, command in _steps(extra):
            say(f"{name} …")
            begun = monotonic()
            code = _call(command, root, env)
            if code:
                say(f"{name}: failed, exit code {code}. The steps after it were not run.")
                return code
            say(f"{name}: all right, {monotonic() - begun:.0f} s")
    say("Everything passed.")
    return 0


def _steps(extra: Sequence[str]) -> list[tuple[str, list[str]]]:
    python = [sys.executable, "-m"]
    pytest = [*python, "pytest", "-q"]
    course = [*python, "course_utils.cli"]
    nbval = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:cacheprovider"]
    return [
        ("Quick tests", [*pytest, "tests", "-m", "not slow", *extra]),
        ("Slow tests", [*pytest, "tests", "-m", "slow"]),
        ("Lessons and solutions under nbval", [*pytest, *nbval, "notebooks", "solutions"]),
        ("Exercises match their solutions", [*course, "build", "--check"]),
        ("Solutions get full marks", [*course, "grade", "solutions", "--require", "100%"]),
    ]


def _call(command: list[str], folder: Path, env: dict[str, str] | None = None) -> int:
    """The exit code of a program that has the terminal to itself; Ctrl-C goes to it, and it ends as it likes."""
    with subprocess.Popen(command, cwd=folder, env=env) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # or the program would live on without us
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
