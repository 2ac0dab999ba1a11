"""The Transformer against torch.nn.Transformer under copied weights, and against itself step by step."""

import pytest
import torch
from torch import nn

from course_utils.models.masks import causal_mask
from course_utils.models.torch_twin import torch_twin
from course_utils.models.transformer import Transformer
from course_utils.text import BOS, EOS, PAD
from course_utils.training import parameter_count

DOUBLE = torch.float64
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 4, 5, PAD, PAD], [6, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, EOS, PAD], [BOS, 5, 6, EOS]])


def small(norm_first: bool, **options: object) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(11, 10, d_model=12, h=3, d_ff=20, N=2, dropout=0.0, norm_first=norm_first, **options)
    for parameter in model.parameters():  # biases and norms too: zeros and ones would hide a mistake
        nn.init.normal_(parameter, std=0.3)
    return model.to(DOUBLE).eval()


@pytest.mark.parametrize("norm_first", [False, True])
def test_equal_to_torch_under_copied_weights(norm_first: bool) -> None:
    model = small(norm_first, tied="none")
    theirs = torch_twin(model)
    hidden = theirs(
        model.source_embedding(SOURCE),
        model.target_embedding(TARGET),
        tgt_mask=~causal_mask(TARGET.shape[1]),  # torch's modules hide where True
        src_key_padding_mask=SOURCE == PAD,
        tgt_key_padding_mask=TARGET == PAD,
        memory_key_padding_mask=SOURCE == PAD,
    )
    torch.testing.assert_close(model(SOURCE, TARGET), model.output(hidden), rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm_first", [False, True])
def test_step_by_step_with_the_cache_equals_the_whole(norm_first: bool) -> None:
    model = small(norm_first)
    target = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, 8, 9], [BOS, 5, 6, 4]])
    state, logits = model.start(SOURCE), []
    for token in target.unbind(1):
        step_logits, state = model.step(token, state)
        logits.append(step_logits)
    torch.testing.assert_close(torch.stack(logits, 1), model(SOURCE, target), rtol=0, atol=1e-12)


def test_padding_and_the_future_change_nothing() -> None:
    model = small(False)
    longer = torch.cat([SOURCE, torch.full((3, 4), PAD)], dim=1)
    torch.testing.assert_close(model(longer, TARGET), model(SOURCE, TARGET), rtol=0, atol=1e-12)
    other = TARGET.clone()
    other[:, 2:] = 9
    torch.testing.assert_close(model(SOURCE, other)[:, :2], model(SOURCE, TARGET)[:, :2], rtol=0, atol=1e-12)


def test_weights_of_every_layer_and_head() -> None:
    weights = small(True).attention_weights(SOURCE, TARGET)
    assert [w.shape for w in weights["encoder"]] == [(3, 3, 5, 5)] * 2
    assert [w.shape for w in weights["decoder"]] == [(3, 3, 4, 4)] * 2
    assert [w.shape for w in weights["cross"]] == [(3, 3, 4, 5)] * 2
    assert all((w[..., 1:, :].sum(-1) - 1).abs().max() < 1e-12 for w in weights["cross"])
    assert all(w[2, :, :, 1:].abs().max() == 0 for w in weights["cross"]), "padding of the source got weight"


def test_a_state_can_be_reordered() -> None:
    model, rows = small(False), torch.tensor([2, 0, 0])
    _, state = model.step(torch.tensor([BOS] * 3), model.start(SOURCE))
    logits, _ = model.step(torch.tensor([4, 5, 6])[rows], state.select(rows))
    expected, _ = model.step(torch.tensor([4, 5, 6]), state)
    torch.testing.assert_close(logits, expected[rows])


def test_the_base_model_has_the_papers_size() -> None:
    with torch.device("meta"):  # counted, not made
        model = Transformer(37_000, 37_000, tied="all")
    assert 60e6 < parameter_count(model) < 66e6


def test_tying_shares_one_table() -> None:
    model = Transformer(10, 10, 8, 2, 16, 1, tied="all")
    assert model.output.weight is model.target_embedding.table.weight is model.source_embedding.table.weight
    with pytest.raises(ValueError, match="one vocabulary"):
        Transformer(10, 11, 8, 2, 16, 1, tied="all")
    with pytest.raises(ValueError, match="tied is"):
        Transformer(10, 10, 8, 2, 16, 1, tied="both")
