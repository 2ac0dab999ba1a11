"""Reference models against torch's own modules, in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.models.attention import (
    AdditiveScore,
    AttentionSeq2Seq,
    DotScore,
    attention_weights,
    context_vector,
)
from course_utils.models.rnn import Encoder, GRUCell, Seq2Seq
from course_utils.text import PAD

DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_gru_cell_equals_torch() -> None:
    ours, theirs = GRUCell(5, 3).to(DOUBLE), nn.GRUCell(5, 3, dtype=DOUBLE)
    with torch.no_grad():
        for i, gate in enumerate("rzn"):  # torch's order
            for own, packed in (("W", "ih"), ("U", "hh")):
                linear = getattr(ours, f"{own}_{gate}")
                linear.weight.copy_(getattr(theirs, f"weight_{packed}")[3 * i : 3 * i + 3])
                linear.bias.copy_(getattr(theirs, f"bias_{packed}")[3 * i : 3 * i + 3])
    x, h = torch.randn(7, 5, dtype=DOUBLE), torch.randn(7, 3, dtype=DOUBLE)
    torch.testing.assert_close(ours(x, h), theirs(x, h), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_does_not_change_the_encoder(bidirectional: bool) -> None:
    encoder = Encoder(9, 4, 6, bidirectional).to(DOUBLE)
    source = torch.tensor([[4, 5, 6]])
    states, last = encoder(source)
    padded_states, padded_last = encoder(torch.cat([source, torch.full((1, 4), PAD)], dim=1))
    torch.testing.assert_close(padded_states[:, :3], states)
    torch.testing.assert_close(padded_last, last)
    assert padded_states.shape == (1, 7, 12 if bidirectional else 6)


def test_weights_equal_torch_where_everything_is_visible() -> None:
    scores = torch.randn(4, 6, dtype=DOUBLE)
    everything = torch.ones(4, 6, dtype=torch.bool)
    torch.testing.assert_close(attention_weights(scores, everything), F.softmax(scores, dim=-1), rtol=0, atol=1e-12)


def test_hidden_places_get_exactly_nothing_and_rows_sum_to_one() -> None:
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    alpha = attention_weights(torch.randn(2, 4, dtype=DOUBLE), mask)
    assert (alpha[~mask] == 0).all()
    torch.testing.assert_close(alpha.sum(-1), torch.ones(2, dtype=DOUBLE))


def test_scores_and_context_equal_a_loop() -> None:
    s, H = torch.randn(3, 4, dtype=DOUBLE), torch.randn(3, 5, 4, dtype=DOUBLE)
    additive, dot = AdditiveScore(4, 4, 7).to(DOUBLE), DotScore()
    alpha = torch.rand(3, 5, dtype=DOUBLE)
    for b in range(3):
        for j in range(5):
            by_hand = additive.v.weight[0] @ torch.tanh(additive.W.weight @ s[b] + additive.U.weight @ H[b, j])
            torch.testing.assert_close(additive(s, H)[b, j], by_hand)
            torch.testing.assert_close(dot(s, H)[b, j], s[b] @ H[b, j])
        mixed = sum(alpha[b, j] * H[b, j] for j in range(5))
        torch.testing.assert_close(context_vector(alpha, H)[b], mixed)


@pytest.mark.parametrize("kind", [Seq2Seq, AttentionSeq2Seq])
def test_steps_give_the_same_logits_as_teacher_forcing(kind: type) -> None:
    model = kind(9, 8, 5, 6).to(DOUBLE)
    source, target = torch.tensor([[4, 5, 6], [7, 8, PAD]]), torch.tensor([[1, 4, 5, 6], [1, 7, 4, 5]])
    state, logits = model.start(source), []
    for token in target.unbind(1):
        step_logits, state = model.step(token, state)
        logits.append(step_logits)
    torch.testing.assert_close(torch.stack(logits, 1), model(source, target))


@pytest.mark.parametrize("kind", [Seq2Seq, AttentionSeq2Seq])
def test_a_batch_gives_what_each_sentence_gives_alone(kind: type) -> None:
    model = kind(9, 8, 5, 6).to(DOUBLE)
    source, target = torch.tensor([[4, 5, 6], [7, PAD, PAD]]), torch.tensor([[1, 4], [1, 7]])
    together = model(source, target)
    torch.testing.assert_close(model(source[1:, :1], target[1:]), together[1:])


def test_alpha_is_computed_anew_from_the_state_before_the_step() -> None:
    model = AttentionSeq2Seq(9, 8, 5, 6).to(DOUBLE)
    first = model.start(torch.tensor([[4, 5, 6]]))
    _, second = model.step(torch.tensor([1]), first)
    _, third = model.step(torch.tensor([4]), second)
    expected = attention_weights(model.score(second.s, second.H), second.mask)
    torch.testing.assert_close(third.alpha, expected)
    assert not torch.allclose(second.alpha, third.alpha)
