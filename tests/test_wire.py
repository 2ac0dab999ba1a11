"""What travels between the grader and the answer's process: values, calls and gradients."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_utils.checks import Case, Exercise, exercises, find, lessons
from course_utils.checks.exercise import call
from course_utils.grading.inside import wire
from course_utils.grading.inside.channel import Channel, Closed
from course_utils.grading.inside.peer import Peer
from course_utils.grading.judge import Verdict, check_answer
from course_utils.grading.run import RemoteAnswer, run_answer

# A busy machine is no failure.
patient = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
arrays = st.builds(
    lambda dtype, shape, seed: np.asarray(np.random.default_rng(seed).normal(size=shape) * 10).astype(dtype),
    st.sampled_from(["bool", "int64", "int32", "uint8", "float16", "float32", "float64", ">f8"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 2**32 - 1),
)
tensors = arrays.filter(lambda a: a.dtype.isnative).map(torch.from_numpy)
turned = tensors.map(lambda t: t.transpose(0, -1) if t.ndim else t)
values = st.recursive(
    numbers
    | arrays
    | tensors
    | tensors.map(torch.Tensor.bfloat16)
    | tensors.map(lambda t: t.transpose(0, -1) if t.ndim else t),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def same(a: Any, b: Any) -> bool:
    if type(a) in (list, tuple):
        return type(b) is type(a) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, np.ndarray):
        native = a.dtype.newbyteorder("=")
        return b.dtype == native and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return type(a) is type(b) and (a == b or (a != a and b != b))


@patient
@given(values)
def test_values_survive_the_wire(sent: Any) -> None:
    assert same(sent, wire.unpack(json.loads(json.dumps(wire.pack(sent)))))


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)
GOOD = wire.pack(torch.ones(2))


@patient
@given(st.one_of(json_data, st.fixed_dictionaries(dict.fromkeys(GOOD, json_data))))
def test_the_wire_takes_nothing_that_was_not_packed(data: Any) -> None:
    with pytest.raises(ValueError, match="not a packed value"):
        wire.unpack(data)


@pytest.mark.parametrize(
    "data",
    [
        {**GOOD, "stored": "object", "data": ""},
        {**GOOD, "shape": [10**30], "data": ""},
        {**GOOD, "order": []},
        {"array": "float32", "stored": "float32", "shape": "x", "data": ""},
        {"plain": {"a": 1}},
        {"plain": 1.5},
        {"float": "one"},
        {"function": 0},
        {"generator": "AAAA"},
        {},
        None,
        3,
    ],
)
def test_the_wire_rejects_values_that_nobody_packed(data: Any) -> None:
    with pytest.raises(ValueError, match="not a packed value"):
        wire.unpack(data)


def test_the_wire_rejects_what_would_not_end() -> None:
    nested: dict[str, Any] = {"plain": 1}
    for _ in range(100_000):
        nested = {"list": [nested]}
    with pytest.raises(ValueError, match="not a packed value"):
        wire.unpack(nested)
    with pytest.raises(wire.TooLarge, match="far more than was asked for"):
        wire.pack(np.zeros(10**7))


class Liar(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "odd",
    [
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2).to_sparse(),
        np.array(["a"]),
        np.ones(1, dtype=complex),
        torch.ones(2).as_subclass(Liar),
        object(),
        print,
    ],
)
def test_what_no_exercise_asks_for_arrives_as_a_name(odd: Any) -> None:
    assert isinstance(wire.unpack(wire.pack(odd)), wire.Opaque)


def test_a_transposed_tensor_stays_one() -> None:
    sent = torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1)
    received = wire.unpack(wire.pack(sent))
    assert received.stride() == sent.stride()
    assert torch.equal(received, sent)


# Calls ---------------------------------------------------------------------------------------------------------------


def elsewhere(answer: Callable[..., Any]) -> RemoteAnswer:
    """``answer`` as the grader sees it, served by a thread that stands for the learner's process."""
    there, here = socket.socketpair()
    peer = Peer(Channel(there))
    peer.offer(answer)

    def serve() -> None:
        with suppress(Closed):
            peer.serve()

    threading.Thread(target=serve, daemon=True).start()
    return RemoteAnswer(Peer(Channel(here), offers=True))


def test_arguments_of_every_kind_arrive() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    parts = SimpleNamespace(weight=torch.ones(2))
    answer = elsewhere(lambda p, g, d: (p.weight + torch.rand(2, generator=g), list(d)))
    value, keys = answer(parts, generator, {"k": [1, (2, None)]})
    assert keys == ["k"]
    assert value.shape == (2,)
    assert not torch.equal(before, generator.get_state()), "what was drawn there is drawn here"


