"""Runs one rebuilt notebook in folders, processes and an environment of its own, and talks to its checks meanwhile.

Tamper-resistant, not a sandbox in the strict sense: the code of a submission runs with the rights of whoever grades it.
Strangers' notebooks belong in a container without a network.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import course_utils
from course_utils.grading import warm
from course_utils.grading.inside.channel import Channel, Closed
from course_utils.grading.protocol import Request
from course_utils.grading.seal import sealed_copy

KERNEL = "course-grading"
LARGEST_RECORD = 64 * 2**20  # bytes
CUT = "cut the connection over which it is watched"
MOST_UNKNOWN = 20
PAUSE = 0.02  # seconds between two looks at whether a run has ended
BOOT = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from course_utils.grading.inside.launcher import main; main()"
)

Talk = Callable[[Channel, dict[str, Any]], None]


class RunFailed(Exception):
    """Nothing of the notebook ran, through no fault of its own; the text says why."""


@dataclass
class Record:
    """What became of a run.

    ``cells``: one entry for each that ran, with ok, died, timed_out and error. ``running``: the number of the cell that
    was being run when everything was ended. ``reports``: what ``inside.watch`` told, with what and detail.
    """

    cells: list[dict[str, Any]]
    running: int | None = None
    reports: list[dict[str, str]] = field(default_factory=list)


def run_notebook(
    make: Callable[[int, str], str], cell_timeout: float, wall_limit: float, talk: Talk | None = None
) -> Record:
    """Run a rebuilt notebook in processes of its own.

    Args:
        make: from a port and a nonce, the notebook whose checks connect there.
        cell_timeout: seconds that one cell may take before it is interrupted.
        wall_limit: seconds after which everything is ended; the record then names the cell that was running.
        talk: is called with the channel and the first message of each check that knows the nonce.

    Raises RunFailed.
    """
    # A process that is on its way out may still hold a file of the folder open, which matters on Windows.
    with _own_folder() as folder:
        nonce = secrets.token_hex(16)
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            port = server.getsockname()[1]
            run = _Run(folder, server, nonce, monotonic() + wall_limit)
            request = run.prepare(make(port, nonce), cell_timeout, port)
            with _started(folder, request) as is_running:
                reports = run.listen(is_running, talk or (lambda *_: None))
        return _read_record(folder, reports)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder that is deleted afterwards, whatever a notebook has put into it."""
    folder = Path(tempfile.mkdtemp(prefix="course-grade-")).resolve()
    try:
        yield folder
    finally:
        with suppress(OSError, RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists() and os.name == "posix":  # thousands of folders in each other
            subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)


@dataclass(frozen=True)
class _Run:
    folder: Path
    server: socket.socket
    nonce: str
    ends_at: float
    watch_word: str = field(default_factory=lambda: secrets.token_hex(16))

    def prepare(self, text: str, cell_timeout: float, port: int) -> dict[str, Any]:
        """Write the notebook, the library and the kernel's description into the folder; returns the request."""
        for name in ("work", "notebook", "home"):
            self.folder.joinpath(name).mkdir()
        library = shutil.copytree(_sealed(), self.folder / "library")
        kernel = {
            "folder": str(self.folder / "work"),
            "library": str(library),
            "port": port,
            "word": self.watch_word,
            "guarded": [*guarded(), *(str(self.folder / name) for name in ("record.json", "request.json", "notebook"))],
        }
        spec = self.folder / "jupyter" / "kernels" / KERNEL / "kernel.json"
        spec.parent.mkdir(parents=True)
        argv = [*_python(), "-c", BOOT, str(library), json.dumps(kernel), "-f", "{connection_file}"]
        quiet = "--HistoryManager.enabled=False"
        spec.write_text(
            json.dumps({"argv": [*argv, quiet], "display_name": "Grading", "language": "python"}), encoding="utf-8"
        )
        worker = Request(
            notebook=str(self.folder / "notebook" / "submission.ipynb"),
            record=str(self.folder / "record.json"),
            settings=str(self.folder / "pytest.ini"),
            kernel=KERNEL,
            cell_timeout=cell_timeout,
        )
        Path(worker.notebook).write_text(text, encoding="utf-8")
        Path(worker.settings).write_text("[pytest]\n", encoding="utf-8")
        self.folder.joinpath("request.json").write_text(json.dumps(asdict(worker)), encoding="utf-8")
        return {
            "worker": asdict(worker),
            "kernel": kernel,
            "environment": warm.environment(self.folder, self.nonce),
            "log": str(self.folder / "worker.log"),
            "notebook_folder": str(Path(worker.notebook).parent),
        }

    def listen(self, is_running: Callable[[], bool], talk: Talk) -> list[dict[str, str]]:
        """Answer the checks until the run has ended, or must; returns what the watch reported."""
        watch = _Watch()
        unknown: list[socket.socket] = []  # connections that have not said a word yet; only the first few are kept

        def is_alive() -> bool:
            return is_running() and monotonic() < self.ends_at

        while is_alive():
            readable, _, _ = select.select([self.server, *unknown, *watch.connections], [], [], PAUSE)
            for one in readable:
                if one is self.server:
                    unknown.append(one.accept()[0])
                    for old in unknown[:-MOST_UNKNOWN]:
                        old.close()
                    del unknown[:-MOST_UNKNOWN]
                elif one in unknown:
                    unknown.remove(one)
                    self._welcome(one, is_alive, talk, watch)
                else:
                    watch.read(one)
        for one in unknown:
            one.close()
        watch.finish()
        return watch.reports

    def _welcome(self, connection: socket.socket, is_alive: Callable[[], bool], talk: Talk, watch: _Watch) -> None:
        """The watch says its word in one line; a check sends a message. Anything else is not ours."""
        connection.settimeout(1.0)
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if first == b"{":
            watch.accept(connection, self.watch_word)
            return
        soon = monotonic() + 5.0
        channel = Channel(connection, lambda: monotonic() < soon and is_alive())
        with closing(channel), suppress(Closed):
            hello = channel.receive()
            if hello.get("nonce") == self.nonce:
                channel.alive = is_alive
                watch.check_in()
                talk(channel, hello)


