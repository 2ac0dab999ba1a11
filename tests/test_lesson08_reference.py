"""Exercises 8.1 to 8.4: their references against the course's own Transformer, whose names ``p`` has."""

import pytest
import torch
from torch import nn

from course_utils.checks import lesson08
from course_utils.models.masks import decoder_mask, padding_mask
from course_utils.models.transformer import Transformer
from course_utils.training import parameter_count

SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 4, 5, 0, 0]])
TARGET = torch.tensor([[1, 4, 5, 6], [1, 7, 2, 0]])


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    model = Transformer(11, 10, d_model=12, h=3, d_ff=20, N=1, dropout=0.0)
    for parameter in model.parameters():  # biases and norms too: zeros and ones would hide a mistake
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def test_the_layers_are_those_of_the_model(model: Transformer) -> None:
    encoder, decoder = model.encoder[0], model.decoder[0]
    x, y = model.source_embedding(SOURCE).double(), model.target_embedding(TARGET).double()
    mask, own_mask = padding_mask(SOURCE), decoder_mask(TARGET)
    memory = encoder(x, mask)
    # a module has all the names of ``p``, so it can stand for it
    torch.testing.assert_close(lesson08.encoder_layer(x, mask, encoder), memory)
    found, _ = decoder.cross_attention(y, memory, mask)
    torch.testing.assert_close(lesson08.cross_attention(y, memory, mask, decoder.cross_attention), found)
    output, _ = decoder(y, decoder.cross_attention.keys_values(memory), own_mask, mask)
    torch.testing.assert_close(lesson08.decoder_layer(y, memory, own_mask, mask, decoder), output)


@pytest.mark.parametrize("sizes", [(37_000, 512, 2048, 6), (50, 12, 7, 2), (50, 12, 30, 1)])
@pytest.mark.parametrize("tied", [True, False])
def test_the_count_is_that_of_the_model(sizes: tuple[int, int, int, int], tied: bool) -> None:
    V, d_model, d_ff, N = sizes
    with torch.device("meta"):  # counted without being made
        model = Transformer(V, V, d_model, h=4, d_ff=d_ff, N=N, tied="all" if tied else "none")
    assert lesson08.transformer_parameters(V, d_model, d_ff, N, tied) == parameter_count(model)
