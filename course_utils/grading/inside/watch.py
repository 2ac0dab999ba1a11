"""What the instructor is told about: a submission that reaches for the grader or for the course's own files.

The hook cannot be taken out again, and what it reports cannot be taken back. It sees what Python code does, not what
native code or another program does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

MOST_PROCESSES = 256  # that one notebook may start
MOST_REPORTS = 40
STARTS = frozenset(("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"))
CHANGES = frozenset(("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "shutil.rmtree", "shutil.move"))
HIDDEN = tuple(f"course_utils.{name}" for name in ("checks", "grading.judge", "grading.run", "grading.compare"))

_expected: dict[str, Any] = {}


class TooManyProcesses(RuntimeError):
    """The notebook has started more processes than any exercise needs."""


def install(port: int, word: str, guarded: Sequence[str]) -> None:
    """Report to the grader on ``port`` from now on. ``guarded``: folders and files that are none of a notebook's."""
    _expected.update(_current())
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(f"{json.dumps({'watch': word})}\n".encode("ascii"))
    connection.setblocking(False)
    sys.addaudithook(_hook(connection, tuple(os.path.realpath(path) for path in guarded)))


def patched() -> list[str]:
    """The functions that graders like to use and that are no longer what they were."""
    return [name for name, value in _current().items() if _expected.get(name) is not value]


def _current() -> dict[str, Any]:
    import builtins

    import numpy as np
    import torch

    import course_utils
    from course_utils.grading.inside import peer, serve, wire

    owners = {
        "torch": (torch, ("allclose", "equal", "isclose", "eq")),
        "torch.Tensor": (torch.Tensor, ("__eq__", "allclose", "equal", "numpy", "detach")),
        "torch.testing": (torch.testing, ("assert_close",)),
        "numpy": (np, ("allclose", "isclose", "array_equal")),
        "numpy.testing": (np.testing, ("assert_allclose", "assert_array_equal", "assert_equal")),
        "builtins": (builtins, ("print", "isinstance", "type", "abs", "all", "any", "AssertionError")),
        "course_utils": (course_utils, ("check",)),
        "course_utils.grading": (serve, ("serve",)),
        "the grader": (peer.Peer, ("serve", "_called")),
        "the grader's packing": (wire, ("pack", "unpack")),
    }
    return {f"{name}.{a}": getattr(owner, a, None) for name, (owner, attributes) in owners.items() for a in attributes}


def _hook(connection: socket.socket, guarded: tuple[str, ...]) -> Any:
    reported: set[str] = set()
    started = 0
    busy = False

    def report(what: str, detail: object) -> None:
        text = json.dumps({"what": what, "detail": str(detail)[:300]})
        if text not in reported and len(reported) < MOST_REPORTS:
            reported.add(text)
            with suppress(OSError):
                connection.send(f"{text}\n".encode("ascii"))

    def is_guarded(path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        full = os.path.realpath(os.fsdecode(path))
        return any(full == one or full.startswith(one + os.sep) for one in guarded)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal started, busy
        if busy:
            return
        if event == "open":
            busy = True
            try:
                if is_guarded(args[0]):
                    writes = isinstance(args[1], str) and any(c in args[1] for c in "wax+")
                    report("writes to" if writes else "reads", os.fsdecode(args[0]))
            finally:
                busy = False
        elif event == "import":
            if args[0].startswith(HIDDEN):
                report("imports", args[0])
        elif event in STARTS:
            started += 1
            if any(one in str(args) for one in guarded):
                report("starts a program on", args)
            if started > MOST_PROCESSES:
                report("starts too many processes", event)
                raise TooManyProcesses(f"more than {MOST_PROCESSES} processes were started")
        elif event in CHANGES and args and is_guarded(args[0]):
            report("changes", args[0])

    return hook
