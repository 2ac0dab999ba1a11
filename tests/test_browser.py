"""The course in JupyterLab, in a real browser: every lesson runs, every explorer moves, an exercise is answered."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course_utils import screenshots
from course_utils.screenshots import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# The badge at the head of each lesson is a picture on the network, which a test has not.
NOISE = (
    "Failed to load resource: net::ERR_NAME_NOT_RESOLVED",
    "Failed to load resource: net::ERR_INTERNET_DISCONNECTED",
)
UNSCALED = (
    "def attention(Q, K, V):\n    weights = (Q @ K.transpose(-2, -1)).softmax(-1)\n    return weights @ V, weights"
)
RIGHT = UNSCALED.replace("transpose(-2, -1))", "transpose(-2, -1) / Q.shape[-1] ** 0.5)")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a learner has."""
    try:
        screenshots.find_browser()
    except screenshots.NoBrowser as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("learner") / "course"
    for name in ("notebooks", "exercises", "solutions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def lab(course: Path, home: Path) -> Iterator[Lab]:
    with screenshots.served(course, home) as address, screenshots.browser() as page:
        yield Lab(page, address)


def pictures(outputs: list[dict[str, Any]]) -> int:
    """How many figures and explorers a cell shows."""
    return sum("image/png" in output.get("data", {}) for output in outputs)


def drawn(cell: Any) -> str:
    """What an explorer shows just now: the address of its picture, or the drawing itself."""
    image = cell.locator("img[src^='data:image'], img[src^='blob:']")
    return image.first.get_attribute("src") if image.count() else cell.inner_html()


def move(cell: Any) -> None:
    """Change an explorer's first control by the keyboard, as somebody without a mouse does."""
    slider, choice = cell.locator(".noUi-handle"), cell.locator("select:visible")
    if slider.count():
        slider.first.focus()
        end = slider.first.get_attribute("aria-valuenow") == slider.first.get_attribute("aria-valuemax")
        slider.first.press("ArrowLeft" if end else "ArrowRight")
    elif choice.count():
        options = choice.first.locator("option").count()
        choice.first.select_option(index=1 if options > 1 else 0)
    else:
        cell.locator("button").last.click()


def look_around(cell: Any) -> None:
    """The attention explorer by keyboard and by pointer: what is said and drawn follows the token."""
    words, tokens = cell.locator(".course-attention-words"), cell.locator("[data-query]")
    seen = [words.inner_text()]
    tokens.first.focus()
    for _ in range(2):
        seen.append(words.inner_text())
        cell.page.keyboard.press("ArrowRight")
    cell.page.keyboard.press("Escape")
    assert words.inner_text() == seen[0], "Escape lets go"
    tokens.nth(1).hover()
    assert words.inner_text() == seen[2], "the pointer shows what the keyboard shows"
    assert all(text.startswith("“") for text in seen[1:])
    assert len(set(seen)) == 3
    cell.page.mouse.move(0, 0)


def test_it_opens_with_the_contents_visible_and_without_a_question(lab: Lab) -> None:
    lab.page.locator("#table-of-contents, .jp-TableOfContents").first.wait_for(state="visible")
    assert lab.page.locator(".jp-Dialog, .Toastify__toast").count() == 0
    assert lab.page.evaluate("window.jupyterapp.shell.currentWidget.context.path") == "notebooks/00_start_here.ipynb"
    listing = lab.page.evaluate(
        "async () => (await window.jupyterapp.serviceManager.contents.get('')).content.map(item => item.name)"
    )
    assert {"exercises", "notebooks", "solutions"} <= set(listing)
    assert [e for e in lab.take_errors() if e not in NOISE] == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_and_its_explorers_move(lab: Lab, path: Path) -> None:
    committed = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lab.open(f"notebooks/{path.name}")
    try:
        lab.run_all()
        cells = lab.cells()
        wrong = [o for c in cells for o in c["outputs"] if o["output_type"] == "error" or o.get("name") == "stderr"]
        assert wrong == []
        for number, (was, now) in enumerate(zip(committed, cells, strict=True)):
            assert pictures(now["outputs"]) == pictures(was.get("outputs", [])), f"figures of cell {number}"
        explorers = lab.explorers()
        assert explorers, "every lesson has one"
        for number in explorers:
            alive = lab.page.locator(".jupyter-widgets, .course-attention")
            cell = lab.cell(number).locator(".jp-OutputArea-child").filter(has=alive).last
            cell.locator("img, svg").first.wait_for()
            lab.page.wait_for_timeout(500)
            if cell.locator(".course-attention").count():
                look_around(cell)
            before = drawn(cell)
            move(cell)
            for _ in range(100):
                if drawn(cell) != before:
                    break
                lab.page.wait_for_timeout(200)
            assert drawn(cell) != before, f"the explorer of cell {number} did not change"
        assert [e for e in lab.take_errors() if e not in NOISE] == []
    finally:
        lab.close()


def test_an_exercise_is_answered_wrongly_and_then_right(lab: Lab, course: Path, home: Path) -> None:
    lab.open("exercises/03_self_attention.ipynb")
    cells = lab.cells()
    sources = [cell["source"] for cell in cells]
    answer = next(i for i, source in enumerate(sources) if source.startswith("# Exercise 3.2"))
    check = next(i for i, source in enumerate(sources) if 'check("3.2"' in source)
    for number in range(answer):
        if sources[number].startswith(("# Set-up", "import")):
            lab.run(number)
    lab.write(answer, f"# Exercise 3.2\n{UNSCALED}")
    lab.run(check)
    lab.page.get_by_text("3.2 Scaled dot-product attention: no scale").first.wait_for()
    lab.write(answer, f"# Exercise 3.2\n{RIGHT}")
    lab.run(check)
    lab.page.get_by_text("✓ 3.2 Scaled dot-product attention: passed, 3 of 3 points").first.wait_for()
    lab.close()
    env = {**os.environ, "COURSE_HOME": str(home / "course")}
    command = [sys.executable, "-m", "course_utils.cli", "progress"]
    told = subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    assert "✓ 3.2" in told
    assert "3/12" in told
    graded = [*command[:-1], "grade", "03", "--json"]
    marks = json.loads(subprocess.run(graded, cwd=course, env=env, capture_output=True, check=True).stdout)
    assert marks["points"] == 3, "what was written in JupyterLab is what is graded"


def test_the_committed_working_folder_was_not_touched(course: Path) -> None:
    for path in LESSONS:
        assert (course / "notebooks" / path.name).read_bytes() == path.read_bytes()
