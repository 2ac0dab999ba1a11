"""Outcomes as JSON and back, without pickle: what arrives from the answer's process is data, never code."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

from course_utils.grading.run import Outcome

LARGEST = 32 * 2**20  # bytes of one array; the cases are small, so anything larger is a mistake

KINDS = "bifu"  # NumPy's booleans, whole numbers and floats
FIELDS: dict[str, tuple[type, ...]] = {  # of an Outcome, besides its value
    "error": (str, type(None)),
    "error_message": (str,),
    "line": (str,),
    "changed": (int, type(None)),
    "shares": (int, type(None)),
    "borrowed": (str, type(None)),
}


def pack(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """``outcomes`` as plain JSON data."""
    return [{**vars(outcome), "value": _pack(outcome.value)} for outcome in outcomes]


def unpack(data: Any) -> list[Outcome]:
    """The inverse of ``pack``. Raises ValueError for anything else."""
    if not isinstance(data, list):
        raise ValueError("not a list of outcomes")
    try:
        return [_unpack_outcome(row) for row in data]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a list of outcomes: {error}") from None


def _unpack_outcome(row: dict[str, Any]) -> Outcome:
    for name, kinds in FIELDS.items():
        if type(row[name]) not in kinds:
            raise ValueError(f"unexpected {name}")
    return Outcome(value=_unpack(row["value"]), **{name: row[name] for name in FIELDS})


def _pack(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        array, dtype = _storable(value), str(value.dtype).removeprefix("torch.")
        return {"python": f"<tensor of {dtype}>"} if array is None else {"torch": dtype, **_bytes(array)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in KINDS:
            return {"python": f"<array of {value.dtype}>"}
        return {"numpy": value.dtype.name, **_bytes(value)}
    if isinstance(value, list):
        return {"list": [_pack(part) for part in value]}
    if isinstance(value, float):
        return {"float": value.hex()}  # JSON has no NaN and no infinity
    return {"python": value}


def _unpack(data: dict[str, Any]) -> Any:
    if "torch" in data:
        array = torch.from_numpy(_array(data))
        return array.to(torch.bfloat16) if data["torch"] == "bfloat16" else array
    if "numpy" in data:
        return _array(data)
    if "list" in data:
        return [_unpack(part) for part in data["list"]]
    if "float" in data:
        return float.fromhex(data["float"])
    value = data["python"]
    if value is not None and type(value) not in (bool, int, str):
        raise ValueError(f"unexpected {type(value).__name__}")
    return value


def _storable(tensor: torch.Tensor) -> np.ndarray | None:
    """None for what no exercise asks for: complex numbers, sparse and quantised tensors."""
    try:
        array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
    except (TypeError, RuntimeError):
        return None
    return array if array.dtype.kind in KINDS else None


def _bytes(array: np.ndarray) -> dict[str, Any]:
    if array.nbytes > LARGEST:
        raise ValueError(f"the answer returned {array.nbytes / 2**20:.0f} MB, far more than was asked for")
    return {
        "stored": array.dtype.name,
        "shape": list(array.shape),
        "data": base64.b64encode(array.astype(array.dtype.newbyteorder("=")).tobytes()).decode("ascii"),
    }


def _array(data: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(data["stored"])
    if dtype.kind not in KINDS:
        raise ValueError(f"unexpected dtype {dtype}")
    return np.frombuffer(base64.b64decode(data["data"]), dtype=dtype).reshape(data["shape"]).copy()
