"""Runs one rebuilt notebook under nbval, in a process of its own, and writes down what each cell did.

``python -m course_utils.grading.worker REQUEST``, where REQUEST is a JSON file with the fields of
``protocol.Request``; the nursery calls ``run`` itself. The record is written anew after every cell, so that it is
there, and whole, even when this process is ended from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty
from time import monotonic
from typing import Any

from course_utils.grading.imports import without_url_grammar
from course_utils.grading.progress import write_atomically
from course_utils.grading.protocol import Request

with without_url_grammar():
    import nbval.kernel
    import nbval.plugin
    import pytest

POLL = 0.5  # seconds between two looks at whether the kernel still lives
MOST_PRINTED = 100_000  # characters of a cell's output that are kept


class KernelDied(Exception):
    """The kernel ended while it was running a cell."""


class Kernel(nbval.kernel.RunningKernel):
    """nbval's kernel, with two things put right.

    nbval waits the whole time-out for a kernel that is already dead, and takes a cell for passed whose reply says
    ``error`` when no error message came with it.
    """

    reply: dict[str, Any] | None = None  # of the latest cell
    timed_out = False  # the latest cell

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Raises KernelDied within about half a second of the kernel's end, and Empty at the time-out."""
        self.reply, self.timed_out = None, False
        deadline = float("inf") if timeout is None else monotonic() + timeout
        while True:
            try:
                message = self.get_message("shell", timeout=min(POLL, max(0.0, deadline - monotonic())))
            except Empty:
                if not self.is_alive():
                    raise KernelDied from None
                if monotonic() >= deadline:
                    self.timed_out = True
                    raise
                continue
            if message["parent_header"].get("msg_id") == msg_id:
                self.reply = message["content"]
                return

    def get_message(self, stream: str, timeout: float | None = None) -> dict[str, Any]:
        """As nbval's, but a cell that prints without end does not fill this process's memory."""
        message = super().get_message(stream, timeout)
        if message.get("msg_type") == "stream":
            parent = message["parent_header"].get("msg_id")
            self._printed = (self._printed if parent == self._printing else 0) + len(message["content"]["text"])
            self._printing = parent
            if self._printed > MOST_PRINTED:
                message["content"]["text"] = ""
        return message

    _printing: str | None = None
    _printed = 0

    def leave(self) -> None:
        """Instead of ``stop`` where a keeper ends the kernel at the end of the run, or its group is killed here."""
        self.kc.stop_channels()
        with suppress(OSError):
            os.killpg(self.km.provisioner.pid, signal.SIGKILL)
        del self.km  # so that it counts as dead from now on, as after nbval's own stop

    @property
    def leaving(self) -> bool:
        """``quit()`` in a cell: the kernel answers once more, and is gone a moment later."""
        return any(part.get("source") == "ask_exit" for part in (self.reply or {}).get("payload", []))


class Recorder:
    """A pytest plugin: what every cell did, as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: list[dict[str, Any]] = []
        self.running: int | None = None
        self.failure: str | None = None

    def save(self) -> None:
        record = {"cells": self.cells, "running": self.running, "failure": self.failure}
        write_atomically(self.path, json.dumps(record))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: nbval.plugin.IPyNbCell) -> None:
        if self.cells and not item.parent.kernel.is_alive():
            # It died between two cells, so the one before is to blame.
            self.cells[-1]["died"] = True
            item.session.shouldstop = "the kernel died"
            pytest.skip("the kernel died")
        self.running = item.cell_num
        self.save()

    def pytest_runtest_makereport(self, item: nbval.plugin.IPyNbCell, call: pytest.CallInfo[None]) -> None:
        if call.when == "setup" and call.excinfo is not None:
            self.failure = f"the kernel could not be started: {call.excinfo.value}"
            item.session.shouldstop = self.failure
        if call.when != "call" or self.running is None:
            return
        self.running = None
        kernel = item.parent.kernel
        died = not kernel.is_alive() or kernel.leaving
        self.cells.append(
            {
                "ok": call.excinfo is None,
                "died": died,
                "timed_out": kernel.timed_out,
                "error": _error(item) if call.excinfo is not None else None,
            }
        )
        self.save()
        if died:
            item.session.shouldstop = "the kernel died"


def fail_on_error_reply(item: nbval.plugin.IPyNbCell) -> None:
    """A cell fails when its reply says so, even when no error message reached the output."""
    reply = item.parent.kernel.reply or {}
    if reply.get("status") == "error":
        item.raise_cell_error(f"{reply.get('ename')}: {reply.get('evalue')}")


def start_kernel(startup_timeout: float = 60, kernel_name: str = "python", **kwargs: Any) -> tuple[Any, Any]:
    """As nbval's ``start_new_kernel``, without the fifth of a second in which jupyter_client listens for nothing."""
    manager = nbval.kernel.KernelManager(kernel_name=kernel_name)
    manager.start_kernel(**kwargs)
    client = manager.client()
    client.start_channels()
    deadline = monotonic() + startup_timeout
    while not _answers(client):
        if not manager.is_alive() or monotonic() > deadline:
            raise RuntimeError("it ended or did not answer")
    return manager, client


