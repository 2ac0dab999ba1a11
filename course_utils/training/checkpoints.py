"""Training that can be stopped and gone on with: everything that decides the next step, in one file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a new file beside ``path``, then put it in the place of ``path`` in one move."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(handle)
    try:
        write(Path(name))
        os.chmod(name, 0o666 & ~_umask())  # as any new file, where a temporary one is private
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Checkpoints:
    """The last few states of a training, as ``step-000500.pt`` in a folder, and ``log.jsonl``, one line each.

    Args:
        folder: made when it is missing.
        every: steps from one checkpoint to the next.
        keep: how many are kept, the newest; they are also what ``average`` takes.
        measure: called at each checkpoint; what it returns (validation loss, say) goes into the log's line.
    """

    def __init__(
        self,
        folder: Path | str,
        every: int = 500,
        keep: int = 10,
        measure: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        if every < 1 or keep < 1:
            raise ValueError(f"every and keep count from 1, and they are {every} and {keep}.")
        self.folder, self.every, self.keep, self.measure = Path(folder), every, keep, measure
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def files(self) -> list[Path]:
        """From the oldest to the newest."""
        return sorted(self.folder.glob("step-*.pt"))

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    def save(self, step: int, state: dict[str, Any], entry: dict[str, Any]) -> None:
        write_atomically(self.folder / f"step-{step:06}.pt", lambda path: torch.save({"step": step, **state}, path))
        line = {"step": step, **entry, **(self.measure() if self.measure else {})}
        kept = [old for old in self._log_lines() if json.loads(old)["step"] < step]
        text = "\n".join([*kept, json.dumps(line)]) + "\n"
        write_atomically(self.log, lambda path: path.write_text(text, encoding="utf-8"))
        for old in self.files[: -self.keep]:
            old.unlink()

    def latest(self) -> dict[str, Any] | None:
        """The newest state, or None at the very start."""
        return torch.load(self.files[-1], map_location="cpu", weights_only=False) if self.files else None

    def _log_lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


def average(files: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights in several checkpoints (Vaswani et al. 2017, section 6.1), added up in float64."""
    if not files:
        raise ValueError("There is no checkpoint to average yet.")
    total: dict[str, torch.Tensor] = {}
    for file in files:
        weights = torch.load(file, map_location="cpu", weights_only=False)["model"]
        for name, value in weights.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(files)).to(weights[name].dtype) for name, value in total.items()}
