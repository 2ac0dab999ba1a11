"""``course grade``: what can be handed in, what a run survives, and what earns nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from handmade import CHECKS, MEAN, OUTER, OUTER_STUB, SETUP, SOFTMAX, code, write_notebook
from typer.testing import CliRunner

from course_utils.checks import find
from course_utils.cli import app
from course_utils.grading import command, report
from course_utils.grading.rebuild import as_notebook, rebuild, without_nbval_markers
from course_utils.grading.report import ExerciseReport, NotebookReport
from course_utils.grading.runner import Limits, grade
from course_utils.grading.sandbox import run_notebook
from course_utils.grading.submission import BadNotebook, read_code_cells

SHIPPED = Path(__file__).parents[1] / "exercises"
QUICK = Limits(cell=10)  # long enough for the first import of torch on a busy machine
ANSWERS = [SETUP, SOFTMAX, CHECKS["0.1"], OUTER, CHECKS["0.2"], MEAN, CHECKS["0.3"]]


def marks(graded: NotebookReport) -> dict[str, str]:
    assert graded.status == "graded", graded.message
    return {e.id: e.status for e in graded.exercises}


def messages(graded: NotebookReport) -> dict[str, str]:
    return {e.id: e.message for e in graded.exercises}


def statuses(a: str, b: str, c: str) -> dict[str, str]:
    return {"0.1": a, "0.2": b, "0.3": c}


# Reading -------------------------------------------------------------------------------------------------------------


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """What goes wrong -> (a file like that, what is said of it)."""
    good = write_notebook(folder / "good.ipynb", ANSWERS).read_bytes()
    contents: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "is empty"),
        "blank": (b" \n\n", "is empty"),
        "truncated": (good[: len(good) // 2], "cut off"),
        "not_json": (b"# Exercise 0.2\n", "not JSON (line 1)"),
        "conflict": (
            good.replace(b'"cells"', b'\n<<<<<<< HEAD\n"cells"'),
            "merge conflict was left in it (line 2)",
        ),
        "latin": ('{"cells": "é"}'.encode("latin-1"), "not UTF-8"),
        "no_cells": (b'{"a": 1}', "has no cells"),
        "a_list": (b"[1, 2]", "has no cells"),
        "zero_cells": (b'{"cells": [], "nbformat": 4}', "empty: it has no cells"),
        "damaged": (b'{"cells": [3], "nbformat": 4}', "cell 1 is not a cell"),
        "damaged_code": (b'{"cells": [{"cell_type": "code", "source": 3}], "nbformat": 4}', "code of cell 1"),
        "nested": (b"[" * 200_000, "nested too deep"),
        "old_damaged": (b'{"nbformat": 3, "worksheets": [{"cells": [7]}]}', "old format and could not be converted"),
    }
    files = {}
    for name, (content, said) in contents.items():
        path = folder / f"{name}.ipynb"
        path.write_bytes(content)
        files[name] = (path, said)
    folder.joinpath("folder.ipynb").mkdir()
    folder.joinpath("essay.txt").write_text("words", encoding="utf-8")
    heading = {"cell_type": "markdown", "metadata": {}, "source": "# Exercise 0.2"}
    other = [code("def fibonacci(n):\n    return n"), code("# Exercise 77.3\nx = 1")]
    return files | {
        "absent": (folder / "absent.ipynb", "no such file"),
        "folder": (folder / "folder.ipynb", "a folder, not a notebook"),
        "text": (folder / "essay.txt", "ends in .ipynb"),
        "other_course": (write_notebook(folder / "00_other.ipynb", other), "no exercise of this course"),
        "only_text": (write_notebook(folder / "text.ipynb", [heading]), "no exercise of this course"),
    }


def test_every_bad_file_gets_a_plain_sentence(tmp_path: Path) -> None:
    for name, (path, said) in bad_files(tmp_path).items():
        graded = grade(path)
        assert graded.status == "invalid", name
        assert said in graded.message, name
        assert graded.message.endswith("."), name
        assert "Traceback" not in graded.message
        assert graded.as_json()["exercises"] == []


def test_bad_files_exit_with_2_and_say_why_on_stderr(tmp_path: Path) -> None:
    for path, said in bad_files(tmp_path).values():
        result = CliRunner().invoke(app, ["grade", str(path), "--json"])
        assert result.exit_code == 2
        assert said in result.stderr
        assert str(path) in result.stderr
        assert json.loads(result.stdout)["notebooks"][0]["status"] == "invalid"


def test_a_folder_without_notebooks_is_nothing_to_grade(tmp_path: Path) -> None:
    (tmp_path / ".ipynb_checkpoints").mkdir()
    write_notebook(tmp_path / ".ipynb_checkpoints" / "old.ipynb", ANSWERS)
    result = CliRunner().invoke(app, ["grade", str(tmp_path)])
    assert result.exit_code == 2
    assert "no notebooks" in result.stderr


@pytest.mark.parametrize("require", ["most", "101%", "-1"])
def test_require_wants_a_percentage(tmp_path: Path, require: str) -> None:
    result = CliRunner().invoke(app, ["grade", str(tmp_path), f"--require={require}"])
    assert result.exit_code == 2
    assert "percentage from 0% to 100%" in result.stderr


@pytest.mark.parametrize("encoded", ["bom", "crlf", "source as list", "without ids", "format 4.0", "format 3"])
def test_other_ways_to_save_the_same_notebook(tmp_path: Path, encoded: str) -> None:
    path = tmp_path / "안녕 notebook 🙂.ipynb"
    if encoded == "source as list":
        write_notebook(path, [code(cell.splitlines(keepends=True)) for cell in ANSWERS])  # type: ignore[arg-type]
    elif encoded == "format 3":
        old = nbformat.v3.new_notebook(
            worksheets=[nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell(cell) for cell in ANSWERS])]
        )
        path.write_text(nbformat.v3.writes_json(old), encoding="utf-8")
    else:
        write_notebook(path, ANSWERS, minor={"without ids": 5, "format 4.0": 0}.get(encoded, 4))
    if encoded == "bom":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    if encoded == "crlf":
        path.write_bytes(path.read_bytes().replace(b"\\n", b"\\r\\n"))
    if encoded == "without ids":
        notebook = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(notebook | {"cells": [{**c, "id": "same"} for c in notebook["cells"]]}))
    assert read_code_cells(path) == ANSWERS


def a_course(folder: Path) -> Path:
    """As much of the course's folder as the command looks at, with the learner's copy of exercises 00."""
    for name in ("notebooks", "exercises", "workbook/exercises", "workbook/notebooks"):
        (folder / name).mkdir(parents=True)
    for name in ("notebooks", "exercises", "workbook/exercises"):
        write_notebook(folder / name / "00_start_here.ipynb", ANSWERS)
    write_notebook(folder / "workbook/exercises" / "00_start_here.2026-03-04-101112.ipynb", ANSWERS)
    return folder


def test_a_number_means_the_learner_s_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(a_course(tmp_path))
    own = tmp_path / "workbook/exercises/00_start_here.ipynb"
    for text in ("00", "0", "00_start_here"):
        assert [s.path for s in command.notebooks([Path(text)])] == [own]
    assert [s.path for s in command.notebooks([Path("workbook/exercises")])] == [Path(own.relative_to(tmp_path))]
    assert [s.path for s in command.notebooks([Path("77")])] == [Path("77")]
    assert "course grade 00" in command.hint(command.notebooks([Path("exercises")]))
    assert command.hint(command.notebooks([Path("00")])) == ""


# Rebuilding ----------------------------------------------------------------------------------------------------------


def layout(*sources: str, name: str = "x.ipynb") -> list[str]:
    """The rebuilt notebook in short: a check as its id, any other cell as its first line."""
    rebuilt = rebuild(sources, Path(name))
    return [cell.exercises[0] if cell.is_check else cell.source.splitlines()[0] for cell in rebuilt.cells]


IN_ORDER = ["import numpy as np", "# Exercise 0.1", "0.1", "# Exercise 0.2", "0.2", "# Exercise 0.3", "0.3"]


def test_checks_are_put_back_after_their_answers() -> None:
    assert layout(*ANSWERS) == IN_ORDER
    assert layout(SETUP, SOFTMAX, OUTER, MEAN) == IN_ORDER
    assert layout(*CHECKS.values(), SETUP, SOFTMAX, OUTER, MEAN) == IN_ORDER
    edited = ['check("0.1", lambda x: x)', 'from course_utils import check\nresult = check("0.2", None)', "check()"]
    assert [line for line in layout(SETUP, SOFTMAX, OUTER, MEAN, *edited) if not line.startswith("from")] == IN_ORDER


def test_a_helper_between_an_answer_and_its_check_is_run_before_it() -> None:
    helper = "def helper(a): return a"
    assert layout(SETUP, OUTER, helper, CHECKS["0.2"], MEAN) == [
        "import numpy as np",
        "# Exercise 0.2",
        helper,
        "0.2",
        "# Exercise 0.3",
        "0.3",
    ]


def test_imports_in_a_check_cell_are_kept() -> None:
    assert "import math" in layout(OUTER, 'import math\ncheck("0.2", outer_difference)', MEAN)


def test_a_check_within_other_code_is_left_alone() -> None:
    mixed = 'x = 3\ncheck("0.2", outer_difference)'
    assert layout(OUTER, mixed) == ["# Exercise 0.2", "0.2", "x = 3"]


@pytest.mark.parametrize(
    "first",
    [
        "#exercise 0.2",
        "# EXERCISE 0.2:",
        "  # Exercise: 0.2 (mine)",
        "# done!\n\n# Exercise 0 . 2",
        "%%time\n# Exercise 00.02",
    ],
)
def test_markers_are_read_with_tolerance(first: str) -> None:
    rebuilt = rebuild([f"{first}\nanything = 1"], Path("x.ipynb"))
    assert rebuilt.found == {"0.2"}


def test_a_number_that_only_begins_alike_is_another_exercise() -> None:
    with pytest.raises(BadNotebook):
        rebuild(["# Exercise 0.21\nx = 1"], Path("x.ipynb"))
    with pytest.raises(BadNotebook):
        rebuild(['text = """\n# Exercise 0.2"""'], Path("x.ipynb"))


