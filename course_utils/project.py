"""The course's folder on disk, and the programs that run in it: JupyterLab, and everything that CI checks."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

START = Path("notebooks", "00_start_here.ipynb")
WORKBOOK = "workbook"  # the folder of the learner's working copy; see workspace.py
SETTINGS = Path(__file__).resolve().parent / "lab_settings"
LAYOUT = "default-37a8.jupyterlab-workspace"  # JupyterLab's name for the layout of a window without a name


class ProjectError(Exception):
    """The course's folder, or a program that it needs, is not there; the text says what to do."""


def find_root(start: Path | None = None) -> Path:
    """The nearest folder upwards that holds the lessons, else the one beside this package. Raises ProjectError."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        is_copy = folder.name == WORKBOOK and (folder.parent / START).is_file()
        if (folder / START).is_file() and not is_copy:
            return folder
    raise ProjectError(f"The course was not found: neither {here} nor a folder above it holds {START}.")


def lab(
    root: Path,
    extra: Sequence[str] = (),
    lesson: str | None = None,
    repository: bool = False,
    say: Callable[[str], None] = print,
) -> int:
    """Open JupyterLab on the learner's working copy, brought up to date; returns its exit code.

    Args:
        root: the course's folder.
        extra: more arguments for JupyterLab; they win over the course's own.
        lesson: a number, name or path; None: the first lesson.
        repository: open the course's folder itself, as maintainers need it, and no working copy.
        say: prints one line.
    """
    from course_utils import workspace  # it imports this module

    if importlib.util.find_spec("jupyterlab") is None:
        raise ProjectError("JupyterLab is not installed here. Install it with: pip install 'course-utils[lab]'")
    opened = workspace.find(root, lesson, "notebooks") if lesson else START.as_posix()
    folder = root if repository else root / WORKBOOK
    if not repository:
        for sentence in workspace.update(root):
            say(sentence)
    options = [f"--LabApp.default_url=/lab/tree/{opened}", f"--ServerApp.root_dir={folder}", *_look(folder, repository)]
    given = {argument.split("=")[0] for argument in extra}  # JupyterLab takes none of them twice
    own = [option for option in options if option.split("=")[0] not in given]
    # Without this, a kernel of the same name in the user's home folder would come before the environment's.
    env = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1"}
    return _call([sys.executable, "-m", "jupyterlab", *own, *extra], folder, env)


def _look(folder: Path, repository: bool) -> Iterator[str]:
    """JupyterLab's options for the course's look. All of it are defaults: the user's own settings win."""
    from jupyter_core.paths import jupyter_config_dir

    yield f"--LabApp.app_settings_dir={SETTINGS}"
    yield "--LabApp.custom_css=True"
    styles = Path(jupyter_config_dir(), "custom")
    yield f"--ServerApp.tornado_settings=static_custom_path={styles if styles.is_dir() else SETTINGS / 'custom'}"
    if not repository:
        layouts = folder / ".layout"
        with suppress(OSError):  # the layout is a comfort
            layouts.mkdir(exist_ok=True)
            with (layouts / LAYOUT).open("x", encoding="utf-8") as file:
                file.write((SETTINGS / "layout.json").read_text(encoding="utf-8"))
        yield f"--LabApp.workspaces_dir={layouts}"


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
    # Slow tests wait for other processes most of the time, so two run at once even on two cores.
    several = ["-n", "logical", "--maxprocesses", "4", "--dist", "loadfile"]
    nbval = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:cacheprovider"]
    return [
        ("Quick tests", [*pytest, "tests", "-m", "not slow", *extra]),
        ("Slow tests", [*pytest, "tests", "-m", "slow", *several]),
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
