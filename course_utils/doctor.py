"""``course doctor``: what is wrong with an environment, and what to do. It changes nothing.

Each check is a generator of findings. One that fails is itself a finding: what is broken must not break the doctor.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

MARKS = {"ok": "✓", "note": "!", "broken": "✗"}
NEWEST_PYTHON = (3, 14)
LOADED = ("torch", "numpy", "matplotlib", "ipywidgets", "anywidget")  # imported, not only looked up
SET_UP = "run `python3 course.py lab` in the course's folder (on Windows: `py course.py lab`)"
EXTENSIONS = {"jupyterlab_widgets": "@jupyter-widgets/jupyterlab-manager", "anywidget": "anywidget"}
GIGABYTE = 1e9


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        level: "ok"; "note": the course works, but differently from what one may expect; "broken".
        about: what was looked at.
        text: a sentence; where something is wrong, it says what to do.
    """

    level: Literal["ok", "note", "broken"]
    about: str
    text: str


def examine(root: Path | None) -> list[Finding]:
    """Look at everything; ``root`` is the course's folder, None where only the package is installed."""
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("Python", python),
        ("Environment", lambda: environment(root)),
        ("Packages", packages),
        ("Kernel", kernel),
        ("Widgets", extensions),
        ("Korean font", font),
        ("GPU", gpu),
        ("Disk", lambda: disk(root or Path.cwd())),
        ("Progress", progress),
        ("Network on this computer", loopback),
    ]
    findings: list[Finding] = []
    for about, check in checks:
        try:
            findings.extend(check())
        except Exception as error:
            findings.append(Finding("note", about, f"could not be looked at ({type(error).__name__}: {error})."))
    return findings


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether something that the course needs is not there."""
    return any(finding.level == "broken" for finding in findings)


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """The report for programs."""
    return {"ok": not is_broken(findings), "findings": [asdict(finding) for finding in findings]}


# ---- Python and its packages


def python(version: tuple[int, int] | None = None) -> Iterator[Finding]:
    """This Python against what the package asks for."""
    version = version or (sys.version_info[0], sys.version_info[1])
    name = ".".join(map(str, version))
    if version < (3, 10):
        yield Finding("broken", "Python", f"This is {name}, and the course needs 3.10 or newer: install one.")
    elif version > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        yield Finding("note", "Python", f"This is {name}; the course was tried with 3.10 to {newest}.")
    else:
        yield Finding("ok", "Python", f"{platform.python_version()}, {sys.executable}")


def environment(root: Path | None) -> Iterator[Finding]:
    """Whether this is the environment that ``course.py`` makes."""
    about = "Environment"
    if root is None:
        yield Finding("note", about, "The course's folder was not found from here; only its package is installed.")
    elif _same(Path(sys.prefix), root / ".venv"):
        yield Finding("ok", about, f"the course's own, {sys.prefix}")
    elif sys.prefix != sys.base_prefix or Path(sys.prefix, "conda-meta").is_dir():
        yield Finding("note", about, f"This is {sys.prefix}, not the course's own .venv. For that, {SET_UP}.")
    else:
        yield Finding("note", about, f"This is the system's own Python, {sys.prefix}. For the course's own, {SET_UP}.")


def packages() -> Iterator[Finding]:
    """Everything that the package asks for, at the versions that it asks for."""
    try:
        asked = list(requirements(metadata.requires("course-utils") or []))
    except metadata.PackageNotFoundError:
        yield Finding("broken", "Packages", f"course-utils is not installed in this Python: {SET_UP}.")
        return
    for name, floor, extra in asked:
        if extra in ("", "lab"):
            finding = package(name, floor, needed=not extra)
            if finding.level != "ok" or name in LOADED or name == "jupyterlab":
                yield finding


def requirements(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Name, lowest version ("" for none) and extra ("" for none) of each line of a package's metadata."""
    for line in lines:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        floor = re.search(r"[>=]=\s*([0-9][0-9.]*)", line.split(";")[0])
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", line)
        if name:
            yield name[0], floor[1] if floor else "", extra[1] if extra else ""


def package(name: str, floor: str, needed: bool = True) -> Finding:
    """One package: there, new enough, and importable if the lessons import it."""
    bad = "broken" if needed else "note"
    install = f'`{sys.executable} -m pip install "{name}{">=" + floor if floor else ""}"`'
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(bad, name, f"It is not installed here. Install it: {install}")
    if floor and _numbers(version) < _numbers(floor):
        return Finding(bad, name, f"This is {version}, and the course needs {floor} or newer: {install}")
    if name in LOADED:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a half-installed package raises
            said = str(error).strip().split("\n")[0]
            again = f'`{sys.executable} -m pip install --force-reinstall "{name}=={version}"`'
            return Finding(bad, name, f"It is installed but cannot be imported ({said}). Install it anew: {again}")
    return Finding("ok", name, version)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without closing zeros: 2.13.0+cpu -> (2, 13)."""
    numbers = [int(number) for number in re.match(r"[0-9.]*", version)[0].split(".") if number]  # type: ignore[index]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# ---- Jupyter


def kernel() -> Iterator[Finding]:
    """Whether the notebooks' kernel is this Python. That it is another one is the commonest trouble."""
    if importlib.util.find_spec("ipykernel") is None:
        return  # said among the packages
    mend = f"`{sys.executable} -m ipykernel install --sys-prefix`"
    specs = list(kernel_specs())
    if not specs:
        yield Finding("ok", "Kernel", "python3 is this Python")  # Jupyter's own, when none is written down
        return
    place, interpreter = specs[0]
    trouble = wrong_interpreter(interpreter)
    if trouble:
        yield Finding(
            "broken", "Kernel", f"python3, from {place}, {trouble}, so the notebooks run elsewhere. Mend it: {mend}"
        )
    else:
        yield Finding("ok", "Kernel", "python3 is this Python")
    for other, command in specs[1:]:
        trouble = wrong_interpreter(command)
        if trouble:
            yield Finding(
                "note",
                "Kernel",
                f"A second kernel named python3, in {other}, {trouble}. `course lab` takes the right one; "
                "other programs may not. Delete that folder unless something else needs it.",
            )


