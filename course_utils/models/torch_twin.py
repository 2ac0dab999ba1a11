"""The course's Transformer as torch's own ``nn.Transformer``, for comparison: same sizes, same weights."""

from __future__ import annotations

import torch
from torch import nn

from course_utils.models.multi_head import MultiHeadAttention
from course_utils.models.normalization import AddAndNorm, LayerNorm
from course_utils.models.transformer import Transformer


@torch.no_grad()
def torch_twin(model: Transformer) -> nn.Transformer:
    """An ``nn.Transformer`` that holds copies of the weights. It has no embeddings and no output layer.

    Post-norm, it is given no norms at the end of its stacks: torch puts them there, the paper does not.
    """
    first = model.encoder[0]
    norm_first = first.around_ffn.norm_first
    sizes = {
        "d_model": first.ffn.inner.in_features,
        "nhead": first.attention.h,
        "dim_feedforward": first.ffn.inner.out_features,
        "dropout": first.around_ffn.dropout.p,
        "norm_first": norm_first,
        "batch_first": True,
        "dtype": first.ffn.inner.weight.dtype,
    }
    norm = nn.LayerNorm(sizes["d_model"], dtype=sizes["dtype"]) if norm_first else None
    # Without nested tensors, which torch calls a prototype and warns about.
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**sizes), len(model.encoder), norm, enable_nested_tensor=False
    )
    theirs = nn.Transformer(custom_encoder=encoder, num_decoder_layers=len(model.decoder), **sizes)
    for ours, layer in zip(model.encoder, theirs.encoder.layers, strict=True):
        _copy_attention(ours.attention, layer.self_attn)
        _copy_layer(ours, layer, (ours.around_attention, ours.around_ffn))
    for ours, layer in zip(model.decoder, theirs.decoder.layers, strict=True):
        _copy_attention(ours.self_attention, layer.self_attn)
        _copy_attention(ours.cross_attention, layer.multihead_attn)
        _copy_layer(ours, layer, (ours.around_self, ours.around_cross, ours.around_ffn))
    if norm_first:
        _copy_norm(model.encoder_norm, theirs.encoder.norm)
        _copy_norm(model.decoder_norm, theirs.decoder.norm)
    else:
        theirs.decoder.norm = None
    return theirs.train(model.training)


def _copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.W_q.bias, ours.W_k.bias, ours.W_v.bias]))
    theirs.out_proj.load_state_dict(ours.W_o.state_dict())


def _copy_layer(ours: nn.Module, theirs: nn.Module, paths: tuple[AddAndNorm, ...]) -> None:
    for i, path in enumerate(paths, start=1):
        _copy_norm(path.norm, getattr(theirs, f"norm{i}"))
    theirs.linear1.load_state_dict(ours.ffn.inner.state_dict())
    theirs.linear2.load_state_dict(ours.ffn.outer.state_dict())


def _copy_norm(ours: LayerNorm, theirs: nn.LayerNorm) -> None:
    theirs.weight.copy_(ours.gamma)
    theirs.bias.copy_(ours.beta)
