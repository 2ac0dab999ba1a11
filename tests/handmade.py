"""Notebooks made on the fly, and the answers to lesson 00's exercises that the grader's tests put into them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

SETUP = "import numpy as np\nimport torch\nfrom course_utils import check"
SOFTMAX = """# Exercise 0.1
def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)"""
OUTER = """# Exercise 0.2
def outer_difference(a, b):
    return a[:, None] - b[None, :]"""
OUTER_STUB = """# Exercise 0.2
def outer_difference(a, b):
    raise NotImplementedError"""
MEAN = """# Exercise 0.3
def masked_mean(x, lengths):
    return torch.stack([row[:n].mean(dim=0) for row, n in zip(x, lengths.tolist())])"""
CHECKS = {
    "0.1": '# NBVAL_CHECK_OUTPUT\ncheck("0.1", softmax)',
    "0.2": '# NBVAL_CHECK_OUTPUT\ncheck("0.2", outer_difference)',
    "0.3": '# NBVAL_CHECK_OUTPUT\ncheck("0.3", masked_mean)',
}


def code(source: str, **more: object) -> dict[str, object]:
    """A code cell as a plain dictionary."""
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source, **more}


def write_notebook(path: Path, cells: Iterable[str | dict[str, object]], minor: int = 5, **metadata: object) -> Path:
    """A notebook of format 4; a string stands for a code cell with that source."""
    rows = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    if minor >= 5:
        rows = [{"id": f"cell-{i}", **row} for i, row in enumerate(rows)]
    notebook = {"cells": rows, "metadata": metadata, "nbformat": 4, "nbformat_minor": minor}
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path
