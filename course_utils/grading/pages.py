"""One page for each learner, with diagnosis and hints, and one for the class. Plain files: no server, no network."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from course_utils.grading.progress import write_atomically
from course_utils.grading.report import ExerciseReport, NotebookReport
from course_utils.grading.submission import BadNotebook, read_markdown_cells
from course_utils.grading.summary import Learner, Summary, message_of

WORDS = {
    "passed": "✓ passed",
    "wrong": "✗ not right yet",
    "not_attempted": "○ not attempted",
    "error": "✗ stopped with an error",
    "timeout": "✗ took too long",
    "kernel_died": "✗ ended the Python process",
    "missing": "○ missing",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --faint: #57606a; --line: #d0d7de; --good: #0a6b43;
  --bad: #a3231b; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --faint: #9da7b3; --line: #3d444d;
  --good: #4cc38a; --bad: #ff8f85; --card: #161b22; } }
body { font: 1rem/1.55 system-ui, "Noto Sans KR", sans-serif; color: var(--ink); background: var(--paper);
  max-width: 58rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
article { border-left: 4px solid var(--line); padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0; }
article.passed { border-color: var(--good); } article.wrong { border-color: var(--bad); }
.passed > h3 .mark { color: var(--good); } .wrong > h3 .mark { color: var(--bad); }
h3 { margin: .2rem 0; font-size: 1.05rem; } .faint { color: var(--faint); }
code, pre { background: var(--card); border-radius: 4px; padding: 0 .25em; } a { color: inherit; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
details { margin: .4rem 0; } summary { cursor: pointer; }
"""


def write_pages(summary: Summary, folder: Path, exercises: Path | None = None) -> list[Path]:
    """Write ``index.html`` and a page for each learner into ``folder``; returns what was written.

    ``exercises``: the course's folder of exercises, from which the hints are taken; without it there are none.
    """
    hints = read_hints(exercises) if exercises else {}
    names = _file_names([learner.name for learner in summary.learners])
    pages = {folder / "index.html": _class_page(summary, names)}
    for learner in summary.learners:
        pages[folder / names[learner.name]] = _learner_page(learner, hints)
    for path, text in pages.items():
        write_atomically(path, text)
    return list(pages)


