"""From a learner's cells to the notebook that is run: their code in their order, the checks put back.

Nothing that gets lost on the way through Colab, VS Code or a copy is relied upon: no cell ids, tags or metadata.
An answer is known by its marker comment (``# Exercise 3.2``), failing that by the function that a cell defines.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.checks import Exercise, exercises, find, lessons
from course_utils.grading.submission import BadNotebook

MARKER = re.compile(r"#[#\s]*exercise\s*[:#]?\s*(\d{1,2})\s*\.\s*(\d{1,2})(?!\d)", re.IGNORECASE)
DEFINITION = re.compile(r"^(?:(?:async\s+)?def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
NBVAL_MARKER = re.compile(r"\s*#[#\s]*(NBVAL_\w+|PYTEST_VALIDATE_\w+)\s*")
CHECK_CELL = (
    "import course_utils.grading.inside.serve as _course\n"
    '_course.serve("{id}", "{function}", port={port}, nonce="{nonce}")'
)


@dataclass(frozen=True)
class Cell:
    """A code cell of the rebuilt notebook.

    ``number`` counts the learner's code cells from 1. ``exercises`` are the ids whose answer the cell holds; for a
    check cell, the one that it checks.
    """

    source: str
    number: int
    exercises: tuple[str, ...] = ()
    is_check: bool = False

    @property
    def name(self) -> str:
        """For messages: the cell's number and its first line."""
        first = next((line.strip() for line in self.source.splitlines() if line.strip()), "")
        return f"Code cell {self.number} (`{first[:60]}`)"


@dataclass(frozen=True)
class Rebuilt:
    """What is to be run. ``remarks`` says per exercise id what was odd about where its answer was found."""

    lesson: int
    cells: tuple[Cell, ...]
    remarks: dict[str, str] = field(default_factory=dict)

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        return exercises(self.lesson)

    @property
    def digest(self) -> str:
        """Of all the code that is run. The cases depend on it, so nobody can know them and write down their results."""
        return hashlib.sha256("\0".join(cell.source for cell in self.cells).encode("utf-8", "replace")).hexdigest()

    @property
    def found(self) -> set[str]:
        """The ids of the exercises that have an answer cell, written or not."""
        return {cell.exercises[0] for cell in self.cells if cell.is_check}


def rebuild(sources: Iterable[str], path: Path) -> Rebuilt:
    """Put the canonical checks of the notebook's lesson among its cells. Raises BadNotebook for a foreign notebook."""
    scanned = [_Scanned(without_nbval_markers(source)) for source in sources]
    lesson = _lesson(scanned, path)
    answers = {e.id: _answer_cells(e, scanned) for e in exercises(lesson)}
    checks_after = _check_places(answers, scanned)
    cells: list[Cell] = []
    for i, scan in enumerate(scanned):
        if scan.source.strip():
            cells.append(Cell(scan.source, i + 1, tuple(e for e, at in answers.items() if i in at)))
        cells.extend(Cell("", i + 1, (e,), is_check=True) for e, place in checks_after.items() if place == i)
    remarks = {e.id: _remark(e, answers[e.id], scanned) for e in exercises(lesson)}
    return Rebuilt(lesson, tuple(cells), {e: text for e, text in remarks.items() if text})


def as_notebook(cells: Iterable[Cell], port: int, nonce: str) -> str:
    """A notebook of format 4.5 with nothing in it but code. Its checks connect to ``port`` with ``nonce``."""
    sources = [_check_cell(c.exercises[0], port, nonce) if c.is_check else c.source for c in cells]
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    rows = [{**code, "id": f"cell-{i}", "source": source} for i, source in enumerate(sources)]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def _check_cell(exercise_id: str, port: int, nonce: str) -> str:
    exercise = find(exercise_id)
    return CHECK_CELL.format(id=exercise_id, function=exercise.function if exercise else "", port=port, nonce=nonce)


