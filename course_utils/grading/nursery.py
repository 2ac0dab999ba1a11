"""A process in which everything is imported already, and from which every run is forked. Linux only.

Run by its path, never imported by the package: what a kernel is forked from must not hold the package's exercises.
Requests come as lines of JSON on standard input, answers go out on standard output; when the input ends, so does
everything that was forked from here.

A run is three processes: a keeper, and as its children the worker (pytest with nbval) and the kernel (the answers). The
keeper adopts whatever the kernel leaves behind, and ends it.

A process only ever signals its own children, which keep their numbers until it has reaped them: with a fork bomb about,
any other number may belong to somebody else a moment later.
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
    sys.path[:] = [
        path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))
    ]  # Python 3.10 adds it
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # see imports.py: four seconds for nothing
    for name in PRELOADED.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    del sys.modules["rfc3987_syntax"]
    gc.freeze()  # what is here now stays: no collection need look at it, and its memory stays shared
    answers = os.dup(1)
    os.dup2(2, 1)  # nothing that is forked from here may write an answer
    adopt_orphans()
    _say(answers, {"ready": len(os.listdir("/proc/self/task"))})
    keepers: set[int] = set()
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], PAUSE if keepers else None)
        for pid, status in _ended():
            if pid in keepers:
                keepers.discard(pid)
                _say(answers, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})
        end_children(keepers)  # what a keeper left behind that was itself ended by an answer
        if not readable:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for request in map(json.loads, lines):
            if "end" in request:
                if request["end"] in keepers:
                    os.kill(request["end"], signal.SIGTERM)
                continue
            pid = _fork(lambda request=request: keep(request), closes=(0, answers))
            keepers.add(pid)
            _say(answers, {"started": pid})
    for pid in keepers:
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 10
    while keepers and time.monotonic() < until:
        keepers -= {pid for pid, _ in _ended()}
        time.sleep(PAUSE)
    end_children(set())


def keep(request: dict[str, Any]) -> NoReturn:
    """One run, as the sandbox prepared it: start the worker, and the kernel for it; leave nothing behind."""
    os.setsid()
    adopt_orphans()
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told_to_end.append(number))
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
    while not told_to_end:
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
            if _count_below(os.getpid()) > MOST_PROCESSES:
                end_children({worker})  # the worker finds its kernel dead
    end_children(set())
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
    del sys.modules["__main__"].__file__  # this script is none of the notebook's: %autoreload would read it
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


def adopt_orphans() -> None:
    """From now on, descendants whose parents end become children of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(spared: set[int], seconds: float = 20.0) -> None:
    """End all children but the ``spared``, and all that become children when their parents end."""
    until = time.monotonic() + seconds
    while (children := _parents().get(os.getpid(), set()) - spared) and time.monotonic() < until:
        for pid in children:
            for end in (os.killpg, os.kill):  # a group goes in one blow, which a bomb does not survive
                with contextlib.suppress(OSError):
                    end(pid, signal.SIGKILL)
        time.sleep(0.005)
        for pid in children:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)


def _count_below(pid: int) -> int:
    """How many processes there are below ``pid``."""
    children, count, waiting = _parents(), 0, [pid]
    while waiting:
        below = children.get(waiting.pop(), set())
        count += len(below)
        waiting.extend(below)
    return count


def _parents() -> dict[int, set[int]]:
    """Process -> its children, from one reading of /proc."""
    children: dict[int, set[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, set()).add(int(name))
    return children


def _say(descriptor: int, answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, f"{json.dumps(answer)}\n".encode("ascii"))


if __name__ == "__main__":
    main()
