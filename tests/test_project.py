"""``course lab`` starts JupyterLab as it should, and programs that a command runs end when it is ended."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_utils import cli, project

PROGRAM = """
import sys
from pathlib import Path
from course_utils import project
child = "import sys, time; open(sys.argv[1], 'w').write('up'); time.sleep(60)"
sys.exit(project._call([sys.executable, "-c", child, sys.argv[1]], Path(".")))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to hand on")
def test_ending_the_command_ends_its_program(tmp_path: Path) -> None:
    up = tmp_path / "up"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(up)])
    for _ in range(200):
        if up.exists():
            break
        time.sleep(0.05)
    assert up.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) != 0


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("00_start_here", "03_self_attention"):
        path = tmp_path / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lab(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[str], Path, dict[str, str]]:
    """The command that `course lab` with these arguments runs, its folder and its environment."""
    pytest.importorskip("jupyterlab")
    calls: list[tuple[list[str], Path, dict[str, str]]] = []
    monkeypatch.setattr(project, "_call", lambda *call: calls.append(call) or 0)
    result = CliRunner().invoke(cli.app, ["lab", *arguments])
    assert result.exit_code == 0, result.output
    return calls[0]


def test_lab_opens_the_working_copy_with_this_python_and_its_kernel(course: Path, monkeypatch: pytest.MonkeyPatch):
    command, folder, env = lab(monkeypatch)
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={course / 'workbook'}" in command
    assert folder == course / "workbook"
    assert (folder / "notebooks" / "03_self_attention.ipynb").is_file()
    assert (folder / ".layout" / project.LAYOUT).is_file()
    assert env["JUPYTER_PREFER_ENV_PATH"] == "1"


@pytest.mark.parametrize("said", [["03"], ["3", "--port", "8888"], ["03_self_attention"]])
def test_lab_opens_the_lesson_that_is_named(course: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    command, *_ = lab(monkeypatch, *said)
    assert "--LabApp.default_url=/lab/tree/notebooks/03_self_attention.ipynb" in command
    assert command[len(command) - len(said) + 1 :] == said[1:]


def test_the_value_of_an_option_is_no_lesson(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, *_ = lab(monkeypatch, "--port", "8888")
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert command[-2:] == ["--port", "8888"]


def test_there_is_no_lesson_77(course: Path) -> None:
    result = CliRunner().invoke(cli.app, ["lab", "77"])
    assert result.exit_code == 2
    assert result.stderr == "There is no lesson 77. There are: 00, 03.\n"
    assert not (course / "workbook").exists()


def test_maintainers_open_the_repository_itself(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, folder, _ = lab(monkeypatch, "03", "--repository")
    assert folder == course
    assert f"--ServerApp.root_dir={course}" in command
    assert not any("workspaces_dir" in argument for argument in command)
    assert not (course / "workbook").exists()


def test_what_the_user_asks_of_jupyterlab_wins(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, *_ = lab(monkeypatch, "--LabApp.app_settings_dir=elsewhere")
    assert [argument for argument in command if "app_settings_dir" in argument] == [
        "--LabApp.app_settings_dir=elsewhere"
    ]


def test_the_users_layout_and_styles_are_left_alone(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    command, folder, _ = lab(monkeypatch)
    assert f"--ServerApp.tornado_settings=static_custom_path={project.SETTINGS / 'custom'}" in command
    (folder / ".layout" / project.LAYOUT).write_text("mine")
    (tmp_path / "config" / "custom").mkdir(parents=True)
    command, *_ = lab(monkeypatch)
    assert (folder / ".layout" / project.LAYOUT).read_text() == "mine"
    assert f"--ServerApp.tornado_settings=static_custom_path={tmp_path / 'config' / 'custom'}" in command


def test_the_settings_are_well_formed() -> None:
    overrides = json.loads((project.SETTINGS / "overrides.json").read_text(encoding="utf-8"))
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    layout = json.loads((project.SETTINGS / "layout.json").read_text(encoding="utf-8"))
    name = hashlib.sha256(layout["metadata"]["id"].encode()).hexdigest()[:4]
    assert f"{layout['metadata']['id']}-{name}.jupyterlab-workspace" == project.LAYOUT
