"""``course build``, and the commands that work on the course's folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from handmade import CHECKS, code, write_notebook
from typer.testing import CliRunner

from course_utils import cli, project
from course_utils.grading import build
from course_utils.grading.progress import record

ANSWER = """# Exercise 0.2
def outer_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    \"\"\"(n,), (m,) -> (n, m).\"\"\"
    ### BEGIN SOLUTION
    column = a[:, None]

    return column - b
    ### END SOLUTION"""
STUBBED = """# Exercise 0.2
def outer_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    \"\"\"(n,), (m,) -> (n, m).\"\"\"
    raise NotImplementedError"""
WIDGET = "application/vnd.jupyter.widget-view+json"
VIEW = {"model_id": "1", "version_major": 2, "version_minor": 0}


def shown(**data: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": data}


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of one lesson with one exercise, not yet built."""
    for name in ("notebooks", "solutions", "exercises"):
        tmp_path.joinpath(name).mkdir()
    picture = shown(**{WIDGET: VIEW, "image/png": "AAAA", "text/plain": "한글"})
    executed = code(ANSWER, execution_count=7, metadata={"tags": ["a"], "execution": {"iopub.busy": "now"}, "x": {}})
    checked = code(CHECKS["0.2"], outputs=[shown(**{"text/plain": "✓"}), picture], execution_count=8)
    markdown = {"cell_type": "markdown", "metadata": {}, "source": "## 0.2 한글\n\ntext"}
    colab = {
        "colab": {"provenance": []},
        "language_info": {"name": "python", "version": "3.11.7"},
        "widgets": {"a": {}},
    }
    write_notebook(tmp_path / "solutions" / "00_start_here.ipynb", [markdown, executed, checked], **colab)
    write_notebook(tmp_path / "notebooks" / "00_start_here.ipynb", [markdown, checked], **colab)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, list(arguments))


def test_build_writes_exercises_that_hold_no_solution(course: Path) -> None:
    result = run("build")
    assert result.exit_code == 0
    exercise = nbformat.read(course / "exercises" / "00_start_here.ipynb", as_version=4)
    nbformat.validate(exercise)
    assert [cell.source for cell in exercise.cells] == ["## 0.2 한글\n\ntext", STUBBED, CHECKS["0.2"]]
    assert all(c.outputs == [] and c.execution_count is None for c in exercise.cells if c.cell_type == "code")
    assert [cell.id for cell in exercise.cells] == ["cell-0", "cell-1", "cell-2"]


def test_build_cleans_lessons_and_solutions_and_keeps_their_results(course: Path) -> None:
    run("build")
    for folder in ("notebooks", "solutions"):
        notebook = read(course / folder / "00_start_here.ipynb")
        assert notebook["metadata"] == build.METADATA
        checked = notebook["cells"][-1]
        assert checked["execution_count"] == 8
        assert checked["outputs"][0]["data"] == {"text/plain": "✓"}
        assert checked["outputs"][1]["data"] == {"image/png": "AAAA", "text/plain": "한글"}
    assert read(course / "solutions" / "00_start_here.ipynb")["cells"][1]["metadata"] == {"tags": ["a"]}


def test_a_widget_without_a_picture_leaves_nothing_behind(course: Path) -> None:
    """A progress bar of a run that is over: without its kernel, JupyterLab would show an error in its place."""
    path = course / "notebooks" / "00_start_here.ipynb"
    bar = shown(**{WIDGET: VIEW, "text/plain": "0%| | 0/400"})
    write_notebook(path, [code("w", outputs=[bar], execution_count=1)], widgets={"state": {}})
    run("build")
    assert read(path)["cells"][0]["outputs"] == []
    assert "widgets" not in read(path)["metadata"]


def test_two_builds_give_the_same_bytes(course: Path) -> None:
    run("build")
    files = sorted(course.rglob("*.ipynb"))
    before = [path.read_bytes() for path in files]
    assert run("build").stdout == "Every notebook is as it should be.\n"
    assert [path.read_bytes() for path in files] == before
    for content in before:
        assert content.endswith(b"\n}\n")
        assert b"\r" not in content
    assert "한글".encode() in before[0]


def test_cells_without_ids_get_the_same_ones_every_time(course: Path) -> None:
    path = course / "solutions" / "00_start_here.ipynb"
    write_notebook(path, [code("x = 1"), code("y = 2")], minor=4)
    run("build")
    first = [cell["id"] for cell in read(path)["cells"]]
    write_notebook(path, [code("x = 1"), code("y = 2")], minor=4)
    run("build")
    assert [cell["id"] for cell in read(path)["cells"]] == first
    assert len(set(first)) == 2


def test_check_names_what_differs_and_writes_nothing(course: Path) -> None:
    result = run("build", "--check")
    assert result.exit_code == 1
    for folder in ("exercises", "notebooks", "solutions"):
        assert f"{Path(folder, '00_start_here.ipynb')} differs" in result.stdout
    assert "course build" in result.stderr
    assert list(course.joinpath("exercises").iterdir()) == []
    run("build")
    assert run("build", "--check").exit_code == 0
    exercise = course / "exercises" / "00_start_here.ipynb"
    exercise.write_text(exercise.read_text(encoding="utf-8").replace("raise", "pass  #"), encoding="utf-8")
    result = run("build", "--check")
    assert result.exit_code == 1
    assert result.stdout.count("differs") == 1


def test_several_solutions_in_a_cell_keep_what_is_between_them() -> None:
    source = "a\n  ### BEGIN SOLUTION\n  b\n  ### END SOLUTION\n\nc\n### BEGIN SOLUTION\n### END SOLUTION\nd"
    assert build.without_solution(source) == f"a\n  {build.STUB}\n\nc\n{build.STUB}\nd"
    assert build.without_solution("nothing\nto do\n") == "nothing\nto do\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("### BEGIN SOLUTION\nx", "### BEGIN SOLUTION without ### END SOLUTION"),
        ("x\n### END SOLUTION", "### END SOLUTION without ### BEGIN SOLUTION"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION", "a second ### BEGIN SOLUTION"),
        ("## BEGIN SOLUTION\nx\n### END SOLUTION", "`## BEGIN SOLUTION` is meant to be"),
        ("### begin solution", "is meant to be"),
        ("# Exercise 0.2\nx = 1", "would give itself away"),
    ],
)
def test_markers_that_do_not_pair_up_are_named(course: Path, source: str, said: str) -> None:
    path = write_notebook(course / "solutions" / "00_start_here.ipynb", ["import numpy", source])
    before = path.read_bytes()
    result = run("build")
    assert result.exit_code == 2
    assert said in result.stderr
    assert f"{path}, cell 2: " in result.stderr
    assert path.read_bytes() == before


def test_an_exercise_without_a_solution_and_a_broken_notebook_are_named(course: Path) -> None:
    run("build")
    stray = write_notebook(course / "exercises" / "09_old.ipynb", [])
    assert "is made from no solution" in run("build", "--check").stderr
    stray.unlink()
    course.joinpath("notebooks", "03_x.ipynb").write_text("{", encoding="utf-8")
    assert "03_x.ipynb cannot be read" in run("build").stderr
    course.joinpath("notebooks", "03_x.ipynb").write_text("[]", encoding="utf-8")
    assert "not a notebook of format 4" in run("build").stderr


# The other commands --------------------------------------------------------------------------------------------------


def test_the_course_is_found_from_below_and_from_the_package(course: Path) -> None:
    below = course / "notebooks" / "deep"
    below.mkdir()
    assert project.find_root(below) == course


def test_where_there_is_no_course_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(project, "__file__", str(tmp_path / "site-packages" / "course_utils" / "project.py"))
    for command in ("lab", "build", "test"):
        result = run(command)
        assert result.exit_code == 2
        assert "The course was not found" in result.stderr


def test_lab_opens_the_first_lesson_and_passes_arguments_on(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], Path]] = []
    monkeypatch.setattr(project, "_call", lambda command, folder, env: calls.append((command, folder)) or 3)
    monkeypatch.setattr(project.importlib.util, "find_spec", lambda name: object())
    assert run("lab", "--no-browser", "--port=9999").exit_code == 3
    [(command, folder)] = calls
    assert command[1:3] == ["-m", "jupyterlab"]
    assert command[3] == "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"
    assert command[-2:] == ["--no-browser", "--port=9999"]
    assert folder == course / "workbook"


def test_lab_says_how_to_get_jupyterlab(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project.importlib.util, "find_spec", lambda name: None)
    result = run("lab")
    assert result.exit_code == 2
    assert "pip install" in result.stderr


def test_test_stops_at_the_first_failure(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def call(command: list[str], folder: Path, env: dict[str, str]) -> int:
        assert folder == course
        calls.append(command)
        return 1 if "--nbval-lax" in command else 0

    monkeypatch.setattr(project, "_call", call)
    result = run("test", "-k", "name")
    assert result.exit_code == 1
    assert len(calls) == 3
    assert calls[0][-2:] == ["-k", "name"]
    assert calls[1][calls[1].index("-m", 3) :][:2] == ["-m", "slow"]
    assert "Lessons and solutions under nbval: failed, exit code 1" in result.stdout
    monkeypatch.setattr(project, "_call", lambda *_: 0)
    assert "Everything passed." in run("test").stdout


def test_progress_shows_what_was_passed(own_home: Path) -> None:
    assert "Nothing passed yet" in run("progress").stdout
    record("0.2", 1)
    shown = run("progress").stdout
    assert "✓ 0.2" in shown
    assert "00_start_here" in shown
    assert "Nothing passed" not in shown


def test_an_unexpected_error_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise KeyError("inside")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.delenv("COURSE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 3
    said = capsys.readouterr().err
    assert "KeyError: 'inside'" in said
    assert "course --debug" in said
    assert "Traceback" not in said
    monkeypatch.setenv("COURSE_DEBUG", "1")
    with pytest.raises(KeyError):
        cli.main()


def test_help_is_quick_and_imports_no_torch() -> None:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "course_utils.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert time.monotonic() - begun < 3
    assert "| torch\n" not in done.stderr
    for command in ("lab", "grade", "progress", "build", "test"):
        assert f" {command} " in done.stdout
