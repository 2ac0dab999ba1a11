"""What the grader asks of its worker. Imports nothing, so that it costs nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """Paths are absolute, ``cell_timeout`` is in seconds."""

    notebook: str
    record: str
    settings: str  # an empty pytest.ini, so that no other one is found
    kernel: str
    cell_timeout: float
