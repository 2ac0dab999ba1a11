"""Readable by everybody: contrast, words beside every picture, and nothing said by colour alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from course_utils.grading import notebook, pages
from course_utils.plots import COLOURS, FAINT, INK, MARKERS
from course_utils.widgets import attention

ROOT = Path(__file__).parents[1]
LIGHT, DARK = "#ffffff", "#111111"  # the backgrounds of JupyterLab's two themes
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    """WCAG 2.2, contrast ratio: 4.5 for text, 3 for lines and borders."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def full(colour: str) -> str:
    return f"#{''.join(2 * c for c in colour[1:])}" if len(colour) == 4 else colour


def test_the_ratio_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colour", COLOURS)
def test_lines_stand_out_from_the_card_of_a_figure(colour: str) -> None:
    assert contrast(colour, LIGHT) >= 3


@pytest.mark.parametrize("colour", [INK, FAINT])
def test_words_in_figures_are_readable(colour: str) -> None:
    assert contrast(colour, LIGHT) >= 4.5


def test_lines_differ_by_more_than_their_colour() -> None:
    assert len(set(MARKERS)) == len(MARKERS) >= len(COLOURS)


def test_the_bar_of_a_check_is_seen_in_both_themes_and_its_mark_says_the_same() -> None:
    assert len({notebook.MARKS["passed"], notebook.MARKS["not_attempted"], "✗"}) == 3
    for colour in (*notebook.COLOURS.values(), notebook.WRONG):
        assert contrast(colour, LIGHT) >= 3
        assert contrast(colour, DARK) >= 3


def variables(style: str) -> list[dict[str, str]]:
    """The CSS variables that hold colours: those of the light theme, and those of the dark one over them."""
    light, _, dark = style.partition("prefers-color-scheme: dark")
    found = [dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{3,6})\b", part)) for part in (light, dark)]
    return [found[0], {**found[0], **found[1]}]


def test_the_pages_of_a_class_are_readable_in_both_themes() -> None:
    for theme in variables(pages.STYLE):
        for name in ("ink", "faint", "good", "bad"):
            for paper in ("paper", "card"):
                assert contrast(full(theme[name]), full(theme[paper])) >= 4.5, (name, paper)
    assert all(word[0] in "✓✗○" for word in pages.WORDS.values())


def test_the_attention_explorer_says_its_weights_in_words() -> None:
    import numpy as np

    explorer = attention.attention_explorer(np.eye(2), ["a", "b"])
    assert "100%" in explorer.in_words(0)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_figure_has_words_near_it(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for i, cell in enumerate(cells):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            near = [c for c in (*cells[max(0, i - 3) : i], *cells[i + 1 : i + 3]) if c["cell_type"] == "markdown"]
            assert sum(len("".join(c["source"]).split()) for c in near) >= 8, f"figure of cell {i}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_picture_in_the_text_has_an_alternative(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"]) if cell["cell_type"] == "markdown" else ""
        assert "![](" not in text
        assert all("alt=" in tag for tag in re.findall(r"<img[^>]*>", text))
