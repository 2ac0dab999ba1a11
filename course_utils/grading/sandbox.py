"""Starts a worker for one notebook in folders and an environment of its own, and ends whatever it leaves running.

Tamper-resistant, not a sandbox in the strict sense: the code of a submission runs with the rights of whoever grades it.
Strangers' notebooks belong in a container without a network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from course_utils.grading.protocol import Request

KERNEL = "course-grading"
LARGEST_RECORD = 256 * 2**20  # bytes
RUN_VARIABLE = "COURSE_RUN"  # in the environment of every process of a run, so that strays are found

# All that a run sees of the grader's environment: no settings of Python, pytest or Jupyter, and nobody's passwords.
_NAMES = (
    "PATH HOME USER LOGNAME LANG LANGUAGE LC_ALL LC_CTYPE TZ TMPDIR TEMP TMP VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH "
    "DYLD_LIBRARY_PATH SYSTEMROOT WINDIR COMSPEC PATHEXT SYSTEMDRIVE USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA "
    "PROGRAMFILES NUMBER_OF_PROCESSORS PROCESSOR_ARCHITECTURE"
)
PASSED_ON = frozenset(_NAMES.split())


class RunFailed(Exception):
    """Nothing of the notebook ran, through no fault of its own; the text says why."""


def run_notebook(text: str, cell_timeout: float, wall_limit: float) -> dict[str, Any]:
    """Run a rebuilt notebook in a process of its own and return the worker's record.

    Args:
        text: the notebook.
        cell_timeout: seconds that one cell may take before it is interrupted.
        wall_limit: seconds after which everything is ended; the record then names the cell that was running.

    Raises RunFailed.
    """
    # A process that is on its way out may still hold a file of the folder open, which matters on Windows.
    with tempfile.TemporaryDirectory(prefix="course-grade-", ignore_cleanup_errors=True) as folder:
        request = _prepare(Path(folder), text, cell_timeout)
        log = Path(folder, "worker.log")
        _run_worker(Path(folder), request, log, wall_limit)
        return _read_record(Path(request.record), log)


def _prepare(folder: Path, text: str, cell_timeout: float) -> Request:
    """Write the notebook, the kernel's description and the request into ``folder``."""
    for name in ("work", "notebook", "home"):
        folder.joinpath(name).mkdir()
    spec = folder / "jupyter" / "kernels" / KERNEL / "kernel.json"
    spec.parent.mkdir(parents=True)
    launcher = [*python("course_utils.grading.launcher"), str(folder / "work"), "-f", "{connection_file}"]
    spec.write_text(
        json.dumps({"argv": launcher, "display_name": "Grading", "language": "python"}),
        encoding="utf-8",
    )
    request = Request(
        notebook=str(folder / "notebook" / "submission.ipynb"),
        record=str(folder / "record.json"),
        settings=str(folder / "pytest.ini"),
        kernel=KERNEL,
        cell_timeout=cell_timeout,
    )
    Path(request.notebook).write_text(text, encoding="utf-8")
    Path(request.settings).write_text("[pytest]\n", encoding="utf-8")
    folder.joinpath("request.json").write_text(json.dumps(asdict(request)), encoding="utf-8")
    return request


def python(module: str) -> list[str]:
    """The command that runs ``module`` with this Python, without the working folder among its imports where it can."""
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-m", module]


def environment(folder: Path, run: str) -> dict[str, str]:
    """What a run sees: the little of ours that it needs, and folders of its own for everything that leaves traces."""
    kept = {name: value for name, value in os.environ.items() if name.upper() in PASSED_ON}
    return kept | {
        RUN_VARIABLE: run,
        "COURSE_HOME": str(folder / "home"),
        "CUDA_VISIBLE_DEVICES": "-1",  # the same marks with and without a GPU
        "IPYTHONDIR": str(folder / "home" / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "home" / "config"),
        "JUPYTER_DATA_DIR": str(folder / "home" / "data"),
        "JUPYTER_PATH": str(folder / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(folder / "home" / "runtime"),
        "OMP_NUM_THREADS": "1",  # the exercises are small, and more threads wait for each other on a busy machine
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONUTF8": "1",
    }


def _run_worker(folder: Path, request: Request, log: Path, wall_limit: float) -> None:
    run = uuid.uuid4().hex
    command = [*python("course_utils.grading.worker"), str(folder / "request.json")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=Path(request.notebook).parent,
            env=environment(folder, run),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with _ended_afterwards(process, run), suppress(subprocess.TimeoutExpired):
            process.wait(wall_limit)


@contextmanager
def _ended_afterwards(process: subprocess.Popen[bytes], run: str) -> Iterator[None]:
    """Whatever happens, also at Ctrl-C, nothing of the run is left running."""
    try:
        yield
    finally:
        if process.poll() is None and os.name == "posix":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _kill_strays(process.pid, run)
        process.kill()
        process.wait()


def _kill_strays(worker: int, run: str) -> None:
    """End processes of the run that left its process group: the kernel does so, and an answer may.

    They are known by a variable in their environment, which outlives their parents. psutil comes with ipykernel;
    without it, only the worker's group is ended.
    """
    try:
        import psutil
    except ImportError:
        return
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid not in (worker, os.getpid()) and process.environ().get(RUN_VARIABLE) == run:
                process.kill()


def _read_record(path: Path, log: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_RECORD:
            raise RunFailed("the notebook's results were far larger than any right answer's.")
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFailed(f"the process that runs it did not start.{_tail(log)}") from None
    except (OSError, ValueError, RecursionError):
        raise RunFailed("the record of its run cannot be read.") from None
    if record["failure"] and not record["cells"]:
        raise RunFailed(f"{record['failure']}{_tail(log)}")
    return record


def _tail(log: Path) -> str:
    lines = log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
    return f" Its last line: {lines[-1]}" if lines else ""
