"""``course site``: every lesson as a page, with links that work and pictures that say what they show."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from handmade import code, write_notebook
from test_lessons import ALL, LESSONS, REPOSITORY, ROOT
from typer.testing import CliRunner

from course_utils import cli, site

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAYAAAC56t6BAAAAEUlEQVR4nGP4DwQMUPAfRxYAVZ0X6WzAoXgAAAAASUVORK5CYII="
README = """\
# A course

What it is. ![A red dot](notebooks/images/dot.png)

## Lessons

| | lesson | you will | minutes | open |
|---|---|---|---|---|
| 00 | [Start here](notebooks/00_start_here.ipynb) | begin & see | 25 | badge |
| 01 | [Second](notebooks/01_second.ipynb) | go on | 30 | badge |
"""
WIDGET = {"model_id": "1", "version_major": 2, "version_minor": 0}


def words(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def picture(plain: str = "<Figure size 2x3 with 1 Axes>") -> dict[str, Any]:
    data = {"application/vnd.jupyter.widget-view+json": WIDGET, "image/png": PNG, "text/plain": plain}
    return {"output_type": "display_data", "metadata": {}, "data": data}


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two lessons, exercises and a solution for the first one, and a little package."""
    root = tmp_path / "course"
    for folder in ("notebooks/images", "exercises", "solutions", "course_utils/plots", "course_utils/models"):
        (root / folder).mkdir(parents=True)
    (root / "README.md").write_text(README, encoding="utf-8")
    (root / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/me/it"\n', encoding="utf-8")
    (root / "notebooks/images/dot.png").write_bytes(base64.b64decode(PNG))
    (root / "course_utils/models/attention.py").touch()
    drawn = 'def loss(x):\n    """Name -> (T, S), losses by ``step``."""\n'
    (root / "course_utils/plots/curves.py").write_text(drawn, encoding="utf-8")
    links = "[on](01_second.ipynb#Then) [do](../exercises/00_start_here.ipynb) [m](../course_utils/models/attention.py)"
    first = [
        words(f"# 00 · Start\n\n{links} ![A dot](images/dot.png) $x^2$"),
        code("plots.loss(x)", outputs=[picture()]),
        words("## Part\n\nThis is said. In red:"),
        code("draw()", outputs=[picture("Explorer (run the cell to use it)")]),
    ]
    write_notebook(root / "notebooks/00_start_here.ipynb", first)
    write_notebook(root / "notebooks/01_second.ipynb", [words("# 01 · Second"), words("## Then")])
    for folder in ("exercises", "solutions"):
        write_notebook(root / folder / "00_start_here.ipynb", [words("# Exercises 00"), code("# Exercise 0.1")])
    monkeypatch.chdir(root)
    return root


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli.app, ["site", *map(str, arguments)])


def page(folder: Path, name: str) -> str:
    return (folder / f"{name}.html").read_text(encoding="utf-8")


# --- the whole course ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    assert site.build(ROOT, folder) == []
    return folder


@pytest.mark.slow
def test_every_notebook_has_a_page_whose_links_lead_somewhere(built: Path) -> None:
    for path in ALL:
        assert (built / path.parent.name / f"{path.stem}.html").is_file()
    assert site.problems(built) == []


@pytest.mark.slow
def test_every_picture_is_there_and_says_what_it_shows(built: Path) -> None:
    for path in LESSONS:
        html = page(built, f"notebooks/{path.stem}")
        pictures = re.findall(r"<img\b[^>]*>", html)
        assert len(pictures) >= 2, path  # the badge and the explorer's picture at least
        for tag in pictures:
            (alt,) = re.findall(r"""\balt=("[^"]*"|'[^']*')""", tag)
            assert len(alt) > 10, tag
            assert site.UNSAID not in alt
            assert "run the cell to use it" not in alt
        assert "widget-view+json" not in html
        assert "<figcaption>In JupyterLab or Colab this figure is interactive.</figcaption>" in html


@pytest.mark.slow
def test_no_link_leads_to_a_notebook_or_out_of_the_site(built: Path) -> None:
    for file in built.rglob("*.html"):
        for link in re.findall(r'href="([^"]+)"', file.read_text(encoding="utf-8")):
            assert link.startswith("https:") or not link.endswith((".ipynb", ".py")), link
    assert f'href="{REPOSITORY}/blob/main/course_utils/models/' in page(built, "notebooks/02_bahdanau_attention")


@pytest.mark.slow
def test_the_index_has_every_lesson_with_its_minutes(built: Path) -> None:
    html = page(built, "index")
    for lesson in site.Course(ROOT).lessons:
        assert f'<a href="notebooks/{lesson.stem}.html">' in html
        assert f"<td>{lesson.minutes}</td>" in html
    assert len(site.Course(ROOT).lessons) == len(LESSONS)


# --- one page --------------------------------------------------------------------------------------------------------


