"""``course site``: lessons, exercises and solutions as web pages, to be read without a notebook program.

nbconvert turns each notebook's cells into HTML; the page around them is made here. The folders keep their names, so a
link between notebooks needs only another ending. Formulas are drawn by MathJax, which the reader's browser loads from
a CDN; without a network they stay as they are written in TeX. Nothing else comes from elsewhere but Colab's badge.
"""

from __future__ import annotations

import ast
import base64
import os
import posixpath
import re
import shutil
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from bs4 import Tag

FOLDERS = {"notebooks": "Lesson", "exercises": "Exercises", "solutions": "Solutions"}
MARKER = ".course-site"  # a folder that holds this file was made here, and may be replaced
PICTURES = (".png", ".jpg", ".jpeg", ".svg", ".gif")
PLAIN = {"new_figure", "draw_lines", "measured_lines", "show_prediction"}  # they say nothing about one picture
UNSAID = "No description has been provided for this image"  # nbconvert's own words where an alt text is missing
NOTICES = {
    "exercises": "To answer, open this notebook in JupyterLab (<code>python3 course.py lab</code>) or in Colab: "
    "a web page cannot run it.",
    "solutions": "These are complete answers. An exercise teaches most while its answer is unknown: "
    '<a href="../exercises/{name}">try it first</a>.',
}


class SiteError(Exception):
    """The pages cannot be made or put where they were asked for; the text says why."""


@dataclass(frozen=True)
class Lesson:
    """A row of the README's table."""

    number: str
    title: str
    stem: str
    goal: str
    minutes: int


