"""The training loop and greedy decoding."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils import training
from course_utils.corpora import number_task
from course_utils.decoding import exact_matches, greedy, translate
from course_utils.models.attention import AttentionSeq2Seq
from course_utils.models.rnn import Seq2Seq
from course_utils.text import BOS, EOS, PAD, Batch, Vocabulary, endless_batches

TASK = number_task(train=400, test=60, digits=2)


def _train(steps: int, kind: type = AttentionSeq2Seq) -> tuple[nn.Module, training.History]:
    generator = training.seed_everything(0)
    model = kind(len(TASK.english), len(TASK.korean), 24, 24)
    batches = endless_batches(TASK.train, TASK.english, TASK.korean, 32, generator)
    return model, training.fit(model, batches, steps, rate=1e-2)


def test_the_loss_leaves_padding_out() -> None:
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[4, 2, PAD], [3, PAD, PAD]])
    kept = labels != PAD
    expected = F.cross_entropy(logits[kept], labels[kept])
    torch.testing.assert_close(training.sequence_loss(logits, labels), expected)


def test_the_rate_climbs_then_falls_to_nothing() -> None:
    factors = [training.warmup_then_decay(step, steps=100, warmup=10) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == factors[9] == factors[10] == 1
    assert factors[100] == 0
    assert factors[:10] == sorted(factors[:10])
    assert factors[10:] == sorted(factors[10:], reverse=True)


def test_training_learns_and_is_the_same_every_time() -> None:
    model, history = _train(120)
    again, same = _train(120)
    assert history.losses == same.losses
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))
    assert history.losses[0] == pytest.approx(math.log(len(TASK.korean)), abs=0.5)
    assert history.losses[-1] < 0.2
    assert not model.training


@pytest.mark.slow
def test_a_trained_model_translates_numbers_it_never_saw() -> None:
    task = number_task(train=3_000, test=200, digits=4)
    generator = training.seed_everything(0)
    model = AttentionSeq2Seq(len(task.english), len(task.korean), 32, 32)
    training.fit(model, endless_batches(task.train, task.english, task.korean, 32, generator), 250, rate=1e-2)
    right = exact_matches(model, task.test, task.english, task.korean)
    assert sum(right) / len(right) > 0.9


def test_the_stop_button_keeps_what_was_learned(capsys: pytest.CaptureFixture[str]) -> None:
    generator = training.seed_everything(0)
    model = Seq2Seq(len(TASK.english), len(TASK.korean), 8, 8)

    def interrupted() -> Iterator[Batch]:
        yield from itertools.islice(endless_batches(TASK.train, TASK.english, TASK.korean, 8, generator), 5)
        raise KeyboardInterrupt

    history = training.fit(model, interrupted(), 50)
    assert len(history.losses) == 5
    assert "Stopped after 5 of 50 steps" in capsys.readouterr().out


class Counter:
    """A step model that writes 4, 5, 6, then ``<eos>``; the second sentence stops one token earlier."""

    def start(self, source: torch.Tensor) -> torch.Tensor:
        return torch.arange(source.shape[0])

    def step(self, token: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        following = torch.where(token == BOS, 4, token + 1)
        following = torch.where(following + state > 6, EOS, following)
        return F.one_hot(following.clamp(max=9), 10).float(), state


def test_greedy_stops_each_sentence_at_its_own_end() -> None:
    assert greedy(Counter(), torch.zeros(2, 3, dtype=torch.long)).tolist() == [[4, 5, 6, EOS], [4, 5, EOS, PAD]]


def test_greedy_stops_at_max_len() -> None:
    assert greedy(Counter(), torch.zeros(1, 3, dtype=torch.long), max_len=2).tolist() == [[4, 5]]


def test_translations_come_in_the_order_of_the_sentences() -> None:
    model, _ = _train(120)
    sentences = [p.source for p in TASK.test]
    together = translate(model, sentences, TASK.english, TASK.korean)
    assert together == [translate(model, [s], TASK.english, TASK.korean)[0] for s in sentences]


def test_one_thread_for_small_models_all_for_large() -> None:
    assert training.choose_threads(1_000) == 1
    assert training.choose_threads(10_000_000) >= 1


def test_a_vocabulary_of_only_specials_translates_to_nothing() -> None:
    assert Vocabulary([]).decode([BOS, EOS]) == []
