"""Runs one rebuilt notebook under nbval, in a process of its own, and writes down what each cell did.

``python -m course_utils.grading.worker REQUEST``, where REQUEST is a JSON file with the fields of
``protocol.Request``. The record is written anew after every cell, so that it is there, and whole, even when this
process is ended from outside.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from queue import Empty
from time import monotonic
from typing import Any

from course_utils.grading.imports import without_url_grammar
from course_utils.grading.progress import write_atomically
from course_utils.grading.protocol import MIME, Request

with without_url_grammar():
    import nbval.kernel
    import nbval.plugin
    import pytest

POLL = 0.5  # seconds between two looks at whether the kernel still lives


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
                "bundles": _bundles(item),
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


def patch_nbval() -> None:
    """The only two changes to nbval; both are tested, since nbval may change."""
    runtest = nbval.plugin.IPyNbCell.runtest

    def strict_runtest(item: nbval.plugin.IPyNbCell) -> None:
        runtest(item)
        fail_on_error_reply(item)

    nbval.plugin.IPyNbCell.runtest = strict_runtest
    nbval.plugin.RunningKernel = Kernel


def _error(item: nbval.plugin.IPyNbCell) -> dict[str, str]:
    """Name and message of the exception that a cell raised."""
    shown = [(o.ename, o.evalue) for o in item.test_outputs or [] if o.output_type == "error"]
    reply = item.parent.kernel.reply or {}
    name, message = shown[-1] if shown else (reply.get("ename", ""), reply.get("evalue", ""))
    return {"name": str(name), "message": str(message)[:2000]}


def _bundles(item: nbval.plugin.IPyNbCell) -> list[Any]:
    outputs = [o for o in item.test_outputs or [] if o.output_type == "display_data"]
    return [o.data[MIME] for o in outputs if MIME in o.data]


def run(request: Request) -> None:
    """Run the notebook and leave its record in ``request.record``."""
    patch_nbval()
    recorder = Recorder(Path(request.record))
    options = "-q -s --tb=no --color=no --noconftest --nbval-lax -p nbval.plugin -p no:cacheprovider"
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
