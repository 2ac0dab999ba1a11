"""A process in which everything is imported already, and from which every run is forked. Linux only.

Run by its path, never imported by the package: what a kernel is forked from must not hold the package's exercises.
Requests come as lines of JSON on standard input, answers go out on standard output; when the input ends, so does
everything that was forked from here.

A run is three processes: a keeper, and as its children the worker (pytest with nbval) and the kernel (the answers). The
keeper adopts whatever the kernel leaves behind, and ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

MOST_PROCESSES = 128  # of one run at the same time; a fork bomb is ended
PAUSE = 0.02  # seconds between two looks at the children
PR_SET_CHILD_SUBREAPER = 36
PRELOADED = (
    "numpy torch torch.nn.functional matplotlib.pyplot matplotlib.font_manager matplotlib_inline.backend_inline "
    "ipykernel.kernelapp ipykernel.ipkernel IPython.core.completer IPython.core.magics jupyter_client.manager "
    "ipywidgets psutil tqdm pytest nbformat nbval.kernel nbval.plugin"
)


def main() -> None:
    """Serve requests until standard input ends."""
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # see imports.py: four seconds for nothing
    for name in PRELOADED.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    del sys.modules["rfc3987_syntax"]
    gc.freeze()  # what is here now stays: no collection need look at it, and its memory stays shared
    answers = os.dup(1)
    os.dup2(2, 1)  # nothing that is forked from here may write an answer
    _say(answers, {"ready": len(os.listdir("/proc/self/task"))})
    keepers: set[int] = set()
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], PAUSE if keepers else None)
        for pid, status in _ended():
            keepers.discard(pid)
            _say(answers, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})
        if not readable:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            pid = _fork(lambda line=line: keep(json.loads(line)), closes=(0, answers))
            keepers.add(pid)
            _say(answers, {"started": pid})
    for pid in keepers:
        end_descendants(pid)
        _kill(pid)


def keep(request: dict[str, Any]) -> NoReturn:
    """One run, as the sandbox prepared it: start the worker, and the kernel for it; leave nothing behind."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.chdir(request["notebook_folder"])
    ours, theirs = socket.socketpair()
    worker = _fork(lambda: _work(request, theirs), closes=(ours.fileno(),))
    theirs.close()
    code, look = 1, time.monotonic()
    while True:
        readable, _, _ = select.select([ours], [], [], PAUSE)
        if readable and (order := ours.recv(65536)):
            argv = json.loads(order)
            pid = _fork(lambda argv=argv: _kernel(request["kernel"], argv), closes=(ours.fileno(),))
            ours.sendall(f"{pid}\n".encode("ascii"))
        ended = dict(_ended())
        if worker in ended:
            code = os.waitstatus_to_exitcode(ended[worker])
            break
        if time.monotonic() - look > 10 * PAUSE:
            look = time.monotonic()
            if len(_descendants(os.getpid())) > MOST_PROCESSES:
                _end_all_but(worker)
    end_descendants(os.getpid())
    os._exit(code & 0xFF)


def _work(request: dict[str, Any], keeper: socket.socket) -> None:
    from course_utils.grading import worker

    worker.run(worker.Request(**request["worker"]), fork=lambda argv: _ask_for_kernel(keeper, argv))


def _ask_for_kernel(keeper: socket.socket, argv: list[str]) -> int:
    keeper.sendall(json.dumps(argv).encode("utf-8"))
    return int(keeper.recv(64))


def _kernel(settings: dict[str, Any], argv: list[str]) -> None:
    os.setsid()
    sys.path.insert(0, settings["library"])
    sys.argv = ["ipykernel_launcher.py", *argv]
    from course_utils.grading.inside.launcher import become_kernel

    become_kernel(settings, argv)


def _fork(child: Any, closes: tuple[int, ...] = ()) -> int:
    """The pid of a process that runs ``child()`` and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        for descriptor in closes:
            if descriptor > 2:
                os.close(descriptor)
        child()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _ended() -> list[tuple[int, int]]:
    """(pid, status) of all children that have ended since the last look, adopted ones among them."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (pair := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(pair)
    return found


def _descendants(pid: int) -> list[int]:
    """The processes below ``pid``, from one reading of /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(below)
    return found


def end_descendants(pid: int, seconds: float = 5.0) -> None:
    """End every process below ``pid``, as often as it takes, for processes may be forking meanwhile."""
    until = time.monotonic() + seconds
    while (below := _living(pid)) and time.monotonic() < until:
        for one in below:
            _kill(one)
        if pid == os.getpid():
            _ended()
        time.sleep(0.002)


def _living(pid: int) -> list[int]:
    living = []
    for one in _descendants(pid):
        with contextlib.suppress(OSError), open(f"/proc/{one}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                living.append(one)
    return living


def _end_all_but(worker: int) -> None:
    """A kernel with far too many processes: end it with all of them, and let the worker find it dead."""
    for _ in range(200):
        below = [one for one in _living(os.getpid()) if one != worker]
        if not below:
            return
        for one in below:
            with contextlib.suppress(OSError):
                if os.getpgid(one) not in (os.getpgid(0), os.getpgid(worker)):
                    os.killpg(os.getpgid(one), signal.SIGKILL)  # all of a bomb in one blow
            _kill(one)
        _ended()


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _say(descriptor: int, answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, f"{json.dumps(answer)}\n".encode("ascii"))


if __name__ == "__main__":
    main()
