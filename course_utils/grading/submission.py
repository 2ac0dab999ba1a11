"""Read what a learner hands in. The file is only ever read: never run, never written to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from course_utils.grading.imports import without_url_grammar

LARGEST = 300 * 2**20  # bytes


class BadNotebook(Exception):
    """The file cannot be graded; the text says why in one sentence, without the file's name."""


def read_code_cells(path: Path) -> list[str]:
    """The sources of the notebook's code cells, in order, with ``\\n`` as line end. Raises BadNotebook."""
    return _read_cells(path, "code")


def read_markdown_cells(path: Path) -> list[str]:
    """The same for the cells of text."""
    return _read_cells(path, "markdown")


def _read_cells(path: Path, kind: str) -> list[str]:
    notebook = _parse(_read_text(path))
    if isinstance(notebook, dict) and notebook.get("nbformat") in (1, 2, 3):
        notebook = _upgrade(notebook)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise BadNotebook("this is JSON, but not a notebook: it has no cells.")
    if not cells:
        raise BadNotebook("the notebook is empty: it has no cells.")
    return [source for number, cell in enumerate(cells, 1) if (source := _source(cell, number, kind)) is not None]


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise BadNotebook("this is a folder, not a notebook.")
    if not path.exists():
        raise BadNotebook("there is no such file.")
    if path.suffix != ".ipynb":
        raise BadNotebook("this is not a notebook: the name of a notebook ends in .ipynb.")
    try:
        if path.stat().st_size > LARGEST:
            raise BadNotebook(
                f"the file is larger than {LARGEST // 2**20} MB. Clear the outputs of the notebook and save it again."
            )
        data = path.read_bytes()
    except OSError as error:
        raise BadNotebook(f"the file could not be read ({error.strerror}).") from None
    if not data.strip():
        raise BadNotebook("the file is empty. Save the notebook and hand it in again.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadNotebook("the file is not UTF-8 text, as every notebook is. Save it again from Jupyter.") from None


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadNotebook("this is not a notebook: its brackets are nested too deep.") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        conflict = re.search(r"^(<{7}|>{7}) ", text, re.MULTILINE)
        if conflict:
            line = text.count("\n", 0, conflict.start()) + 1
            reason = f"a merge conflict was left in it (line {line}). Resolve it and save the notebook again."
        elif text.lstrip().startswith("{") and not text.rstrip().endswith("}"):
            reason = "the file ends in the middle: it was cut off while being saved or copied. Hand it in again."
        else:
            reason = f"this is not a notebook: its content is not JSON (line {line})."
        raise BadNotebook(reason) from None


def _upgrade(notebook: dict[str, Any]) -> dict[str, Any]:
    with without_url_grammar():
        import nbformat
    try:
        return nbformat.convert(nbformat.from_dict(notebook), 4)
    except Exception:  # whatever a damaged file of an old format makes nbformat stumble over
        raise BadNotebook(
            "the notebook has an old format and could not be converted. Open it in JupyterLab and save it again."
        ) from None


def _source(cell: Any, number: int, kind: str) -> str | None:
    """The source of a cell of this kind, None for any other cell."""
    if not isinstance(cell, dict) or "cell_type" not in cell:
        raise BadNotebook(f"the notebook is damaged: cell {number} is not a cell.")
    if cell["cell_type"] != kind:
        return None
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise BadNotebook(f"the notebook is damaged: the code of cell {number} is not text.")
    return source.replace("\r\n", "\n").replace("\r", "\n")
