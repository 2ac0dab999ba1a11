"""One address and one release: pyproject.toml's, in the badges, in the set-up cells, and in what they say in Colab."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import course_utils
from course_utils import cli, colab, project
from course_utils.grading import build
from course_utils.grading.progress import passed, record
from course_utils.publish import FILES, OURS, renamed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PRESENT = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
NEW = "some-one/attention.course_2"
FOLDERS = ("notebooks", "exercises", "solutions")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, list(arguments))


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def set_up_cells(root: Path) -> dict[str, str]:
    """Notebook -> the source of its set-up cell; exactly one has to be there."""
    found = {}
    for path in sorted(path for folder in FOLDERS for path in (root / folder).glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        (source,) = [s for c in cells if (s := "".join(c["source"])).startswith("# Set-up:")]
        found[path.relative_to(root).as_posix()] = source
    return found


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the course that name its address."""
    for path in (path for pattern in FILES for path in ROOT.glob(pattern)):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- The files of the course


def test_every_file_names_the_repository_of_pyproject() -> None:
    named = {}
    for path in (path for pattern in FILES for path in ROOT.glob(pattern)):
        named[path.relative_to(ROOT).as_posix()] = {match[2] for match in OURS.finditer(path.read_text("utf-8"))}
    notebooks = {name for name in named if name.endswith(".ipynb")}
    assert len(notebooks) == 3 * len(list(ROOT.glob("notebooks/*.ipynb")))
    assert {name: names for name, names in named.items() if names - {PRESENT}} == {}
    assert {name for name in notebooks | {"README.md"} if not named[name]} == set()


def test_every_notebook_has_the_set_up_cell_of_this_release() -> None:
    for name, source in set_up_cells(ROOT).items():
        wanted = colab.set_up_cell(PRESENT, PROJECT["version"], gpu=name == "notebooks/09_training_on_gpu.ipynb")
        assert source == wanted, name


def test_build_reads_what_a_toml_reader_reads() -> None:
    assert build.release(ROOT) == build.Release(PRESENT, PROJECT["version"])


# ---- course publish


def test_publish_changes_the_address_and_nothing_else(copy: Path) -> None:
    before = contents(copy)
    result = run("publish", NEW)
    assert result.exit_code == 0, result.stderr
    after = contents(copy)
    assert after == {name: content.replace(PRESENT.encode(), NEW.encode()) for name, content in before.items()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if PRESENT.encode() in before[name]}
    assert changed >= {"pyproject.toml", "README.md", *set_up_cells(copy)}
    said = {line.removesuffix(" written").replace("\\", "/") for line in result.stdout.splitlines()[:-1]}
    assert said == changed
    assert result.stdout.splitlines()[-1] == f"Every file of the course names {NEW}."


def test_a_second_time_writes_nothing_and_there_is_a_way_back(copy: Path) -> None:
    before = contents(copy)
    run("publish", NEW)
    once = contents(copy)
    again = run("publish", NEW)
    assert (again.exit_code, again.stdout) == (0, f"Every file of the course names {NEW}.\n")
    assert contents(copy) == once
    assert run("publish", PRESENT).exit_code == 0
    assert contents(copy) == before


def test_publish_and_build_agree(copy: Path) -> None:
    run("publish", NEW)
    assert run("build", "--check").exit_code == 0
    assert run("publish", "--check").exit_code == 0
    pyproject = copy / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    pyproject.write_text(text.replace(f'\nversion = "{PROJECT["version"]}"', '\nversion = "7.0.1"'), encoding="utf-8")
    assert run("build", "--check").exit_code == 1
    run("build")
    assert all('    setup("7.0.1"' in source for source in set_up_cells(copy).values())
    assert [name for name, source in set_up_cells(copy).items() if "gpu=True" in source] == [build.FOR_GPU.as_posix()]


def test_check_names_the_file_that_names_another(copy: Path) -> None:
    assert run("publish", "--check").stdout == "Every file of the course names the same repository.\n"
    path = copy / "exercises" / "03_self_attention.ipynb"
    path.write_text(
        path.read_text("utf-8").replace(f"git+https://github.com/{PRESENT}", f"git+https://github.com/{NEW}"), "utf-8"
    )
    before = contents(copy)
    result = run("publish", "--check")
    assert result.exit_code == 1
    assert result.stdout == f"{Path('exercises', '03_self_attention.ipynb')} names {NEW}\n"
    assert "course publish OWNER/NAME" in result.stderr
    assert contents(copy) == before


