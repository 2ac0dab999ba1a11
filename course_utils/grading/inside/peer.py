"""Two processes that call each other's functions, and differentiate through the calls.

The grader keeps the cases, and all callables among their arguments; the learner's process keeps the answer. Arguments
and results travel as arrays. A gradient travels back the same way: each side remembers its calls, and is asked for the
vector-Jacobian product of one of them.
"""

from __future__ import annotations

import builtins
import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import course_utils
from course_utils.grading.inside.channel import Channel, Closed
from course_utils.grading.inside.wire import LARGEST, pack, printable, unpack

PACKAGE = Path(course_utils.__file__).parent
STDLIB = sysconfig.get_paths()["stdlib"]
READABLE = frozenset(("path", "weight", "weights"))  # attributes of a layer that an answer may look at
MOST_CALLS = 100_000  # of the grader's callables by one answer; the slowest right answer needs a few thousand
MOST_ELEMENTS = 2**18  # of an array that the grader's callables compute with; the cases have a few hundred
MOST_KEPT = 2**25  # elements in all calls of one answer together, which are kept for their gradients


class RemoteError(Exception):
    """An exception of the other side; the class that is raised has the original's name. ``line``: where it was."""

    def __init__(self, message: str, line: str = "") -> None:
        super().__init__(message)
        self.message, self.line = message, line

    def __str__(self) -> str:
        return self.message


class RemoteFunction:
    """A function of the other side. Its public attributes that are data can be read.

    One that is a parameter (a tensor to be trained) stays one: results can be differentiated with respect to it.
    """

    def __init__(self, peer: Peer, number: int) -> None:
        self._peer, self._number = peer, number
        self._parameters: dict[str, torch.Tensor] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._peer.call(self._number, args, kwargs)

    def __deepcopy__(self, _memo: dict[int, Any]) -> RemoteFunction:
        return self  # a copy would be called over the same channel

    def __getattr__(self, name: str) -> Any:
        if name not in READABLE:
            raise AttributeError(name)
        if name in self._parameters:
            return self._parameters[name]
        value = self._peer.attribute(self._number, name)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            self._parameters[name] = value
        return value


@dataclass(frozen=True)
class _Call:
    """What is needed to differentiate one call that was made here for the other side."""

    leaves: list[torch.Tensor]
    outputs: list[torch.Tensor]


