"""The first difference between what was expected and what came, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

ARRAY = (torch.Tensor, np.ndarray)
KIND = {torch.Tensor: "a torch tensor", np.ndarray: "a NumPy array"}


@dataclass(frozen=True)
class Difference:
    """``kind`` is one of type, shape, dtype, nan, value; ``text`` is a sentence for the learner."""

    kind: str
    text: str


def first_difference(expected: Any, got: Any, where: str = "the result") -> Difference | None:
    """None where ``got`` equals ``expected``. Types, shapes and dtypes are compared before values, never broadcast."""
    if isinstance(expected, list):
        return _lists(expected, got, where)
    if isinstance(expected, ARRAY):
        return _arrays(expected, got, where)
    return _scalars(expected, got, where)


def _lists(expected: list[Any], got: Any, where: str) -> Difference | None:
    if not isinstance(got, list):
        return Difference("type", f"{where} should be {_describe(expected)}, and it is {_describe(got)}.")
    if any(isinstance(part, ARRAY) for part in expected):  # a tuple of results
        if len(expected) != len(got):
            return Difference(
                "type",
                f"{where} should be {len(expected)} values, and {len(got)} came: return them in the order asked.",
            )
        names = [f"value {i + 1} of {where}" for i in range(len(expected))]
        pairs = zip(expected, got, names, strict=True)
        return next((d for e, g, n in pairs if (d := first_difference(e, g, n))), None)
    got = [_number(part) for part in got]
    if len(got) == len(expected) and all(first_difference(e, g) is None for e, g in zip(expected, got, strict=True)):
        return None
    return Difference("value", f"{where} should be {_short(expected)}, and it is {_short(got)}.")


def _arrays(expected: Any, got: Any, where: str) -> Difference | None:
    if type(got) is not type(expected):
        return Difference("type", f"{where} should be {_describe(expected)}, and it is {_describe(got)}.")
    if tuple(got.shape) != tuple(expected.shape):
        return Difference("shape", f"{where} should have shape {tuple(expected.shape)}, and it has {tuple(got.shape)}.")
    if got.dtype != expected.dtype:
        return Difference(
            "dtype",
            f"{where} should keep the input's dtype ({_dtype(expected)}), and it is {_dtype(got)}: "
            "something inside was made with another dtype.",
        )
    return _values(_as_numpy(expected), _as_numpy(got), where)


def _values(expected: np.ndarray, got: np.ndarray, where: str) -> Difference | None:
    relative, absolute = _tolerance(expected.dtype)
    wide = np.float64 if expected.dtype.kind == "f" else expected.dtype
    wrong = ~np.isclose(got.astype(wide), expected.astype(wide), rtol=relative, atol=absolute, equal_nan=True)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    at = f" at index {list(index)}" if index else ""
    mine, theirs = got[index].item(), expected[index].item()
    if isinstance(mine, float) and math.isnan(mine):
        return Difference("nan", f"{where} holds NaN{at}, where {theirs:.4g} is right.")
    same = 100 * (1 - wrong.mean())
    return Difference(
        "value",
        f"{where} first differs{at}: {_value(theirs)} is right, {_value(mine)} came ({same:.0f}% of the values agree).",
    )


def _scalars(expected: Any, got: Any, where: str) -> Difference | None:
    got = _number(got)
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        same = type(got) is type(expected) and got == expected
    elif isinstance(got, bool) or not isinstance(got, (int, float)):
        return Difference("type", f"{where} should be a number, and it is {_describe(got)}.")
    else:
        same = _close(expected, got)
    if same:
        return None
    return Difference("value", f"{where} should be {_short(expected)}, and it is {_short(got)}.")


def _close(expected: int | float, got: int | float) -> bool:
    """Whole numbers are counts and must be exact."""
    if isinstance(expected, int):
        return got == expected
    if math.isnan(expected):
        return got != got
    try:
        return math.isclose(got, expected, rel_tol=1e-7, abs_tol=1e-10)
    except OverflowError:  # an int too large for a float
        return False


def _tolerance(dtype: np.dtype) -> tuple[float, float]:
    """Room for another order of the same sums, and for no more."""
    return {"float16": (1e-2, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-7, 1e-9)}.get(dtype.name, (0.0, 0.0))


def _number(value: Any) -> Any:
    """A one-element tensor or array of no dimension as a Python number."""
    return value.item() if isinstance(value, ARRAY) and value.ndim == 0 else value


def _as_numpy(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _value(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) and 1e-3 < abs(value) < 1e5 else f"{value:.4g}"


def _describe(value: Any) -> str:
    if isinstance(value, ARRAY):
        return f"{KIND[type(value)]} of shape {tuple(value.shape)}"
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, list):
        return f"{len(value)} values" if any(isinstance(v, ARRAY) for v in value) else f"the list {_short(value)}"
    if isinstance(value, str) and value.startswith("<"):
        return f"an object of type {value[1:-1]}"
    return f"{type(value).__name__} {_short(value)}"


def _short(value: Any) -> str:
    if isinstance(value, ARRAY):
        return _describe(value)
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
