"""A class: the gradebook, the workers, what survives, and what is written about it."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from handmade import CHECKS, MEAN, OUTER, SETUP, SOFTMAX, write_notebook
from typer.testing import CliRunner

from course_utils.checks import find
from course_utils.cli import app
from course_utils.grading import pages
from course_utils.grading.classroom import Submission, digest, missing, submissions
from course_utils.grading.gradebook import Gradebook, GradebookError, Result
from course_utils.grading.report import ExerciseReport, NotebookReport
from course_utils.grading.summary import as_csv, summarise

ROOT = Path(__file__).parents[1]
TRANSPOSED = OUTER.replace("a[:, None] - b[None, :]", "a[None, :] - b[:, None]")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc")


def handed_in(folder: Path, learners: int) -> Path:
    """A class in which every second learner got 0.2 wrong, and one handed in an empty file."""
    for i in range(learners):
        (folder / f"학생 {i:02d}").mkdir(parents=True)
        cells = [SETUP, SOFTMAX, CHECKS["0.1"], TRANSPOSED if i % 2 else OUTER, MEAN, f"# {i}"]
        write_notebook(folder / f"학생 {i:02d}" / "00_start_here.ipynb", cells)
    (folder / "학생 01" / "00_start_here.ipynb").write_text("", encoding="utf-8")
    return folder


def report(points: int = 1, misconception: str | None = None, **more: object) -> NotebookReport:
    entry = ExerciseReport(
        "0.2", "Outer difference", "passed" if points else "wrong", points, 1, misconception, "`a` <b>"
    )
    return NotebookReport("x.ipynb", "graded", "00_start_here", (entry,), **more)  # type: ignore[arg-type]


# The gradebook -------------------------------------------------------------------------------------------------------


def test_what_is_put_into_a_gradebook_comes_out_again(tmp_path: Path) -> None:
    sent = [
        Result("가", "a.ipynb", "1", report(tampering=("It was tried.",)), 0.5),
        Result("b", "x/b.ipynb", "2", NotebookReport("b", "invalid", message="No.")),
    ]
    with Gradebook(tmp_path / "new folder" / "g.sqlite") as book:
        for result in sent:
            book.add(result)
            book.add(result)
        assert sorted(book.results(), key=lambda r: r.digest) == sent
        assert book.digests() == {("가", "a.ipynb"): "1", ("b", "x/b.ipynb"): "2"}
    with sqlite3.connect(tmp_path / "new folder" / "g.sqlite") as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()


def test_a_file_that_is_no_gradebook_is_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("not a database, and long enough to be told from an empty file" * 9, encoding="utf-8")
    with sqlite3.connect(other) as raw:
        raw.execute("CREATE TABLE mine (a)")
    raw.close()
    before = text.read_bytes(), other.read_bytes()
    for path in (text, other, tmp_path):
        with pytest.raises(GradebookError, match="gradebook"):
            Gradebook(path)
    assert (text.read_bytes(), other.read_bytes()) == before


def test_a_gradebook_of_a_newer_course_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "g.sqlite"
    Gradebook(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(GradebookError, match="newer version"):
        Gradebook(path)


def test_who_handed_in_what(tmp_path: Path) -> None:
    for name in ("b/00.ipynb", "a/01/x.ipynb", "alone.ipynb", "a/.ipynb_checkpoints/x.ipynb", "__MACOSX/._x.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}", encoding="utf-8")
    found = [(s.learner, s.notebook) for s in submissions([tmp_path])]
    assert found == [("a", "01/x.ipynb"), ("alone", "alone.ipynb"), ("b", "00.ipynb")]


def test_only_what_is_new_or_changed_is_graded_again(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    path.write_bytes(b"one")
    submission = Submission("a", path, "x.ipynb")
    with Gradebook(tmp_path / "g.sqlite") as book:
        assert missing([submission], book) == [submission]
        book.add(Result("a", "x.ipynb", digest(b"one"), report()))
        assert missing([submission], book) == []
        path.write_bytes(b"two")
        assert missing([submission], book) == [submission]


# What is said about a class ------------------------------------------------------------------------------------------


def class_of_three() -> list[Result]:
    return [
        Result("ann", "a.ipynb", "", report(0, "transposed")),
        Result("ann", "a (1).ipynb", "", report(1)),
        Result("=cmd|' /C calc'!A0", "b.ipynb", "", report(0, "transposed", tampering=("<script>",))),
        Result("../carl", "c.ipynb", "", NotebookReport("c", "invalid", message="the file is empty.")),
    ]


def test_the_better_of_two_marks_counts() -> None:
    summary = summarise(class_of_three())
    assert [(learner.name, learner.points) for learner in summary.learners][-1] == ("ann", 1)
    assert summary.misconceptions == [("0.2", "transposed", 1)]
    [exercise] = summary.exercises
    assert (exercise.passed, exercise.tried, exercise.mean) == (1, 2, 0.5)


def test_the_table_of_marks_is_harmless_in_a_spreadsheet() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(summarise(class_of_three())))))
    assert [row["learner"][:2] for row in rows] == ["..", "'=", "an"]
    assert rows[0]["0.2"] == ""
    assert "the file is empty" in rows[0]["remarks"]
    assert rows[2]["points"] == "1"


class Tags(HTMLParser):
    """Every link, picture and tag of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_pages_for_learners_and_class(tmp_path: Path) -> None:
    written = pages.write_pages(summarise(class_of_three()), tmp_path / "pages", ROOT / "exercises")
    assert [path.parent for path in written] == [tmp_path / "pages"] * 4
    index = written[0].read_text(encoding="utf-8")
    tags = Tags(index).seen
    assert "script" not in {tag for tag, _ in tags}
    links = [a["href"] for tag, a in tags if tag == "a"]
    assert len(links) == 3
    [picture] = [a for tag, a in tags if tag == "img"]
    assert "0.2 transposed: 1" in (picture["alt"] or "")
    wrong = next(p for p in written[1:] if "cmd" in p.name).read_text(encoding="utf-8")
    assert "<code>a</code> &lt;b&gt;" in wrong
    assert "Hint 1" in wrong
    assert "the file is empty" in next(p for p in written if "carl" in p.name).read_text(encoding="utf-8")


