"""What maintainers rely on: the workflow, the hooks before a commit, git's attributes, and CONTRIBUTING.md."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_lessons import LESSONS
from test_packaging import PYTHONS

from course_utils import cli

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load(name: str) -> dict[Any, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


# --- the workflow ----------------------------------------------------------------------------------------------------

WORKFLOW = load(".github/workflows/test.yml")
JOBS = WORKFLOW["jobs"]


def commands(job: str) -> list[str]:
    return [line for step in JOBS[job]["steps"] for line in step.get("run", "").splitlines()]


def test_the_workflow_runs_the_readmes_test_command() -> None:
    (command,) = re.findall(r"^python3 (course\.py test)\b", README, re.MULTILINE)
    assert f"python {command}" in commands("test")  # Windows has no python3
    assert JOBS["test"]["timeout-minutes"] == 40


def test_the_workflow_runs_on_what_the_readme_promises() -> None:
    matrix = JOBS["test"]["strategy"]["matrix"]
    assert set(matrix["os"]) == {"ubuntu-latest", "macos-latest", "windows-latest"}
    pythons = {*matrix["python"], *(each["python"] for each in matrix["include"])}
    assert pythons <= set(PYTHONS)
    assert {PYTHONS[0], PYTHONS[-1]} <= pythons


def test_pages_are_made_from_main_only_and_after_the_tests() -> None:
    site = JOBS["site"]
    assert site["needs"] == "test"
    assert "github.ref == 'refs/heads/main'" in site["if"]
    (command,) = [line for line in commands("site") if "course.py site" in line]
    (upload,) = [step for step in site["steps"] if "upload-pages-artifact" in step.get("uses", "")]
    assert command.split()[-1] == upload["with"]["path"]


def test_actions_are_githubs_own_and_pinned_by_major_version() -> None:
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+", name)] == []
    assert WORKFLOW["permissions"] == {"contents": "read"}


# --- before a commit -------------------------------------------------------------------------------------------------

HOOKS = [hook for repo in load(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]


def test_hooks_need_no_network() -> None:
    assert {repo["repo"] for repo in load(".pre-commit-config.yaml")["repos"]} == {"local"}
    assert {hook["language"] for hook in HOOKS} == {"system"}
    assert all(hook["entry"].startswith("sh .ci/in-venv ") for hook in HOOKS)


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh on the path")
def test_the_large_file_hook_names_what_is_too_large(tmp_path: Path) -> None:
    (hook,) = [hook for hook in HOOKS if hook["id"] == "large-files"]
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x" * 5_000_000)
    large.write_bytes(b"x" * 5_000_001)

    def run(*files: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*shlex.split(hook["entry"]), *map(str, files)], cwd=ROOT, capture_output=True, text=True)

    assert run(small).returncode == 0
    done = run(small, large)
    assert (done.returncode, done.stderr.strip()) == (1, f"Above 5 MB: {large}")


def test_the_one_large_file_is_excepted_by_name() -> None:
    (hook,) = [hook for hook in HOOKS if hook["id"] == "large-files"]
    large = [p for p in (ROOT / "course_utils").rglob("*") if p.is_file() and p.stat().st_size > 5_000_000]
    assert [p for p in large if not re.search(hook["exclude"], p.relative_to(ROOT).as_posix())] == []


# --- git -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="no git on the path")
def test_notebooks_have_the_same_bytes_on_every_system() -> None:
    names = ["text", "eol", "diff"]
    path = LESSONS[0].relative_to(ROOT).as_posix()
    done = subprocess.run(["git", "check-attr", *names, "--", path], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git repository")
    assert [line.split(": ")[-1] for line in done.stdout.splitlines()] == ["set", "lf", "jupyternotebook"]


def test_notebook_diffs_leave_out_what_a_run_changes() -> None:
    ignored = json.loads((ROOT / "nbdime_config.json").read_text(encoding="utf-8"))["GitDiff"]
    assert ignored == {"outputs": False, "metadata": False, "id": False, "details": False}


# --- CONTRIBUTING.md -------------------------------------------------------------------------------------------------


def test_the_commands_it_names_exist() -> None:
    known = {command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    named = re.findall(r"(?:course\.py|[`\n ]course) ([a-z]+)\b", CONTRIBUTING)
    assert {"build", "test", "site", "grade"} <= set(named) <= known


def test_the_files_it_names_exist() -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|json|txt|yml))`", CONTRIBUTING)
    assert len(named) > 10
    for name in named:
        assert list(ROOT.glob(name.replace("NN_name", "00_*").replace("NN", "00"))) or name.startswith("site/"), name


def test_it_names_the_tests_that_prove_a_step() -> None:
    for test in re.findall(r"`(test_\w+)`", CONTRIBUTING):
        assert any(f"def {test}(" in path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