def test_without_markers_the_function_tells() -> None:
    bare = [source.partition("\n")[2] for source in (SOFTMAX, OUTER, MEAN)]
    assert layout(SETUP, *bare)[2::2] == ["0.1", "0.2", "0.3"]
    assert layout(SETUP, "\n".join(bare))[2:] == ["0.1", "0.2", "0.3"]
    assert layout("outer_difference = lambda a, b: a")[1:] == ["0.2"]
    assert layout("def outer_difference(a, b:  # no closing bracket")[1:] == ["0.2"]


def test_a_marker_that_was_copied_along_does_not_hide_an_answer() -> None:
    wrong_marker = MEAN.replace("0.3", "0.2")
    rebuilt = rebuild([OUTER, wrong_marker], Path("x.ipynb"))
    assert {"0.2", "0.3"} <= rebuilt.found


def test_the_last_of_two_answers_counts_and_that_is_said() -> None:
    rebuilt = rebuild([OUTER_STUB, OUTER], Path("x.ipynb"))
    assert layout(OUTER_STUB, OUTER) == ["# Exercise 0.2", "# Exercise 0.2", "0.2"]
    assert "defined more than once; the last one counts" in rebuilt.remarks["0.2"]
    assert rebuild(["# Exercise 0.2\nhelp_me = 1", OUTER], Path("x.ipynb")).remarks == {}