def without_nbval_markers(source: str) -> str:
    """Comments that tell nbval to skip a cell or to expect its failure become empty comments."""
    # splitlines, as in nbval: it breaks lines at form feeds and at U+2028 too.
    lines = source.splitlines(keepends=True)
    return "".join(f"#{line[len(line.rstrip()) :]}" if NBVAL_MARKER.fullmatch(line) else line for line in lines)


class _Scanned:
    """One cell, taken apart once: its marker, the names that it defines, and the checks that it calls."""

    def __init__(self, source: str) -> None:
        self.marker = marker_of(source)
        self.defines = {a or b for a, b in DEFINITION.findall(source)}
        self.checks, self.source = _own_checks(source)


def marker_of(source: str) -> str | None:
    """The exercise id in the comments with which the cell begins, or None."""
    for line in map(str.strip, source.splitlines()):
        if match := MARKER.match(line):
            return f"{int(match[1])}.{int(match[2])}"
        if line and not line.startswith(("#", "%")):
            return None
    return None


def _own_checks(source: str) -> tuple[set[str], str]:
    """(ids, what is left of the cell) for a cell that holds nothing but ``check`` calls, imports and comments.

    ``(set(), source)`` for any other cell: a check within other code runs as it stands, and earns nothing.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(), source
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    calls = [call for node in body if (call := _check_call(node))]
    if not calls or len(imports) + len(calls) != len(body):
        return set(), source
    first = [call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)]
    return set(map(str, first)), "\n".join(map(ast.unparse, imports))


def _check_call(node: ast.stmt) -> ast.Call | None:
    value = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
    if not isinstance(value, ast.Call):
        return None
    function = value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return value if name == "check" else None


def _lesson(scanned: list[_Scanned], path: Path) -> int:
    """The lesson most of whose exercises are here; the file's name decides between equals."""
    by_marker, by_name = Counter[int](), Counter[int]()
    defined = set().union(*(scan.defines for scan in scanned)) if scanned else set()
    markers = {scan.marker for scan in scanned}
    for lesson in lessons():
        by_marker[lesson] = sum(e.id in markers for e in exercises(lesson))
        by_name[lesson] = sum(e.function in defined for e in exercises(lesson))
    counts = by_marker if any(by_marker.values()) else by_name
    if not any(counts.values()):
        raise BadNotebook(
            "no exercise of this course was found in it: there is no cell that begins with a comment like "
            "`# Exercise 1.2`, and none that defines a function asked for."
        )
    number = re.match(r"\d\d", path.name)
    return max(counts, key=lambda n: (counts[n], number is not None and n == int(number[0]), -n))


def _answer_cells(exercise: Exercise, scanned: list[_Scanned]) -> list[int]:
    """Where the answer is: cells with its marker, and unmarked ones that define its function.

    A cell marked for another exercise counts only when there is nothing better: its marker was copied along.
    """
    marked = [i for i, scan in enumerate(scanned) if scan.marker == exercise.id]
    defining = [i for i, scan in enumerate(scanned) if exercise.function in scan.defines]
    own = sorted({*marked, *(i for i in defining if scanned[i].marker is None)})
    return own or defining


def _check_places(answers: dict[str, list[int]], scanned: list[_Scanned]) -> dict[str, int]:
    """Exercise id -> the cell after which its check belongs: the answer's last cell.

    The learner's own check marks a better place where it comes later but before the next answer begins: then a
    helper written between the answer and its check is there when the check runs.
    """
    starts = sorted(at[0] for at in answers.values() if at)
    places = {}
    for exercise_id, at in answers.items():
        if not at:
            continue
        end = next((start for start in starts if start > at[-1]), len(scanned))
        own_checks = (i for i in range(at[-1], end) if exercise_id in scanned[i].checks)
        places[exercise_id] = max((at[-1], *own_checks))
    return places


def _remark(exercise: Exercise, at: list[int], scanned: list[_Scanned]) -> str:
    if not at:
        return ""
    if sum(exercise.function in scanned[i].defines for i in at) > 1:
        return f"`{exercise.function}` is defined more than once; the last one counts."
    return ""
