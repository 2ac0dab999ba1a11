"""``course doctor`` sees what is wrong with an environment, says what to do, and is never itself the trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from course_utils import cli, doctor
from course_utils.doctor import Finding

ROOT = Path(__file__).resolve().parents[1]


def levels(findings: Iterable[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def only(findings: Iterable[Finding]) -> Finding:
    [finding] = findings
    return finding


# ---- The report


def test_here_nothing_is_broken_and_the_report_has_a_line_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert {line[0] for line in lines} <= {"✓", "!"}
    for about in ("Python", "Environment", "torch", "numpy", "ipywidgets", "anywidget", "matplotlib", "GPU", "Disk"):
        assert any(line[2:].startswith(f"{about}: ") for line in lines), about


def test_the_report_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(doctor, "package", lambda name, floor, needed=True: Finding("broken", name, "gone"))
    result = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert {"level": "broken", "about": "torch", "text": "gone"} in report["findings"]


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("no idea")

    for name in ("packages", "kernel", "extensions", "font", "gpu"):
        monkeypatch.setattr(doctor, name, broken)
    said = [finding for finding in doctor.examine(None) if "could not be looked at" in finding.text]
    assert levels(said) == ["note"] * 5
    assert "no idea" in said[0].text


def test_the_module_brings_no_torch() -> None:
    code = "import sys, course_utils.doctor; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---- Python and its packages


@pytest.mark.parametrize(
    ("version", "level"), [((3, 9), "broken"), ((3, 10), "ok"), ((3, 14), "ok"), ((3, 15), "note")]
)
def test_python(version: tuple[int, int], level: str) -> None:
    assert only(doctor.python(version)).level == level


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert only(doctor.environment(tmp_path)).level == "ok"
    assert "not the course's own" in only(doctor.environment(tmp_path / "other")).text
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert "system's own" in only(doctor.environment(tmp_path / "other")).text
    assert only(doctor.environment(None)).level == "note"


def test_floors_come_from_the_packages_own_metadata() -> None:
    asked = {
        name: (floor, extra) for name, floor, extra in doctor.requirements(metadata.requires("course-utils") or [])
    }
    assert asked["torch"] == ("2.11", "")
    assert asked["nbval"] == ("0.11.0", "")
    assert asked["jupyterlab"][1] == "lab"


def test_a_line_of_metadata() -> None:
    lines = ["a-b.c[x]<3,>=1.2.3; python_version < '4'", "plain", 'e>=1; extra == "lab"']
    assert list(doctor.requirements(lines)) == [("a-b.c", "1.2.3", ""), ("plain", "", ""), ("e", "1", "lab")]


@pytest.mark.parametrize(
    ("version", "floor", "level"),
    [
        ("2.13.0+cpu", "2.13", "ok"),
        ("2.9.1", "2.11", "broken"),
        ("2.11.0rc1", "2.11", "ok"),
        ("10.0", "9.5", "ok"),
        ("1.26", "1.26.0", "ok"),
        ("1", "", "ok"),
    ],
)
def test_versions_against_floors(monkeypatch: pytest.MonkeyPatch, version: str, floor: str, level: str) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda name: version)
    finding = doctor.package("some-package", floor)
    assert finding.level == level
    assert level == "ok" or f'-m pip install "some-package>={floor}"' in finding.text


def test_a_package_that_is_missing_or_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.package("no-such-package", "1").level == "broken"
    assert doctor.package("no-such-package", "1", needed=False).level == "note"

    def fail(name: str) -> None:
        raise OSError("libsomething.so: cannot open\nmore")

    monkeypatch.setattr(doctor.importlib, "import_module", fail)
    finding = doctor.package("numpy", "1.0")
    assert finding.level == "broken"
    assert "cannot be imported (libsomething.so: cannot open)" in finding.text
    assert "--force-reinstall" in finding.text


def test_a_python_without_the_course(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", missing)
    assert "course-utils is not installed" in only(doctor.packages()).text


# ---- Jupyter


def spec(folder: Path, interpreter: str | None) -> str:
    kernel = folder / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("{" if interpreter is None else json.dumps({"argv": [interpreter, "-m", "x"]}), encoding="utf-8")
    return str(folder)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders where Jupyter looks for kernels, in this order; nothing is in them."""
    pytest.importorskip("jupyter_core")
    folders = [str(tmp_path / name / "kernels") for name in ("first", "second")]
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: folders)
    return tmp_path / "first", tmp_path / "second"


