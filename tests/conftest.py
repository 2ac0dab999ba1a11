"""What every test needs: a home of its own for the learner's progress."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the progress of whoever runs it."""
    home = tmp_path_factory.mktemp("course-home")
    monkeypatch.setenv("COURSE_HOME", str(home))
    return home