def test_the_lesson_is_what_most_exercises_say() -> None:
    assert rebuild([OUTER], Path("02_mine.ipynb")).lesson == 0
    assert rebuild([OUTER], Path("my homework.ipynb")).lesson == 0


@pytest.mark.parametrize(
    "line",
    ["# NBVAL_SKIP", "#NBVAL_RAISES_EXCEPTION", "   ## NBVAL_IGNORE_OUTPUT  ", "# PYTEST_VALIDATE_IGNORE_OUTPUT"],
)
def test_nothing_that_nbval_would_heed_is_left(line: str) -> None:
    from nbval.plugin import find_comment_markers

    for before in ("x = 1\n", "x = 1\x0c", "x = 1\u2028"):
        source = f"{before}{line}\ny = 2"
        assert dict(find_comment_markers(source))
        assert not dict(find_comment_markers(without_nbval_markers(source)))
        assert without_nbval_markers(source).endswith("\ny = 2")


def test_the_rebuilt_notebook_is_valid_and_holds_nothing_but_code() -> None:
    rebuilt = rebuild(ANSWERS, Path("x.ipynb"))
    notebook = nbformat.reads(as_notebook(rebuilt.cells, 1234, "word"), as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata == {}
    assert all(cell.metadata == {} and cell.outputs == [] for cell in notebook.cells)
    assert notebook.cells[2].source.endswith('_course.serve("0.1", "softmax", port=1234, nonce="word")')


# Reports -------------------------------------------------------------------------------------------------------------


def test_bonus_points_count_but_are_not_asked_for() -> None:
    exercises = (
        ExerciseReport("1.1", "A", "passed", 2, 2),
        ExerciseReport("1.2", "B", "wrong", 0, 2, "name", "text"),
        ExerciseReport("1.3", "C", "passed", 3, 3, bonus=True),
    )
    graded = NotebookReport("x.ipynb", "graded", "01_seq2seq", exercises)
    assert (graded.points, graded.possible) == (5, 4)
    assert "bonus" not in graded.as_json()["exercises"][2]
    assert not report.falls_short([graded], 100)
    assert report.falls_short([graded, NotebookReport("y.ipynb", "invalid", message="no")], 0)


# Whole runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A solved notebook as people have them, in a folder with files that lie in wait."""
    folder = tmp_path_factory.mktemp("handed in")
    folder.joinpath("conftest.py").write_text("raise SystemExit('ran the conftest')", encoding="utf-8")
    folder.joinpath("random.py").write_text("raise SystemExit('ran the neighbour')", encoding="utf-8")
    folder.joinpath("pytest.ini").write_text("[pytest]\naddopts = --no-such-option", encoding="utf-8")
    cells = [
        code(SETUP, outputs=[{"output_type": "stream", "name": "stdout", "text": "old"}]),
        code("raise KeyError('a cell of notes that fails')"),
        code(SOFTMAX, metadata={"tags": ["nbval-skip", "raises-exception"]}),
        code(f"# NBVAL_SKIP\n{OUTER}"),
        code(MEAN, outputs=[{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}], execution_count=3),
    ]
    kernelspec = {"name": "conda-env-mine-py", "display_name": "mine", "language": "python"}
    return write_notebook(folder / "00_start_here (1).ipynb", cells, kernelspec=kernelspec)


@pytest.mark.slow
def test_full_marks_and_nothing_of_the_learner_is_touched(solved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTHONSTARTUP", "/no/such/file")
    monkeypatch.chdir(solved.parent)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in solved.parent.iterdir()}
    first, second = grade(Path(solved.name)), grade(solved)
    assert marks(first) == statuses("passed", "passed", "passed")
    assert first.points == first.possible == 5
    assert first.message == ""
    assert first.exercises == second.exercises
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in solved.parent.iterdir()} == before


