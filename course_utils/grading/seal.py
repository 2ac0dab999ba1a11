"""The copy of the package that a graded notebook sees: whole, but for everything that would answer an exercise.

Exercises, cases, references and the grader are not in it. The lessons' models are there to be imported, and raise
``CourseReferenceCalled`` when they are called.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import course_utils
from course_utils.grading.run import SEALED

PACKAGE = Path(course_utils.__file__).parent
COMMANDS = (
    "cli.py",
    "doctor.py",
    "lab_settings",
    "project.py",
    "publish.py",
    "screenshots.py",
    "site.py",
    "workspace.py",
)
LEFT_OUT = frozenset(("checks", "grading", "trained", "__pycache__", *COMMANDS))
SHUT = ("models", "decoding.py", "translation.py", "continual.py", "training/losses.py", "training/schedules.py")

ERROR = f'''"""Raised by the parts of the package that a graded notebook has to write itself."""


class {SEALED}(Exception):
    pass
'''
CHECK = '''"""The grader puts its own checks after the answers; those of the notebook find nothing out."""

from types import SimpleNamespace


def check(exercise_id="", answer=None):
    return SimpleNamespace(id=exercise_id, passed=False, status="", points=0, message="", misconception=None)
'''


def sealed_copy(folder: Path) -> Path:
    """Write the copy into ``folder`` and return it: the folder from which ``course_utils`` can be imported."""
    target = folder / "course_utils"
    for source in _files():
        place = target / source.relative_to(PACKAGE)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".py" and source.relative_to(PACKAGE).as_posix().startswith(SHUT):
            place.write_text(_shut(source), encoding="utf-8")
        else:
            shutil.copyfile(source, place)
    grading = target / "grading"
    shutil.copytree(PACKAGE / "grading" / "inside", grading / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    grading.joinpath("__init__.py").write_text("", encoding="utf-8")
    grading.joinpath("notebook.py").write_text(CHECK, encoding="utf-8")
    target.joinpath("sealed.py").write_text(ERROR, encoding="utf-8")
    return folder


def _files() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and not LEFT_OUT.intersection(path.relative_to(PACKAGE).parts):
            yield path


def _shut(source: Path) -> str:
    """The module with nothing in its functions but an exception; imports, classes and constants stay."""
    module = source.relative_to(PACKAGE.parent).with_suffix("")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = ".".join([*module.parts, node.name])
            node.body = ast.parse(f"from course_utils.sealed import {SEALED}\nraise {SEALED}({name!r})").body
    return ast.unparse(ast.fix_missing_locations(tree))
