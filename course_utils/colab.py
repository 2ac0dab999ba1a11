"""The set-up cell of every notebook, and what it calls: package and notebook of one release, and Colab's comforts.

``course build`` writes the cell, so its text stands only here. Nothing in this module imports torch without need.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DRIVE = Path("/content/drive/MyDrive")  # where Colab mounts the learner's Google Drive
FOLDER = "attention-workbook"
DEVICES = "/dev/nvidia*"
FIRST_WORDS = "# Set-up:"

# A package from before `setup` existed, or one that pip could not fetch, must end in a sentence, not in a traceback.
CELL = """\
# Set-up: in Colab this installs the course's helper package (about a minute); else it compares versions.
import importlib.util

if importlib.util.find_spec("course_utils") is None:
    %pip install -q git+https://github.com/{repository}
try:
    from course_utils import setup

    setup({arguments})
except ImportError:
    print("The course's package is missing or too old. In Colab: Runtime → Disconnect and delete runtime,")
    print("then run this cell again. Elsewhere: git pull, then python3 course.py lab.")"""


def set_up_cell(repository: str, release: str, gpu: bool = False) -> str:
    """The source of a notebook's set-up cell.

    Args:
        repository: owner/name on GitHub.
        release: the version of the package that the notebook belongs to.
        gpu: the lesson is made for a GPU.
    """
    arguments = f'"{release}", gpu=True' if gpu else f'"{release}"'
    return CELL.format(repository=repository, arguments=arguments)


def setup(notebook_version: str, *, gpu: bool = False, **_later: object) -> None:
    """Say so if notebook and package are of different releases; in Colab keep progress and let all widgets show.

    Prints nothing where all is well, and never raises.

    Args:
        notebook_version: the release that the notebook belongs to.
        gpu: in Colab, say how to get a GPU if there is none.
        _later: what the notebook of a later release may ask for; its version is said to differ anyway.
    """
    in_colab = "google.colab" in sys.modules
    steps: list[Callable[[], str | None]] = [lambda: _drift(str(notebook_version), in_colab)]
    if in_colab:
        steps += [_show_all_widgets, _keep_progress]
        steps += [_ask_for_gpu] if gpu else []
    for step in steps:
        with suppress(Exception):  # a comfort that fails must keep nobody from the lesson
            sentence = step()
            if sentence:
                print(sentence)


def _drift(notebook: str, in_colab: bool) -> str | None:
    """What to do where the installed package is not of the notebook's release."""
    try:
        package = version("course-utils")
    except PackageNotFoundError:  # used from its folder without being installed: there is nothing to compare
        return None
    if package == notebook:
        return None
    differ = f"This notebook is of the course's release {notebook}, and the installed package is {package}:"
    if _numbers(package) > _numbers(notebook):
        way = "with the Colab badge on the course's page" if in_colab else "with python3 course.py reset NUMBER"
        return f"{differ} if something does not work, open a fresh copy {way}."
    # Restarting the session would not do: what pip installed stays until the runtime is gone.
    way = "choose Runtime → Disconnect and delete runtime, then run the set-up cell again"
    return f"{differ} {way if in_colab else 'run git pull, then python3 course.py lab'}."


def _numbers(release: str) -> tuple[int, ...]:
    """0.10.0rc1 -> (0, 10, 0)."""
    match = re.match(r"\d+(\.\d+)*", release)
    return tuple(map(int, match[0].split("."))) if match else ()


def _show_all_widgets() -> None:
    """Colab shows ipywidgets by itself; the course's own explorers need its permission."""
    from google.colab import output

    output.enable_custom_widget_manager()


def _keep_progress() -> str | None:
    """A Colab machine is thrown away in the end; Google Drive is not."""
    if os.environ.get("COURSE_HOME"):
        return None
    if not DRIVE.is_dir():
        return (
            "To keep your progress when this session ends, run "
            '`from google.colab import drive; drive.mount("/content/drive")`, then this cell again.'
        )
    home = DRIVE / FOLDER
    try:
        home.mkdir(exist_ok=True)
        _bring_along(Path.home() / ".attention-workbook" / "progress", home / "progress")
    except OSError as error:
        return f"Google Drive cannot be written ({error.strerror}), so your progress lasts as long as this session."
    os.environ["COURSE_HOME"] = str(home)
    return f"Your progress is kept in your Google Drive, in the folder {FOLDER}."


def _bring_along(old: Path, new: Path) -> None:
    """What was passed before Drive was mounted counts as well."""
    new.mkdir(exist_ok=True)
    for entry in old.glob("*.json"):
        if not (new / entry.name).exists():
            shutil.copyfile(entry, new / entry.name)


def _ask_for_gpu() -> str | None:
    if glob(DEVICES):
        import torch

        if torch.cuda.is_available():
            return None
    return "There is no GPU here: choose Runtime → Change runtime type → GPU, then run the cells from the top."
