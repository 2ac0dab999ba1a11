"""Every exercise: right answers pass, however they are written; wrong ones fail, each with its own diagnosis."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils import checks
from course_utils.checks import Exercise, seed_for
from course_utils.checks.exercise import NO_GRADIENT
from course_utils.grading.judge import Verdict, check_answer

# Points of each lesson's exercises; lesson 10's are a bonus.
POINTS = {0: 5, 1: 11, 2: 11, 3: 12, 4: 10, 5: 12, 6: 11, 7: 10, 8: 10, 9: 8, 10: 6}

# The mistakes that the course promises to recognise, by the names they have in the specs.
PROMISED = {
    "0.1": ["no largest score subtracted", "wrong axis", "normalised over the whole array"],
    "0.2": ["transposed", "sign"],
    "0.3": ["divides by T", "averages the padding", "off by one"],
    "1.1": [
        "z and 1 - z swapped",
        "reset gate before the matrix",
        "reset gate misses the bias",
        "sigmoid where tanh",
        "r and z blocks swapped",
    ],
    "1.2": ["takes index -1", "off by one"],
    "1.3": ["not shifted", "shifted the wrong way", "labels keep bos"],
    "1.4": ["padding counted", "mean of per-sentence means", "sum"],
    "1.5": ["does not stop at eos", "keeps eos", "ignores max_len", "feeds bos every step"],
    "2.1": ["no tanh", "tanh on one part only", "relu"],
    "2.2": ["softmax over the batch", "mask after the softmax", "mask inverted", "padding gets a little"],
    "2.3": ["plain mean", "the argmax state", "sum over the features"],
    "2.4": ["alpha from the new state", "context not fed", "the same alpha at every step"],
    "2.5": ["elementwise without the sum", "scaled"],
    "3.1": ["weights transposed", "same matrix thrice", "K and V swapped"],
    "3.2": [
        "softmax over queries",
        "no scale",
        "divided by d_k",
        "divided by the root of a length",
        "scale after the softmax",
    ],
    "3.3": ["mixes the sentences of the batch", "uses X as V"],
    "3.4": ["of the scaled score", "of the mean"],
    "3.5": ["hard look-up"],
    "4.1": ["reshape without transpose", "heads strided", "wrong error when h does not divide D"],
    "4.2": ["reshape without transpose"],
    "4.3": ["scaled by the square root of d_model", "heads averaged", "no W_o", "query and memory exchanged"],
    "4.4": ["grows with h", "forgets W_o", "forgets biases"],
    "5.1": ["inverted", "wrong axis"],
    "5.2": ["upper triangle", "diagonal excluded", "float"],
    "5.3": ["or instead of and", "padding on the query axis"],
    "5.4": ["mask after the softmax", "−1e9 in float16", "NaN rows", "masked scores set to 0"],
    "5.5": ["looks at the weights only", "one position only", "misses the next position"],
    "6.1": ["unbiased variance", "eps outside the root", "over time or batch", "no affine"],
    "6.2": ["normalises only the sublayer", "forgets x", "norm before add"],
    "6.3": ["no ReLU", "ReLU last", "mixes positions"],
    "6.4": ["post-norm", "second residual from x", "norm on the residual path"],
    "6.5": ["of the weights", "reversed"],
    "7.1": ["exponent i instead of 2i", "concatenated halves", "starts at 1", "sin and cos swapped"],
    "7.2": ["no scale", "pe scaled too", "pe by batch index"],
    "7.3": ["inverse rotation", "halves layout"],
    "7.4": ["tests invariance", "identity permutation", "permutes the batch"],
    "8.1": ["one residual missing"],
    "8.2": ["Q from memory", "K, V from x", "causal mask on memory"],
    "8.3": ["cross before self", "one residual missing", "unmasked self-attention"],
    "8.4": ["cross-attention forgotten", "norms forgotten", "biases", "embeddings counted twice when tied"],
    "9.1": ["max for min", "no d_model factor", "counts from 0"],
    "9.2": ["gold gets too little", "padding counted"],
    "9.3": ["greedy", "no length penalty", "finished hypotheses dropped", "extended past eos"],
    "9.4": ["overwrites the cache", "wrong axis", "mutates the caller's cache"],
    "10.1": ["last column", "final minus best", "includes the last task"],
    "10.2": ["every level", "off by one at step 0"],
    "10.3": ["weights reversed", "factor missing or doubled"],
}

EVERY = [exercise for lesson in checks.lessons() for exercise in checks.exercises(lesson)]
SLOW = {"7.4", "8.1", "8.2", "8.3"}  # their cases run whole layers many times


def bank(exercise: Exercise) -> Any:
    return importlib.import_module(f"banks.lesson{exercise.lesson:02}")


def seeds(exercise: Exercise, count: int) -> Iterator[int]:
    """The one that grading uses, and others as a learner's check draws them."""
    yield seed_for(exercise.id)
    yield from (seed_for(exercise.id, str(i)) for i in range(count - 1))