@pytest.mark.slow
def test_one_wrong_answer_loses_just_its_own(tmp_path: Path) -> None:
    transposed = OUTER.replace("a[:, None] - b[None, :]", "a[None, :] - b[:, None]")
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, SOFTMAX, transposed, MEAN]))
    assert marks(graded) == statuses("passed", "wrong", "passed")
    assert graded.exercises[1].misconception == "transposed"
    exercise = find("0.2")
    assert exercise is not None
    assert graded.exercises[1].message in {m.message for m in exercise.misconceptions}


@pytest.mark.slow
def test_what_is_not_there_and_what_stops_is_told_apart(tmp_path: Path) -> None:
    broken = SOFTMAX + "\n    return ]"
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, "import no_such_module", broken, OUTER_STUB]))
    assert marks(graded) == statuses("error", "not_attempted", "missing")
    assert graded.points == 0
    assert "SyntaxError" in messages(graded)["0.1"]
    assert "`# Exercise 0.3`" in messages(graded)["0.3"]
    assert "Code cell 2 (`import no_such_module`) stopped with ModuleNotFoundError" in graded.message


@pytest.mark.slow
def test_an_endless_loop_costs_its_own_exercise(tmp_path: Path) -> None:
    endless = "# Exercise 0.2\ndef outer_difference(a, b):\n    while True:\n        pass"
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, SOFTMAX, endless, MEAN]), QUICK)
    assert marks(graded) == statuses("passed", "timeout", "passed")
    assert "`outer_difference` took more than 10 s" in messages(graded)["0.2"]