class Peer:
    """One side. ``offers``: whether functions among arguments and results may be called by the other side."""

    def __init__(self, channel: Channel, offers: bool = False) -> None:
        self._channel, self._offers = channel, offers
        self._own: list[Callable[..., Any]] = []
        self._theirs: dict[int, RemoteFunction] = {}
        self._calls: list[_Call] = []
        self._kept = 0
        self.shared: list[Any] = []  # arguments of calls made there whose memory the result shared

    def offer(self, function: Callable[..., Any]) -> int:
        """The number under which the other side can call ``function``."""
        known = next((i for i, own in enumerate(self._own) if own is function), None)
        if known is not None:
            return known
        self._own.append(function)
        return len(self._own) - 1

    def function(self, number: int) -> RemoteFunction:
        """The other side's function with this number."""
        return self._theirs.setdefault(number, RemoteFunction(self, number))

    def serve(self) -> None:
        """Do what the other side asks for until it has had enough. Raises Closed when it is gone."""
        while (message := self._channel.receive()).get("op") != "end":
            self._handle(message)

    def end(self) -> None:
        """Tell the other side that this was all."""
        self._channel.send({"op": "end"})

    # Asking

    def call(self, number: int, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Call the other side's function. What it changes in its arguments is changed in ``args`` too."""
        named = {name: self._pack(value) for name, value in (kwargs or {}).items()}
        request = {"op": "call", "function": number, "args": [self._pack(a) for a in args], "kwargs": named}
        reply = self._ask(request)
        value = self._unpack(reply["value"])
        tracked = [t for t in _tensors([*args, *(kwargs or {}).values()]) if t.requires_grad]
        for position, changed in reply["changed"].items():
            _overwrite(args[int(position)], self._unpack(changed))
        self.shared.extend(args[position] for position in reply["shares"])
        value = _with_arguments(value, reply["same"], args)
        results = [t for t in _tensors(value) if t.requires_grad]
        if not results:
            return value
        parameters = self.function(number)._parameters
        tracked = [*tracked, *(parameters.get(name, _anchor()) for name in reply["parameters"])]
        connected = _Through.apply(self, reply["call"], len(results), _anchor(), *results, *tracked)
        return _exchanged(value, dict(zip(map(id, results), connected, strict=True)))

    def attribute(self, number: int, name: str) -> Any:
        return self._unpack(self._ask({"op": "attribute", "function": number, "name": name})["value"])

    def backward(self, call: int, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """The gradients at the tracked arguments of one earlier call."""
        reply = self._ask({"op": "backward", "call": call, "gradients": [pack(g.detach()) for g in gradients]})
        return [self._unpack(g) for g in reply["value"]]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply; what the other side asks for in between is done. Raises what was raised there."""
        self._channel.send(request)
        while (message := self._channel.receive()).get("op") not in ("return", "raise"):
            self._handle(message)
        if message["op"] == "raise":
            raise _error(*(str(message.get(key, "")) for key in ("name", "message", "line")))
        return message

    # Answering

    def _handle(self, message: dict[str, Any]) -> None:
        does = {"call": self._called, "backward": self._differentiated, "attribute": self._read}.get(message.get("op"))
        if does is None:
            raise Closed  # not a message of ours
        try:
            reply = {"op": "return", **does(message)}
        except Exception as error:
            # KeyboardInterrupt is not caught here: an endless loop is stopped with it.
            traceback.clear_frames(error.__traceback__)  # after a MemoryError, what fills the memory hangs on them
            reply = {"op": "raise", "name": type(error).__name__, "message": str(error), "line": own_line(error)}
        self._channel.send(reply)

    def _called(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._offers and len(self._calls) >= MOST_CALLS:
            raise RuntimeError(f"a function was called more than {MOST_CALLS:,} times")
        leaves: list[torch.Tensor] = []
        args = [_tracked(self._unpack_asked(data), leaves) for data in message["args"]]
        kwargs = {name: _tracked(self._unpack_asked(data), leaves) for name, data in message["kwargs"].items()}
        before = [pack(a) for a in args]
        function = self._own[message["function"]]
        parameters = _parameters(function) if self._offers else {}
        with np.errstate(all="ignore"):  # what overflows shows in the values
            value = function(*args, **kwargs)
        shares = [i for i, a in enumerate(args) if shares_memory(value, a)]
        after = [pack(a) for a in args]
        changed = {str(i): a for i, (b, a) in enumerate(zip(before, after, strict=True)) if a != b}
        self._kept += sum(t.numel() for t in (*_tensors(args), *_tensors(value)))
        if self._offers and self._kept > MOST_KEPT:
            raise RuntimeError("a function was called with too much data")
        self._calls.append(_Call([*leaves, *parameters.values()], [t for t in _tensors(value) if t.requires_grad]))
        reply = {"parameters": list(parameters), "changed": changed, "shares": shares, "call": len(self._calls) - 1}
        return {"value": self._pack(value), "same": _same(value, args), **reply}

    def _differentiated(self, message: dict[str, Any]) -> dict[str, Any]:
        call = self._calls[message["call"]]
        gradients = [unpack(g) for g in message["gradients"]]
        found = torch.autograd.grad(call.outputs, call.leaves, gradients, retain_graph=True, allow_unused=True)
        return {"value": [pack(g) for g in found]}

    def _read(self, message: dict[str, Any]) -> dict[str, Any]:
        value = getattr(self._own[message["function"]], message["name"]) if message["name"] in READABLE else None
        return {"value": pack(value)}

    def _pack(self, value: Any) -> dict[str, Any]:
        return pack(value, self.offer if self._offers else None)

    def _unpack(self, data: Any) -> Any:
        return unpack(data, self.function)

    def _unpack_asked(self, data: Any) -> Any:
        """What the other side wants computed; the grader computes with nothing large."""
        return unpack(data, self.function, MOST_ELEMENTS if self._offers else LARGEST)


class _Through(torch.autograd.Function):
    """Results of the other side, differentiable with respect to the tracked arguments of the call."""

    @staticmethod
    def forward(ctx: Any, peer: Peer, call: int, count: int, _anchor: torch.Tensor, *tensors: torch.Tensor) -> Any:
        ctx.peer, ctx.call, ctx.count = peer, call, count
        return tuple(t.detach().clone(memory_format=torch.preserve_format) for t in tensors[:count])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (None, None, None, None, *[None] * ctx.count, *ctx.peer.backward(ctx.call, gradients))


def _anchor() -> torch.Tensor:
    """What the results depend on beyond the arguments: parameters that only the other side knows."""
    return torch.zeros((), requires_grad=True)


def _parameters(function: Any) -> dict[str, torch.Tensor]:
    """The public attributes of ``function`` that are tensors to be trained, by name."""
    public = {name: value for name, value in getattr(function, "__dict__", {}).items() if not name.startswith("_")}
    return {name: v for name, v in public.items() if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors within ``value``, in an order that both sides agree on."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        yield value
    elif type(value) in (list, tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif hasattr(value, "__dict__") and type(value).__name__ == "SimpleNamespace":
        yield from _tensors(list(vars(value).values()))


def _exchanged(value: Any, new: dict[int, torch.Tensor]) -> Any:
    """``value`` with the tensors whose id is in ``new`` put in place of the old ones."""
    if isinstance(value, torch.Tensor):
        return new.get(id(value), value)
    if type(value) in (list, tuple):
        return type(value)(_exchanged(part, new) for part in value)
    if type(value) is dict:
        return {key: _exchanged(part, new) for key, part in value.items()}
    if type(value).__name__ == "SimpleNamespace":
        return type(value)(**_exchanged(vars(value), new))
    return value


def _tracked(value: Any, leaves: list[torch.Tensor]) -> Any:
    """``value`` with clones in place of the tensors to be differentiated, which are added to ``leaves``."""
    own = [t for t in _tensors(value) if t.requires_grad]
    leaves.extend(own)
    return _exchanged(value, {id(t): t.clone() for t in own})  # torch forbids changing a leaf in place


def _overwrite(old: Any, new: Any) -> None:
    """Do to ``old`` what was done to its copy on the other side."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if old.shape == new.shape and old.dtype == new.dtype:
            old.data.copy_(new.detach())
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.shape == new.shape:
            old[...] = new
    elif isinstance(old, torch.Generator) and isinstance(new, torch.Generator):
        old.set_state(new.get_state())
    elif isinstance(old, dict) and isinstance(new, dict):
        old.clear()
        old.update(new)
    elif isinstance(old, list) and isinstance(new, list):
        old[:] = new
    elif isinstance(old, tuple) and isinstance(new, tuple):
        for before, after in zip(old, new, strict=False):
            _overwrite(before, after)


def _same(value: Any, args: Sequence[Any]) -> list[list[int]]:
    """Where a result is one of the dictionaries or lists that came as arguments: pairs (place, argument).

    The place is that in a tuple of results; -1 is the whole.
    """
    parts = [(-1, value), *(enumerate(value) if type(value) is tuple else ())]
    return [[i, j] for i, part in parts for j, a in enumerate(args) if part is a and type(a) in (dict, list)]


def _with_arguments(value: Any, same: list[list[int]], args: Sequence[Any]) -> Any:
    """``value`` with the caller's own dictionaries and lists where the answer gave them back."""
    for place, argument in same:
        if place == -1:
            return args[argument]
        value = (*value[:place], args[argument], *value[place + 1 :])
    return value


def shares_memory(value: Any, argument: Any) -> bool:
    """True when a result, or a part of it, lies in the memory of ``argument``."""
    if type(value) in (list, tuple):
        return any(shares_memory(part, argument) for part in value)
    if isinstance(value, torch.Tensor) and isinstance(argument, torch.Tensor):
        if value.layout != torch.strided or argument.layout != torch.strided:
            return False  # sparse: it has no one storage
        return value.numel() > 0 and value.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()
    if isinstance(value, np.ndarray) and isinstance(argument, np.ndarray):
        return np.shares_memory(value, argument)
    return False


def own_line(error: BaseException) -> str:
    """The last line of the learner's own code in the traceback, or "" when there is none."""
    if isinstance(error, RemoteError) and error.line:
        return error.line
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((str(PACKAGE), STDLIB)) and "site-packages" not in f.filename]
    own = [f for f in own if linecache.getline(f.filename, f.lineno or 0)]
    return (own[-1].line or "").strip() if own else ""


def _error(name: str, message: str, line: str) -> Exception:
    base = getattr(builtins, name, None)
    name, message, line = printable(name), printable(message), printable(line)
    known = isinstance(base, type) and issubclass(base, Exception) and base is not Exception
    return type(name or "Exception", (RemoteError, base) if known else (RemoteError,), {})(message, line)