def _answers(client: Any) -> bool:
    """Whether the kernel answers on both channels: the second may still be connecting when the first does."""
    client.kernel_info()
    try:
        client.get_shell_msg(timeout=1)
        client.get_iopub_msg(timeout=0.2)
    except Empty:
        return False
    return True


def patch_nbval() -> None:
    """All changes to nbval; each is tested, since nbval may change."""
    runtest = nbval.plugin.IPyNbCell.runtest

    def strict_runtest(item: nbval.plugin.IPyNbCell) -> None:
        runtest(item)
        fail_on_error_reply(item)

    nbval.plugin.IPyNbCell.runtest = strict_runtest
    nbval.plugin.RunningKernel = Kernel
    nbval.kernel.start_new_kernel = start_kernel


def _error(item: nbval.plugin.IPyNbCell) -> dict[str, str]:
    """Name and message of the exception that a cell raised."""
    shown = [(o.ename, o.evalue) for o in item.test_outputs or [] if o.output_type == "error"]
    reply = item.parent.kernel.reply or {}
    name, message = shown[-1] if shown else (reply.get("ename", ""), reply.get("evalue", ""))
    return {"name": str(name), "message": str(message)[:2000]}


class ForkedProcess:
    """As much of Popen as jupyter_client asks of a kernel's process; its parent is the nursery's keeper."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except OSError:
            return 1  # how it ended is the keeper's to know
        return None

    def wait(self) -> int:
        return 1

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def fork_kernels(fork: Callable[[list[str]], int]) -> None:
    """Have jupyter_client get its kernels from ``fork``, which takes the kernel's arguments and returns a pid."""
    from jupyter_client.provisioning.local_provisioner import LocalProvisioner

    async def launch_kernel(self: Any, cmd: list[str], **_kwargs: Any) -> Any:
        pid = fork(cmd[cmd.index("-f") :])
        self.process, self.pid, self.pgid = ForkedProcess(pid), pid, pid
        return self.connection_info

    LocalProvisioner.launch_kernel = launch_kernel


def run(request: Request, fork: Callable[[list[str]], int] | None = None) -> None:
    """Run the notebook and leave its record in ``request.record``. ``fork``: see ``fork_kernels``."""
    patch_nbval()
    if fork is not None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        fork_kernels(fork)
        Kernel.stop = Kernel.leave
    recorder = Recorder(Path(request.record))
    options = "-q -s --tb=no --color=no --noconftest --nbval-lax -p nbval.plugin -p no:cacheprovider"
    # These two collect garbage several times at the end, which takes long with torch in memory, and report to nobody.
    options += " -p no:unraisableexception -p no:threadexception -W ignore"
    code = pytest.main(
        [
            *options.split(),
            f"--nbval-kernel-name={request.kernel}",
            f"--nbval-cell-timeout={request.cell_timeout}",
            f"--rootdir={Path(request.notebook).parent}",
            f"-c={request.settings}",
            request.notebook,
        ],
        plugins=[recorder],
    )
    if not recorder.cells and recorder.failure is None:
        recorder.failure = f"pytest ended with exit code {int(code)}"
    recorder.save()


if __name__ == "__main__":
    run(Request(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
