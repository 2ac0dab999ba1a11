"""The learner's working copy in ``workbook/``: what git does not track, so that ``git pull`` never meets their work.

``course lab`` brings it up to date. A file is *untouched* while its content equals the shipped version that it came
from; only such a file is ever replaced. Everything else is the learner's: it stays until they ask for a fresh one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from course_utils.project import WORKBOOK, ProjectError

RECORD = ".course.json"
PATTERNS = (
    "notebooks/*.ipynb",
    "notebooks/images/*",
    "exercises/*.ipynb",
    "solutions/*.ipynb",
    "course_utils/models/*.py",
    "course_utils/decoding.py",
)

# Lessons link to files of the package; a folder of that name must not hide the package from Python.
STAND_IN = '''"""The files in this folder are for reading: importing course_utils gives the course's own package."""

from pathlib import Path

_own = Path(__file__).resolve().parents[2] / "course_utils"
__path__ = [str(_own)]
__file__ = str(_own / "__init__.py")
exec(compile((_own / "__init__.py").read_text(encoding="utf-8"), __file__, "exec"))
'''


@dataclass(frozen=True)
class Shipped:
    """One file of the course, twice.

    Attributes:
        name: its path from the course's folder, with ``/``.
        content: as it lies in the course's folder, where a learner may have worked on it.
        original: as the course ships it.
        uncommitted: whether git has another version than the one that lies there.
    """

    name: str
    content: bytes
    original: bytes
    uncommitted: bool = False


@dataclass
class Record:
    """Where each file of the working copy came from.

    Attributes:
        files: name -> fingerprint of the shipped version it came from ("shipped"), and of what lay in the
            course's own folder at that time ("seen").
        built: name of an exercise -> hash of the files for which it was found to be a fresh build.
        readable: False where there was a record, or files, but none that could be read.
    """

    files: dict[str, dict[str, str | None]] = field(default_factory=dict)
    built: dict[str, str] = field(default_factory=dict)
    readable: bool = True


@dataclass
class Notes:
    """What is said about several files together.

    Attributes:
        brought: the learner's work was copied from the course's own folder.
        kept: left as they are, for nothing is known about where they came from.
    """

    brought: list[Shipped] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def update(root: Path) -> list[str]:
    """Make the working copy, or bring it up to date; returns what the learner should know, in sentences.

    Raises ProjectError where the working copy cannot be written.
    """
    workbook = root / WORKBOOK
    with _in_sentences(workbook):
        record = _read_record(workbook)
        before = (dict(record.files), dict(record.built))
        said: list[str] = []
        notes = Notes()
        for shipped in _all_shipped(root, record):
            _refuse_links(root, shipped.name)
            sentence = _bring(workbook, shipped, record, notes)
            said.extend([sentence] if sentence else [])
        said.extend(_brought(notes.brought))
        if notes.kept and not record.readable:
            said.append(
                f"What is known about the files in {WORKBOOK} could not be read, so these stayed as they are: "
                f"{', '.join(notes.kept)}. `course reset NUMBER` puts a fresh one and keeps a dated copy of yours."
            )
        if before != (record.files, record.built) or not record.readable:
            _write_record(workbook, record)
    return said


def reset(root: Path, texts: Sequence[str], lesson: bool = False) -> list[str]:
    """Put fresh copies of these files, each after a dated backup beside it; returns a sentence for each.

    Args:
        root: the course's folder.
        texts: numbers, names or paths, as the learner wrote them.
        lesson: a number or name means the lesson's notebook instead of its exercises.

    Raises ProjectError for a name that means nothing (then nothing is done), or where writing fails.
    """
    names = [find(root, text, "notebooks" if lesson else "exercises") for text in texts]
    workbook = root / WORKBOOK
    with _in_sentences(workbook):
        record = _read_record(workbook)
        committed = _committed(root)
        said = []
        for name in dict.fromkeys(names):
            _refuse_links(root, name)
            shipped = _shipped(root, name, committed, record)
            said.append(_start_afresh(workbook, shipped, record))
            _write_record(workbook, record)
    return said


def find(root: Path, text: str, folder: str = "exercises") -> str:
    """The file that a learner means by "03", "3", "03_self_attention" or a path, as its path from the course's folder.

    Raises ProjectError where there is none.
    """
    name = _inside(root, text)
    names = _names(root)
    if name in names:
        return name
    stem = PurePosixPath(name).name.removesuffix(".ipynb")
    begin = f"{int(stem):02d}_" if re.fullmatch(r"[0-9]{1,2}", stem) else None
    if "/" not in name:
        for each in names:
            path = PurePosixPath(each)
            if str(path.parent) == folder and (path.stem == stem or (begin and path.stem.startswith(begin))):
                return each
    what = "lesson" if folder == "notebooks" else "notebook of exercises"
    there = ", ".join(PurePosixPath(each).stem[:2] for each in names if re.match(folder + r"/\d\d_", each))
    raise ProjectError(f"There is no {what} {text}. There are: {there or 'none'}.")


def resolve(root: Path, text: str) -> Path | None:
    """The working copy that "03", "3", or a path from the course's folder means; None where there is none."""
    try:
        name = find(root, text)
    except ProjectError:
        name = _inside(root, text)
    copy = root / WORKBOOK / name
    if not name.endswith(".ipynb") or ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
        return None
    return copy if copy.is_file() and not copy.is_symlink() else None


def fingerprint(name: str, data: bytes) -> str | None:
    """What a file holds, in short; of a notebook only its cells' types and sources. None: a damaged notebook."""
    if not name.endswith(".ipynb"):
        return hashlib.sha256(data).hexdigest()
    try:
        cells = [_cell(cell) for cell in json.loads(data.decode("utf-8-sig"))["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


# ---- One file


def _bring(workbook: Path, shipped: Shipped, record: Record, notes: Notes) -> str | None:
    """Bring one file of the working copy up to date, unless the learner has touched it; a sentence if need be."""
    name, copy = shipped.name, workbook / shipped.name
    base, here = fingerprint(name, shipped.original), fingerprint(name, shipped.content)
    if base is None:
        return f"{name} in the course's own folder is not a readable notebook, so it was left out.{_restore(shipped)}"
    entry = record.files.get(name)
    missing = not os.path.lexists(copy)
    mine = None if missing else _fingerprint_of(copy, name)
    seen = entry["seen"] if entry and not missing else None
    if missing or (mine is not None and mine in (base, entry and entry["shipped"])):
        bring_work = here not in (None, base, seen)
        if missing or bring_work or mine != base:
            wanted = shipped.content if here not in (None, seen) else shipped.original
            if not _replace(copy, wanted, mine, name):
                return None  # saved by somebody in this very moment: it is theirs now
        record.files[name] = {"shipped": base, "seen": here}
        notes.brought.extend([shipped] if bring_work else [])
        return None
    if entry is None:
        record.files[name] = {"shipped": base, "seen": here}
        notes.kept.append(name)
        return None
    if mine is None:
        return f"{WORKBOOK}/{name} cannot be read and was left as it is. {_how_to_reset(name)} a fresh one {_KEEPS}"
    if base == entry["shipped"]:
        return None
    return f"There is a newer version of {name}; yours was left as it is. {_how_to_reset(name)} the newer one {_KEEPS}"


_KEEPS = "and keeps a dated copy of yours."


def _brought(files: Sequence[Shipped]) -> Iterator[str]:
    if files:
        yield (
            f"Your work in {', '.join(each.name for each in files)} was copied to {WORKBOOK}: go on there."
            f"{_restore(*files)} (Whoever changes the course itself: `course lab --repository`.)"
        )


def _restore(*files: Shipped) -> str:
    names = " ".join(each.name for each in files if each.uncommitted)
    if not names:
        return ""
    return f" `git restore {names}` puts the course's version back there, so that `git pull` goes through."


def _how_to_reset(name: str) -> str:
    match = re.match(r"(exercises|notebooks)/(\d\d)_[^/]*$", name)
    if match is None:
        return f"`course reset {name}` takes"
    return f"`course reset {match[2]}{' --lesson' if match[1] == 'notebooks' else ''}` takes"


def _start_afresh(workbook: Path, shipped: Shipped, record: Record) -> str:
    """Move the learner's copy aside and put a fresh one; the sentence that names both."""
    name, copy = shipped.name, workbook / shipped.name
    base = fingerprint(name, shipped.original)
    if base is None:
        raise ProjectError(f"{name} in the course's own folder is not a readable notebook.{_restore(shipped)}")
    record.files[name] = {"shipped": base, "seen": fingerprint(name, shipped.content)}
    if not os.path.lexists(copy):
        _write(copy, shipped.original)
        return f"{WORKBOOK}/{name} is there now; there was none before."
    if copy.is_file() and not copy.is_symlink() and copy.read_bytes() == shipped.original:
        return f"{WORKBOOK}/{name} is already just as it comes with the course; nothing was changed."
    backup = _move_aside(copy)
    _write(copy, shipped.original)
    return (
        f"{WORKBOOK}/{name} is fresh again, and yours is kept as {backup.relative_to(workbook.parent).as_posix()}. "
        "If it is open in JupyterLab, choose File > Reload Notebook from Disk."
    )


def _move_aside(copy: Path) -> Path:
    """Move a file to a dated name beside it that nothing had before."""
    when = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    for number in range(1, 1000):
        extra = "" if number == 1 else f"-{number}"
        backup = copy.with_name(f"{copy.stem}.{when}{extra}{copy.suffix}")
        try:
            backup.open("xb").close()  # takes the name: two resets at once cannot both have it
        except FileExistsError:
            continue
        try:
            os.replace(copy, backup)
        except BaseException:
            backup.unlink(missing_ok=True)
            raise
        return backup
    raise ProjectError(f"There are too many backups of {copy.name} from this second. Run it again.")


def _replace(copy: Path, data: bytes, mine: str | None, name: str) -> bool:
    """Write, unless the copy is no longer what it was when it was looked at (``mine``; None: not there)."""

    def unchanged() -> bool:
        return not os.path.lexists(copy) if mine is None else _fingerprint_of(copy, name) == mine

    return _write(copy, data, unchanged)


def _write(path: Path, data: bytes, still: Callable[[], bool] = lambda: True) -> bool:
    """Write all or nothing, and only if ``still()`` holds at the last moment; whether it was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        if still():
            os.replace(temporary, path)
            return True
        return False
    finally:
        temporary.unlink(missing_ok=True)


def _fingerprint_of(path: Path, name: str) -> str | None:
    """Of a file on disk; None for what is damaged, unreadable, a link or a folder: nothing to be replaced."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return fingerprint(name, path.read_bytes())
    except OSError:
        return None


def _cell(cell: dict[str, Any]) -> list[str]:
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    return [str(cell["cell_type"]), source.replace("\r\n", "\n")]


# ---- What the course ships


def _names(root: Path) -> list[str]:
    found = [path for pattern in PATTERNS for path in sorted(root.glob(pattern))]
    return [
        path.relative_to(root).as_posix()
        for path in found
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    ]


def _all_shipped(root: Path, record: Record) -> Iterator[Shipped]:
    stand_in = STAND_IN.encode()
    yield Shipped("course_utils/__init__.py", stand_in, stand_in)
    committed = _committed(root)
    for name in _names(root):
        yield _shipped(root, name, committed, record)


def _shipped(root: Path, name: str, committed: dict[str, bytes], record: Record) -> Shipped:
    content = (root / name).read_bytes()
    built = _built(root, name, content, record) if name.startswith("exercises/") else None
    return Shipped(name, content, built or committed.get(name, content), uncommitted=name in committed)


def _built(root: Path, name: str, content: bytes, record: Record) -> bytes | None:
    """The exercise as its solution gives it; None where that cannot be told.

    Comparing with git would not do: learners commit their answers.
    """
    solution = root / "solutions" / PurePosixPath(name).name
    if not solution.is_file():
        return None
    source = solution.read_bytes()
    key = hashlib.sha256(b"%d " % len(source) + source + content).hexdigest()
    if record.built.get(name) == key:
        return content
    try:
        from course_utils.grading.build import BuildError, as_exercise  # takes a second: it brings torch
    except Exception as error:
        raise ProjectError(
            f"A package of this environment cannot be imported ({error}). `course doctor` says what is wrong with it."
        ) from None
    try:
        notebook = as_exercise(json.loads(source.decode("utf-8")), solution)
    except (BuildError, ValueError, KeyError, TypeError, AttributeError):
        return None
    fresh = (json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
    if fingerprint(name, fresh) != fingerprint(name, content):
        return fresh
    record.built[name] = key
    return content


def _committed(root: Path) -> dict[str, bytes]:
    """Name -> content in git, for the notebooks that were changed since; empty where there is no git to ask."""
    folders = ["notebooks", "exercises", "solutions"]
    listing = _git(root, "diff", "--name-only", "--relative", "--no-renames", "-z", "HEAD", "--", *folders) or b""
    changed = {os.fsdecode(name) for name in listing.split(b"\0")}
    contents = {
        name: _git(root, "show", f"HEAD:./{name}")
        for name in _names(root)
        if name in changed and name.endswith(".ipynb")
    }
    return {name: content for name, content in contents.items() if content is not None}


def _git(root: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=root,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


# ---- The record, and where things lie


def _read_record(workbook: Path) -> Record:
    try:
        loaded = json.loads((workbook / RECORD).read_text(encoding="utf-8"))
        files = {
            name: {"shipped": str(entry["shipped"]), "seen": entry["seen"]} for name, entry in loaded["files"].items()
        }
        return Record(files, {name: str(key) for name, key in loaded["built"].items()})
    except FileNotFoundError:
        return Record(readable=not workbook.is_dir())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Record(readable=False)


def _write_record(workbook: Path, record: Record) -> None:
    text = json.dumps({"files": record.files, "built": record.built}, indent=1, sort_keys=True)
    _write(workbook / RECORD, text.encode())


def _inside(root: Path, text: str) -> str:
    """A path as written, from the course's folder: without the folder itself, and without ``workbook/``."""
    path = Path(text)
    if path.is_absolute() and path.is_relative_to(root):
        path = path.relative_to(root)
    return path.as_posix().removeprefix(f"{WORKBOOK}/")


def _refuse_links(root: Path, name: str) -> None:
    """Nothing is written through a link: it may lead to files that are none of ours. Raises ProjectError."""
    for folder in [*PurePosixPath(WORKBOOK, name).parents][:-1]:
        if (root / folder).is_symlink():
            raise ProjectError(f"{root / folder} is a link. Move it away, and run the same command again.")


@contextmanager
def _in_sentences(workbook: Path) -> Iterator[None]:
    """What the disk refuses becomes a ProjectError."""
    try:
        yield
    except OSError as error:
        raise ProjectError(
            f"The working copy could not be written: {error.strerror}: {error.filename or workbook}. "
            "The course's folder must be one that you may write to, with room on its disk; "
            "`course lab --repository` opens the lessons without a working copy."
        ) from None
