"""Run an answer on the cases of an exercise and write down what happened, without judging it.

The answer is a function of this process, in ``check``, or a ``RemoteAnswer``, in ``course grade``.
"""

from __future__ import annotations

import sys
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
from course_utils.grading.inside.peer import Peer, own_line, shares_memory
from course_utils.grading.inside.wire import Opaque

PACKAGE = Path(course_utils.__file__).parent
SEALED = "CourseReferenceCalled"  # raised in a graded notebook by whatever the package would compute for the answer


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


class RemoteAnswer:
    """An answer in another process, called through ``peer``. ``shared``: as ``Peer.shared``."""

    def __init__(self, peer: Peer) -> None:
        self._peer, self.shared = peer, peer.shared

    def __call__(self, *args: Any) -> Any:
        return self._peer.call(0, args)


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
        shared = getattr(answer, "shared", [])
        shares = next((i for i, a in enumerate(case.args) if shares_memory(value, a) or _among(a, shared)), None)
        value = plain(value)
    except Exception as error:
        # KeyboardInterrupt is not caught here: a learner stops an endless loop with it, and so does the grader.
        if type(error).__name__ == SEALED:
            borrowed.append(str(error))
        return Outcome(
            error=type(error).__name__,
            error_message=str(error),
            line=own_line(error),
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
    return f"<{value.name if type(value) is Opaque else type(value).__name__}>"


def _among(argument: Any, shared: list[Any]) -> bool:
    return any(argument is other for other in shared)


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
