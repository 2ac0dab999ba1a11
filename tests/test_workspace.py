"""The working copy in workbook/: brought up to date for whoever left it alone, and never taken from anybody."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from test_lessons import ROOT
from typer.testing import CliRunner

from course_utils import cli, project, workspace

ANSWER = "# Exercise 3.1\ndef scores(q, k):\n    ### BEGIN SOLUTION\n    return q @ k.T\n    ### END SOLUTION"
STUB = "# Exercise 3.1\ndef scores(q, k):\n    raise NotImplementedError"
MINE = "# Exercise 3.1\ndef scores(q, k):\n    return (q * k).sum()"
EXERCISE, LESSON = "exercises/03_self_attention.ipynb", "notebooks/03_self_attention.ipynb"
SOLUTION, PICTURE = "solutions/03_self_attention.ipynb", "notebooks/images/a.png"
not_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() == 0, reason="root may write anywhere")


def notebook(*sources: str, outputs: bool = False) -> str:
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# 03\n", "Text"]}]
    for number, source in enumerate(sources):
        shown = [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}] if outputs else []
        cells.append(
            {
                "cell_type": "code",
                "execution_count": 1 if outputs else None,
                "id": f"c{number}",
                "metadata": {"x": 1} if outputs else {},
                "outputs": shown,
                "source": source.splitlines(keepends=True),
            }
        )
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def ship(root: Path, version: str = "one") -> None:
    """The course in this version: all its files differ from those of another version."""
    for number in ("00_start_here", "03_self_attention"):
        put(root / "notebooks" / f"{number}.ipynb", notebook(f"print('{version}')"))
        put(root / "solutions" / f"{number}.ipynb", notebook(f"x = '{version}'", ANSWER, outputs=True))
        put(root / "exercises" / f"{number}.ipynb", notebook(f"x = '{version}'", STUB))
    put(root / PICTURE, version)
    put(root / "course_utils" / "models" / "attention.py", f"# {version}\n")
    put(root / "course_utils" / "__init__.py", "OWN = True\n")


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "course"
    ship(root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def in_git(course: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("no git on the path")
    put(course / ".gitignore", "workbook/\n")
    git(course, "init", "-q")
    git(course, "add", "-A")
    git(course, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    return course


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def held(root: Path, name: str) -> str:
    return (root / "workbook" / name).read_text(encoding="utf-8")


def everything(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


# ---- Bringing it up to date


def test_the_first_time_everything_is_there_and_nothing_is_said(course: Path) -> None:
    assert workspace.update(course) == []
    for name in (EXERCISE, LESSON, SOLUTION, PICTURE, "course_utils/models/attention.py"):
        assert held(course, name) == (course / name).read_text(encoding="utf-8"), name
    before = everything(course / "workbook")
    assert workspace.update(course) == []
    assert everything(course / "workbook") == before


def test_a_new_file_is_copied_and_a_deleted_one_comes_back(course: Path) -> None:
    workspace.update(course)
    put(course / "notebooks" / "11_new.ipynb", notebook("new"))
    (course / "workbook" / EXERCISE).unlink()
    shutil.rmtree(course / "workbook" / "notebooks" / "images")
    assert workspace.update(course) == []
    assert "new" in held(course, "notebooks/11_new.ipynb")
    assert held(course, EXERCISE) == notebook("x = 'one'", STUB)
    assert held(course, PICTURE) == "one"


def test_untouched_files_follow_the_course(course: Path) -> None:
    workspace.update(course)
    ship(course, "two")
    assert workspace.update(course) == []
    for name in (EXERCISE, LESSON, SOLUTION, PICTURE, "course_utils/models/attention.py"):
        assert "two" in held(course, name), name


def test_a_run_lesson_is_still_untouched(course: Path) -> None:
    workspace.update(course)
    run = notebook("print('one')", outputs=True).replace("\\n", "\\r\\n")
    put(course / "workbook" / LESSON, run)
    assert workspace.update(course) == []
    assert held(course, LESSON) == run  # the same version: no reason to take the outputs away
    ship(course, "two")
    assert workspace.update(course) == []
    assert "two" in held(course, LESSON)


@pytest.mark.parametrize(
    ("name", "mine", "command"),
    [
        (EXERCISE, notebook("x = 'one'", MINE), "`course reset 03`"),
        (EXERCISE, notebook("x = 'one'", STUB, "more = 1"), "`course reset 03`"),
        (LESSON, notebook("print('mine')"), "`course reset 03 --lesson`"),
        (SOLUTION, notebook("mine"), f"`course reset {SOLUTION}`"),
        (PICTURE, "mine", f"`course reset {PICTURE}`"),
    ],
)
def test_a_touched_file_stays_and_one_sentence_says_so(course: Path, name: str, mine: str, command: str) -> None:
    workspace.update(course)
    put(course / "workbook" / name, mine)
    assert workspace.update(course) == []  # nothing is newer
    ship(course, "two")
    for _ in range(2):
        [sentence] = workspace.update(course)
        assert held(course, name) == mine
        assert sentence.startswith(f"There is a newer version of {name}")
        assert command in sentence
        assert "keeps a dated copy of yours" in sentence


def test_whoever_undoes_their_changes_gets_the_newer_version(course: Path) -> None:
    workspace.update(course)
    put(course / "workbook" / EXERCISE, notebook("x = 'one'", MINE))
    ship(course, "two")
    assert len(workspace.update(course)) == 1
    put(course / "workbook" / EXERCISE, notebook("x = 'one'", STUB))
    assert workspace.update(course) == []
    assert "two" in held(course, EXERCISE)


@pytest.mark.parametrize(
    "damage", ['{"cells": [', "", "[]", '{"cells": [1]}', '{"cells": [{"source": 3}]}', "[" * 9999]
)
def test_a_damaged_notebook_is_kept(course: Path, damage: str) -> None:
    workspace.update(course)
    put(course / "workbook" / EXERCISE, damage)
    for version in ("one", "two"):
        ship(course, version)
        [sentence] = workspace.update(course)
        assert "cannot be read" in sentence
        assert "`course reset 03`" in sentence
        assert held(course, EXERCISE) == damage


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"files": {"a": 1}, "built": {}}', '{"files": {}}', None])
def test_without_a_readable_record_nothing_is_lost(course: Path, damage: str | None) -> None:
    workspace.update(course)
    put(course / "workbook" / EXERCISE, notebook("x = 'one'", MINE))
    record = course / "workbook" / workspace.RECORD
    if damage is None:
        record.unlink()
    else:
        put(record, damage)
    ship(course, "two")
    old = everything(course / "workbook")
    [sentence] = workspace.update(course)
    assert EXERCISE in sentence
    assert "`course reset" in sentence
    new = everything(course / "workbook")
    assert {name: data for name, data in new.items() if name in old and name != workspace.RECORD} == {
        name: data for name, data in old.items() if name != workspace.RECORD
    }
    assert workspace.update(course) == []  # said once; from here on they are known
    ship(course, "three")
    mine = [name for name in old if name not in (workspace.RECORD, "course_utils/__init__.py")]
    assert len(workspace.update(course)) == len(mine)  # all of them are the learner's now


def test_a_copying_that_was_interrupted_is_finished(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = workspace._write, []

    def failing(path: Path, *rest: Any) -> bool:
        if len(written) == 4:
            raise KeyboardInterrupt
        written.append(path)
        return real(path, *rest)

    monkeypatch.setattr(workspace, "_write", failing)
    with pytest.raises(KeyboardInterrupt):
        workspace.update(course)
    assert len(list((course / "workbook").rglob("*.ipynb"))) < 6
    monkeypatch.setattr(workspace, "_write", real)
    assert workspace.update(course) == []
    assert not [name for name in everything(course / "workbook") if Path(name).name.startswith(".0")]
    ship(course, "two")
    assert workspace.update(course) == []
    assert "two" in held(course, EXERCISE)


def test_what_is_saved_at_the_last_moment_stays(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.update(course)
    ship(course, "two")
    real = workspace._replace

    def late(copy: Path, *rest: Any) -> bool:
        if copy.name.startswith("03") and copy.parent.name == "exercises":
            put(copy, notebook("x = 'one'", MINE))
        return real(copy, *rest)

    monkeypatch.setattr(workspace, "_replace", late)
    workspace.update(course)
    assert held(course, EXERCISE) == notebook("x = 'one'", MINE)
    monkeypatch.setattr(workspace, "_replace", real)
    assert "newer version" in "".join(workspace.update(course))


def test_two_at_once_do_no_harm(course: Path) -> None:
    workspace.update(course)
    put(course / "workbook" / LESSON, notebook("print('mine')"))
    for version in ("two", "three"):
        ship(course, version)
        threads = [threading.Thread(target=workspace.update, args=(course,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert version in held(course, EXERCISE)
        assert held(course, LESSON) == notebook("print('mine')")
        assert len(workspace.update(course)) == 1
        assert not list((course / "workbook").rglob(".0*"))


# ---- Work that was done in the course's own folder, before there was a working copy


def test_filled_in_exercises_come_along_and_count_as_touched(course: Path) -> None:
    filled = notebook("x = 'one'", MINE, outputs=True)
    put(course / EXERCISE, filled)
    [sentence] = workspace.update(course)
    assert f"Your work in {EXERCISE} was copied to workbook" in sentence
    assert "git" not in sentence
    assert held(course, EXERCISE) == filled
    ship(course, "two")  # as after `git restore` and `git pull`
    [sentence] = workspace.update(course)
    assert "newer version" in sentence
    assert held(course, EXERCISE) == filled


def test_filled_in_later_they_come_along_unless_the_copy_was_touched(course: Path) -> None:
    workspace.update(course)
    put(course / EXERCISE, notebook("x = 'one'", MINE))
    put(course / "exercises" / "00_start_here.ipynb", notebook("x = 'one'", MINE))
    put(course / "workbook" / "exercises" / "00_start_here.ipynb", notebook("here"))
    [sentence] = workspace.update(course)
    assert EXERCISE in sentence
    assert held(course, EXERCISE) == notebook("x = 'one'", MINE)
    assert held(course, "exercises/00_start_here.ipynb") == notebook("here")
    assert workspace.update(course) == []


def test_after_a_reset_old_answers_do_not_come_back(course: Path) -> None:
    put(course / EXERCISE, notebook("x = 'one'", MINE))
    workspace.update(course)
    workspace.reset(course, ["03"])
    assert workspace.fingerprint(EXERCISE, held(course, EXERCISE).encode()) == workspace.fingerprint(
        EXERCISE, notebook("x = 'one'", STUB).encode()
    )
    assert workspace.update(course) == []
    assert "(q * k)" not in held(course, EXERCISE)


def test_a_damaged_exercise_is_made_from_its_solution(course: Path) -> None:
    put(course / EXERCISE, "<<<<<<< HEAD\n")
    assert workspace.update(course) == []
    assert "NotImplementedError" in held(course, EXERCISE)


def test_an_exercise_without_a_usable_solution_is_taken_as_it_is(course: Path) -> None:
    put(course / SOLUTION, notebook("### BEGIN SOLUTION"))
    put(course / "exercises" / "my_own.ipynb", notebook("mine"))
    put(course / EXERCISE, notebook(MINE))
    workspace.update(course)
    assert held(course, EXERCISE) == notebook(MINE)
    assert held(course, "exercises/my_own.ipynb") == notebook("mine")


def test_in_git_an_edited_lesson_comes_along_and_counts_as_touched(in_git: Path) -> None:
    mine = notebook("print('mine')")
    put(in_git / LESSON, mine)
    [sentence] = workspace.update(in_git)
    assert f"Your work in {LESSON} was copied to workbook" in sentence
    assert f"`git restore {LESSON}`" in sentence
    git(in_git, "restore", LESSON)
    assert workspace.update(in_git) == []
    ship(in_git, "two")
    git(in_git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two")
    assert "newer version" in "".join(workspace.update(in_git))
    assert held(in_git, LESSON) == mine
    assert "workbook" not in git(in_git, "status", "--short")


def test_in_git_several_are_named_in_one_sentence(in_git: Path) -> None:
    put(in_git / LESSON, notebook("print('mine')"))
    put(in_git / EXERCISE, notebook("x = 'one'", MINE))
    [sentence] = workspace.update(in_git)
    assert f"`git restore {LESSON} {EXERCISE}`" in sentence


def test_in_git_a_damaged_lesson_is_taken_from_git(in_git: Path) -> None:
    put(in_git / LESSON, "<<<<<<< HEAD\n")
    workspace.update(in_git)
    assert held(in_git, LESSON) == notebook("print('one')")


def test_in_git_committed_answers_count_as_touched(in_git: Path) -> None:
    put(in_git / EXERCISE, notebook("x = 'one'", MINE))
    git(in_git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "mine")
    [sentence] = workspace.update(in_git)
    assert "copied" in sentence
    assert "git restore" not in sentence
    assert held(in_git, EXERCISE) == notebook("x = 'one'", MINE)


def test_without_git_a_damaged_lesson_is_left_out(course: Path) -> None:
    put(course / LESSON, "<<<<<<< HEAD\n")
    [sentence] = workspace.update(course)
    assert f"{LESSON} in the course's own folder is not a readable notebook" in sentence
    assert not (course / "workbook" / LESSON).exists()


# ---- Links, and folders that may not be written


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("name", ["workbook", "workbook/exercises", "workbook/notebooks/images"])
def test_nothing_is_written_through_a_linked_folder(course: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (course / name).parent.mkdir(parents=True, exist_ok=True)
    (course / name).symlink_to(elsewhere)
    with pytest.raises(project.ProjectError, match="is a link"):
        workspace.update(course)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_linked_notebook_is_the_learners(course: Path, tmp_path: Path) -> None:
    workspace.update(course)
    elsewhere = put(tmp_path / "mine.ipynb", notebook("x = 'one'", STUB))
    copy = course / "workbook" / EXERCISE
    copy.unlink()
    copy.symlink_to(elsewhere)
    ship(course, "two")
    workspace.update(course)
    assert copy.is_symlink()
    workspace.reset(course, ["03"])
    assert elsewhere.read_text(encoding="utf-8") == notebook("x = 'one'", STUB)
    assert "two" in held(course, EXERCISE)
    assert not copy.is_symlink()


def test_links_among_the_lessons_are_not_followed(course: Path, tmp_path: Path) -> None:
    try:
        (course / "exercises" / "link.ipynb").symlink_to(put(tmp_path / "secret.ipynb", "secret"))
    except OSError:
        pytest.skip("links need a privilege here")
    workspace.update(course)
    assert not (course / "workbook" / "exercises" / "link.ipynb").exists()


def test_a_full_disk_is_a_sentence(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workspace.os, "replace", full)
    with pytest.raises(project.ProjectError, match=r"could not be written: No space left on device: .*workbook"):
        workspace.update(course)
    assert [name for name in everything(course) if name.startswith("workbook")] == []


def test_a_broken_environment_is_a_sentence(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "course_utils.grading.build", None)
    with pytest.raises(project.ProjectError, match="`course doctor`"):
        workspace.update(course)


@not_root
@pytest.mark.skipif(os.name == "nt", reason="permissions as on POSIX")
def test_a_read_only_folder_is_a_sentence(course: Path) -> None:
    course.chmod(0o555)
    try:
        with pytest.raises(project.ProjectError, match="must be one that you may write to"):
            workspace.update(course)
    finally:
        course.chmod(0o755)


# ---- course reset


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, arguments)


def test_reset_keeps_a_dated_copy_and_says_both_names(course: Path) -> None:
    workspace.update(course)
    mine = notebook("x = 'one'", MINE)
    put(course / "workbook" / EXERCISE, mine)
    ship(course, "two")
    result = run("reset", "03")
    assert result.exit_code == 0
    [name] = re.findall(r"workbook/exercises/03_self_attention\.\d{4}-\d\d-\d\d-\d{6}\.ipynb", result.stdout)
    assert f"workbook/{EXERCISE} is fresh again" in result.stdout
    assert (course / name).read_text(encoding="utf-8") == mine
    assert "two" in held(course, EXERCISE)
    assert workspace.update(course) == []
    ship(course, "three")
    assert workspace.update(course) == []  # it is untouched from now on
    assert "three" in held(course, EXERCISE)
    assert (course / name).read_text(encoding="utf-8") == mine


def test_reset_never_overwrites_a_backup(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Still(workspace.datetime):
        @classmethod
        def now(cls, tz: object = None) -> Any:
            return cls(2026, 12, 1, 15, 30)

    monkeypatch.setattr(workspace, "datetime", Still)
    workspace.update(course)
    for answer in ("a", "b", "c"):
        put(course / "workbook" / EXERCISE, notebook(answer))
        workspace.reset(course, ["3"])
    kept = sorted((course / "workbook" / "exercises").glob("03_*.2026*"))
    stem = "03_self_attention.2026-12-01-153000"
    assert [path.name for path in kept] == [f"{stem}-2.ipynb", f"{stem}-3.ipynb", f"{stem}.ipynb"]
    assert [path.read_text(encoding="utf-8") for path in kept] == [notebook("b"), notebook("c"), notebook("a")]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["03"], EXERCISE),
        (["3"], EXERCISE),
        (["03_self_attention"], EXERCISE),
        (["03_self_attention.ipynb"], EXERCISE),
        ([EXERCISE], EXERCISE),
        ([f"workbook/{EXERCISE}"], EXERCISE),
        (["03", "--lesson"], LESSON),
        ([LESSON], LESSON),
        ([SOLUTION], SOLUTION),
    ],
)
def test_reset_takes_numbers_names_and_paths(course: Path, arguments: list[str], name: str) -> None:
    workspace.update(course)
    before = everything(course / "workbook")
    put(course / "workbook" / name, notebook("mine"))
    assert run("reset", *arguments).exit_code == 0
    after = everything(course / "workbook")
    assert after[name] == before[name]
    assert len(after) == len(before) + 1


def test_reset_of_several_and_of_what_is_not_there(course: Path) -> None:
    result = run("reset", "00", "3", "03")
    assert result.exit_code == 0
    assert result.stdout.count("is there now") == 2
    result = run("reset", "3")
    assert "nothing was changed" in result.stdout
    assert len(list((course / "workbook" / "exercises").iterdir())) == 2


@pytest.mark.parametrize("text", ["77", "3.2", "nonsense", "", "../course.py", "exercises/77_x.ipynb"])
def test_reset_of_an_unknown_number_changes_nothing(course: Path, text: str) -> None:
    workspace.update(course)
    put(course / "workbook" / EXERCISE, notebook("mine"))
    before = everything(course)
    result = run("reset", "03", text)
    assert result.exit_code == 2
    assert "There are: 00, 03." in result.stderr
    assert everything(course) == before


# ---- Finding things


def test_resolve(course: Path) -> None:
    assert workspace.resolve(course, "03") is None
    workspace.update(course)
    copy = course / "workbook" / EXERCISE
    for text in ("03", "3", "03_self_attention", EXERCISE, str(course / EXERCISE), f"workbook/{EXERCISE}"):
        assert workspace.resolve(course, text) == copy, text
    assert workspace.resolve(course, LESSON) == course / "workbook" / LESSON
    for text in ("77", "", "..", f"../course/workbook/{EXERCISE}", "handed_in/03_self_attention.ipynb", PICTURE):
        assert workspace.resolve(course, text) is None, text
    put(course / "workbook" / "exercises" / "my_own.ipynb", notebook())
    assert workspace.resolve(course, "exercises/my_own.ipynb") == course / "workbook" / "exercises" / "my_own.ipynb"


def test_the_course_is_found_from_inside_the_working_copy(course: Path) -> None:
    workspace.update(course)
    assert project.find_root(course / "workbook") == course
    assert project.find_root(course / "workbook" / "exercises") == course


def test_the_package_is_found_from_inside_the_working_copy(course: Path) -> None:
    workspace.update(course)
    code = "import course_utils; print(course_utils.OWN, course_utils.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=course / "workbook", capture_output=True, text=True)
    assert done.stdout.split() == ["True", str(course / "course_utils" / "__init__.py")], done.stderr


def test_importing_is_cheap() -> None:
    code = "import sys, course_utils.workspace; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_link_between_the_real_notebooks_leads_somewhere_in_the_working_copy() -> None:
    names = set(workspace._names(ROOT))
    found = 0
    for name in sorted(each for each in names if each.endswith(".ipynb")):
        for cell in json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]:
            for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", "".join(cell["source"])):
                if cell["cell_type"] == "markdown":
                    target = os.path.normpath(Path(name).parent / link)
                    assert Path(target).as_posix() in names, (name, link)
                    found += 1
    assert found > 40


# ---- JupyterLab itself


@pytest.mark.slow
def test_jupyterlab_serves_the_working_copy_with_the_courses_look(course: Path, tmp_path: Path, own_home: Path) -> None:
    pytest.importorskip("jupyterlab")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", "--allow-root"]
    command = [sys.executable, "-m", "course_utils.cli", "lab", "03", *options, "--IdentityProvider.token=t"]
    env = {**os.environ, **folders, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=course / "notebooks", env=env, stdout=log, stderr=subprocess.STDOUT)

    def get(path: str) -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": "token t"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode("utf-8")

    try:
        for _ in range(240):
            try:
                get("/api/status")
                break
            except OSError:
                time.sleep(0.25)
        assert {each["name"] for each in json.loads(get("/api/contents"))["content"]} == {
            *("course_utils", "exercises", "notebooks", "solutions")
        }
        layout = json.loads(get("/lab/api/workspaces/default"))["data"]["layout-restorer:data"]
        assert layout["left"]["current"] == "@jupyterlab/toc:plugin"
        setting = json.loads(get("/lab/api/settings/@jupyterlab/apputils-extension:notification"))
        assert setting["schema"]["properties"]["fetchNews"]["default"] == "false"
        assert setting["settings"] == {}  # a default, not a choice of the user's
        assert "max-width" in get("/custom/custom.css")
        said = (tmp_path / "log").read_text(encoding="utf-8")
        assert "not recognized" not in said, said
    finally:
        process.terminate()
        process.wait(timeout=30)
