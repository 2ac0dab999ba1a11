"""A whole class, graded by many processes: on this machine, or on a Dask cluster.

Each submission travels as its bytes, so workers need not see the instructor's disk, and comes back as a report. The
gradebook is written here, by one process, after every single result.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from course_utils.grading.gradebook import Gradebook, Result
from course_utils.grading.report import NotebookReport, from_json

if TYPE_CHECKING:
    from distributed import Client, Future

    from course_utils.grading.runner import Limits

IN_FLIGHT = 3  # submissions waiting for each worker: enough to keep it busy, few enough to fit into memory


class ClassError(Exception):
    """The class cannot be graded; the text says why and what to do."""


@dataclass(frozen=True)
class Submission:
    """A notebook that was handed in: whose, where, and its path below the learner's folder."""

    learner: str
    path: Path
    notebook: str

    def content(self) -> bytes | None:
        """None for what cannot be read as a file, which is then the report on it."""
        with suppress(OSError):
            return self.path.read_bytes()
        return None


def submissions(folders: Iterable[Path]) -> list[Submission]:
    """One folder a learner, with their notebooks at any depth; a notebook without such a folder is its own learner."""
    found = {}
    for folder in folders:
        paths = sorted(folder.rglob("*.ipynb")) if folder.is_dir() else [folder]
        for path in paths:
            parts = path.relative_to(folder).parts if folder.is_dir() else (path.name,)
            if any(part.startswith(".") for part in parts):  # .ipynb_checkpoints, and what archives leave behind
                continue
            learner = parts[0] if len(parts) > 1 else Path(parts[-1]).stem
            notebook = "/".join(parts[1:]) or parts[-1]
            found[learner, notebook] = Submission(learner, path, notebook)
    return list(found.values())


def digest(content: bytes | None) -> str:
    return hashlib.sha256(content or b"").hexdigest()


def missing(all_of_them: Iterable[Submission], book: Gradebook) -> list[Submission]:
    """Those that are not in the gradebook as they are now."""
    known = book.digests()
    return [s for s in all_of_them if known.get((s.learner, s.notebook)) != digest(s.content())]


@contextmanager
def cluster(workers: int, scheduler: str | None) -> Iterator[Client]:
    """Dask workers: of a running cluster if ``scheduler`` names one (tcp://…), else ``workers`` on this machine.

    Raises ClassError.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ClassError("Grading with several workers needs Dask: pip install 'course-utils[cluster]'") from None
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClassError(f"No Dask scheduler answers at {scheduler} ({error}).") from None
        with client:
            yield client
        return
    with (
        tempfile.TemporaryDirectory(prefix="course-class-", ignore_cleanup_errors=True) as scratch,
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=0,  # the kernels, which need it, are other processes and have limits of their own
            local_directory=scratch,
            silence_logs=logging.CRITICAL,  # a worker that ended is started again, and its work is done again
            env={"TMPDIR": scratch},
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client


def grade_class(
    client: Client, todo: Iterable[Submission], book: Gradebook, limits: Limits, done: Callable[[Result], None]
) -> list[Submission]:
    """Grade ``todo`` and commit each result as it comes; ``done`` is told of each.

    Returns those that could not be graded because their worker died, each time. They are not in the gradebook, so that
    another start tries them again.
    """
    from distributed import as_completed

    lost: list[Submission] = []
    waiting = iter(todo)
    running: dict[Future, tuple[Submission, str]] = {}
    workers = max(1, len(client.ncores()))
    queue = as_completed((), loop=client.loop)
    for future in _submitted(client, waiting, limits, IN_FLIGHT * workers, running):
        queue.add(future)
    for future in queue:
        submission, file_digest = running.pop(future)
        if future.status == "finished":
            data, seconds = future.result()
            result = Result(submission.learner, submission.notebook, file_digest, from_json(data), seconds)
            book.add(result)
            done(result)
        else:
            lost.append(submission)
        future.release()
        for new in _submitted(client, waiting, limits, 1, running):
            queue.add(new)
    return lost


def _submitted(
    client: Client,
    waiting: Iterator[Submission],
    limits: Limits,
    count: int,
    running: dict[Future, tuple[Submission, str]],
) -> Iterator[Future]:
    for _, submission in zip(range(count), waiting, strict=False):
        content = submission.content()
        future = client.submit(grade_content, submission.notebook, content, limits, pure=False)
        running[future] = submission, digest(content)
        yield future


def grade_content(notebook: str, content: bytes | None, limits: Limits) -> tuple[dict[str, Any], float]:
    """Grade one file, anywhere: (the report as JSON, the seconds that it took)."""
    from course_utils.grading.runner import grade

    begun = monotonic()
    if content is None:
        report = NotebookReport(notebook, "invalid", message="this is a folder, or a file that cannot be read.")
        return report.as_json(), 0.0
    with tempfile.TemporaryDirectory(prefix="course-submission-") as folder:
        path = Path(folder, Path(notebook).name)
        path.write_bytes(content)
        data = grade(path, limits).as_json()
    return {**data, "path": notebook}, monotonic() - begun
