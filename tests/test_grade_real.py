"""What real notebooks do to a grader. The other answers of each notebook are right, and have to get their points."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import nbformat
import pytest
from handmade import CHECKS, MEAN, OUTER, SETUP, SOFTMAX, code, write_notebook
from test_grade import marks, messages, statuses

from course_utils.grading.runner import Limits, grade
from course_utils.grading.sandbox import run_notebook

pytestmark = pytest.mark.slow
QUICK = Limits(cell=8)
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux enforces these limits")
RIGHT = OUTER.partition("\n")[2]

# What somebody's cell does -> (the cell, which stands for exercise 0.2; its mark; a part of its message)
CELLS: dict[str, tuple[str, str, str]] = {
    "an endless loop in the answer": (
        "def outer_difference(a, b):\n    while True:\n        pass",
        "timeout",
        "took more than",
    ),
    "os._exit": ("import os\ndef outer_difference(a, b):\n    os._exit(0)", "kernel_died", "ended the Python process"),
    "a segfault": (
        "import ctypes\ndef outer_difference(a, b):\n    ctypes.string_at(0)",
        "kernel_died",
        "ended the Python process",
    ),
    "sys.exit": ("import sys\ndef outer_difference(a, b):\n    sys.exit(3)", "error", "SystemExit"),
    "quit": (f"{RIGHT}\nquit()", "kernel_died", "ended the Python process"),
    "input": ("def outer_difference(a, b):\n    return float(input('a: '))", "error", "StdinNotImplementedError"),
    "100 MB printed": (f"{RIGHT}\nfor _ in range(100):\n    print('x' * 2**20)", "passed", ""),
    "100 MB printed in one line": (f"{RIGHT}\nprint('x' * 100 * 2**20)", "passed", ""),
    "a flood of lines": (f"{RIGHT}\nfor i in range(200_000):\n    print(i)", "passed", ""),
    "reset": (f"%reset -f\nimport numpy as np, torch\n{RIGHT}", "passed", ""),
    "bash": (f"!echo hello > note.txt\n{RIGHT}", "passed", ""),
    "pip": (f"!{sys.executable} -m pip install --no-index no-such-package\n{RIGHT}", "passed", ""),
    "deleting what is near": (
        f"import os, shutil\nfor name in os.listdir():\n    shutil.rmtree(name, ignore_errors=True)\n"
        f"open('submission.ipynb', 'w').write('mine')\n{RIGHT}",
        "passed",
        "",
    ),
    "a figure that is shown": (
        f"import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nplt.switch_backend('agg')\nplt.show()\n{RIGHT}",
        "passed",
        "",
    ),
    "a backend that is not there": (f"%matplotlib widget\n{RIGHT}", "error", "stopped with"),
    "an inline backend": (f"%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1])\n{RIGHT}", "passed", ""),
    "widgets": (
        f"from ipywidgets import interact\ninteract(lambda n: print(n), n=(0, 9))\n{RIGHT}",
        "passed",
        "",
    ),
    "a thread that never ends": (
        f"import threading, time\nthreading.Thread(target=lambda: time.sleep(10**6)).start()\n{RIGHT}",
        "passed",
        "",
    ),
    "a process that never ends": (
        f"import subprocess\nsubprocess.Popen(['sleep', '98765'], start_new_session=True)\n{RIGHT}",
        "passed",
        "",
    ),
    "a huge result": (
        "def outer_difference(a, b):\n    return np.zeros((6000, 6000))",
        "error",
        "far more than was asked for",
    ),
    "a syntax error": ("def outer_difference(a, b)\n    return a", "error", "SyntaxError"),
    "a merge conflict in the code": (f"<<<<<<< HEAD\n{RIGHT}\n=======\n>>>>>>> theirs", "error", "SyntaxError"),
    "another folder": (f"%cd /\n{RIGHT}", "passed", ""),
    "a helper in a new cell": ("def outer_difference(a, b):\n    return helper(a, b)", "error", "NameError"),
    "recursion": ("def outer_difference(a, b):\n    return outer_difference(a, b)", "error", "RecursionError"),
    "an exception of one's own": (
        "def outer_difference(a, b):\n    raise type('안녕', (Exception,), {})('🙂')",
        "error",
        "안녕",
    ),
}
BOMBS: dict[str, tuple[str, str, str]] = {
    "memory": ("def outer_difference(a, b):\n    return bytearray(2**36)", "error", "MemoryError on your line"),
    "memory, bit by bit": (
        "def outer_difference(a, b):\n    held = []\n    while True:\n        held.append(np.zeros(2**25))",
        "error",
        "MemoryError on your line",
    ),
    "forks": (
        "import os\ndef outer_difference(a, b):\n    while True:\n        os.fork()",
        "kernel_died",
        "ended the Python process",
    ),
    "forks of a shell": (
        "import subprocess\ndef outer_difference(a, b):\n"
        "    subprocess.run(['bash', '-c', 'f() { f | f & }; f; sleep 60'])",
        "",
        "",
    ),
    "a huge file": (
        "def outer_difference(a, b):\n    with open('huge', 'wb') as file:\n        file.truncate(2**40)",
        "error",
        "File too large",
    ),
}


def notebook(folder: Path, cell: str, name: str = "x.ipynb") -> Path:
    answer = f"# Exercise 0.2\n{cell}"
    return write_notebook(
        folder / name, [SETUP, SOFTMAX, CHECKS["0.1"], answer, CHECKS["0.2"], SETUP, MEAN, CHECKS["0.3"]]
    )


@pytest.mark.parametrize("case", CELLS)
def test_one_answer_costs_its_own_exercise_and_no_other(tmp_path: Path, case: str) -> None:
    cell, status, said = CELLS[case]
    graded = grade(notebook(tmp_path, cell), QUICK)
    assert marks(graded) == statuses("passed", status, "passed"), messages(graded)
    assert said in messages(graded)["0.2"]
    assert os.listdir(tmp_path) == ["x.ipynb"]


@linux
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_costs_its_own_exercise_and_no_other(tmp_path: Path, bomb: str) -> None:
    psutil = pytest.importorskip("psutil")
    before = len(psutil.pids())
    cell, status, said = BOMBS[bomb]
    graded = grade(notebook(tmp_path, cell), QUICK)
    found = marks(graded)
    assert (found["0.1"], found["0.3"]) == ("passed", "passed"), messages(graded)
    assert found["0.2"] == status if status else found["0.2"] != "passed"
    assert said in messages(graded)["0.2"]
    assert len(psutil.pids()) < before + 60, "the bomb went on"


def test_a_loop_in_a_cell_of_notes_costs_nothing(tmp_path: Path) -> None:
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, "while True:\n    pass", SOFTMAX, OUTER, MEAN]), QUICK)
    assert marks(graded) == statuses("passed", "passed", "passed")


def test_cells_in_another_order_split_copied_and_without_checks(tmp_path: Path) -> None:
    helper = "def subtract(a, b):\n    return a - b"
    using = "# Exercise 0.2\ndef outer_difference(a, b):\n    return subtract(a[:, None], b)"
    copied = [code(MEAN, id="same"), code(MEAN, id="same")]
    path = write_notebook(tmp_path / "x.ipynb", [SETUP, *copied, using, helper, CHECKS["0.2"], SOFTMAX])
    graded = grade(path)
    assert marks(graded) == statuses("passed", "passed", "passed")
    assert "defined more than once" in messages(graded)["0.3"]


def test_a_check_that_was_edited_counts_for_nothing(tmp_path: Path) -> None:
    edited = 'check("0.2", lambda a, b: a[:, None] - b)'
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, OUTER.replace("b[None, :]", "0"), edited, SOFTMAX]))
    assert marks(graded) == statuses("passed", "wrong", "missing")


def test_an_answer_moved_out_of_its_cell(tmp_path: Path) -> None:
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, "# Exercise 0.2\n# my answer is below", RIGHT]))
    assert marks(graded)["0.2"] == "passed"


@pytest.mark.parametrize(
    "how", ["Colab", "saved mid-run", "without metadata", "format 3", "foreign kernel", "no kernel"]
)
def test_files_as_other_programs_save_them(tmp_path: Path, how: str) -> None:
    path = tmp_path / "내 노트북 🙂 (1).ipynb"
    old = {"output_type": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": ["x"]}
    cells = [SETUP, SOFTMAX, OUTER, code(MEAN, outputs=[old], execution_count=None)]
    if how == "format 3":
        cells3 = [nbformat.v3.new_code_cell(c if isinstance(c, str) else c["source"]) for c in cells]
        sheet = nbformat.v3.new_notebook(worksheets=[nbformat.v3.new_worksheet(cells=cells3)])
        path.write_text(nbformat.v3.writes_json(sheet), encoding="utf-8")
    elif how == "Colab":  # format 4.0, no ids of cells, metadata of its own, and outputs that it has made
        sources = [SETUP, SOFTMAX, CHECKS["0.1"], OUTER, CHECKS["0.2"], MEAN, CHECKS["0.3"]]
        shown = {"output_type": "display_data", "data": {"text/html": ["✗"], "text/plain": ["✗"]}, "metadata": {}}
        mine = {"id": "aB3", "colab": {"base_uri": "https://localhost:8080/"}, "outputId": "5f"}
        rows = [code(source, metadata=mine, outputs=[shown], execution_count=7) for source in sources]
        colab = {
            "colab": {"provenance": [], "gpuType": "T4"},
            "accelerator": "GPU",
            "language_info": {"name": "python"},
        }
        write_notebook(path, rows, minor=0, kernelspec={"name": "python3", "display_name": "Python 3"}, **colab)
    else:
        spec = {"kernelspec": {"name": "conda-env-nlp-py", "display_name": "x", "language": "python"}}
        write_notebook(path, cells, minor=0 if how == "without metadata" else 5, **(spec if "foreign" in how else {}))
    assert marks(grade(path)) == statuses("passed", "passed", "passed")


@pytest.mark.skipif(os.name == "nt", reason="permissions")
def test_a_read_only_folder_and_another_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "handed in"
    folder.mkdir()
    path = notebook(folder, RIGHT)
    path.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.chdir("/")
    try:
        assert marks(grade(path)) == statuses("passed", "passed", "passed")
    finally:
        folder.chmod(stat.S_IRWXU)


def test_a_run_that_prints_without_end_is_interrupted_and_stays_small() -> None:
    cell = {**code("while True:\n    print('x' * 1000)"), "id": "a"}
    after = {**code("x = 1"), "id": "b"}
    text = json.dumps({"cells": [cell, after], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    record = run_notebook(lambda port, nonce: text, cell_timeout=2, wall_limit=60)
    assert record.cells[0]["timed_out"]
    assert record.cells[-1]["ok"] or record.cells[0]["died"]