@pytest.mark.slow
def test_a_loop_that_cannot_be_interrupted_is_left_out(tmp_path: Path) -> None:
    stubborn = OUTER + "\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass"
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, SOFTMAX, stubborn, MEAN]), QUICK)
    assert marks(graded) == statuses("passed", "timeout", "passed")
    assert "The cell with your answer took more than 10 s" in messages(graded)["0.2"]


@pytest.mark.slow
def test_whatever_ends_the_kernel_is_named_and_the_rest_is_graded(tmp_path: Path) -> None:
    exits = "# Exercise 0.1\ndef softmax(x, axis=-1):\n    import os\n    os._exit(0)"
    crashes = OUTER + "\nimport ctypes\nctypes.string_at(0)"
    begun = time.monotonic()
    path = write_notebook(tmp_path / "x.ipynb", [SETUP, "quit()", exits, crashes, MEAN])
    graded = grade(path, Limits(cell=300))
    assert time.monotonic() - begun < 200, "nobody waited for a time-out"
    assert marks(graded) == statuses("kernel_died", "kernel_died", "passed")
    assert "Calling your `softmax` ended the Python process" in messages(graded)["0.1"]
    assert "The cell with your answer ended the Python process" in messages(graded)["0.2"]
    assert "Code cell 2 (`quit()`)" in graded.message
    assert "left out" in graded.message


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux enforces the limit")
def test_a_memory_bomb_is_an_error_of_its_own(tmp_path: Path) -> None:
    bomb = "# Exercise 0.2\ndef outer_difference(a, b):\n    return bytearray(2**36)"
    sys_exit = "# Exercise 0.1\nimport sys\ndef softmax(x, axis=-1):\n    sys.exit(0)"
    graded = grade(write_notebook(tmp_path / "x.ipynb", [SETUP, sys_exit, bomb, MEAN]))
    assert marks(graded) == statuses("error", "error", "passed")
    assert "MemoryError on your line `return bytearray(2**36)`" in messages(graded)["0.2"]
    assert "SystemExit" in messages(graded)["0.1"]


@pytest.mark.slow
def test_the_wall_limit_ends_a_run_and_keeps_what_was_found(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "x.ipynb", [SETUP, OUTER, "import time\ntime.sleep(500)", MEAN])
    graded = grade(path, Limits(cell=600, wall=20))
    assert marks(graded) == statuses("missing", "passed", "timeout")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_exercises_as_shipped_earn_nothing(path: Path) -> None:
    graded = grade(path)
    assert set(marks(graded).values()) == {"not_attempted"}
    assert graded.lesson == path.stem
    assert graded.points == 0
    assert graded.message == ""


# The worker ----------------------------------------------------------------------------------------------------------