def test_links_and_pictures_of_a_page(course: Path) -> None:
    result = run("out")
    assert result.exit_code == 0, result.output
    html = page(course / "out", "notebooks/00_start_here")
    assert 'href="01_second.html#Then"' in html
    assert 'href="../exercises/00_start_here.html"' in html
    assert 'href="https://example.org/me/it/blob/main/course_utils/models/attention.py"' in html
    assert 'rel="next" href="01_second.html">01 Second →' in html
    assert 'src="images/dot.png"' in html
    assert (course / "out/notebooks/images/dot.png").read_bytes() == base64.b64decode(PNG)
    assert "mathjax" in html.lower()
    assert "mathjax" not in page(course / "out", "notebooks/01_second").lower()


def test_a_live_widget_gives_way_to_its_picture(course: Path) -> None:
    run("out")
    html = page(course / "out", "notebooks/00_start_here")
    assert "widget-view" not in html
    assert re.search(r'<img alt="Losses by step\." [^>]*src="figures/00_start_here-00.png"', html)
    assert 'alt="The first view of an interactive figure. In red."' in html
    assert 'width="2"' in html
    assert (course / "out/notebooks/figures/00_start_here-01.png").read_bytes() == base64.b64decode(PNG)


def test_solutions_are_folded_behind_a_notice(course: Path) -> None:
    run("out")
    html = page(course / "out", "solutions/00_start_here")
    assert html.index("try it first") < html.index("<summary>Show the answers</summary>") < html.index("Exercise 0.1")
    assert 'content="noindex"' in html
    assert "<title>Solutions: Exercises 00</title>" in html


def test_two_builds_give_the_same_bytes(course: Path) -> None:
    run("one")
    run("two")
    one, two = ({p.relative_to(d): p.read_bytes() for p in d.rglob("*.*")} for d in (course / "one", course / "two"))
    assert one == two


# --- what may go wrong -----------------------------------------------------------------------------------------------


def test_planted_faults_are_reported_and_the_old_pages_stay(course: Path) -> None:
    assert run("out").exit_code == 0
    kept = page(course / "out", "notebooks/01_second")
    faults = "[a](nowhere.ipynb) [b](#No) [c](00_start_here.ipynb#No) ![](images/dot.png) ![d](images/gone.png) [e](/x)"
    write_notebook(course / "notebooks/01_second.ipynb", [words(f"# 01\n\n{faults}")])
    result = run("out")
    assert result.exit_code == 1
    for link in ("nowhere.ipynb", "#No", "00_start_here.html#No", "images/gone.png", "/x"):
        assert f"notebooks/01_second.html: the link {link} leads nowhere.\n" in result.stdout
    assert "notebooks/01_second.html: the picture images/dot.png has no alt text.\n" in result.stdout
    assert "were not put into" in result.stderr
    assert page(course / "out", "notebooks/01_second") == kept
    assert [p.name for p in course.iterdir() if p.name.startswith(".out")] == []


def test_a_new_build_replaces_the_whole_folder(course: Path) -> None:
    (course / "out").mkdir()  # an empty folder is as good as none
    assert run("out").exit_code == 0
    (course / "out/old.html").touch()
    assert run("out").exit_code == 0
    assert not (course / "out/old.html").exists()
    assert [p.name for p in course.iterdir() if p.name.startswith(".out")] == []


def test_nobody_elses_folder_is_touched(course: Path) -> None:
    (course / "mine").mkdir()
    (course / "mine/thesis.txt").write_text("years", encoding="utf-8")
    for target, said in (("mine", "did not make"), ("notebooks", "did not make"), (".", "did not make")):
        result = run(target)
        assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert run("README.md").stderr.endswith("is a file. Name a folder for the pages.\n")
    assert "could not be written" in run("README.md/pages").stderr
    assert (course / "mine/thesis.txt").read_text(encoding="utf-8") == "years"


def test_a_failed_swap_brings_the_old_pages_back(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("out")
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if not self.name.endswith("-old") and Path(target).name == "out":
            raise PermissionError("in use")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    result = run("out")
    assert (result.exit_code, "in use" in result.stderr) == (2, True)
    assert (course / "out/index.html").is_file()
    assert [p.name for p in course.iterdir() if p.name.startswith(".out")] == []


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("README.md", "# A course\n", "no row for 00_start_here, 01_second"),
        ("README.md", None, "README.md cannot be read"),
        ("pyproject.toml", "[project]\n", "names no Repository"),
        ("notebooks/01_second.ipynb", "<<<<<<< HEAD", "01_second.ipynb is not a notebook"),
    ],
)
def test_bad_input_is_said_in_a_sentence(course: Path, file: str, text: str | None, said: str) -> None:
    (course / file).unlink()
    if text is not None:
        (course / file).write_text(text, encoding="utf-8")
    result = run("out")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (course / "out").exists()


def test_without_a_folder_the_pages_go_into_site(course: Path) -> None:
    assert run().exit_code == 0
    assert (course / "site/index.html").is_file()