def read_hints(exercises: Path) -> dict[str, list[tuple[str, str]]]:
    """Exercise id -> (title, text) of each hint that is folded under its task."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(exercises.glob("*.ipynb")):
        try:
            cells = read_markdown_cells(path)
        except BadNotebook:
            continue
        parts = re.split(r"^## Exercise (\d+\.\d+)", "\n\n".join(cells), flags=re.MULTILINE)
        for exercise_id, task in zip(parts[1::2], parts[2::2], strict=True):
            folded = re.findall(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", task, re.DOTALL)
            found[exercise_id] = [(title.strip(), body.strip()) for title, body in folded]
    return found


def _learner_page(learner: Learner, hints: dict[str, list[tuple[str, str]]]) -> str:
    parts = [f"<h1>{_text(learner.name)}</h1>", f"<p>{learner.points} of {learner.possible} points.</p>"]
    for result in learner.results:
        parts.extend(_notebook(result.notebook, result.report, hints))
    return _page(f"{learner.name}: {learner.points} of {learner.possible} points", "\n".join(parts))


def _notebook(name: str, report: NotebookReport, hints: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    yield f"<h2>{_text(name)}</h2>"
    if report.status == "invalid":
        yield f"<p>It could not be graded: {_text(report.message)}</p>"
        return
    yield f"<p class='faint'>Lesson {_text(report.lesson or '')}, {report.points} of {report.possible} points.</p>"
    for exercise in report.exercises:
        yield _exercise(exercise, hints.get(exercise.id, []))
    if report.message:
        yield f"<p>{_text(report.message)}</p>"


def _exercise(exercise: ExerciseReport, hints: list[tuple[str, str]]) -> str:
    kind = {"passed": "passed", "not_attempted": "", "missing": ""}.get(exercise.status, "wrong")
    bonus = ", bonus" if exercise.bonus else ""
    title = f"{exercise.id} {_text(exercise.title)}"
    points = f"<span class='faint'>{exercise.points} of {exercise.possible} points{bonus}</span>"
    parts = [f"<h3>{title} · <span class='mark'>{WORDS[exercise.status]}</span> · {points}</h3>"]
    if exercise.misconception:
        parts.append(f"<p><b>{_text(exercise.misconception)}</b></p>")
    if exercise.message:
        parts.append(f"<p>{_text(exercise.message)}</p>")
    if exercise.status != "passed":
        parts.extend(
            f"<details><summary>{_text(title)}</summary><p>{_text(body)}</p></details>" for title, body in hints
        )
    return f"<article class='{kind}'>{''.join(parts)}</article>"


def _class_page(summary: Summary, names: dict[str, str]) -> str:
    count = len(summary.learners)
    parts = ["<h1>The class</h1>", f"<p>{count} {'learner' if count == 1 else 'learners'}.</p>"]
    parts.append("<h2>Points by exercise</h2><div class='wide'><table><thead><tr><th>exercise</th>")
    parts.append(
        "<th class='number'>passed</th><th class='number'>tried</th><th class='number'>mean points</th></tr></thead>"
    )
    for e in summary.exercises:
        parts.append(
            f"<tr><td>{e.id} {_text(e.title)}</td><td class='number'>{e.passed}</td><td class='number'>{e.tried}</td>"
            f"<td class='number'>{e.mean:.1f} of {e.possible}</td></tr>"
        )
    parts.append("</table></div>")
    parts.extend(_misconceptions(summary))
    parts.append("<h2>Learners</h2><div class='wide'><table><thead><tr><th>learner</th>")
    parts.append("<th class='number'>points</th><th>remarks</th></tr></thead>")
    for learner in summary.learners:
        remarks = "<br>".join(map(_text, learner.remarks))
        link = f"<a href='{quote(names[learner.name])}'>{_text(learner.name)}</a>"
        points = f"{learner.points} of {learner.possible}"
        parts.append(f"<tr><td>{link}</td><td class='number'>{points}</td><td>{remarks}</td></tr>")
    parts.append("</table></div>")
    return _page("The class", "\n".join(parts))


def _misconceptions(summary: Summary) -> Iterator[str]:
    yield "<h2>The commonest misconceptions</h2>"
    if not summary.misconceptions:
        yield "<p>None was recognised.</p>"
        return
    told = "; ".join(f"{i} {name}: {count}" for i, name, count in summary.misconceptions[:12])
    described = _text(f"Bars, one for each misconception. {told}", code=False)
    yield f"<p><img alt='{described}' src='{_picture(summary)}'></p>"
    yield "<ol>"
    for exercise_id, name, count in summary.misconceptions:
        said = message_of(exercise_id, name)
        learners = "learner" if count == 1 else "learners"
        yield f"<li><b>{_text(name)}</b> ({exercise_id}, {count} {learners}). {_text(said)}</li>"
    yield "</ol>"


def _picture(summary: Summary) -> str:
    from course_utils import plots

    buffer = io.BytesIO()
    figure = plots.misconception_bars(summary.misconceptions, len(summary.learners))
    figure.savefig(buffer, format="png", dpi=2 * figure.dpi)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{_text(title, code=False)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _text(text: str, code: bool = True) -> str:
    """Safe for a page; `code` in backquotes becomes <code>, blank lines become paragraphs."""
    parts = html.escape(text, quote=True).split("`")
    if code and len(parts) % 2:
        text = "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
    else:
        text = "`".join(parts)
    return re.sub(r"\n\s*\n", "</p><p>", text) if code else text


def _file_names(learners: list[str]) -> dict[str, str]:
    """Learner -> a file name that every system takes, and that no other learner has."""
    names: dict[str, str] = {}
    taken = {"index.html"}
    for learner in learners:
        stem = re.sub(r"[^\w.\- ]", "_", learner).strip(" .")[:80] or "learner"
        name, number = f"{stem}.html", 1
        while name.lower() in taken:
            number += 1
            name = f"{stem} {number}.html"
        taken.add(name.lower())
        names[learner] = name
    return names