def build(root: Path, target: Path, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Make the pages of the course in ``root`` and put them into ``target``, all or none.

    Args:
        root: the course's folder.
        target: a folder that this function made before, an empty one, or none yet.
        say: is told each page's name when its turn comes.

    Returns what is wrong with the pages' links and pictures; if anything is, ``target`` stays as it was.
    Raises SiteError.
    """
    target = target.resolve()
    draft = target.parent / f".{target.name}-{uuid.uuid4().hex[:8]}"  # beside it, so that one move puts it in place
    try:
        _refuse_foreign(target)
        draft.mkdir(parents=True)
        _write_pages(Course(root.resolve()), draft, say)
        wrong = problems(draft)
        if not wrong:
            _swap(draft, target)
        return wrong
    except OSError as error:
        raise SiteError(f"The pages could not be written: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def page_count(root: Path) -> int:
    """How many times ``build`` calls ``say``."""
    return len(Course(root).notebooks) + 1


# --- the course as it lies on disk -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """What the pages are made from."""

    root: Path

    @cached_property
    def readme(self) -> str:
        return self._read("README.md")

    @cached_property
    def repository(self) -> str:
        """Its address, from pyproject.toml; read without tomllib, which Python 3.10 does not have."""
        urls = re.search(r"^\[project\.urls\]$(.*?)(?=^\[|\Z)", self._read("pyproject.toml"), re.MULTILINE | re.DOTALL)
        found = urls and re.search(r'^Repository = "([^"]+)"$', urls[1], re.MULTILINE)
        if not found:
            raise SiteError("pyproject.toml names no Repository under [project.urls].")
        return found[1].rstrip("/")

    @cached_property
    def notebooks(self) -> list[Path]:
        """Lessons, exercises and solutions, each in order."""
        found = [path for folder in FOLDERS for path in sorted((self.root / folder).glob("*.ipynb"))]
        if not found:
            raise SiteError(f"There are no notebooks in {self.root}.")
        return found

    @cached_property
    def lessons(self) -> list[Lesson]:
        """The rows of the README's table. Raises SiteError where a lesson has none."""
        row = r"^\| (\d\d) \| \[([^\]]+)\]\(notebooks/([^)]+)\.ipynb\) \| (.+?) \| (\d+) \|"
        rows = [Lesson(*found[:4], int(found[4])) for found in re.findall(row, self.readme, re.MULTILINE)]
        missing = {path.stem for path in self.notebooks if path.parent.name == "notebooks"} - {r.stem for r in rows}
        if missing:
            raise SiteError(f"The README's table of lessons has no row for {', '.join(sorted(missing))}.")
        return rows

    @cached_property
    def drawings(self) -> dict[str, str]:
        """Function of ``plots`` or ``widgets`` -> what its picture shows, in its docstring's words."""
        files = [*self.root.glob("course_utils/plots/*.py"), *self.root.glob("course_utils/widgets/*.py")]
        return {name: text for file in files for name, text in _described(file.read_text(encoding="utf-8"))}

    def _read(self, name: str) -> str:
        try:
            return (self.root / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SiteError(f"{name} cannot be read: {error}") from None


def _described(source: str) -> Iterator[tuple[str, str]]:
    """Functions, each with its docstring's first paragraph as a sentence for people who do not know its arguments."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name not in PLAIN:
            text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            text = re.sub(r"^(?:[\w ]+ -> )+(?:\(\w(?:, \w)*\), )?", "", text)  # "Name -> (T, S), what it is"
            text = re.sub(r" \((?:``.*?``|\w+(?:, \w+)+)\)", "", text)  # asides about arguments and shapes
            text = re.sub(r"^\(([^)]*)\)", r"\1", text).replace("``", "")
            if text and not re.search(r"\w{2,}_\w{2,}", text):
                yield node.name, text[0].upper() + text[1:]


# --- pages -----------------------------------------------------------------------------------------------------------


def _write_pages(course: Course, draft: Path, say: Callable[[str], None]) -> None:
    lessons = course.lessons
    for folder in FOLDERS:
        (draft / folder).mkdir()
    (draft / MARKER).write_text("Made by `course site`, which replaces this folder as a whole.\n", encoding="utf-8")
    (draft / "style.css").write_text(STYLE + _code_colours(), encoding="utf-8", newline="\n")
    say("index")
    _write(draft / "index.html", _index(course, draft, lessons))
    for path in course.notebooks:
        say(f"{path.parent.name}/{path.stem}")
        _write(draft / path.parent.name / f"{path.stem}.html", _page(course, draft, path))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _index(course: Course, draft: Path, lessons: list[Lesson]) -> str:
    from nbconvert.filters import markdown2html

    head = course.readme.split("\n## ")[0]
    title = head.splitlines()[0].removeprefix("# ")
    rows = "\n".join(_index_row(course, lesson) for lesson in lessons)
    columns = "".join(f'<th scope="col">{name}</th>' for name in ("", "lesson", "you will", "minutes", "practise"))
    table = f"<table>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    source = f'<a href="{escape(course.repository)}">the repository</a>'
    note = f"<p>These pages are for reading. To run the lessons and have your answers checked, start at {source}.</p>"
    head = markdown2html(f"{head}\n\n## Lessons\n")
    return _frame(title, _with_links(course, draft, Path("README.md"), f"{head}\n{table}\n{note}"), up="")


def _index_row(course: Course, lesson: Lesson) -> str:
    """Links lead to notebooks, as in the README; they are made to fit the site with all others."""
    practise = [
        f'<a href="{folder}/{lesson.stem}.ipynb">{FOLDERS[folder].lower()}</a>'
        for folder in ("exercises", "solutions")
        if (course.root / folder / f"{lesson.stem}.ipynb").is_file()
    ]
    link = f'<a href="notebooks/{lesson.stem}.ipynb">{escape(lesson.title)}</a>'
    cells = (lesson.number, link, escape(lesson.goal), str(lesson.minutes), " · ".join(practise))
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _page(course: Course, draft: Path, path: Path) -> str:
    from nbconvert import HTMLExporter

    folder, notebook = path.parent.name, _read_notebook(path)
    words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    title = next(iter(re.findall(r"^# (.+)$", words, re.MULTILINE)), path.stem)
    _Pictures(course, draft / folder, path.stem).show(notebook)
    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    body = _with_links(course, draft, Path(folder, path.name), exporter.from_notebook_node(notebook)[0])
    head = ""
    if folder == "solutions":
        title, head = f"Solutions: {title}", '<meta name="robots" content="noindex">'
        body = f"<details>\n<summary>Show the answers</summary>\n{body}\n</details>"
    if folder in NOTICES:
        body = f'<p class="notice">{NOTICES[folder].format(name=f"{path.stem}.html")}</p>\n{body}'
    way = _way(course, path)
    return _frame(title, f"{way}\n{body}\n{way}", up="../", head=head, foot=_mathjax(exporter) if "$" in words else "")


def _read_notebook(path: Path) -> Any:
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises whatever its parser does
        raise SiteError(f"{path} is not a notebook: {error}") from None


def _way(course: Course, path: Path) -> str:
    """Links to what comes before and after, and to the other pages of the same lesson."""
    row = [p for p in course.notebooks if p.parent == path.parent]
    titles = {lesson.stem: f"{lesson.number} {lesson.title}" for lesson in course.lessons}
    before, after = ([*row, None][row.index(path) + step] for step in (-1, 1))
    links = ['<a href="../index.html">All lessons</a>']
    if before:
        links.append(f'<a rel="prev" href="{before.stem}.html">← {escape(titles.get(before.stem, before.stem))}</a>')
    for folder, name in FOLDERS.items():
        if folder != path.parent.name and (course.root / folder / path.name).is_file():
            links.append(f'<a href="../{folder}/{path.stem}.html">{name}</a>')
    if after:
        links.append(f'<a rel="next" href="{after.stem}.html">{escape(titles.get(after.stem, after.stem))} →</a>')
    return f'<nav aria-label="Lessons">{" ".join(links)}</nav>'


def _mathjax(exporter: Any) -> str:
    """nbconvert's own way of loading MathJax."""
    macro = exporter.environment.get_template("base/mathjax.html.j2").module.mathjax
    return str(macro(exporter.mathjax_url))


def _frame(title: str, body: str, *, up: str, head: str = "", foot: str = "") -> str:
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{up}style.css">
{head}
</head>
<body>
<main>
{body}
</main>
{foot}
</body>
</html>
"""


def _with_links(course: Course, draft: Path, page: Path, html: str) -> str:
    """``html`` of the file ``page`` (relative to the course) with every relative link as the site needs it."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, features="html.parser")
    for tag in soup.select("a[href], img[src]"):
        name = "src" if tag.name == "img" else "href"
        tag[name] = _address(course, draft, page, str(tag[name]))
    for tag in soup.select("a.anchor-link"):
        tag["aria-label"] = "Link to this section"
    for tag in soup.select("table"):
        _scrollable(tag)
    return str(soup)


def _scrollable(table: Tag) -> None:
    """A table wider than the screen scrolls by itself, also from the keyboard."""
    from bs4 import BeautifulSoup

    table.wrap(BeautifulSoup("", "html.parser").new_tag("div", attrs={"class": "scroll", "tabindex": "0"}))


def _address(course: Course, draft: Path, page: Path, link: str) -> str:
    """Notebooks become pages, pictures are copied, any other file of the course is shown in its repository."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return link
    wanted = Path(os.path.normpath(course.root / page.parent / unquote(parts.path)))
    if not wanted.exists() or not wanted.is_relative_to(course.root):
        return link  # and the check of all links will say so
    inside = wanted.relative_to(course.root)
    if wanted in course.notebooks:
        return parts._replace(path=parts.path.removesuffix(".ipynb") + ".html").geturl()
    if wanted.suffix.lower() in PICTURES:
        (draft / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wanted, draft / inside)
        return link
    kind = "tree" if wanted.is_dir() else "blob"
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{course.repository}/{kind}/main/{quote(inside.as_posix())}{fragment}"


# --- pictures --------------------------------------------------------------------------------------------------------


@dataclass
class _Pictures:
    """Writes the pictures of one notebook's outputs as files, each with a text that says what it shows."""

    course: Course
    folder: Path
    stem: str
    words: str = ""  # the last Markdown seen
    helpers: dict[str, str] = field(default_factory=dict)  # function defined in the notebook -> what its picture shows
    count: int = 0

    def show(self, notebook: Any) -> None:
        """Put an ``img`` in the place of every output that has a picture, whatever else it has: a live widget too."""
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                self.words = cell.source
            elif cell.cell_type == "code":
                self._note_helpers(cell.source)
                for output in cell.outputs:
                    if "image/png" in output.get("data", {}):
                        alt = output.metadata.get("image/png", {}).get("alt") or self._alt(cell.source)
                        output.data = {"text/html": self._figure(output.data, alt)}
                        output.metadata = {}

    def _figure(self, data: Any, alt: str) -> str:
        picture = base64.b64decode("".join(data["image/png"]))
        name = f"figures/{self.stem}-{self.count:02}.png"
        self.count += 1
        (self.folder / "figures").mkdir(exist_ok=True)
        (self.folder / name).write_bytes(picture)
        width, height = struct.unpack(">II", picture[16:24])  # of the PNG's header
        caption = ""
        if re.match(r"\w*Explorer \(", "".join(data.get("text/plain", ""))):
            alt = f"The first view of an interactive figure. {alt}"
            caption = "<figcaption>In JupyterLab or Colab this figure is interactive.</figcaption>"
        size = f'width="{width}" height="{height}" loading="lazy"'
        return f'<figure><img src="{name}" alt="{escape(alt)}" {size}>{caption}</figure>'

    def _alt(self, source: str) -> str:
        """What the drawing function shows, or what is drawn against what, and the sentence that leads to the figure."""
        lead, titles = _lead(self.words), "; ".join(re.findall(r'\btitle="([^"]+)"', source))
        drawn = self._drawn(source) or _axes(source)
        # A lesson leads to a figure with a colon; any other sentence may be about something else.
        said = [drawn, lead if lead.endswith(":") or not drawn else "", f"Title: {titles}" if titles else ""]
        return " ".join(_ended(part) for part in said if part) or f"Figure {self.count} of {self.stem}"

    def _drawn(self, source: str) -> str:
        known = self.course.drawings | self.helpers
        names = re.findall(r"(?:\b(?:plots|widgets)\.|(?<![\w.]))(\w+)\(", source)
        return next((known[name] for name in reversed(names) if name in known), "")

    def _note_helpers(self, source: str) -> None:
        for name, body in re.findall(r"^def (\w+)\(.*?\n((?:[ \t]+.*\n?|\n)*)", source, re.MULTILINE):
            if shown := self._drawn(body):
                self.helpers[name] = shown


def _axes(source: str) -> str:
    """What a cell draws against what, from the labels that it gives to the axes."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except SyntaxError:  # a notebook's own commands, such as %time
        return ""
    found = []
    for call in calls:
        labels = {word.arg: word.value for word in call.keywords}
        if getattr(call.func, "attr", "") in PLAIN and len(call.args) >= 4:
            labels = dict(zip(("xlabel", "ylabel"), call.args[-2:], strict=True))
        x, y = (getattr(labels.get(name), "value", None) for name in ("xlabel", "ylabel"))
        found += [f"Curves: {y} against {x}"] if isinstance(x, str) and isinstance(y, str) else []
    return "; ".join(dict.fromkeys(found))


def _ended(sentence: str) -> str:
    sentence = sentence.removesuffix(":")
    return sentence if sentence.endswith((".", "!")) else f"{sentence}."


def _lead(markdown: str) -> str:
    """The last sentence of a Markdown text that is neither heading nor question nor formula, as plain text."""
    blocks = [b for b in re.split(r"\n\s*\n", markdown) if not b.lstrip().startswith(("#", ">", "$$", "|", "<", "```"))]
    text = " ".join(" ".join(blocks).split())
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[*`${}]|\\[,;!]?", "", text)  # what is left of a formula can be read out
    sentences = [s for s in re.split(r"(?<!\bal\.)(?<=[.!?:])\s+(?=\W*[A-Z가-힣])", text) if s and not s.endswith("?")]
    return sentences[-1] if sentences else ""


# --- checking --------------------------------------------------------------------------------------------------------


class _Links(HTMLParser):
    """A page's anchors, its links, and its pictures without a word about them."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for name, value in attrs if value and (name == "id" or (tag, name) == ("a", "name")))
        self.links.extend(value for name, value in attrs if name in ("href", "src") and value is not None)
        if tag == "img" and (given.get("alt") or UNSAID) == UNSAID:
            self.silent.append((given.get("src") or "")[:80])


def problems(site: Path) -> list[str]:
    """Every link, anchor and picture inside the site that leads nowhere, and every picture without an alt text."""
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    pages = {name: _parsed(site / name) for name in sorted(files) if name.endswith(".html")}
    found = []
    for name, page in pages.items():
        found += [f"{name}: the picture {source} has no alt text." for source in page.silent]
        for link in dict.fromkeys(page.links):
            if not _leads_somewhere(name, link, files, pages):
                found.append(f"{name}: the link {link} leads nowhere.")
    return found


def _parsed(path: Path) -> _Links:
    parser = _Links()
    parser.feed(path.read_text(encoding="utf-8"))
    parser.close()
    return parser


def _leads_somewhere(name: str, link: str, files: set[str], pages: dict[str, _Links]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    # Compared as text, not asked of the disk: there, upper and lower case may be the same.
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
    if target not in files:
        return False
    # A browser looks for an anchor as it is written, and then decoded.
    return not parts.fragment or bool({parts.fragment, unquote(parts.fragment)} & pages[target].anchors)


# --- putting it in place ---------------------------------------------------------------------------------------------


def _refuse_foreign(target: Path) -> None:
    """Raise SiteError for a place that holds anything that was not made here."""
    if target.is_dir():
        if any(target.iterdir()) and not (target / MARKER).is_file():
            raise SiteError(f"{target} holds files that `course site` did not make. Name another folder, or empty it.")
    elif target.exists():
        raise SiteError(f"{target} is a file. Name a folder for the pages.")


def _swap(draft: Path, target: Path) -> None:
    """Two moves; if the second one fails, the first is taken back."""
    if not target.exists():
        draft.rename(target)
        return
    old = draft.with_name(f"{draft.name}-old")
    target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


# --- looks -----------------------------------------------------------------------------------------------------------


def _code_colours() -> str:
    from pygments.formatters import HtmlFormatter

    light, dark = (HtmlFormatter(style=name).get_style_defs(".highlight") for name in ("default", "github-dark"))
    light, dark = (re.sub(r"\.highlight \{ background:[^}]*\}", "", style) for style in (light, dark))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


STYLE = """\
:root {
  --page: #ffffff; --ink: #1f2328; --soft: #57606a; --line: #d0d7de; --code: #f6f8fa; --link: #0550ae;
  --notice: #fff8c5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171c; --ink: #e6edf3; --soft: #a5afba; --line: #3a424c; --code: #1e232b; --link: #79b8ff;
    --notice: #3b3314;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink); font: 1.0625rem/1.6 system-ui, "Segoe UI",
  "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", NanumGothic, sans-serif;
  word-break: keep-all; overflow-wrap: break-word;
}
main { max-width: 52rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.25; margin: 2em 0 .6em; }
h1 { font-size: 1.9rem; margin-top: .8em; }
a { color: var(--link); }
a.anchor-link { margin-left: .3em; text-decoration: none; opacity: 0; }
:hover > a.anchor-link, a.anchor-link:focus { opacity: 1; }
nav { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; padding: .6rem 0; border-bottom: 1px solid var(--line); }
nav:last-child { border: 0; border-top: 1px solid var(--line); margin-top: 3rem; }
img { max-width: 100%; height: auto; }
figure { margin: 1rem 0; }
figure img { background: white; border-radius: 6px; }
figcaption { color: var(--soft); font-size: .9rem; }
pre, code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: .9em; background: var(--code); border-radius: 4px; padding: .1em .3em; }
pre { font-size: .875rem; line-height: 1.5; margin: 0; overflow-x: auto; }
pre code { padding: 0; font-size: 1em; }
.highlight { background: var(--code); border: 1px solid var(--line); border-radius: 6px; padding: .7rem .9rem; }
.input_area { margin: 1rem 0 .5rem; }
.output_area { margin: .5rem 0 1rem; }
.output_area pre { border-left: 3px solid var(--line); padding: .1rem .9rem; }
.rendered_html > pre { background: var(--code); border-radius: 6px; padding: .7rem .9rem; }
blockquote { margin: 1rem 0; padding: .1rem 1rem; border-left: 4px solid var(--link); background: var(--code); }
details { margin: .6rem 0; padding: .4rem .9rem; border: 1px solid var(--line); border-radius: 6px; }
summary { cursor: pointer; }
main > details { border: 0; padding: 0; }
main > details > summary { font-weight: 600; }
.notice { background: var(--notice); border-radius: 6px; padding: .7rem .9rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .95em; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--code); }
"""
