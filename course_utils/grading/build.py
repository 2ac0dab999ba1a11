"""``course build``: the exercises from their solutions, every notebook with the same set-up and saved in the same way.

Two runs give the same bytes, so that a difference in git is a difference in content.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.colab import FIRST_WORDS, set_up_cell
from course_utils.grading.progress import write_atomically
from course_utils.grading.rebuild import marker_of

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = "raise NotImplementedError"
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_CELL_METADATA = ("jupyter", "tags")
FOR_GPU = Path("notebooks", "09_training_on_gpu.ipynb")


class BuildError(Exception):
    """A notebook that cannot be built; the text names it and the cell."""


@dataclass(frozen=True)
class Release:
    """What the course is published as: ``owner/name`` on GitHub, and the version of the package."""

    repository: str
    version: str


def build(root: Path) -> list[Path]:
    """Write every notebook of the course that is not as it should be; returns those. Raises BuildError."""
    changed = differing(root)
    for path, text in changed.items():
        write_atomically(path, text)
    return list(changed)


def differing(root: Path) -> dict[Path, str]:
    """Path -> what the file should hold, for every notebook that holds something else. Writes nothing."""
    wanted: dict[Path, str] = {}
    for path in sorted([*root.glob("notebooks/*.ipynb"), *root.glob("solutions/*.ipynb")]):
        notebook = with_set_up(_load(path), path, root)
        wanted[path] = _text(normalised(notebook, path.stem))
        if path.parent.name == "solutions":
            exercise = root / "exercises" / path.name
            wanted[exercise] = _text(as_exercise(notebook, path))
    strays = [p for p in sorted(root.glob("exercises/*.ipynb")) if p not in wanted]
    if strays:
        raise BuildError(f"{strays[0]} is made from no solution: remove it, or add solutions/{strays[0].name}.")
    return {path: text for path, text in wanted.items() if not _holds(path, text)}


def release(root: Path) -> Release:
    """As pyproject.toml says. Raises BuildError."""
    path = root / "pyproject.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise BuildError(f"{path} cannot be read: this is not the course's folder.") from None

    def value(section: str, key: str, shape: str) -> str:  # Python 3.10 has no tomllib
        within = rf"^\[{re.escape(section)}\][^\n]*\n(?:(?!\[)[^\n]*\n)*?"
        match = re.search(rf'{within}{key}\s*=\s*"{shape}"', text, re.MULTILINE)
        if match is None:
            raise BuildError(f"{path} names no {key} of the kind that is needed in [{section}].")
        return match[1]

    if value("project", "name", '([^"]+)') != "course-utils":
        raise BuildError(f"{path} is the file of another project.")
    repository = value("project.urls", "Repository", 'https://github\\.com/([^/"]+/[^/"]+)')
    return Release(repository, value("project", "version", '([0-9][^"]*)'))


def with_set_up(notebook: dict[str, Any], path: Path, root: Path) -> dict[str, Any]:
    """The notebook with the present set-up cell: it installs from the present address, and names this release."""

    def present(cell: dict[str, Any]) -> dict[str, Any]:
        if cell["cell_type"] != "code" or not "".join(cell["source"]).startswith(FIRST_WORDS):
            return cell
        this = release(root)
        return {**cell, "source": set_up_cell(this.repository, this.version, path == root / FOR_GPU)}

    return {**notebook, "cells": [present(cell) for cell in notebook["cells"]]}


def normalised(notebook: dict[str, Any], stem: str) -> dict[str, Any]:
    """The notebook with stable metadata and cell ids, and with no trace of who ran it when."""
    cells = [_cell(cell, f"{stem}-{i}") for i, cell in enumerate(notebook["cells"])]
    return {"cells": cells, "metadata": dict(METADATA), "nbformat": 4, "nbformat_minor": 5}


def as_exercise(notebook: dict[str, Any], path: Path) -> dict[str, Any]:
    """The notebook that the learner fills in: solutions replaced by a stub, nothing run. Raises BuildError."""
    exercise = normalised(notebook, path.stem)
    for number, cell in enumerate(exercise["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        try:
            stubbed = without_solution(source)
        except ValueError as error:
            raise BuildError(f"{path}, cell {number}: {error}") from None
        if stubbed == source and marker_of(source):
            raise BuildError(f"{path}, cell {number}: an answer without {BEGIN} and {END} would give itself away.")
        cell.update(source=_lines(stubbed), outputs=[], execution_count=None)
    return exercise


def without_solution(source: str) -> str:
    """Each solution's lines, with its two markers, become one stub. Raises ValueError where markers do not pair up."""
    kept: list[str] = []
    inside = False
    for line in source.split("\n"):
        if re.search(r"(BEGIN|END)\s+SOLUTION", line, re.IGNORECASE) and line.strip() not in (BEGIN, END):
            raise ValueError(f"`{line.strip()}` is meant to be `{BEGIN}` or `{END}`.")
        if line.strip() == BEGIN:
            if inside:
                raise ValueError(f"a second {BEGIN} before {END}.")
            inside = True
            kept.append(line[: len(line) - len(line.lstrip())] + STUB)
        elif line.strip() == END:
            if not inside:
                raise ValueError(f"{END} without {BEGIN}.")
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        raise ValueError(f"{BEGIN} without {END}.")
    return "\n".join(kept)


def _cell(cell: dict[str, Any], name: str) -> dict[str, Any]:
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    metadata = cell.get("metadata", {})
    clean = {
        "cell_type": cell["cell_type"],
        "id": cell.get("id") or hashlib.sha256(name.encode()).hexdigest()[:8],
        "metadata": {key: metadata[key] for key in KEPT_CELL_METADATA if metadata.get(key)},
        "source": _lines(source.replace("\r\n", "\n")),
    }
    if "attachments" in cell:
        clean["attachments"] = cell["attachments"]
    if cell["cell_type"] == "code":
        clean["execution_count"] = cell.get("execution_count")
        clean["outputs"] = [_output(output) for output in cell.get("outputs", []) if not _is_dead(output)]
    return clean


def _output(output: dict[str, Any]) -> dict[str, Any]:
    """Without the live widget where the same output also has a picture: the picture shows everywhere."""
    data = output.get("data", {})
    if WIDGET in data and any(kind.startswith("image/") or kind == "text/html" for kind in data):
        data = {kind: content for kind, content in data.items() if kind != WIDGET}
        return {**output, "data": data}
    return output


def _is_dead(output: dict[str, Any]) -> bool:
    """A widget with nothing but a text in its place, such as a progress bar: without its kernel it shows an error."""
    return WIDGET in output.get("data", {}) and set(output["data"]) <= {WIDGET, "text/plain"}


def _lines(source: str) -> list[str]:
    """As Jupyter stores them: a list of lines, each with its line end."""
    return re.findall(r"[^\n]*\n|[^\n]+", source)


def _text(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _load(path: Path) -> dict[str, Any]:
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from None
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4:
        raise BuildError(f"{path} is not a notebook of format 4.")
    return notebook


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode("utf-8")