class _Watch:
    """The connection over which ``inside.watch`` reports, line by line."""

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self.reports: list[dict[str, str]] = []
        self._pending = b""

    def accept(self, connection: socket.socket, word: str) -> None:
        line = b""
        with suppress(OSError):
            while not line.endswith(b"\n") and len(line) < 200 and (byte := connection.recv(1)):
                line += byte
        if word.encode("ascii") in line and not self.connections:
            connection.setblocking(False)
            self.connections.append(connection)
        else:
            connection.close()

    def read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            connection.close()
            self.connections.remove(connection)
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines[: max(0, 100 - len(self.reports))]:
            with suppress(ValueError, KeyError, TypeError):
                report = json.loads(line)
                self.reports.append({"what": str(report["what"]), "detail": str(report["detail"])})

    def check_in(self) -> None:
        """A check is running, so the watch has to be there too."""
        if not self.connections and all(report["what"] != CUT for report in self.reports):
            self.reports.append({"what": CUT, "detail": ""})

    def finish(self) -> None:
        for connection in list(self.connections):
            self.read(connection)
            connection.close()


@functools.cache
def _sealed() -> Path:
    return sealed_copy(Path(warm.folder_until_exit("course-library-")))


@functools.cache
def answers() -> tuple[str, ...]:
    """Where right answers stand, as real paths: what a notebook reads there voids its passes."""
    package = Path(course_utils.__file__).parent
    places = [package / "checks", *(package.parent / n for n in ("solutions", "tests", "workbook/solutions", ".git"))]
    return tuple(str(path.resolve()) for path in places if path.is_dir())


@functools.cache
def guarded() -> tuple[str, ...]:
    """What a submission has no business with: the real package, and the solutions and tests beside it."""
    package = Path(course_utils.__file__).parent
    return (str(package), *answers())


def _python() -> list[str]:
    """The command of this Python, without the working folder among its imports where it can."""
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]


@contextmanager
def _started(folder: Path, request: dict[str, Any]) -> Iterator[Callable[[], bool]]:
    """A started run as a function that tells whether it is still going; afterwards nothing of it is left running."""
    nursery = warm.nursery()
    try:
        keeper = nursery.start(request) if nursery else None
    except OSError:
        keeper = None
    if nursery is None or keeper is None:
        with _cold(folder, request) as is_running:
            yield is_running
        return
    try:
        yield lambda: nursery.is_running(keeper)
    finally:
        nursery.end(keeper)
        _kill_strays(keeper, request["environment"][warm.RUN_VARIABLE])


@contextmanager
def _cold(folder: Path, request: dict[str, Any]) -> Iterator[Callable[[], bool]]:
    """The same in new processes, where nothing can be forked."""
    command = [*_python(), "-m", "course_utils.grading.worker", str(folder / "request.json")]
    with Path(request["log"]).open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=request["notebook_folder"],
            env=request["environment"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield lambda: process.poll() is None
        finally:
            if process.poll() is None and os.name == "posix":
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            _kill_strays(process.pid, request["environment"][warm.RUN_VARIABLE])
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
            if process.pid not in (worker, os.getpid()) and process.environ().get(warm.RUN_VARIABLE) == run:
                process.kill()


def _read_record(folder: Path, reports: list[dict[str, str]]) -> Record:
    log = folder / "worker.log"
    try:
        data = json.loads(_content(folder / "record.json"))
        if data["failure"] and not data["cells"]:
            raise RunFailed(f"{data['failure']}{_tail(log)}")
        cells = [{name: cell[name] for name in ("ok", "died", "timed_out", "error")} for cell in data["cells"]]
        return Record(cells, data["running"], reports)
    except FileNotFoundError:
        raise RunFailed(f"the process that runs it did not start.{_tail(log)}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise RunFailed("the record of its run cannot be read.") from None


def _content(path: Path) -> bytes:
    """A file of the run, which an answer may have put something else in the place of. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a file")
        data = file.read(LARGEST_RECORD + 1)
    if len(data) > LARGEST_RECORD:
        raise ValueError("too large")
    return data


def _tail(log: Path) -> str:
    with suppress(OSError, ValueError):
        lines = _content(log)[-2000:].decode("utf-8", "replace").strip().splitlines()
        return f" Its last line: {lines[-1]}" if lines else ""
    return ""
