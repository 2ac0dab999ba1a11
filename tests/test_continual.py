"""Lesson 10's parts: momentum as a memory, levels of different frequency, EWC, and the second language."""

import copy
import importlib.util
import json
import math
import re
from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn

from course_utils import corpora
from course_utils.continual import (
    Curve,
    Method,
    feed_forward_levels,
    first_phase,
    freeze_all_but,
    kept_at,
    new_model,
    second_phase,
)
from course_utils.models.continual import (
    ContinuumMemory,
    ContinuumOptimiser,
    DeepMomentum,
    due_levels,
    ewc_penalty,
    fisher,
    forgetting,
    momentum,
    momentum_by_descent,
)

D = torch.float64
ROOT = Path(__file__).parents[1]
LESSON = ROOT / "notebooks/10_nested_learning.ipynb"


def test_momentum_is_a_weighted_sum_and_a_descent() -> None:
    gradients, beta = torch.randn(20, 3, dtype=D), 0.8
    weights = (1 - beta) * beta ** torch.arange(19, -1, -1, dtype=D)
    torch.testing.assert_close(momentum(gradients, beta)[-1], weights @ gradients, rtol=0, atol=1e-12)
    memory = torch.zeros(3, dtype=D)
    for gradient in gradients:
        loss_at = memory.clone().requires_grad_()
        loss = -(loss_at @ gradient) + loss_at.square().sum() / 2
        (slope,) = torch.autograd.grad(loss, loss_at)
        stepped = momentum_by_descent(memory, gradient, beta)
        torch.testing.assert_close(stepped, memory - (1 - beta) * slope, rtol=0, atol=1e-12)
        memory = stepped
    torch.testing.assert_close(memory, momentum(gradients, beta)[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("linear", [True, False])
def test_deep_momentum_answers_a_gradient_with_the_way_down(linear: bool) -> None:
    torch.manual_seed(0)
    memory, one = DeepMomentum(4, linear=linear), torch.tensor([1.0, 0.0, 0.0, 0.0])
    for step in range(200):
        memory.remember(one if step % 2 == 0 else -one)
    assert (memory.net(one) + one).norm() < 0.1
    assert (memory.net(-one) - one).norm() < 0.1


def test_linear_deep_momentum_is_delta_momentum() -> None:
    """Equation 49 with the gradient as key and its opposite as value: m' = m (alpha - rate u u^T) - rate u u^T."""
    torch.manual_seed(0)
    memory = DeepMomentum(3, rate=0.2, alpha=0.9, linear=True).double()
    for _ in range(5):
        u, m = torch.randn(3, dtype=D), memory.net.weight.detach().clone()
        step = memory.remember(u)
        expected = m @ (0.9 * torch.eye(3, dtype=D) - 0.2 * torch.outer(u, u)) - 0.2 * torch.outer(u, u)
        torch.testing.assert_close(memory.net.weight.detach(), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(step, expected @ u, rtol=0, atol=1e-12)


def test_levels_are_due_when_they_have_gathered_their_gradients() -> None:
    assert [due_levels(step, (1, 4, 16)) for step in (0, 3, 15, 16)] == [[0], [0, 1], [0, 1, 2], [0]]
    updates = [sum(level in due_levels(step, (1, 4, 16)) for step in range(64)) for level in range(3)]
    assert updates == [64, 16, 4]


def test_a_slow_level_moves_by_the_mean_of_all_its_gradients_and_only_then() -> None:
    fast, slow = nn.Parameter(torch.zeros(2, dtype=D)), nn.Parameter(torch.zeros(2, dtype=D))
    optimiser = ContinuumOptimiser([[fast], [slow]], [1, 3], rate=0.1)
    gradients, moved = torch.randn(6, 2, dtype=D), []
    for step, gradient in enumerate(gradients):
        optimiser.zero_grad()
        (gradient @ (fast + slow)).backward()
        before = fast.detach().clone(), slow.detach().clone()
        optimiser.step(clip=1e9)
        moved.append((not fast.equal(before[0]), not slow.equal(before[1])))
        if step in (2, 5):
            torch.testing.assert_close(slow.grad, gradients[step - 2 : step + 1].mean(0), rtol=0, atol=1e-12)
    assert moved == [(True, False), (True, False), (True, True)] * 2


def test_clipping_does_not_eat_what_a_slow_level_has_gathered() -> None:
    slow = nn.Parameter(torch.zeros(2, dtype=D))
    optimiser = ContinuumOptimiser([[slow]], [8], rate=0.1)
    gradients = torch.randn(8, 2, dtype=D) * 50  # each far above the clip
    for gradient in gradients:
        optimiser.zero_grad()
        (gradient @ slow).backward()
        optimiser.step(clip=1.0)
    mean = gradients.mean(0)
    torch.testing.assert_close(slow.grad, mean / mean.norm(), rtol=0, atol=1e-6)


def test_the_chain_is_equation_70() -> None:
    torch.manual_seed(0)
    memory, x = ContinuumMemory(6, 12, 3).double(), torch.randn(2, 5, 6, dtype=D)
    expected = x
    for block in memory.blocks:
        expected = torch.relu(expected @ block.inner.weight.T + block.inner.bias) @ block.outer.weight.T
        expected = expected + block.outer.bias
    torch.testing.assert_close(memory(x), expected, rtol=0, atol=1e-12)
    assert memory.blocks[0].inner.out_features == 4  # the width is shared out


def test_one_level_is_plain_adam() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 2, dtype=D) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    mine = ContinuumOptimiser([layers[0].parameters()], [1], rate=0.01)
    adam = torch.optim.Adam(layers[1].parameters(), lr=0.01)
    for _ in range(5):
        x = torch.randn(4, 3, dtype=D)
        for layer, optimiser in zip(layers, (mine, adam), strict=True):
            optimiser.zero_grad()
            layer(x).square().sum().backward()
            optimiser.step()
    for a, b in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="one period"):
        ContinuumOptimiser([[nn.Parameter(torch.zeros(1))]], [0], 0.1)


@pytest.mark.parametrize("chained", [0, 3])
def test_every_parameter_is_in_exactly_one_level(chained: int) -> None:
    model = new_model(corpora.two_tasks(), chained)
    levels = feed_forward_levels(model, 3)
    held = [id(p) for level in levels for p in level]
    assert len(held) == len(set(held))
    assert set(held) == {id(p) for p in model.parameters()}
    assert all(levels)
    if chained:
        assert {id(p) for p in model.decoder[1].ffn.blocks[2].parameters()} <= {id(p) for p in levels[2]}


def test_what_is_frozen_does_not_learn() -> None:
    model = new_model(corpora.two_tasks())
    for trained in ("feed-forward", "the rest", "all"):
        freeze_all_but(model, trained)
        learns = {name: p.requires_grad for name, p in model.named_parameters()}
        assert learns["encoder.0.ffn.inner.weight"] == (trained != "the rest")
        assert learns["target_embedding.table.weight"] == (trained != "feed-forward")
    with pytest.raises(ValueError, match="the rest"):
        freeze_all_but(model, "attention")


def test_ewc_holds_what_the_old_task_needs() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[1.0, 0.0]])  # the second weight is never used
    importance = fisher(model, ((model(x) - 1).square().sum() for _ in range(3)))
    assert torch.cat([f.flatten() for f in importance]).mean() == pytest.approx(1)
    assert importance[0][0, 1] == 0
    penalty = ewc_penalty(model, importance, strength=2.0)
    assert penalty() == 0
    with torch.no_grad():
        model.weight[0, 1] += 5
    assert penalty() == 0
    with torch.no_grad():
        model.weight[0, 0] += 3
    assert penalty().item() == pytest.approx(2.0 / 2 * 2.0 * 9)


