"""Drives JupyterLab in a browser: for the browser tests, and for pictures of the lessons in both themes."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
PATIENCE = 120.0  # seconds for a page or a kernel on a busy machine
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

OUTPUTS = """() => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.cells;
  const found = [];
  for (let i = 0; i < cells.length; i++) {
    const cell = cells.get(i), outputs = [];
    if (cell.type === 'code')
      for (let j = 0; j < cell.outputs.length; j++) outputs.push(cell.outputs.get(j).toJSON());
    found.push({source: cell.sharedModel.getSource(), outputs});
  }
  return found;
}"""


class NoBrowser(Exception):
    """There is nothing to drive JupyterLab with; the text says what to install."""


def find_browser() -> str:
    """The path of Chromium or Chrome. Raises NoBrowser, also where playwright is missing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        raise NoBrowser("playwright is not installed here. Install it with: pip install 'course-utils[test]'") from None
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise NoBrowser(f"There is no browser to drive: none of {', '.join(BROWSERS)} is on the path.")
    return found


@contextmanager
def served(root: Path, home: Path, theme: str = "light") -> Iterator[str]:
    """``course lab`` in ``root``, with settings and progress of its own in ``home``; the address of its first page."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    settings = home / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True, exist_ok=True)
    settings.joinpath("themes.jupyterlab-settings").write_text(json.dumps({"theme": THEMES[theme]}), encoding="utf-8")
    folders = {f"JUPYTER_{name.upper()}_DIR": str(home / name) for name in ("config", "data", "runtime")}
    env = {**os.environ, **folders, "HOME": str(home), "COURSE_HOME": str(home / "course")}
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", "--allow-root"]
    command = [sys.executable, "-m", "course_utils.cli", "lab", *options, "--LabApp.expose_app_in_browser=True"]
    with (home / "lab.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--IdentityProvider.token={token}"], cwd=root, env=env, stdout=log, stderr=log
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/api/status?token={token}", process, home / "lab.log")
            yield f"http://127.0.0.1:{port}/?token={token}"
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=10).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"JupyterLab did not start: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


@contextmanager
def browser(width: int = 1300, height: int = 1000) -> Iterator[Page]:
    """A page of a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = running.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(500 * PATIENCE)
        try:
            yield page
        finally:
            running.close()


class Lab:
    """JupyterLab in ``page``. ``errors``: what the page wrote to the console as errors since they were last taken."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self._errors = page, []
        page.on("console", lambda message: self._errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        # The notebook it starts with comes to the front last of all, also of one that was opened in the meantime.
        self._wait_for_kernel()

    def take_errors(self) -> list[str]:
        taken, self._errors[:] = list(self._errors), []
        return taken

    def do(self, command: str, **arguments: Any) -> None:
        """Run one of JupyterLab's commands to its end."""
        self.page.evaluate(
            "async ([name, given]) => { await window.jupyterapp.commands.execute(name, given); }", [command, arguments]
        )

    def open(self, path: str) -> None:
        """Open a notebook and wait until its kernel is ready."""
        self.do("docmanager:open", path=path)
        self._wait_for_kernel(path)

    def _wait_for_kernel(self, path: str | None = None) -> None:
        # Asked for again and again: the promise that JupyterLab has for it is given up when it begins anew.
        self.page.wait_for_function(
            """path => {
              const context = window.jupyterapp?.shell?.currentWidget?.context;
              return context?.isReady && (!path || context.path === path) && context.sessionContext?.isReady
                && context.sessionContext.session?.kernel?.connectionStatus === "connected";
            }""",
            arg=path,
        )

    def run_all(self) -> None:
        self.do("notebook:run-all-cells")
        self.page.wait_for_timeout(500)  # the last outputs may still be on their way

    def close(self) -> None:
        """Save the open notebook, end its kernel and close it."""
        self.page.evaluate(
            """async () => {
              const widget = window.jupyterapp.shell.currentWidget;
              await widget.context.save();
              await widget.context.sessionContext.shutdown();
              widget.close();
            }"""
        )

    def cells(self) -> list[dict[str, Any]]:
        """Each cell's source and outputs."""
        return self.page.evaluate(OUTPUTS)

    def write(self, cell: int, source: str) -> None:
        """Put ``source`` into a cell and run it."""
        self.page.evaluate(
            """async ([index, source]) => {
              const notebook = window.jupyterapp.shell.currentWidget.content;
              notebook.model.cells.get(index).sharedModel.setSource(source);
            }""",
            [cell, source],
        )
        self.run(cell)

    def run(self, cell: int) -> None:
        self.page.evaluate("i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i; }", cell)
        self.do("notebook:run-cell")

    def cell(self, number: int) -> Locator:
        """A cell as it is drawn, scrolled into view."""
        self.page.evaluate(
            """async index => {
              const notebook = window.jupyterapp.shell.currentWidget.content;
              notebook.activeCellIndex = index;
              await notebook.scrollToItem(index, 'start');
            }""",
            number,
        )
        found = self.page.locator(f".jp-NotebookPanel:visible .jp-Cell[data-windowed-list-index='{number}']")
        found.wait_for()
        return found

    def explorers(self) -> list[int]:
        """The cells that show an explorer: a widget that has a picture beside it."""
        return [
            number
            for number, cell in enumerate(self.cells())
            if any({WIDGET_VIEW, "image/png"} <= set(output.get("data", {})) for output in cell["outputs"])
        ]


def take(root: Path, folder: Path, lessons: Sequence[str] = (), run: bool = False) -> Iterator[Path]:
    """Pictures of the lessons in both themes, as they are written: the start of each, and its explorers if it is run.

    Args:
        root: the course's folder.
        folder: where the PNG files go.
        lessons: numbers or beginnings of names; empty: all.
        run: run every cell before, so that the explorers are alive.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        p for p in sorted((root / "notebooks").glob("*.ipynb")) if not lessons or p.name.startswith(tuple(lessons))
    ]
    for theme in THEMES:
        with (
            tempfile.TemporaryDirectory(prefix="course-screenshots-", ignore_cleanup_errors=True) as home,
            served(root, Path(home), theme) as address,
            browser() as page,
        ):
            lab = Lab(page, address)
            for path in wanted:
                lab.open(f"notebooks/{path.name}")
                if run:
                    lab.run_all()
                yield from _pictures(lab, folder, f"{path.stem}-{theme}")
                lab.close()


def _pictures(lab: Lab, folder: Path, name: str) -> Iterator[Path]:
    """One picture for each cell that shows a figure or an explorer, with what stands around it; the start first."""
    shown = [i for i, cell in enumerate(lab.cells()) if any("image/png" in o.get("data", {}) for o in cell["outputs"])]
    for number in [0, *shown]:
        lab.cell(number)
        lab.page.wait_for_timeout(400)
        path = folder / f"{name}-{number:02d}.png"
        lab.page.screenshot(path=str(path))
        yield path


def described(error: Exception) -> str:
    """What went wrong in the browser, in one line."""
    return re.sub(r"\s+", " ", str(error)).strip()[:300]
