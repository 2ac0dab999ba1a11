"""``course publish``: the address of the repository in pyproject.toml, and in every file that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from course_utils.grading.build import BuildError, release
from course_utils.grading.progress import write_atomically

# pyproject.toml comes last: a run that was stopped halfway is finished by the next one.
FILES = (
    "notebooks/*.ipynb",
    "exercises/*.ipynb",
    "solutions/*.ipynb",
    "README.md",
    "CONTRIBUTING.md",
    "environment.yml",
    "pyproject.toml",
)
OWNER = r"(?=[A-Za-z0-9-]{1,39}/)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
NAME = r"[A-Za-z0-9._-]{1,100}"
ENDS = (
    r"(?=\.git(?!\.*[\w-])|\.*(?![\w.-]))"  # not in the middle of a longer name; the full stop of a sentence may follow
)

# Badges and lines that install are the course's whatever they name; the rest is where it names the present address.
OURS = re.compile(
    r"(colab\.research\.google\.com/github/|(?:git\+|git clone )https://github\.com/)"
    rf"({OWNER}/[A-Za-z0-9._-]{{1,100}}?){ENDS}",
    re.ASCII,
)


class PublishError(Exception):
    """The address cannot be changed; the text says why."""


def publish(root: Path, repository: str) -> list[Path]:
    """Make every file of the course name this repository; returns the files that were written.

    Nothing but the address changes in them. Raises PublishError.

    Args:
        root: the course's folder.
        repository: owner/name on GitHub.
    """
    _refuse_bad_names(repository)
    present = _present(root)
    wanted = {path: renamed(text, present, repository) for path, text in _texts(root)}
    written = [path for path, text in wanted.items() if text.encode() != path.read_bytes()]
    for path in written:
        try:
            write_atomically(path, wanted[path])
        except OSError as error:
            raise PublishError(
                f"{path} could not be written ({error.strerror}). The same command goes on where this one stopped."
            ) from None
    return written


def strangers(root: Path) -> dict[Path, list[str]]:
    """File -> the other repositories that it names as the course's. Raises PublishError."""
    present = _present(root)
    found = {path: sorted({match[2] for match in OURS.finditer(text)} - {present}) for path, text in _texts(root)}
    return {path: names for path, names in found.items() if names}


def renamed(text: str, present: str, repository: str) -> str:
    """The text with another address, and with nothing else changed."""
    text = re.sub(rf"(?<![\w.-]){re.escape(present)}{ENDS}", lambda _: repository, text, flags=re.ASCII)
    return OURS.sub(lambda match: match[1] + repository, text)


def _refuse_bad_names(repository: str) -> None:
    if not re.fullmatch(f"{OWNER}/{NAME}", repository):
        raise PublishError(
            f"{repository!r} is not the name of a repository. Write OWNER/NAME as in its address on GitHub: the owner "
            "has up to 39 letters, digits and single hyphens inside; the name up to 100 of those, dots and underscores."
        )
    if re.search(r"(\.|\.git|\.wiki)$", repository, re.IGNORECASE):
        raise PublishError(
            f"{repository} cannot be on GitHub: no repository's name ends in a dot, in .git or in .wiki."
        )


def _present(root: Path) -> str:
    try:
        return release(root).repository
    except BuildError as error:
        raise PublishError(str(error)) from None


def _texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Every file that may name the repository, as it stands, line ends included."""
    for path in (path for pattern in FILES for path in sorted(root.glob(pattern))):
        try:
            yield path, path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PublishError(f"{path} cannot be read: {error}. Nothing was written.") from None
