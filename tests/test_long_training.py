"""What a long training needs: exact resume, averaging, several processes, batches by tokens, smoothed labels."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils import training
from course_utils.corpora import number_task
from course_utils.models.transformer import Transformer
from course_utils.text import PAD, Batch, Pair, TokenBatches, Vocabulary
from course_utils.training.loop import OutOfMemory

TASK = number_task(train=300, test=20, digits=4)


def small(dropout: float = 0.1) -> Transformer:
    training.seed_everything(3)
    return Transformer(len(TASK.english), len(TASK.korean), d_model=16, h=2, d_ff=32, N=1, dropout=dropout)


def batches(seed: int = 0, share: tuple[int, int] = (0, 1)) -> TokenBatches:
    return TokenBatches(TASK.train, TASK.english, TASK.korean, budget=160, seed=seed, share=share)


def fit(model: Transformer, steps: int, folder: Path | None = None, source=None, every: int = 4) -> training.History:
    checkpoints = None if folder is None else training.Checkpoints(folder, every=every, keep=3)
    loss = partial(training.label_smoothed_loss, epsilon=0.1)
    source = batches() if source is None else source
    return training.fit(
        model, source, steps, warmup=5, schedule=training.inverse_root, loss=loss, checkpoints=checkpoints
    )


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def sums(model: torch.nn.Module) -> list[float]:
    """Of every weight but the biases of the keys: no output depends on those, so Adam moves them by rounding errors."""
    return [p.double().sum().item() for name, p in model.named_parameters() if "W_k.bias" not in name]


# --- schedules and losses --------------------------------------------------------------------------------------------


def test_noam_peaks_at_the_end_of_the_warmup_with_the_papers_rate() -> None:
    rates = [training.noam_rate(step, 512, 4_000) for step in range(1, 20_001)]
    assert max(rates) == rates[3_999] == pytest.approx(6.988e-4, rel=1e-4)
    assert rates[0] == pytest.approx(rates[3_999] / 4_000)
    assert rates[15_999] == pytest.approx(rates[3_999] / 2)


def test_inverse_root_is_the_same_curve_with_its_peak_at_1() -> None:
    for step in (1, 7, 400, 401, 9_000):
        peak = training.noam_rate(400, 64, 400)
        assert training.inverse_root(step - 1, 10_000, 400) * peak == pytest.approx(training.noam_rate(step, 64, 400))


def test_noam_counts_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        training.noam_rate(0, 512, 4_000)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
def test_label_smoothing_equals_torchs(epsilon: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 11, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = torch.randint(0, 11, (3, 5), generator=generator)
    labels[1, 2:] = PAD
    mine = training.label_smoothed_loss(logits, labels, epsilon)
    theirs = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=epsilon)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (mine, theirs)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_the_written_gradient_of_the_smoothed_loss_is_the_numerical_one() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 4, PAD], [2, PAD, PAD]])
    assert torch.autograd.gradcheck(lambda x: training.label_smoothed_loss(x, labels, 0.2), (logits,))


# --- batches by tokens -----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40),
    budget=st.integers(10, 60),
    seed=st.integers(0, 5),
)
def test_one_time_round_gives_every_pair_once_within_the_budget(lengths, budget: int, seed: int) -> None:
    words = Vocabulary(["a"])
    pairs = [Pair(("a",) * s, ("a",) * t) for s, t in lengths]
    source = TokenBatches(pairs, words, words, budget, seed)
    count = len(source._epoch(0))
    seen = []
    for batch in itertools.islice(source, count):
        inputs = batch.target[:, :-1]
        assert max(batch.source.numel(), inputs.numel()) <= budget
        real = [((row != PAD).sum().item(), (t != PAD).sum().item() - 2) for row, t in zip(*_rows(batch), strict=True)]
        seen.extend(real)
    assert sorted(seen) == sorted(lengths)


def _rows(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch.source, batch.target


def test_skipping_is_the_same_as_drawing_and_throwing_away() -> None:
    count = len(batches()._epoch(0))
    for steps in (0, 1, count - 1, count, 2 * count + 3):
        ahead = next(batches().skip(steps))
        drawn = next(itertools.islice(batches(), steps, None))
        assert torch.equal(ahead.source, drawn.source)
        assert torch.equal(ahead.target, drawn.target)


def test_another_time_round_and_another_seed_have_other_batches() -> None:
    source = batches()
    assert source._epoch(0) != source._epoch(1)
    assert source._epoch(0) != batches(seed=1)._epoch(0)


def test_shares_of_a_batch_make_up_the_batch() -> None:
    whole, *parts = (next(iter(batches(share=share))) for share in ((0, 1), (0, 3), (1, 3), (2, 3)))
    sentences = [tuple(row[row != PAD].tolist()) for row in whole.target]
    shared = [tuple(row[row != PAD].tolist()) for part in parts for row in part.target]
    assert sorted(shared) == sorted(sentences)


def test_a_budget_below_the_longest_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="more than the budget of 3"):
        TokenBatches(TASK.train, TASK.english, TASK.korean, budget=3)


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_interrupted_and_resumed_gives_the_weights_of_uninterrupted(tmp_path: Path) -> None:
    whole = small()
    losses = fit(whole, 14, tmp_path / "whole").losses

    class StopsAt(TokenBatches):
        def skip(self, steps: int) -> Iterator[Batch]:
            yield from itertools.islice(super().skip(steps), 10 - steps)
            raise KeyboardInterrupt

    stopping = StopsAt(TASK.train, TASK.english, TASK.korean, budget=160)
    broken = fit(small(), 14, tmp_path / "parts", stopping)
    assert len(broken.losses) == 10
    torch.rand(5)  # another use of the random numbers in between
    resumed = small()
    assert fit(resumed, 14, tmp_path / "parts").losses == losses
    assert same_weights(resumed, whole)


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    model = small()
    losses = fit(model, 8, tmp_path).losses
    again = small()
    assert fit(again, 8, tmp_path).losses == losses
    assert same_weights(again, model)


def test_measuring_at_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    plain = small()
    fit(plain, 9, tmp_path / "plain")
    measured = small()
    checkpoints = training.Checkpoints(tmp_path / "m", every=2, measure=lambda: {"draw": torch.rand(3).sum().item()})
    loss = partial(training.label_smoothed_loss, epsilon=0.1)
    training.fit(measured, batches(), 9, warmup=5, schedule=training.inverse_root, loss=loss, checkpoints=checkpoints)
    assert same_weights(measured, plain)
    assert [json.loads(line)["step"] for line in checkpoints.log.read_text().splitlines()] == [2, 4, 6, 8, 9]


def test_the_newest_are_kept_and_averaged(tmp_path: Path) -> None:
    fit(small(), 20, tmp_path)
    files = training.Checkpoints(tmp_path).files
    assert [file.name for file in files] == ["step-000012.pt", "step-000016.pt", "step-000020.pt"]
    states = [torch.load(file)["model"] for file in files]
    mean = training.average(files)
    for name, value in mean.items():
        torch.testing.assert_close(value, torch.stack([state[name] for state in states]).mean(dim=0))
    with pytest.raises(ValueError, match="no checkpoint"):
        training.average([])


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "kept.txt"
    training.write_atomically(file, lambda path: path.write_text("old"))

    def fails(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        training.write_atomically(file, fails)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.txt"]


# --- the device ------------------------------------------------------------------------------------------------------


def test_out_of_memory_says_which_knob_to_turn() -> None:
    class Greedy(torch.nn.Linear):
        def forward(self, _source: torch.Tensor, _target: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(OutOfMemory, match="smaller token budget") as caught:
        training.fit(Greedy(2, 2), batches(), 3)
    assert "sentences of up to" in str(caught.value)


def test_without_a_gpu_fast_is_the_same_training() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    plain, fast = small(), small()
    plain_losses = training.fit(plain, batches(), 3).losses
    fast = small()
    assert training.fit(fast, batches(), 3, fast=True).losses == plain_losses


# --- several processes -----------------------------------------------------------------------------------------------

WORKER = """
import json, sys
import torch
sys.path.insert(0, {tests!r})
from test_long_training import batches, small, sums
from course_utils import training

processes = training.Processes.join(torch.device("cpu"))
model = small(dropout=0.0)
history = training.fit(
    model, batches(share=(processes.rank, processes.world)), 8, warmup=5, processes=processes, threads=1
)
if processes.first:
    open({result!r}, "w").write(json.dumps({{"losses": history.losses, "weights": sums(model)}}))
processes.leave()
"""


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    script, result = tmp_path / "worker.py", tmp_path / "result.json"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent), result=str(result)))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [sys.executable, *launcher, str(script)],
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    two = json.loads(result.read_text())
    model = small(dropout=0.0)
    one = training.fit(model, batches(), 8, warmup=5)
    assert two["losses"] == pytest.approx(one.losses, rel=1e-5)
    assert two["weights"] == pytest.approx(sums(model), rel=1e-3, abs=1e-3)
