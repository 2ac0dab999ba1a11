"""Beam search against trying every sentence there is."""

import itertools

import pytest
import torch

from course_utils.decoding import beam_search, greedy, length_penalty
from course_utils.models.attention import AttentionSeq2Seq
from course_utils.models.rnn import Seq2Seq
from course_utils.models.transformer import Transformer
from course_utils.text import BOS, EOS, PAD

SOURCE = torch.tensor([[4, 5, 6, 7], [8, 4, PAD, PAD], [5, 6, 7, PAD]])
MAX = 3


def models() -> list[torch.nn.Module]:
    torch.manual_seed(0)
    made = [Seq2Seq(9, 6, 5, 6), AttentionSeq2Seq(9, 6, 5, 6), Transformer(9, 6, 8, 2, 16, 1, 0.0)]
    for model in made:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.8)
    return [model.double().eval() for model in made]


def score_of(model: torch.nn.Module, source: torch.Tensor, tokens: tuple[int, ...], alpha: float) -> float:
    ended = len(tokens) < MAX or tokens[-1] == EOS
    inputs = torch.tensor([[BOS, *tokens[:-1]]])
    steps = model(source, inputs)[0].log_softmax(-1)
    total = sum(steps[i, t].item() for i, t in enumerate(tokens))
    assert ended or len(tokens) == MAX
    return total / length_penalty(len(tokens), alpha)


def every_sentence(size: int) -> list[tuple[int, ...]]:
    """All that end with <eos> within MAX tokens, and all of MAX tokens that do not end."""
    others = [t for t in range(size) if t not in (PAD, BOS, EOS)]
    ended = [(*w, EOS) for n in range(MAX) for w in itertools.product(others, repeat=n)]
    return ended + list(itertools.product(others, repeat=MAX))


@pytest.mark.parametrize("model", models(), ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_wide_beam_finds_the_best_sentence_of_all(model: torch.nn.Module, alpha: float) -> None:
    for b, found in enumerate(beam_search(model, SOURCE, beam=40, alpha=alpha, max_len=MAX)):
        length = int((SOURCE[b] != PAD).sum())
        scores = {w: score_of(model, SOURCE[b : b + 1, :length], w, alpha) for w in every_sentence(6)}
        best = max(scores, key=scores.__getitem__)
        assert tuple(found[0].tokens) == tuple(t for t in best if t != EOS)
        assert found[0].score == pytest.approx(scores[best], abs=1e-5)


@pytest.mark.parametrize("model", models(), ids=lambda m: type(m).__name__)
def test_a_beam_of_one_is_greedy(model: torch.nn.Module) -> None:
    expected = [[t for t in row if t not in (EOS, PAD)] for row in greedy(model, SOURCE, max_len=6).tolist()]
    beams = beam_search(model, SOURCE, beam=1, alpha=0.0, max_len=6)
    got = [[t for t in found[0].tokens if t != PAD] for found in beams]
    assert got == expected


@pytest.mark.parametrize("model", models(), ids=lambda m: type(m).__name__)
def test_a_batch_finds_what_each_sentence_finds_alone(model: torch.nn.Module) -> None:
    together = beam_search(model, SOURCE, beam=3, max_len=6)
    for b, found in enumerate(together):
        (alone,) = beam_search(model, SOURCE[b : b + 1, : int((SOURCE[b] != PAD).sum())], beam=3, max_len=6)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-5)


def test_hypotheses_come_best_first_and_without_doubles() -> None:
    for found in beam_search(models()[2], SOURCE, beam=4, max_len=5):
        assert len(found) == 4
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.tokens) for h in found}) == 4


def test_the_penalty_is_one_for_a_single_token_and_favours_length() -> None:
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(20, 0.0) == 1
    assert length_penalty(20, 0.6) == pytest.approx((25 / 6) ** 0.6)