def verdict(exercise: Exercise, answer: Callable[..., Any], seed: int) -> Verdict:
    torch.manual_seed(0)
    return check_answer(exercise, answer, seed)


def marked(exercise: Exercise, *rest: Any, name: str) -> Any:
    marks = [pytest.mark.slow] if exercise.id in SLOW else []
    return pytest.param(exercise, *rest, id=f"{exercise.id}-{name}", marks=marks)


each = pytest.mark.parametrize("exercise", [pytest.param(e, id=e.id) for e in EVERY])


# --- wrong answers ---------------------------------------------------------------------------------------------------


def stub(*_args: Any) -> Any:
    raise NotImplementedError


@each
def test_the_stub_is_not_attempted(exercise: Exercise) -> None:
    assert verdict(exercise, stub, seed_for(exercise.id)) == Verdict("not_attempted")


@pytest.mark.parametrize(
    ("exercise", "misconception"), [marked(e, m, name=m.name) for e in EVERY for m in e.misconceptions]
)
def test_a_known_mistake_is_named_however_it_is_written(exercise: Exercise, misconception: Any) -> None:
    for function, seed in itertools.product(misconception.functions, seeds(exercise, 2)):
        found = verdict(exercise, function, seed)
        assert found.status in ("wrong", "error")
        if misconception is not NO_GRADIENT:  # its function stands for many and cannot be run itself
            assert found.misconception == misconception.name, found.message


@pytest.mark.parametrize(
    ("exercise", "answer", "name"),
    [marked(e, f, name, name=f.__name__) for e in EVERY for f, name in bank(e).WRONG[e.id]],
)
def test_further_wrong_answers_fail(exercise: Exercise, answer: Callable[..., Any], name: str | None) -> None:
    for seed in seeds(exercise, 2):
        found = verdict(exercise, answer, seed)
        assert found.status in ("wrong", "error"), found
        assert name is None or found.misconception == name, found
        assert found.message


# --- right answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exercise", "answer"), [marked(e, f, name=f.__name__) for e in EVERY for f in bank(e).RIGHT[e.id]]
)
def test_right_answers_pass_however_they_are_written(exercise: Exercise, answer: Callable[..., Any]) -> None:
    for seed in seeds(exercise, 3):
        found = verdict(exercise, answer, seed)
        assert found.status == "passed", found.message
        assert found.message == exercise.why


@each
def test_there_are_three_right_answers_or_more(exercise: Exercise) -> None:
    assert len(bank(exercise).RIGHT[exercise.id]) >= 3
    assert bank(exercise).WRONG[exercise.id]


@each
def test_the_packages_own_reference_is_not_accepted(exercise: Exercise) -> None:
    found = verdict(exercise, lambda *args: exercise.reference(*args), seed_for(exercise.id))
    assert found.misconception == "calls the reference"


# --- the specs as data -----------------------------------------------------------------------------------------------


