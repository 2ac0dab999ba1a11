"""course.py: the environment is made once, mended when half-made, and never trusted on sight.

The tests run the real course.py in a folder of its own, on a package that has no dependencies and builds itself
(`backend.py` below), so that the real venv and the real pip work without a network.
"""

import ast
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
posix_only = pytest.mark.skipif(os.name == "nt", reason="signals and symbolic links as on POSIX")

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "course-utils"
version = "1"
"""

# The smallest build backend. It notes each build; it waits while `hold` lies there, and fails when `fail` does.
BACKEND = """
import time, zipfile
from pathlib import Path

INFO = "course_utils-1.dist-info/"
METADATA = "Metadata-Version: 2.1\\nName: course-utils\\nVersion: 1\\nProvides-Extra: lab\\nProvides-Extra: test\\n"

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with open("builds", "a") as builds:
        builds.write("build\\n")
    while Path("hold").exists():
        time.sleep(0.05)
    if Path("fail").exists():
        raise ValueError("the dog ate the wheel")
    name = "course_utils-1-py3-none-any.whl"
    files = {
        "course_dummy.py": Path("course_dummy.py").read_text(),
        INFO + "METADATA": METADATA,
        INFO + "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        INFO + "entry_points.txt": "[console_scripts]\\ncourse = course_dummy:main\\n",
    }
    files[INFO + "RECORD"] = "".join(f"{file},,\\n" for file in [*files, INFO + "RECORD"])
    with zipfile.ZipFile(Path(wheel_directory, name), "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
"""

# The `course` command: prints what it was given and where it runs; `exit N` ends with that code.
DUMMY = """
import json, os, shutil, sys

def main():
    arguments = sys.argv[1:]
    answer = {"arguments": arguments, "prefix": sys.prefix, "folder": os.getcwd(), "course": shutil.which("course")}
    print(json.dumps(answer))
    return int(arguments[1]) if arguments[:1] == ["exit"] else 0
"""


class Project:
    """A folder with course.py and the dummy package in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / ".venv"
        self.python = self.venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.stamp = self.venv / "setup.json"
        folder.mkdir()
        shutil.copy(ROOT / "course.py", folder)
        (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
        (folder / "constraints.txt").write_text("# nothing\n", encoding="utf-8")
        (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
        (folder / "course_dummy.py").write_text(DUMMY, encoding="utf-8")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PIP_NO_INDEX": "1", "PYTHONIOENCODING": "utf-8"}
        return subprocess.Popen(
            [sys.executable, str(self.folder / "course.py"), *arguments],
            cwd=self.folder.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            # A program started in the background may ignore Ctrl-C, and hands that on; here it is to be heard.
            preexec_fn=None if os.name == "nt" else lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def builds(self) -> int:
        """How often pip has built the package so far."""
        log = self.folder / "builds"
        return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0

    def wait_for_build(self) -> None:
        """Return once pip has begun to build the package, which then waits as long as `hold` lies there."""
        before, deadline = self.builds(), time.monotonic() + 60
        while self.builds() == before:
            assert time.monotonic() < deadline, "pip did not start"
            time.sleep(0.05)

    def touch(self, name: str) -> Path:
        path = self.folder / name
        path.touch()
        return path


def wait_for_line(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stderr
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"never said {words!r}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, list["subprocess.CompletedProcess[str]"]]:
    """A project whose very first set-up was two runs at once, in a folder with an awkward name."""
    project = Project(tmp_path_factory.mktemp("학습") / "attention [수업] 1's copy")
    runs = [project.start("grade", "--json", "a b.ipynb", ""), project.start("progress")]
    done = []
    for process in runs:
        out, err = process.communicate(timeout=120)
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return project, done


@pytest.fixture
def project(made: tuple[Project, object]) -> Project:
    """The same project, set up; each test leaves it so, or the next one mends it."""
    project = made[0]
    for name in ("hold", "fail"):
        (project.folder / name).unlink(missing_ok=True)
    assert project.run("progress").returncode == 0
    return project


@pytest.fixture(scope="module")
def course() -> ModuleType:
    spec = importlib.util.spec_from_file_location("course", ROOT / "course.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- The first run


@pytest.mark.slow
def test_first_run_makes_it_even_twice_at_once(made):
    project, (grade, progress) = made
    assert (grade.returncode, progress.returncode) == (0, 0), grade.stderr + progress.stderr
    assert (grade.stderr + progress.stderr).count("The environment is ready") == 1
    assert "[3/4] Installing packages" in grade.stderr + progress.stderr
    answer = json.loads(grade.stdout)  # nothing of the set-up on standard output
    assert answer["arguments"] == ["grade", "--json", "a b.ipynb", ""]
    assert Path(answer["prefix"]) == project.venv
    assert Path(answer["folder"]) == project.folder.parent  # the learner's own folder, not the course's
    assert Path(answer["course"]).parent == project.python.parent


@pytest.mark.slow
def test_second_run_only_hands_over(project):
    builds, stamp = project.builds(), project.stamp.stat().st_mtime_ns
    start = time.monotonic()
    run = project.run("exit", "7")
    assert time.monotonic() - start < 3
    assert run.returncode == 7
    assert run.stderr == ""
    assert (project.builds(), project.stamp.stat().st_mtime_ns) == (builds, stamp)


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_makes_nothing(tmp_path, arguments):
    project = Project(tmp_path / "new")
    run = project.run(*arguments)
    assert run.returncode == 0
    assert "python3 course.py lab" in run.stdout
    assert not project.venv.exists()


@pytest.mark.slow
def test_help_is_the_commands_own_once_it_is_there(project):
    assert json.loads(project.run().stdout)["arguments"] == ["--help"]


# ---- What is never trusted


def is_usable(project: Project) -> bool:
    """Whether course.py would let pip go on from what is there."""
    code = "import course; print(course.is_usable(course.read_stamp()))"
    run = subprocess.run([sys.executable, "-c", code], cwd=project.folder, capture_output=True, encoding="utf-8")
    return {"True\n": True, "False\n": False}[run.stdout]


@pytest.mark.slow
def test_what_pip_may_go_on_from(project):
    assert is_usable(project)
    stamp = project.stamp.read_text(encoding="utf-8")
    for state in ({"unfinished": True}, {**json.loads(stamp), "folder": "/elsewhere"}):
        project.stamp.write_text(json.dumps(state), encoding="utf-8")
        assert not is_usable(project)
    project.stamp.unlink()
    assert is_usable(project)  # made by hand, perhaps
    pip = next(project.venv.rglob("site-packages/pip"))
    pip.rename(pip.with_name("elsewhere"))
    assert not is_usable(project)  # as when the system's Python 3.11 has become 3.13
    pip.with_name("elsewhere").rename(pip)
    project.stamp.write_text(stamp, encoding="utf-8")


@posix_only
@pytest.mark.slow
def test_broken_is_made_anew(project):
    old = project.touch(".venv/old")
    project.python.unlink()
    project.python.symlink_to("/nowhere/python3")
    run = project.run("progress")
    assert run.returncode == 0, run.stderr
    assert "Making the course's environment" in run.stderr
    assert not old.exists()
    assert project.run("progress").stderr == ""


def no_stamp(project: Project) -> None:
    project.stamp.unlink()


def torn_stamp(project: Project) -> None:
    project.stamp.write_text('{"extra": "te', encoding="utf-8")


def no_command(project: Project) -> None:
    next(project.python.parent.glob("course*")).unlink()


def other_constraints(project: Project) -> None:
    with (project.folder / "constraints.txt").open("a", encoding="utf-8") as file:
        file.write("# changed\n")


def other_pyproject(project: Project) -> None:
    with (project.folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("# changed\n")


@pytest.mark.slow
@pytest.mark.parametrize("change", [no_stamp, torn_stamp, no_command, other_constraints, other_pyproject])
def test_changed_is_installed_again(project: Project, change: Callable[[Project], None]):
    old, builds = project.venv / "old", project.builds()
    old.touch()
    change(project)
    run = project.run("progress")
    assert run.returncode == 0, run.stderr
    assert "up to date" in run.stderr
    assert old.exists()
    assert project.builds() > builds
    assert project.run("progress").stderr == ""


def only_lab(project: Project) -> None:
    """Make the project look as if nobody had asked for the tests yet."""
    stamp = json.loads(project.stamp.read_text(encoding="utf-8"))
    project.stamp.write_text(json.dumps({**stamp, "extra": "lab"}), encoding="utf-8")


@pytest.mark.slow
def test_extras_only_grow(project):
    only_lab(project)
    assert project.run("grade").stderr == ""
    assert "up to date" in project.run("test").stderr
    other_constraints(project)
    assert "up to date" in project.run("lab").stderr
    assert project.run("test").stderr == ""  # mending it for lab left the test extra in


# ---- Interrupted


@posix_only
@pytest.mark.slow
def test_killed_while_pip_works(project):
    old, hold = project.touch(".venv/old"), project.touch("hold")
    project.stamp.unlink()
    first = project.start("progress")
    project.wait_for_build()
    first.kill()  # pip itself lives on and may still write
    first.communicate()
    second = project.start("progress")
    wait_for_line(second, "Another run is setting up the environment")
    hold.unlink()
    _, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert "Making the course's environment" in err
    assert not old.exists()


@posix_only
@pytest.mark.slow
def test_interrupted_before_pip_changed_anything(project):
    old, hold = project.touch(".venv/old"), project.touch("hold")
    project.stamp.unlink()
    process = project.start("progress")
    project.wait_for_build()
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C sends
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped. To go on with the set-up, run the same command again." in err
    assert "Traceback" not in err
    hold.unlink()
    assert project.run("progress").returncode == 0
    assert old.exists()


# ---- Failing, in plain sentences


@pytest.mark.slow
def test_failing_pip_is_explained_and_harms_nothing(project):
    only_lab(project)
    fail = project.touch("fail")
    run = project.run("test", "--fast", "two words")
    assert run.returncode == 1
    assert run.stdout == ""
    assert "Step 3 of 4 failed: Installing packages." in run.stderr
    assert "Its last word was: ValueError: the dog ate the wheel" in run.stderr
    assert str(project.venv / "setup.log") in run.stderr
    assert "course.py test --fast 'two words'" in run.stderr
    assert "Traceback" not in run.stderr
    assert project.run("progress").stderr == ""  # what lab needs was there, and still is
    fail.unlink()
    assert project.run("test").returncode == 0


@pytest.mark.slow
def test_command_that_does_not_start_is_found_out(project):
    dummy = project.folder / "course_dummy.py"
    try:
        dummy.write_text("import nothing_of_this_name", encoding="utf-8")
        project.stamp.unlink()
        run = project.run("progress")
    finally:
        dummy.write_text(DUMMY, encoding="utf-8")
    assert run.returncode == 1
    assert "Step 4 of 4 failed: Checking that it starts." in run.stderr
    assert "No module named 'nothing_of_this_name'" in run.stderr
    assert project.run("progress").returncode == 0


def test_what_cannot_be_written_is_named(tmp_path):
    project = Project(tmp_path / "new")
    project.touch(".venv")  # a file where the folder should be
    run = project.run("lab")
    assert run.returncode == 1
    assert f"File exists: {project.venv}" in run.stderr
    assert "Traceback" not in run.stderr


def run_with(patch: str, project: Project) -> "subprocess.CompletedProcess[str]":
    """course.py on a Python that differs in one thing."""
    code = (
        f"import runpy, sys; {patch}; sys.argv = ['course.py', 'lab']; runpy.run_path('course.py', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=project.folder, capture_output=True, encoding="utf-8", timeout=60
    )


def test_python_without_venv(tmp_path):
    project = Project(tmp_path / "new")
    run = run_with("import importlib.util; importlib.util.find_spec = lambda name: None", project)
    assert run.returncode == 1
    assert "sudo apt install python3-venv" in run.stderr
    assert "Traceback" not in run.stderr


def test_python_too_old(tmp_path):
    ast.parse((ROOT / "course.py").read_text(encoding="utf-8"), feature_version=(3, 6))
    run = run_with("sys.version_info = (3, 8, 10, 'final', 0)", Project(tmp_path / "new"))
    assert run.returncode == 1
    assert run.stderr.startswith("This course needs Python 3.10 or newer, and this is Python 3.8.")
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("output", "last", "advice"),
    [
        ("", "(nothing)", ""),
        ("Collecting x\nERROR: Wrong.\n\n[notice] A new release\n", "ERROR: Wrong.", ""),
        ("error: subprocess-exited-with-error\n  ERROR: Inner.\n  note: This\n", "ERROR: Inner.", ""),
        ("ERROR: No matching distribution found for torch==2.13.0\n", "", "64-bit Python 3.10 to 3.14"),
        (
            "WARNING: Retrying after NewConnectionError('[Errno -3] Temporary failure in name resolution')\n"
            "ERROR: No matching distribution found for torch==2.13.0\n",
            "ERROR: No matching",
            "index could not be reached",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "",
            "disk is full",
        ),
    ],
)
def test_last_word_and_advice(course, output, last, advice):
    text = course.explain(output)
    assert f"Its last word was: {last}" in text
    assert advice in text
    assert text.count("\n") == (2 if advice else 1)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Collecting numpy==2.4.6 (from course-utils==0.1.0)\n", ": collecting numpy==2.4.6 "),
        (
            "  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (31 kB)\n",
            ": downloading torch-2.13.0 (31 kB)",
        ),
        ("Using cached a/b/c/nbval-0.11.0-py3-none-any.whl (24.5 MB)\n", ": using cached nbval-0.11.0 (24.5 MB)"),
        ("Installing collected packages: a, b, c\n", ": unpacking 3 packages"),
        ("Requirement already satisfied: numpy\n", ""),
    ],
)
def test_progress_in_a_few_words(course, line, shown):
    assert course.condense(line) == shown