def other_python(folder: Path) -> str:
    """A second environment's interpreter: as usual, a link to the very same program."""
    folder.mkdir()
    link = folder / Path(sys.executable).name
    try:
        link.symlink_to(Path(sys.executable).resolve())
    except OSError:
        pytest.skip("links need a privilege here")
    return str(link)


def test_no_kernel_written_down_is_this_python(places: tuple[Path, Path]) -> None:
    assert only(doctor.kernel()).level == "ok"


@pytest.mark.parametrize("interpreter", ["python", "python3", "python3.11", sys.executable])
def test_this_pythons_kernel(places: tuple[Path, Path], interpreter: str) -> None:
    spec(places[0], interpreter)
    assert only(doctor.kernel()).level == "ok"


def test_another_environments_kernel(places: tuple[Path, Path], tmp_path: Path) -> None:
    spec(places[0], other_python(tmp_path / "other"))
    finding = only(doctor.kernel())
    assert finding.level == "broken"
    assert "is another Python" in finding.text
    assert "-m ipykernel install --sys-prefix" in finding.text


@pytest.mark.parametrize(("interpreter", "said"), [("/gone/bin/python", "not there"), (None, "cannot be read")])
def test_a_kernel_that_leads_nowhere(places: tuple[Path, Path], interpreter: str | None, said: str) -> None:
    spec(places[0], interpreter)
    finding = only(doctor.kernel())
    assert finding.level == "broken"
    assert said in finding.text


def test_a_kernel_in_the_shadow(places: tuple[Path, Path], tmp_path: Path) -> None:
    spec(places[0], "python")
    spec(places[1], other_python(tmp_path / "other"))
    right, shadowed = doctor.kernel()
    assert (right.level, shadowed.level) == ("ok", "note")
    assert str(places[1]) in shadowed.text


def test_looking_for_kernels_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jupyter_core")
    monkeypatch.delenv("JUPYTER_PREFER_ENV_PATH", raising=False)
    list(doctor.kernel_specs())
    assert "JUPYTER_PREFER_ENV_PATH" not in os.environ
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    list(doctor.kernel_specs())
    assert os.environ["JUPYTER_PREFER_ENV_PATH"] == "0"


def test_the_widgets_extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jupyterlab")
    assert levels(doctor.extensions()) == ["ok", "ok"]
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: [str(tmp_path)])
    missing = list(doctor.extensions())
    assert levels(missing) == ["broken", "broken"]
    assert "--no-deps jupyterlab_widgets" in missing[0].text


# ---- The rest of the computer


def test_the_font(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(doctor.font()).level == "ok"
    monkeypatch.setattr("course_utils.plots.style.korean_font", lambda: None)
    assert "koreanize-matplotlib" in only(doctor.font()).text


@pytest.mark.parametrize(
    ("cuda", "build", "card", "level", "said"),
    [
        (True, "12.8", "H200", "ok", "H200"),
        (False, None, "H200", "note", "for CPUs only"),
        (False, "12.8", "H200", "note", "driver"),
        (False, None, "", "ok", "None was found"),
    ],
)
def test_the_gpu(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, build: str | None, card: str, level: str, said: str
) -> None:
    torch = SimpleNamespace(
        __version__="2.13",
        version=SimpleNamespace(cuda=build),
        cuda=SimpleNamespace(is_available=lambda: cuda, get_device_name=lambda _: "H200"),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(doctor, "graphics_card", lambda: card)
    finding = only(doctor.gpu())
    assert finding.level == level
    assert said in finding.text


def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/gone/nvidia-smi")
    assert doctor.graphics_card() == ""


def test_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage(0, 0, 5e8))
    assert "0.5 GB" in only(doctor.disk(tmp_path)).text
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage(0, 0, 5e9))
    assert only(doctor.disk(tmp_path)).level == "ok"


def test_the_place_for_the_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "new"))
    assert only(doctor.progress()).level == "ok"
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "file"))
    finding = only(doctor.progress())
    assert finding.level == "broken"
    assert "COURSE_HOME" in finding.text


def test_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(doctor.loopback()).level == "ok"

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.socket, "create_server", refuse)
    assert "firewall" in only(doctor.loopback()).text