def kernel_specs() -> Iterator[tuple[Path, str]]:
    """Folder and interpreter of each kernel named python3, in the order in which ``course lab`` looks for it."""
    from jupyter_core.paths import jupyter_path

    before = os.environ.get("JUPYTER_PREFER_ENV_PATH")
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # as `course lab` sets it
    try:
        folders = [Path(folder, "python3") for folder in jupyter_path("kernels")]
    finally:
        if before is None:
            del os.environ["JUPYTER_PREFER_ENV_PATH"]
        else:
            os.environ["JUPYTER_PREFER_ENV_PATH"] = before
    for folder in dict.fromkeys(folders):
        try:
            yield folder, str(json.loads((folder / "kernel.json").read_text(encoding="utf-8"))["argv"][0])
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            yield folder, ""


def wrong_interpreter(command: str) -> str:
    """What is wrong with a kernel's interpreter; empty where it is this Python."""
    if not command:
        return "has a kernel.json that cannot be read"
    if re.fullmatch(r"python(3(\.\d+)?)?(\.exe)?", command):
        return ""  # Jupyter puts its own Python in its place
    if not Path(command).exists():
        return f"names a Python that is not there, {command}"
    # By folder, not by file: every environment's python is a link to the same one.
    return "" if _same(Path(command).parent, Path(sys.executable).parent) else f"is another Python, {command}"


def extensions() -> Iterator[Finding]:
    """Whether JupyterLab finds what draws the widgets."""
    if importlib.util.find_spec("jupyterlab") is None:
        return  # said among the packages; elsewhere the notebook's own program draws them
    from jupyter_core.paths import jupyter_path

    for name, extension in EXTENSIONS.items():
        if any(Path(folder, extension, "package.json").is_file() for folder in jupyter_path("labextensions")):
            yield Finding("ok", f"Widgets, {name}", "JupyterLab finds its extension")
        else:
            again = f"`{sys.executable} -m pip install --force-reinstall --no-deps {name}`"
            yield Finding("broken", f"Widgets, {name}", f"JupyterLab would not show the explorers. Mend it: {again}")


# ---- The rest of the computer


def font() -> Iterator[Finding]:
    """Whether figures can show Hangul."""
    from matplotlib import font_manager

    from course_utils.plots.style import korean_font

    family = korean_font()
    if family is None:
        mend = f'`{sys.executable} -m pip install "koreanize-matplotlib>=0.1.1"`'
        yield Finding("note", "Korean font", f"Figures would show boxes instead of Korean letters. Mend it: {mend}")
    else:
        font_manager.findfont(family, fallback_to_default=False)
        yield Finding("ok", "Korean font", family)


def gpu() -> Iterator[Finding]:
    """Whether torch computes on a GPU, and if not although there is one, why."""
    try:
        import torch
    except Exception:
        return  # said among the packages
    card = graphics_card()
    if torch.cuda.is_available():
        yield Finding("ok", "GPU", torch.cuda.get_device_name(0))
    elif torch.backends.mps.is_available():
        yield Finding("ok", "GPU", "Apple's, through MPS")
    elif card and torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        advice = "pytorch.org/get-started says which one fits"
        yield Finding("note", "GPU", f"There is one ({card}), but this torch is a build for CPUs only: {advice}.")
    elif card:
        yield Finding(
            "note",
            "GPU",
            f"There is one ({card}), but torch {torch.__version__}, made for CUDA {torch.version.cuda}, cannot use it: "
            "the driver may be too old for it, or CUDA_VISIBLE_DEVICES hides it.",
        )
    else:
        yield Finding("ok", "GPU", "None was found; the lessons are made for a CPU, and only lesson 09 gains by one.")


def graphics_card() -> str:
    """The name of the first NVIDIA card that the driver knows; empty for none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        command = [program, "--query-gpu=name", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 else ""


def disk(folder: Path) -> Iterator[Finding]:
    """Room for the working copy, checkpoints and notebooks with figures."""
    free = shutil.disk_usage(folder).free / GIGABYTE
    if free < 1:
        yield Finding(
            "note", "Disk", f"Only {free:.1f} GB are free where {folder} lies: make room, or saving may fail."
        )
    else:
        yield Finding("ok", "Disk", f"{free:.0f} GB free")


def progress() -> Iterator[Finding]:
    """Whether passed exercises can be noted."""
    from course_utils.grading.progress import folder

    home = folder().parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        text = f"What you pass cannot be noted in {home} ({error.strerror}). Name another folder in COURSE_HOME."
        yield Finding("broken", "Progress", text)
    else:
        yield Finding("ok", "Progress", f"noted in {home}")


def loopback() -> Iterator[Finding]:
    """Whether a program here can talk to another one: the browser to JupyterLab, JupyterLab to its kernels."""
    about = "Network on this computer"
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(5)
            with socket.create_connection(server.getsockname(), timeout=5):
                server.accept()[0].close()
    except OSError as error:
        text = f"127.0.0.1 cannot be reached ({error.strerror or error}). A firewall or a VPN may be in the way."
        yield Finding("broken", about, text)
    else:
        yield Finding("ok", about, "127.0.0.1 can be reached")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
