"""This process's nursery, see ``nursery``: started once, used for every run, gone with this process.

Nothing in here imports torch, so that the nursery can import it while this process does.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from course_utils.grading import nursery as script

ENOUGH = 120.0  # seconds for the first import of everything on a slow disk
RUN_VARIABLE = "COURSE_RUN"  # in the environment of every process of a run, so that strays are found
OFF = "COURSE_COLD"  # set in the environment: start new processes for every run, as on Windows and macOS

# All that a run sees of the grader's environment: no settings of Python, pytest or Jupyter, and nobody's passwords.
_NAMES = (
    "PATH USER LOGNAME LANG LANGUAGE LC_ALL LC_CTYPE TZ TMPDIR TEMP TMP VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH "
    "DYLD_LIBRARY_PATH SYSTEMROOT WINDIR COMSPEC PATHEXT SYSTEMDRIVE USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA "
    "PROGRAMFILES NUMBER_OF_PROCESSORS PROCESSOR_ARCHITECTURE"
)
PASSED_ON = frozenset(_NAMES.split())


class Nursery:
    """Starts runs from processes that have imported everything already."""

    def __init__(self, environment: dict[str, str]) -> None:
        flags = ["-P"] if sys.version_info >= (3, 11) else []
        self._process = subprocess.Popen(
            [sys.executable, *flags, str(Path(script.__file__))],
            cwd=folder_until_exit("course-nursery-"),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._ended: set[int] = set()
        self._pending = b""
        self._ready = False

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start(self, request: dict[str, Any]) -> int:
        """Start a run and return its keeper's process number. Raises OSError when the nursery is gone."""
        self._wait_until_ready()
        self._ask(request)
        while "started" not in (answer := self._answer(ENOUGH)):
            self._note(answer)
        return answer["started"]

    def is_running(self, keeper: int) -> bool:
        while (answer := self._answer(0)) is not None:
            self._note(answer)
        return keeper not in self._ended and self.is_alive

    def end(self, keeper: int) -> None:
        """End a run with everything that it started."""
        until = monotonic() + ENOUGH
        if self.is_running(keeper):
            with suppress(OSError):
                self._ask({"end": keeper})
            while self.is_running(keeper) and monotonic() < until:
                sleep(0.005)
        self._ended.discard(keeper)

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """The nursery ends its runs and itself when its input ends."""
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _note(self, answer: dict[str, Any]) -> None:
        if "ended" in answer:
            self._ended.add(answer["ended"])

    def _wait_until_ready(self) -> None:
        if not self._ready:
            if self._answer(ENOUGH).get("ready") != 1:
                raise OSError("threads run in it already, so that it cannot be forked")
            self._ready = True

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The next line that the nursery says; None when none came in time and none was asked to."""
        import select

        while b"\n" not in self._pending:
            if not select.select([self._process.stdout], [], [], seconds)[0]:
                if seconds:
                    raise OSError("it does not answer")
                return None
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                if seconds:
                    raise OSError("it has ended")
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)


_current: Nursery | None = None
_failed = False


def nursery() -> Nursery | None:
    """The nursery, started at the first call; None where runs have to be started anew each time."""
    global _current, _failed
    if not sys.platform.startswith("linux") or os.environ.get(OFF) or _failed:
        return None
    if _current is not None and _current.is_alive:
        return _current
    _failed = _current is not None and not _current._ready
    if _failed:
        return None
    _current = Nursery(environment(Path(folder_until_exit("course-home-")), ""))
    atexit.register(_current.close)
    return _current


def environment(folder: Path, run: str) -> dict[str, str]:
    """What a run sees: the little of ours that it needs, and folders of its own for everything that leaves traces."""
    kept = {name: value for name, value in os.environ.items() if name.upper() in PASSED_ON}
    home = folder / "home"
    return kept | {
        RUN_VARIABLE: run,
        "COURSE_HOME": str(home / "course"),
        "CUDA_VISIBLE_DEVICES": "-1",  # the same marks with and without a GPU
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_PATH": str(folder / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": str(figures_cache()),
        # One thread each: the exercises are small, and more threads wait for each other on a busy machine.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # A `pip install` in a notebook must not change the grader's own packages.
        "PIP_TARGET": str(home / "pip"),
        "PIP_RETRIES": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }


@functools.cache
def figures_cache() -> Path:
    """Where matplotlib keeps its list of fonts, so that not every run makes its own."""
    return Path(folder_until_exit("course-figures-"))


def folder_until_exit(prefix: str) -> str:
    """A folder that is deleted when this process ends."""
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