def run_cells(*sources: str, cell_timeout: float = 60, wall_limit: float = 120) -> list[dict[str, Any]]:
    rows = [code(source, id=f"c{i}") for i, source in enumerate(sources)]
    text = json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    return run_notebook(lambda port, nonce: text, cell_timeout, wall_limit).cells


@pytest.mark.slow
def test_a_dead_kernel_is_noticed_at_once() -> None:
    begun = time.monotonic()
    cells = run_cells("x = 1", "import os\nos._exit(1)", "x = 2", cell_timeout=300, wall_limit=280)
    assert time.monotonic() - begun < 100
    assert [cell["ok"] for cell in cells] == [True, False]
    assert cells[1]["died"]
    assert not cells[1]["timed_out"]


@pytest.mark.slow
def test_a_reply_that_says_error_is_a_failure_without_an_error_message() -> None:
    [silenced, after] = run_cells("get_ipython()._showtraceback = lambda *a: None\n1 / 0", "x = 1")
    assert not silenced["ok"]
    assert silenced["error"]["name"] == "ZeroDivisionError"
    assert after["ok"]


@pytest.mark.slow
def test_a_run_sees_neither_the_graders_settings_nor_its_secrets(
    monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("PYTHONPATH", str(own_home))
    sources = [
        "import os\nassert 'SECRET_TOKEN' not in os.environ and 'PYTHONPATH' not in os.environ",
        f"assert os.environ['COURSE_HOME'] != {str(own_home)!r}",
        "assert os.listdir() == [], os.listdir()",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
        "input()",
    ]
    assert [cell["ok"] for cell in run_cells(*sources)] == [True, True, True, True, False]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sleep")
def test_nothing_is_left_running() -> None:
    psutil = pytest.importorskip("psutil")
    [cell] = run_cells("import subprocess\nsubprocess.Popen(['sleep', '54321'], start_new_session=True)")
    assert cell["ok"]
    running = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"])]
    assert ["sleep", "54321"] not in running


def test_the_worker_starts_without_compiling_a_grammar() -> None:
    program = """import sys, course_utils.grading.worker, jsonschema, nbformat
assert "lark" not in sys.modules and "torch" not in sys.modules
jsonschema.validate(3, {"type": "integer"})"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux enforces the limits")
def test_the_launcher_sets_limits() -> None:
    program = """import resource, course_utils.grading.inside.launcher as launcher
launcher.set_limits()
assert resource.getrlimit(resource.RLIMIT_AS)[0] == launcher.MEMORY
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)"""
    subprocess.run([sys.executable, "-c", program], check=True)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_json_for_a_folder_with_a_good_and_a_bad_notebook(tmp_path: Path, solved: Path) -> None:
    tmp_path.joinpath("a.ipynb").write_bytes(solved.read_bytes())
    tmp_path.joinpath("b.ipynb").write_text("", encoding="utf-8")
    command = [sys.executable, "-m", "course_utils.cli", "grade", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert list(data) == ["points", "possible", "notebooks"]
    assert (data["points"], data["possible"]) == (5, 5)
    good, bad = data["notebooks"]
    assert list(good) == ["path", "lesson", "status", "points", "possible", "exercises"]
    assert good["lesson"] == "00_start_here"
    assert good["exercises"][1] == {
        "id": "0.2",
        "title": "Outer difference",
        "status": "passed",
        "points": 1,
        "possible": 1,
        "misconception": None,
        "message": "",
    }
    assert bad["status"] == "invalid"
    assert bad["message"] in done.stderr


@pytest.mark.slow
def test_the_table_and_the_exit_codes(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "half.ipynb", [SETUP, SOFTMAX, OUTER.replace("a[:, None]", "a[None, :]"), MEAN])
    result = CliRunner().invoke(app, ["grade", str(path), "--require", "81%"])
    assert result.exit_code == 1
    assert "4/5" in result.stdout
    assert "Outer difference" in result.stdout
    assert "0.2" in result.stdout.split("4/5")[-1], "the diagnosis stands under the table"
    assert result.stderr == ""