def test_every_lesson_has_its_points() -> None:
    lessons = checks.lessons()
    assert lessons == list(range(len(lessons)))
    for lesson in lessons:
        assert sum(e.points for e in checks.exercises(lesson)) == POINTS[lesson]
        assert all(e.bonus == (lesson == 10) for e in checks.exercises(lesson))


def test_ids_are_unique_and_in_order() -> None:
    ids = [tuple(map(int, e.id.split("."))) for e in EVERY]
    assert ids == sorted(set(ids))


@each
def test_what_is_said_is_said_once_and_to_its_end(exercise: Exercise) -> None:
    said = [m.message for m in exercise.misconceptions if m is not NO_GRADIENT]
    assert len(set(said)) == len(said)
    assert all(text.rstrip(")").endswith((".", ".`", "?")) for text in [*said, exercise.why]), said
    names = [m.name for m in exercise.misconceptions]
    assert len(set(names)) == len(names) >= 2
    assert set(PROMISED[exercise.id]) <= set(names), "a promised mistake is not recognised any more"


@each
def test_the_same_seed_gives_the_same_cases(exercise: Exercise) -> None:
    one, two = (str(exercise.draw_cases(7)) for _ in range(2))
    if " at 0x" not in one:  # callables print their address
        assert one == two


# --- the references against torch's own ------------------------------------------------------------------------------

D = torch.float64


def reference(exercise_id: str) -> Callable[..., Any]:
    found = checks.find(exercise_id)
    assert found is not None
    return found.reference


def test_softmax_is_torchs() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    for axis in (0, 1, -1):
        np.testing.assert_allclose(reference("0.1")(x, axis), torch.tensor(x).softmax(dim=axis), atol=1e-15)


def test_gru_cell_is_torchs() -> None:
    cell = nn.GRUCell(4, 3, dtype=D)
    x, h = torch.randn(2, 4, dtype=D), torch.randn(2, 3, dtype=D)
    mine = reference("1.1")(x, h, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    torch.testing.assert_close(mine, cell(x, h), rtol=0, atol=1e-12)


def test_sequence_loss_is_torchs() -> None:
    logits, labels = torch.randn(3, 4, 6, dtype=D), torch.randint(1, 6, (3, 4))
    labels[0, 2:] = 0
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)
    torch.testing.assert_close(reference("1.4")(logits, labels, 0), expected, rtol=0, atol=1e-12)


def test_attention_is_torchs() -> None:
    q, k, v = (torch.randn(2, 3, n, 8, dtype=D) for n in (5, 7, 7))
    output, _ = reference("3.2")(q, k, v)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k, v), rtol=0, atol=1e-12)


def test_multi_head_attention_is_torchs() -> None:
    theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True, dtype=D)
    query, memory = torch.randn(2, 5, 12, dtype=D), torch.randn(2, 7, 12, dtype=D)
    weights = [*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight]
    mask = torch.rand(5, 7) < 0.7
    mask[:, 0] = True
    expected, _ = theirs(query, memory, memory, attn_mask=~mask)
    mine = reference("4.3")(query, memory, *weights, 3, mask)
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)


def test_masked_softmax_is_torchs_where_something_may_be_attended() -> None:
    scores, mask = torch.randn(3, 6, dtype=D), torch.rand(3, 6) < 0.6
    mask[:, 0] = True
    expected = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(reference("5.4")(scores, mask), expected, rtol=0, atol=1e-15)


def test_layer_norm_is_torchs() -> None:
    x, gamma, beta = torch.randn(2, 3, 6, dtype=D), torch.randn(6, dtype=D), torch.randn(6, dtype=D)
    expected = F.layer_norm(x, (6,), gamma, beta, 1e-5)
    torch.testing.assert_close(reference("6.1")(x, gamma, beta), expected, rtol=0, atol=1e-12)


def test_label_smoothing_is_torchs() -> None:
    logits, labels = torch.randn(3, 4, 6, dtype=D), torch.randint(1, 6, (3, 4))
    labels[0, 2:] = 0
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=0.2)
    torch.testing.assert_close(reference("9.2")(logits, labels, 0.2, 0), expected, rtol=0, atol=1e-12)