def test_forgetting_by_hand() -> None:
    accuracy = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.8, 0.1], [0.3, 0.8, 0.7]])
    assert forgetting(accuracy) == pytest.approx(0.3)


def test_kept_at_looks_for_equal_accuracy_on_the_new_task() -> None:
    curve = Curve([0, 10, 20], korean=[1.0, 0.6, 0.4], german=[0.0, 0.5, 0.95])
    assert kept_at(curve, 0.5) == 0.6
    assert kept_at(curve, 0.9) == 0.4
    assert math.isnan(kept_at(curve, 0.99))


def test_the_lessons_table_is_what_the_benchmark_measured() -> None:
    specification = importlib.util.spec_from_file_location("continual_benchmark", ROOT / "benchmarks/continual.py")
    benchmark = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(benchmark)
    done = json.loads(benchmark.RESULTS.read_text())
    text = "\n".join(cell["source"] for cell in nbformat.read(LESSON, 4).cells)
    assert len({key.split("/")[0] for key in done}) == 5
    shown = 0
    for method in benchmark.METHODS:
        entries = [entry for key, entry in done.items() if key.split("/", 1)[1] == f"tag/{method.name}"]
        for line in re.findall(rf"^\| {re.escape(method.name)} \|.*", text, re.MULTILINE):
            assert line == f"| {method.name} | " + " | ".join(benchmark.row(entries)[1:]) + " |"
            shown += 1
    assert shown >= 12


# --- the second language ---------------------------------------------------------------------------------------------

ONES = ["", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
TEENS = ["zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]
TENS = ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def german(number: int) -> str:
    """An independent rule, from 0 to 999."""
    if number == 0:
        return "null"
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    said = f"{ONES[hundreds]}hundert" if hundreds else ""
    if tens == 1:
        return said + TEENS[ones]
    if not tens:
        return said + ("eins" if ones == 1 else ONES[ones])
    return said + (f"{ONES[ones]}und" if ones else "") + TENS[tens]


def test_german_parts_make_up_the_german_word() -> None:
    for number in range(1_000):
        assert "".join(corpora.german_parts(number)) == german(number)
    assert corpora.german_parts(345) == ("drei", "hundert", "fünf", "und", "vierzig")
    with pytest.raises(ValueError, match="outside"):
        corpora.german_parts(-1)


def test_both_languages_are_tested_on_the_same_unseen_numbers() -> None:
    tasks = corpora.two_tasks()
    (train, test), (other_train, other_test) = tasks.korean, tasks.german
    assert [p.source[1:] for p in test] == [p.source[1:] for p in other_test]
    assert not {p.source for p in train} & {p.source for p in test}
    assert {p.source[0] for p in train} == {"<korean>"}
    assert {p.source[0] for p in other_train} == {"<german>"}
    untagged = corpora.two_tasks(tagged=False)
    assert untagged.korean[0][0].source == untagged.german[0][0].source


@pytest.mark.slow
def test_plain_training_forgets_and_replay_does_not() -> None:
    tasks = corpora.two_tasks()
    start = first_phase(tasks, 0, 300, Method("plain"))
    curves = {
        replay: second_phase(copy.deepcopy(start), tasks, Method("", replay=replay), 0, 100, 50)
        for replay in (0.0, 0.5)
    }
    assert curves[0.0].korean[0] > 0.95
    assert curves[0.0].korean[-1] < 0.2
    assert curves[0.5].korean[-1] > 0.8
    assert min(curve.german[-1] for curve in curves.values()) > 0.8
