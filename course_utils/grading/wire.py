"""Outcomes as JSON and back, without pickle: what arrives from the answer's process is data, never code."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import numpy as np
import torch

from course_utils.grading.run import Outcome

LARGEST = 32 * 2**20  # bytes of one array; the cases are small, so anything larger is a mistake


def pack(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """``outcomes`` as plain JSON data."""
    return [{**vars(outcome), "value": _pack(outcome.value)} for outcome in outcomes]


def unpack(data: Any) -> list[Outcome]:
    """The inverse of ``pack``. Raises ValueError for anything else."""
    names = {field.name for field in dataclasses.fields(Outcome)}
    try:
        return [Outcome(**{**{n: row[n] for n in names}, "value": _unpack(row["value"])}) for row in data]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a list of outcomes: {error}") from None


def _pack(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"torch": str(value.dtype).removeprefix("torch."), **_bytes(_storable(value))}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "bifu":
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


def _storable(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return tensor.contiguous().numpy()


def _bytes(array: np.ndarray) -> dict[str, Any]:
    if array.nbytes > LARGEST:
        raise ValueError(f"the answer returned {array.nbytes / 2**20:.0f} MB, far more than was asked for")
    return {
        "stored": array.dtype.name,
        "shape": list(array.shape),
        "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii"),
    }


def _array(data: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(data["stored"])
    if dtype.kind not in "bifu":
        raise ValueError(f"unexpected dtype {dtype}")
    return np.frombuffer(base64.b64decode(data["data"]), dtype=dtype).reshape(data["shape"]).copy()
