"""A class's marks in one SQLite file: each result is committed as it is made, and nothing is graded twice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from course_utils.grading.report import NotebookReport, from_json

APPLICATION = 0x41545457  # "ATTW": by this number SQLite files know whose they are
VERSION = 1
TABLE = """
CREATE TABLE IF NOT EXISTS results (
    learner TEXT NOT NULL,
    notebook TEXT NOT NULL,
    digest TEXT NOT NULL,
    status TEXT NOT NULL,
    points INTEGER NOT NULL,
    possible INTEGER NOT NULL,
    report TEXT NOT NULL,
    seconds REAL NOT NULL,
    graded_at TEXT NOT NULL,
    PRIMARY KEY (learner, notebook)
)
"""


class GradebookError(Exception):
    """The file cannot be used as a gradebook; the text says why and what to do."""


@dataclass(frozen=True)
class Result:
    """One graded notebook. ``notebook``: its path below the learner's folder; ``digest``: of the file as graded."""

    learner: str
    notebook: str
    digest: str
    report: NotebookReport
    seconds: float = 0.0


class Gradebook:
    """Use it in a ``with``. Raises GradebookError where the file is something else, or cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._check()
            # WAL: readers see the marks while they are made. FULL: what is committed survives a power cut.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
            self._connection.execute(TABLE)
        except (sqlite3.Error, OSError) as error:
            raise GradebookError(f"{path} cannot be used as a gradebook ({error}).") from None

    def _check(self) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION and (application or version or tables):
            raise GradebookError(f"{self.path} is another program's database. Name a new file for the gradebook.")
        if version > VERSION:
            raise GradebookError(f"{self.path} was written by a newer version of this course. Update the course.")

    def __enter__(self) -> Gradebook:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def add(self, result: Result) -> None:
        """Commit one result; an older one of the same notebook gives way."""
        report = result.report
        row = (
            *(result.learner, result.notebook, result.digest, report.status, report.points, report.possible),
            json.dumps(report.as_json(), ensure_ascii=False),
            result.seconds,
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        self._connection.execute(f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * len(row))})", row)

    def digests(self) -> dict[tuple[str, str], str]:
        """(learner, notebook) -> the digest of the file that was graded."""
        rows = self._connection.execute("SELECT learner, notebook, digest FROM results")
        return {(learner, notebook): digest for learner, notebook, digest in rows}

    def results(self) -> Iterator[Result]:
        """All results, by learner and notebook."""
        query = "SELECT learner, notebook, digest, report, seconds FROM results ORDER BY learner, notebook"
        with closing(self._connection.execute(query)) as rows:
            for learner, notebook, digest, report, seconds in rows:
                yield Result(learner, notebook, digest, from_json(_loaded(report)), seconds)


def _loaded(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        raise GradebookError("A report in the gradebook is damaged. Grade into a new gradebook.") from None
