"""Run an answer on the cases of an exercise and write down what happened, without judging it.

This half of the grader may run in a process that is not trusted; ``judge`` compares elsewhere.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

import course_utils
from course_utils.checks import Case, Exercise

PACKAGE = Path(course_utils.__file__).parent


@dataclass(frozen=True)
class Outcome:
    """What one call of the answer did: it returned ``value``, or raised ``error``."""

    value: Any = None
    error: str | None = None  # the exception's class name
    error_message: str = ""
    line: str = ""  # the learner's own line that failed
    changed: int | None = None  # the position of an argument that was changed in place
    shares: int | None = None  # the position of an argument whose memory the result shares
    borrowed: str | None = None  # a function of course_utils that the answer called

    @property
    def not_attempted(self) -> bool:
        """The bare stub; torch raises the same exception with a message, for what it cannot do."""
        return self.error == "NotImplementedError" and not self.error_message


def run_answer(exercise: Exercise, answer: Callable[..., Any], cases: list[Case]) -> list[Outcome]:
    """The outcome of ``answer`` on each case; stops early when the answer is not written yet."""
    outcomes = []
    with one_thread():
        for case in cases:
            outcomes.append(_run_case(exercise, answer, case))
            if outcomes[-1].not_attempted:
                break
    return outcomes


@contextmanager
def one_thread() -> Iterator[None]:
    """The cases are small: on a busy machine, waiting for a second thread takes many times as long as the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_case(exercise: Exercise, answer: Callable[..., Any], case: Case) -> Outcome:
    before = [_snapshot(argument) for argument in case.args]
    borrowed: list[str] = []
    try:
        with _watch(exercise, borrowed), np.errstate(all="ignore"):  # what overflows shows in the values
            value = exercise.drive(answer, case.args)
        shares = next((i for i, a in enumerate(case.args) if _shares_memory(value, a)), None)
        value = plain(value)
    except Exception as error:
        # KeyboardInterrupt is not caught here: a learner stops an endless loop with it, and so does the grader.
        return Outcome(
            error=type(error).__name__,
            error_message=str(error),
            line=_own_line(error),
            changed=_changed(before, case.args),
            borrowed=borrowed[0] if borrowed else None,
        )
    return Outcome(
        value=value,
        changed=_changed(before, case.args),
        shares=shares,
        borrowed=borrowed[0] if borrowed else None,
    )


def plain(value: Any) -> Any:
    """``value`` with tensors detached, tuples and lists as lists, and anything else named by its type.

    Exact types only: a subclass can lie about its contents.
    """
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided:
            return f"<{value.layout} tensor>"
        return value.detach().to("cpu", copy=True)
    if type(value) is np.ndarray:
        return value.copy()
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return [plain(part) for part in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    return f"<{type(value).__name__}>"


def _snapshot(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return argument.detach().clone()
    if isinstance(argument, np.ndarray):
        return argument.copy()
    return argument


def _changed(before: list[Any], after: tuple[Any, ...]) -> int | None:
    for position, (old, new) in enumerate(zip(before, after, strict=True)):
        if isinstance(old, torch.Tensor):
            same = old.shape == new.shape and torch.equal(old.nan_to_num(), new.detach().nan_to_num())
        elif isinstance(old, np.ndarray):
            same = np.array_equal(old, new, equal_nan=old.dtype.kind == "f")
        else:
            same = True
        if not same:
            return position
    return None


def _shares_memory(value: Any, argument: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_shares_memory(part, argument) for part in value)
    if isinstance(value, torch.Tensor) and isinstance(argument, torch.Tensor):
        if value.layout != torch.strided or argument.layout != torch.strided:
            return False  # sparse: it has no one storage
        return value.numel() > 0 and value.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()
    if isinstance(value, np.ndarray) and isinstance(argument, np.ndarray):
        return np.shares_memory(value, argument)
    return False


def _own_line(error: Exception) -> str:
    """The last line of the learner's own code in the traceback, or "" when there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(str(PACKAGE)) and "site-packages" not in f.filename]
    own = [f for f in own if linecache.getline(f.filename, f.lineno or 0)]
    return (own[-1].line or "").strip() if own else ""


@contextmanager
def _watch(exercise: Exercise, borrowed: list[str]) -> Iterator[None]:
    """Write into ``borrowed`` the names of course_utils' own functions that the answer calls."""
    reference = getattr(exercise.reference, "__code__", None)

    def on_event(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and _is_ours(frame.f_code, reference):
            borrowed.append(frame.f_code.co_name)

    previous = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(previous)


def _is_ours(code: CodeType, reference: CodeType | None) -> bool:
    if code is reference:
        return True
    # The cases' own callables (a step, a cell) live in checks/ and are there to be called.
    name = code.co_filename
    return name.startswith(str(PACKAGE)) and Path(name).relative_to(PACKAGE).parts[0] not in (
        "checks",
        "grading",
    )