def test_what_was_stopped_halfway_is_finished(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from course_utils import publish

    writes: Iterator[int] = iter(range(5))

    def failing(path: Path, text: str) -> None:
        if next(writes, None) is None:
            raise OSError(28, "No space left on device")
        path.write_bytes(text.encode())

    with monkeypatch.context() as patch:
        patch.setattr(publish, "write_atomically", failing)
        result = run("publish", NEW)
    assert result.exit_code == 2
    assert "could not be written (No space left on device)" in result.stderr
    assert run("publish", "--check").exit_code == 1
    assert run("publish", NEW).exit_code == 0
    assert not any(PRESENT.encode() in content for content in contents(copy).values())
    assert run("publish", "--check").exit_code == 0


BAD_SHAPES = ["", "name", "a/b/c", "/b", "a/", "-a/b", "a-/b", "a--b/c", "a_b/c", "a/b c", "한글/b", "a/한글", 'a/b"\n']
TOO_LONG = ["a" * 40 + "/b", "a-" * 20 + "a/b", "a/" + "b" * 101]
ADDRESSES = ["https://github.com/a/b", "git@github.com:a/b", "a/.", "a/..", "a/b.git", "a/b.wiki"]


@pytest.mark.parametrize("name", [*BAD_SHAPES, *TOO_LONG, *ADDRESSES])
def test_a_bad_name_is_refused_in_a_sentence(copy: Path, name: str) -> None:
    before = contents(copy)
    result = run("publish", "--", name)
    assert result.exit_code == 2
    assert re.search(r"is not the name of a repository. Write OWNER/NAME|cannot be on GitHub: no rep", result.stderr)
    assert "Traceback" not in result.stderr
    assert contents(copy) == before


def test_a_good_name_is_taken(copy: Path) -> None:
    for name in ("a/b", "A1-b/.github", "a" * 39 + "/" + "b" * 100, "0/_"):
        assert run("publish", name).exit_code == 0, name
        assert build.release(copy).repository == name


def test_one_of_name_and_check_is_wanted(copy: Path) -> None:
    for arguments in ([], [NEW, "--check"]):
        result = run("publish", *arguments)
        assert result.exit_code == 2
        assert "--check alone" in result.stderr


def test_another_folder_is_left_alone(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(copy)
    elsewhere = copy.parent / f"{copy.name}-elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(project, "__file__", str(copy / "course_utils" / "project.py"))
    result = run("publish", NEW)
    assert result.exit_code == 2
    assert f"It is {copy}: go there" in result.stderr
    assert contents(copy) == before
    monkeypatch.setattr(project, "__file__", str(elsewhere / "course_utils" / "project.py"))
    assert "The course was not found" in run("publish", NEW).stderr


NAMED = '[project]\nname = "course-utils"\n'
ADDRESS = 'Repository = "https://github.com/a/b"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "this is not the course's folder"),
        ('[project]\nname = "other"\nversion = "1"\n', "another project"),
        (f'{NAMED}version = "1"\n[a]\n{ADDRESS}', "no Repository"),
        (f"{NAMED}[project.urls]\n{ADDRESS}", "no version"),
    ],
)
def test_a_course_without_an_address_is_named(copy: Path, text: str | None, said: str) -> None:
    (copy / "pyproject.toml").unlink()
    if text is not None:
        (copy / "pyproject.toml").write_text(text, encoding="utf-8")
    for arguments in ([NEW], ["--check"]):
        result = run("publish", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr


def test_only_the_course_is_renamed() -> None:
    text = (
        "https://github.com/me/course, https://github.com/me/course.git https://github.com/me/course/issues\r\n"
        "https://github.com/me/course-data https://github.com/me/course.js https://github.com/not-me/course "
        "See https://github.com/me/course... %pip install git+https://github.com/old/name.git@v1에서\\n"
    )
    assert renamed(text, "me/course", "a/b") == (
        "https://github.com/a/b, https://github.com/a/b.git https://github.com/a/b/issues\r\n"
        "https://github.com/me/course-data https://github.com/me/course.js https://github.com/not-me/course "
        "See https://github.com/a/b... %pip install git+https://github.com/a/b.git@v1에서\\n"
    )


# ---- The set-up cell: course_utils.setup


@pytest.fixture
def in_colab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A Colab without Drive and without a GPU; the list says what was asked of it."""
    asked: list[str] = []
    output = types.ModuleType("google.colab.output")
    output.enable_custom_widget_manager = lambda: asked.append("widgets")  # type: ignore[attr-defined]
    package = types.ModuleType("google.colab")
    package.output = output  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.colab", package)
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    monkeypatch.setattr(colab, "DRIVE", tmp_path / "MyDrive")
    monkeypatch.setattr(colab, "DEVICES", str(tmp_path / "nvidia*"))
    monkeypatch.setattr(colab, "version", lambda name: "0.9.0")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("COURSE_HOME", "to be put back")
    monkeypatch.delenv("COURSE_HOME")
    return asked


def test_the_same_release_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colab, "version", lambda name: "0.9.0")
    course_utils.setup("0.9.0", gpu=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("notebook", "says"),
    [
        ("0.10.0", "0.10.0, and the installed package is 0.9.0: run git pull, then python3 course.py lab."),
        ("0.9.0rc1", "run git pull, then python3 course.py lab."),
        ("0.8.11", "open a fresh copy with python3 course.py reset NUMBER."),
        ("nonsense", "open a fresh copy"),
    ],
)
def test_another_release_is_one_sentence(
    notebook: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colab, "version", lambda name: "0.9.0")
    course_utils.setup(notebook, later="wish")
    said = capsys.readouterr().out
    assert said.startswith("This notebook is of the course's release")
    assert said.endswith(says + "\n") or says in said
    assert said.count("\n") == 1


def test_in_colab_another_release_has_other_ways(in_colab: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    course_utils.setup("1.0.0")
    assert "choose Runtime → Disconnect and delete runtime" in capsys.readouterr().out
    course_utils.setup("0.1.0")
    assert "with the Colab badge" in capsys.readouterr().out


def test_colab_is_made_ready(in_colab: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    record("0.2", 1)
    course_utils.setup("0.9.0")
    said = capsys.readouterr().out
    assert in_colab == ["widgets"]
    assert 'drive.mount("/content/drive")' in said
    assert said.count("\n") == 1

    colab.DRIVE.mkdir()
    course_utils.setup("0.9.0")
    assert capsys.readouterr().out == "Your progress is kept in your Google Drive, in the folder attention-workbook.\n"
    record("0.3", 1)
    assert set(passed()) == {"0.2", "0.3"}
    assert (colab.DRIVE / "attention-workbook" / "progress" / "0.3.json").is_file()

    course_utils.setup("0.9.0")
    assert capsys.readouterr().out == ""


def test_a_home_that_was_chosen_stays(
    in_colab: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "mine"))
    colab.DRIVE.mkdir()
    course_utils.setup("0.9.0")
    assert capsys.readouterr().out == ""
    assert list(colab.DRIVE.iterdir()) == []


def test_a_drive_that_cannot_be_written_is_said(in_colab: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    colab.DRIVE.mkdir()
    colab.DRIVE.joinpath("attention-workbook").write_text("a file in the way", encoding="utf-8")
    course_utils.setup("0.9.0")
    assert "Google Drive cannot be written" in capsys.readouterr().out


def test_the_lesson_for_a_gpu_asks_for_one(
    in_colab: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    course_utils.setup("0.9.0", gpu=True)
    assert "Runtime → Change runtime type → GPU" in capsys.readouterr().out
    tmp_path.joinpath("nvidia0").touch()
    for available in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        course_utils.setup("0.9.0", gpu=True)
        assert bool(capsys.readouterr().out) is not available


def test_nothing_that_fails_stops_the_lesson(
    in_colab: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    for name in ("version", "_show_all_widgets", "_keep_progress", "glob"):
        monkeypatch.setattr(colab, name, broken)
    course_utils.setup("0.9.0", gpu=True)
    assert capsys.readouterr() == ("", "")


def test_setup_imports_nothing_heavy() -> None:
    code = "import sys, course_utils; course_utils.setup('0'); sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("package", ["", "check = 1\n", None])
def test_the_cell_with_an_old_or_no_package_ends_in_a_sentence(tmp_path: Path, package: str | None) -> None:
    """An old package knows no `setup`; where pip failed, there is none."""
    if package is not None:
        tmp_path.joinpath("course_utils").mkdir()
        tmp_path.joinpath("course_utils", "__init__.py").write_text(package, encoding="utf-8")
    cell = re.sub(r"^(\s*)%.*$", r"\1pass", colab.set_up_cell("a/b", "9.9.9"), flags=re.MULTILINE)
    tmp_path.joinpath("cell.py").write_text(cell, encoding="utf-8")
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", "import sys; sys.path.insert(0, '.')\n" + cell]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The course's package is missing or too old. In Colab: Runtime → Disconnect")


def test_the_cell_of_this_release_prints_nothing() -> None:
    cell = colab.set_up_cell(PRESENT, course_utils.__version__).replace("%pip", "pass  #")
    done = subprocess.run([sys.executable, "-c", cell], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
