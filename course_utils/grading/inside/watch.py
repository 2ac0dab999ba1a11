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


def _real_path() -> Any:
    """``os.path.realpath`` with helpers of its own, which an answer cannot replace."""
    import posixpath

    own = type(os)("paths")
    own.__dict__.update(posixpath.__dict__)
    own.os = type(os)("os")
    own.os.__dict__.update(os.__dict__)
    functions = {name: f for name, f in own.__dict__.items() if hasattr(f, "__code__")}
    for name, function in functions.items():
        copy = type(function)(function.__code__, own.__dict__, name, function.__defaults__, function.__closure__)
        copy.__kwdefaults__ = function.__kwdefaults__
        own.__dict__[name] = copy
    return own.realpath if os.name == "posix" else os.path.realpath


def _hook(connection: socket.socket, guarded: tuple[str, ...]) -> Any:
    reported: set[str] = set()
    started = 0
    busy = False

    # Everything that is used later is taken here: an answer may replace it in its modules.
    dumps, send, real, decode, is_a, text = json.dumps, connection.send, _real_path(), os.fsdecode, isinstance, str
    path_like, separator, started_with, found_in = os.PathLike, os.sep, str.startswith, str.__contains__

    def report(what: str, detail: object) -> None:
        line = dumps({"what": what, "detail": text(detail)[:300]})
        if line not in reported and len(reported) < MOST_REPORTS:
            reported.add(line)
            try:  # noqa: SIM105 (contextlib's suppress could be replaced)
                send(f"{line}\n".encode("ascii"))
            except OSError:
                pass

    def is_guarded(path: object) -> bool:
        if not is_a(path, (str, bytes, path_like)):
            return False
        full = real(decode(path))
        for one in guarded:  # noqa: SIM110 (so could any)
            if full == one or started_with(full, one + separator):
                return True
        return False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal started, busy
        if busy:
            return
        busy = True
        try:
            if event == "open":
                if is_guarded(args[0]):
                    writes = is_a(args[1], str) and bool({*args[1]} & {*"wax+"})
                    report("writes to" if writes else "reads", decode(args[0]))
            elif event == "import":
                if started_with(args[0], HIDDEN):
                    report("imports", args[0])
            elif event in STARTS:
                started += 1
                for one in guarded:
                    if found_in(text(args), one):
                        report("starts a program on", args)
                        break
                if started > MOST_PROCESSES:
                    report("starts too many processes", event)
                    raise TooManyProcesses(f"more than {MOST_PROCESSES} processes were started")
            elif event in CHANGES and args and is_guarded(args[0]):
                report("changes", args[0])
            elif event == "os.link" and is_guarded(args[0]):
                report("reads", args[0])
        finally:
            busy = False

    return hook
