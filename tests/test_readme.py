"""The README shows what there is."""

import base64
import re

from test_lessons import LESSONS, REPOSITORY, ROOT, code_cells

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_lesson_is_in_the_table_with_its_badge() -> None:
    where = REPOSITORY.removeprefix("https://github.com/")
    for path in LESSONS:
        assert f"(notebooks/{path.name})" in README, path.name
        assert f"colab.research.google.com/github/{where}/blob/main/notebooks/{path.name})" in README, path.name


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", README):
        assert (ROOT / link).exists(), link


def test_the_picture_is_the_one_that_lesson_02_measured() -> None:
    (stored,) = [
        output.data["image/png"]
        for cell in code_cells(ROOT / "notebooks" / "02_bahdanau_attention.ipynb")
        if "plots.accuracy_by_length(" in cell.source and "both" in cell.source
        for output in cell.outputs
    ]
    picture = ROOT / "notebooks" / "images" / "accuracy_by_length.png"
    assert picture.read_bytes() == base64.b64decode(stored), "lesson 02 was run again: save its figure there anew"