def test_gradients_go_through_calls_in_both_directions() -> None:
    def answer(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (inner,) = torch.autograd.grad(layer(x).sum(), x, retain_graph=True)
        return 2 * layer(x) + x, inner

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    value, inner = elsewhere(answer)(lambda z: z**3, x)
    assert torch.allclose(inner, 3 * x.detach() ** 2)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert torch.allclose(gradient, 6 * x.detach() ** 2 + 1)


def test_results_without_a_gradient_are_known_as_such() -> None:
    x = torch.ones(3, requires_grad=True)
    assert not elsewhere(lambda x: x.detach() * 2)(x).requires_grad
    assert elsewhere(lambda x: x * 2)(x).requires_grad


def test_what_an_answer_changes_there_is_changed_here() -> None:
    x, items, named = torch.zeros(2), [1, 2], {"a": 1}

    def answer(x: torch.Tensor, items: list[int], named: dict[str, int]) -> dict[str, int]:
        x += 1
        items.append(3)
        named["b"] = 2
        return named

    assert elsewhere(answer)(x, items, named) is named
    assert (x.tolist(), items, named) == ([1, 1], [1, 2, 3], {"a": 1, "b": 2})


def test_an_exception_keeps_its_name_its_message_and_its_line() -> None:
    def answer(x: float) -> float:
        return {}["missing"]

    with pytest.raises(KeyError, match="missing") as raised:
        elsewhere(answer)(1.0)
    assert raised.value.line == 'return {}["missing"]'  # type: ignore[attr-defined]


def test_a_callable_of_the_grader_can_raise_into_the_answer() -> None:
    def step(token: int) -> int:
        raise RuntimeError("enough")

    def answer(step: Callable[[int], int]) -> str:
        try:
            return str(step(1))
        except RuntimeError as error:
            return f"caught {error}"

    assert elsewhere(answer)(step) == "caught enough"


def test_private_attributes_and_methods_do_not_travel() -> None:
    layer = SimpleNamespace(weights=torch.ones(2), _secret=1)

    class Layer:
        weights = torch.ones(2)
        _secret = 1

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    def answer(layer: Any) -> list[bool]:
        return [hasattr(layer, name) for name in ("weights", "_secret", "absent")]

    assert layer.weights is not None
    assert elsewhere(answer)(Layer()) == [True, False, False]


def test_the_grader_goes_on_when_the_other_side_is_gone() -> None:
    there, here = socket.socketpair()
    there.close()
    with pytest.raises(Closed):
        RemoteAnswer(Peer(Channel(here)))(1)
    there, here = socket.socketpair()
    with pytest.raises(Closed):  # it lives, and says nothing
        RemoteAnswer(Peer(Channel(here, alive=lambda: False)))(1)


@pytest.mark.parametrize("said", [b"\0\0\0\x02{}", b"\0\0\0\x03[1]", b"\xff\xff\xff\xff", b"\0\0\0\x01{"])
def test_nonsense_ends_the_conversation(said: bytes) -> None:
    there, here = socket.socketpair()
    there.sendall(said)
    with pytest.raises(Closed):
        RemoteAnswer(Peer(Channel(here)))(1)


# The same verdict here and there -------------------------------------------------------------------------------------

ALL = [exercise.id for lesson in lessons() for exercise in exercises(lesson)]


def known(exercise: Exercise) -> list[tuple[str, Callable[..., Any]]]:
    """A few known mistakes of an exercise; all of one that is handed functions, layers or caches."""
    # One function knows a sentence again by the identity of its tensor, which does not travel.
    mistakes = [(m.name, m.function) for m in exercise.misconceptions if m.name != "the same alpha at every step"]
    return mistakes if exercise.id in ("1.5", "2.4", "6.4", "6.5", "9.4") else mistakes[:2]


@pytest.mark.parametrize("exercise_id", ALL)
def test_an_answer_is_diagnosed_the_same_in_another_process(exercise_id: str) -> None:
    exercise = find(exercise_id)
    assert exercise is not None
    right = [o.value for o in run_answer(exercise, elsewhere(exercise.reference), exercise.draw_cases(5))]
    expected = [o.value for o in run_answer(exercise, exercise.reference, exercise.draw_cases(5))]
    for a, b in zip(right, expected, strict=True):
        assert same(a, b)
    for name, function in known(exercise):
        there, here = check_answer(exercise, elsewhere(function), seed=5), check_answer(exercise, function, seed=5)
        assert (there.status, there.misconception) == (here.status, here.misconception), name


@pytest.mark.parametrize(
    ("answer", "misconception"),
    [
        (lambda x, y: x.add_(y), "changes its input"),
        (lambda x, y: (x + y, x)[1] if False else x.view(-1)[:], "returns a view of its input"),
    ],
)
def test_manners_are_noticed_from_afar(answer: Callable[..., Any], misconception: str) -> None:
    def right(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if misconception == "changes its input" else x.view(-1).clone()

    exercise = Exercise(
        id="0.9",
        title="Sum",
        points=1,
        function="add",
        reference=right,
        cases=lambda draw: [Case((draw.normal(3), draw.normal(3)))],
        misconceptions=(),
        why="",
        drive=call,
    )
    verdict = check_answer(exercise, elsewhere(answer), seed=1)
    assert verdict == Verdict("wrong", verdict.message, misconception)