def test_hints_are_found_for_every_exercise() -> None:
    hints = pages.read_hints(ROOT / "exercises")
    assert len(hints) == 47
    assert all(find(exercise_id) and folded for exercise_id, folded in hints.items())


def test_workers_are_for_a_class(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["grade", str(tmp_path), "--workers", "2"])
    assert result.exit_code == 2
    assert "--gradebook" in result.stderr


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_said(tmp_path: Path) -> None:
    handed_in(tmp_path / "in", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    arguments = [
        str(tmp_path / "in"),
        "--gradebook",
        str(tmp_path / "g.sqlite"),
        "--scheduler",
        f"tcp://127.0.0.1:{port}",
    ]
    result = CliRunner().invoke(app, ["grade", *arguments])
    assert result.exit_code == 2
    assert "No Dask scheduler answers" in result.stderr


# Whole classes -------------------------------------------------------------------------------------------------------


def course(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "course_utils.cli", "grade", *arguments]


def marks(path: Path) -> dict[str, int]:
    with Gradebook(path) as book:
        return {r.learner: r.report.points for r in book.results()}


def graded(path: Path) -> int:
    if not path.exists():
        return 0
    with sqlite3.connect(path, timeout=30) as raw:
        try:
            (count,) = raw.execute("SELECT count(*) FROM results").fetchone()
        except sqlite3.OperationalError:
            count = 0
    raw.close()
    return count


def wait_for(what: object, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_class_is_graded_exported_and_graded_once(tmp_path: Path) -> None:
    folder, book = handed_in(tmp_path / "in", 6), tmp_path / "g.sqlite"
    options = [
        "--gradebook",
        str(book),
        "--workers",
        "2",
        "--html",
        str(tmp_path / "pages"),
        "--csv",
        str(tmp_path / "m.csv"),
    ]
    done = subprocess.run(course(str(folder), *options), capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert "transposed" in done.stdout
    first = marks(book)
    assert first == {f"학생 {i:02d}": 0 if i == 1 else 4 if i % 2 else 5 for i in range(6)}
    assert len(list((tmp_path / "pages").glob("*.html"))) == 7
    assert len((tmp_path / "m.csv").read_text(encoding="utf-8").splitlines()) == 7
    again = subprocess.run(course(str(folder), *options[:2], "--json"), capture_output=True, check=True)
    assert len(json.loads(again.stdout)["notebooks"]) == 6
    other = tmp_path / "other.sqlite"
    subprocess.run(course(str(folder), "--gradebook", str(other), "--workers", "1"), capture_output=True, check=True)
    assert marks(other) == first, "graded twice, the marks are the same"


@linux
@pytest.mark.slow
def test_killed_in_the_middle_nothing_is_lost_and_nothing_graded_twice(tmp_path: Path) -> None:
    folder, book = handed_in(tmp_path / "in", 12), tmp_path / "g.sqlite"
    command = course(str(folder), "--gradebook", str(book), "--workers", "2")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        wait_for(lambda: graded(book) >= 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = rows(book)
    assert 3 <= len(before) < 12
    subprocess.run(command, capture_output=True, check=True)
    after = rows(book)
    assert len(after) == 12
    assert all(after[key] == row for key, row in before.items()), "what was graded stayed as it was"


def rows(path: Path) -> dict[tuple[str, str], tuple[object, ...]]:
    with sqlite3.connect(path) as raw:
        found = {row[:2]: row for row in raw.execute("SELECT * FROM results")}
    raw.close()
    return found


@linux
@pytest.mark.slow
def test_a_scheduler_with_two_workers_of_which_one_dies(tmp_path: Path) -> None:
    folder, book = handed_in(tmp_path / "in", 12), tmp_path / "g.sqlite"
    address = tmp_path / "scheduler.json"
    here = str(Path(sys.executable).with_name("dask"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True, "cwd": tmp_path}
    where = ["--scheduler-file", str(address)]
    local = [sys.executable, here] if not os.access(here, os.X_OK) else [here]
    scheduler = subprocess.Popen(
        [*local, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *where], **quiet
    )
    worker = [*local, "worker", *where, "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    workers = [subprocess.Popen(worker, **quiet) for _ in range(2)]
    try:
        wait_for(lambda: address.exists() and address.read_text(encoding="utf-8").endswith("}"))
        tcp = json.loads(address.read_text(encoding="utf-8"))["address"]
        command = course(str(folder), "--gradebook", str(book), "--scheduler", tcp)
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            wait_for(lambda: graded(book) >= 3)
            os.killpg(workers[0].pid, signal.SIGKILL)
            assert process.wait(200) == 0, (tmp_path / "log").read_text(encoding="utf-8")
        assert len(marks(book)) == 12
    finally:
        for one in (*workers, scheduler):
            one.kill()
            one.wait()
