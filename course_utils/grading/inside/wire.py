"""Values as JSON and back, without pickle: what arrives from another process is data, never code.

Exact types only. A subclass can lie about its contents, so it arrives as an ``Opaque`` that has nothing but a name.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

LARGEST = 32 * 2**20  # bytes of one array; the cases are small, so anything larger is a mistake
KINDS = "bifu"  # NumPy's booleans, whole numbers and floats
PLAIN = (bool, int, str, type(None))
CONTAINERS: dict[str, type] = {"list": list, "tuple": tuple}


@dataclass(frozen=True)
class Opaque:
    """An object that does not travel; only the name of its type does."""

    name: str


def printable(text: str) -> str:
    """``text`` without the half characters that no file and no screen takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


class TooLarge(ValueError):
    """An array that is far larger than any right answer's."""


def pack(value: Any, name_of: Callable[[Callable[..., Any]], int] | None = None) -> dict[str, Any]:
    """``value`` as plain JSON data.

    Args:
        value: tensors, arrays, numbers, texts, generators, and lists, tuples, dictionaries and namespaces of them.
        name_of: gives a number to a function, under which the other side can call it; without it, functions are opaque.

    Raises TooLarge.
    """
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _pack_tensor(value)
    if kind is np.ndarray:
        return {"array": value.dtype.name, **_bytes(value)} if value.dtype.kind in KINDS else _opaque(value.dtype)
    if isinstance(value, np.generic):
        return pack(value.item())
    if kind is float:
        return {"float": value.hex()}  # JSON has no NaN and no infinity
    if kind in PLAIN:
        return {"plain": value}
    if kind in (list, tuple):
        return {kind.__name__: [pack(part, name_of) for part in value]}
    if kind is dict and all(type(key) is str for key in value):
        return {"dict": {key: pack(part, name_of) for key, part in value.items()}}
    if kind is SimpleNamespace:
        return {"namespace": {key: pack(part, name_of) for key, part in vars(value).items()}}
    if kind is torch.Generator:
        return {"generator": _text(value.get_state().numpy().tobytes())}
    if name_of is not None and callable(value):
        return {"function": name_of(value)}
    return _opaque(kind.__name__)


def unpack(data: Any, function: Callable[[int], Any] | None = None, most: int = LARGEST) -> Any:
    """The inverse of ``pack``; ``function`` makes something callable of a number. Raises ValueError for anything else.

    A tensor that was part of a differentiated computation arrives with ``requires_grad``. ``most``: of elements in one
    array, and along each of its axes.
    """
    try:
        value = _unpack(data, function)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"not a packed value: {error}") from None
    if most < LARGEST and any(max(shape, default=1) > most or math.prod(shape) > most for shape in _shapes(value)):
        raise TooLarge("an array is far larger than any that is needed here")
    return value


def _shapes(value: Any) -> Iterator[tuple[int, ...]]:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        yield tuple(value.shape)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _shapes(part)
    elif isinstance(value, (dict, SimpleNamespace)):
        yield from _shapes(list((value if isinstance(value, dict) else vars(value)).values()))


def _unpack(data: dict[str, Any], function: Callable[[int], Any] | None) -> Any:
    (kind, content), *_ = data.items()
    if kind == "tensor":
        return _unpack_tensor(data)
    if kind == "array":
        return _array(data)
    if kind == "float":
        return float.fromhex(content)
    if kind == "plain" and type(content) in PLAIN:
        return printable(content) if type(content) is str else content
    if kind in CONTAINERS:
        return CONTAINERS[kind](_unpack(part, function) for part in content)
    if kind in ("dict", "namespace"):
        parts = {str(key): _unpack(part, function) for key, part in content.items()}
        return SimpleNamespace(**parts) if kind == "namespace" else parts
    if kind == "generator":
        state = torch.frombuffer(bytearray(base64.b64decode(content)), dtype=torch.uint8)
        generator = torch.Generator()
        generator.set_state(state)
        return generator
    if kind == "function" and function is not None and type(content) is int:
        return function(content)
    if kind == "opaque":
        return Opaque(str(content)[:200])
    raise ValueError(f"unexpected {kind}")


def _pack_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    # A transposed tensor stays one: code that only works on contiguous memory shall fail there too.
    order = sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis)) if tensor.layout == torch.strided else []
    try:
        plain = tensor.detach().permute(order).cpu()
        array = (plain.float() if tensor.dtype == torch.bfloat16 else plain).contiguous().numpy()
    except (TypeError, RuntimeError):
        return _opaque(f"tensor of {dtype}" if tensor.layout == torch.strided else f"{tensor.layout} tensor")
    if array.dtype.kind not in KINDS:
        return _opaque(f"tensor of {dtype}")
    return {"tensor": dtype, "order": order, "grad": tensor.requires_grad, **_bytes(array)}


def _unpack_tensor(data: dict[str, Any]) -> torch.Tensor:
    tensor = torch.from_numpy(_array(data))
    if data["tensor"] == "bfloat16":
        tensor = tensor.to(torch.bfloat16)
    back = sorted(range(tensor.ndim), key=lambda axis: data["order"][axis])
    tensor = tensor.permute(back)
    return tensor.requires_grad_() if data["grad"] is True else tensor


def _bytes(array: np.ndarray) -> dict[str, Any]:
    if array.nbytes > LARGEST:
        raise TooLarge(f"the answer returned {array.nbytes / 2**20:.0f} MB, far more than was asked for")
    data = _text(array.astype(array.dtype.newbyteorder("="), copy=False).tobytes())
    return {"stored": array.dtype.name, "shape": list(array.shape), "data": data}


def _array(data: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(data["stored"])
    if dtype.kind not in KINDS:
        raise ValueError(f"unexpected dtype {dtype}")
    return np.frombuffer(base64.b64decode(data["data"]), dtype=dtype).reshape(data["shape"]).copy()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _opaque(name: object) -> dict[str, Any]:
    return {"opaque": str(name)}
