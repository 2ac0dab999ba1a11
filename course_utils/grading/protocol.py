"""What the grader, its worker and the learner's kernel have to agree on. Imports nothing, so that it costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

MIME = "application/vnd.course.outcomes+json"  # the type of the bundle in which outcomes leave the kernel


@dataclass(frozen=True)
class Request:
    """What the grader asks of a worker; paths are absolute, ``cell_timeout`` is in seconds."""

    notebook: str
    record: str
    settings: str  # an empty pytest.ini, so that no other one is found
    kernel: str
    cell_timeout: float
