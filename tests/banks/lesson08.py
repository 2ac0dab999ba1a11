"""Lesson 08: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Parameters = SimpleNamespace


def linear(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return F.linear(x, p.weight, p.bias)


def norm(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5).rsqrt() * p.gamma + p.beta


def feed_forward(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return linear(linear(x, p.inner).clamp(min=0), p.outer)


# 8.2 -----------------------------------------------------------------------------------------------------------------


def split(x: torch.Tensor, h: int) -> torch.Tensor:
    return x.view(*x.shape[:2], h, -1).transpose(1, 2)


def merge(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def cross_fused(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    Q, K, V = split(linear(x, p.W_q), p.h), split(linear(memory, p.W_k), p.h), split(linear(memory, p.W_v), p.h)
    return linear(merge(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)), p.W_o)


def cross_einsum(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    def heads(y: torch.Tensor, w: Parameters) -> torch.Tensor:  # -> (B, length, h, d_k)
        weight = w.weight.view(p.h, -1, y.shape[-1])
        return torch.einsum("bld,hkd->blhk", y, weight) + w.bias.view(p.h, -1)

    Q, K, V = heads(x, p.W_q), heads(memory, p.W_k), heads(memory, p.W_v)
    scores = torch.einsum("bthk,bshk->bhts", Q, K) * Q.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1).nan_to_num()
    found = torch.einsum("bhts,bshk->bthk", weights, V)
    return torch.einsum("bthk,dhk->btd", found, p.W_o.weight.view(-1, p.h, Q.shape[-1])) + p.W_o.bias


def cross_by_loops(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    """Sentence by sentence, head by head; padding is cut off, not masked."""
    B, T, D = x.shape
    d_k = D // p.h
    sentences = []
    for b in range(B):
        rows = []
        for t in range(T):
            seen = mask[b, 0, t if mask.shape[2] > 1 else 0]  # (S,)
            words = memory[b, seen]
            heads = []
            for i in range(p.h):
                part = slice(i * d_k, (i + 1) * d_k)
                q = p.W_q.weight[part] @ x[b, t] + p.W_q.bias[part]
                K = words @ p.W_k.weight[part].T + p.W_k.bias[part]
                V = words @ p.W_v.weight[part].T + p.W_v.bias[part]
                heads.append((K @ q / d_k**0.5).softmax(dim=0) @ V)  # of no words at all: zeros
            rows.append(p.W_o.weight @ torch.cat(heads) + p.W_o.bias)
        sentences.append(torch.stack(rows))
    return torch.stack(sentences)


def cross_by_torch(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    """torch's own function: time first, True = hide, the three input weights in one block."""
    B, T, D = x.shape
    hide = ~mask.expand(B, p.h, T, memory.shape[1]).flatten(0, 1)
    output, _ = F.multi_head_attention_forward(
        x.transpose(0, 1),
        memory.transpose(0, 1),
        memory.transpose(0, 1),
        D,
        p.h,
        torch.cat([p.W_q.weight, p.W_k.weight, p.W_v.weight]),
        torch.cat([p.W_q.bias, p.W_k.bias, p.W_v.bias]),
        None,
        None,
        False,
        0.0,
        p.W_o.weight,
        p.W_o.bias,
        need_weights=False,
        attn_mask=hide,
    )
    return output.transpose(0, 1)


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Parameters], torch.Tensor]


def cross_large_number(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    """Hidden scores of -1e9: a source of padding alone is averaged."""
    Q, K, V = split(linear(x, p.W_q), p.h), split(linear(memory, p.W_k), p.h), split(linear(memory, p.W_v), p.h)
    scores = (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
    return linear(merge(scores.softmax(dim=-1) @ V), p.W_o)


def cross_mask_added(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    Q, K, V = split(linear(x, p.W_q), p.h), split(linear(memory, p.W_k), p.h), split(linear(memory, p.W_v), p.h)
    return linear(merge(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask.to(Q.dtype))), p.W_o)


def cross_causal_flag(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    Q, K, V = split(linear(x, p.W_q), p.h), split(linear(memory, p.W_k), p.h), split(linear(memory, p.W_v), p.h)
    causal = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
    return linear(merge(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask & causal)), p.W_o)


def cross_bare_reshape(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    def cut(y: torch.Tensor) -> torch.Tensor:
        return y.reshape(y.shape[0], p.h, y.shape[1], -1)

    Q, K, V = cut(linear(x, p.W_q)), cut(linear(memory, p.W_k)), cut(linear(memory, p.W_v))
    return linear(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask).reshape(x.shape), p.W_o)


def cross_asked_by_memory(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return cross_fused(memory, x, mask, p)


def cross_only_itself(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return cross_fused(x, x, mask, p)


def cross_unmasked(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return cross_fused(x, memory, torch.ones_like(mask), p)


def cross_plain(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    Q, K, V = split(linear(x, p.W_q), p.h), split(linear(memory, p.W_k), p.h), split(linear(memory, p.W_v), p.h)
    scores = (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
    return linear(merge(scores.softmax(dim=-1) @ V), p.W_o)


def cross_with_norm(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return F.layer_norm(x + cross_fused(x, memory, mask, p), x.shape[-1:])


# 8.1 -----------------------------------------------------------------------------------------------------------------


def encoder_with(attend: Attend) -> Callable[..., torch.Tensor]:
    def encoder_layer(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
        x = norm(x + attend(x, x, mask, p.attention), p.around_attention.norm)
        return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)

    return encoder_layer


@torch.no_grad()
def copy_attention(theirs: nn.MultiheadAttention, p: Parameters) -> None:
    theirs.in_proj_weight.copy_(torch.cat([p.W_q.weight, p.W_k.weight, p.W_v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([p.W_q.bias, p.W_k.bias, p.W_v.bias]))
    copy_pair(theirs.out_proj, p.W_o.weight, p.W_o.bias)


@torch.no_grad()
def copy_pair(theirs: nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> None:
    theirs.weight.copy_(weight)
    theirs.bias.copy_(bias)


def layer_of_torch(kind: Any, x: torch.Tensor, h: int, p: Parameters, norms: tuple[Parameters, ...]) -> nn.Module:
    d_ff = p.ffn.inner.weight.shape[0]
    layer = kind(x.shape[-1], h, d_ff, dropout=0.0, batch_first=True, dtype=x.dtype)
    copy_pair(layer.linear1, p.ffn.inner.weight, p.ffn.inner.bias)
    copy_pair(layer.linear2, p.ffn.outer.weight, p.ffn.outer.bias)
    for own, theirs in zip(norms, (layer.norm1, layer.norm2, getattr(layer, "norm3", None)), strict=False):
        copy_pair(theirs, own.gamma, own.beta)
    return layer


def encoder_by_torch(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    norms = (p.around_attention.norm, p.around_ffn.norm)
    layer = layer_of_torch(nn.TransformerEncoderLayer, x, p.attention.h, p, norms)
    copy_attention(layer.self_attn, p.attention)
    return layer(x, src_key_padding_mask=~mask[:, 0, 0])


def encoder_in_place(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    x += cross_fused(x, x, mask, p.attention)
    x = norm(x, p.around_attention.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def encoder_gelu(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    x = norm(x + cross_fused(x, x, mask, p.attention), p.around_attention.norm)
    return norm(x + linear(F.gelu(linear(x, p.ffn.inner)), p.ffn.outer), p.around_ffn.norm)


def encoder_causal(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return encoder_with(cross_causal_flag)(x, mask, p)


def encoder_attention_only(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return norm(x + cross_fused(x, x, mask, p.attention), p.around_attention.norm)


def encoder_no_paths(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    x = norm(cross_fused(x, x, mask, p.attention), p.around_attention.norm)
    return norm(feed_forward(x, p.ffn), p.around_ffn.norm)


def encoder_one_sum(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    """One path around both sublayers together."""
    y = norm(cross_fused(x, x, mask, p.attention), p.around_attention.norm)
    return norm(x + feed_forward(y, p.ffn), p.around_ffn.norm)


def encoder_pre_norm(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    y = norm(x, p.around_attention.norm)
    x = x + cross_fused(y, y, mask, p.attention)
    return x + feed_forward(norm(x, p.around_ffn.norm), p.ffn)


def encoder_norm_over_time(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    def over_time(y: torch.Tensor, q: Parameters) -> torch.Tensor:
        return F.layer_norm(y.mT, y.shape[1:2]).mT * q.gamma + q.beta

    x = over_time(x + cross_fused(x, x, mask, p.attention), p.around_attention.norm)
    return over_time(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def encoder_detached(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    return encoder_with(cross_fused)(x, mask, p).detach()


# 8.3 -----------------------------------------------------------------------------------------------------------------


def decoder_with(attend: Attend, across: Attend | None = None) -> Callable[..., torch.Tensor]:
    def decoder_layer(
        x: torch.Tensor, memory: torch.Tensor, self_mask: torch.Tensor, memory_mask: torch.Tensor, p: Parameters
    ) -> torch.Tensor:
        x = norm(x + attend(x, x, self_mask, p.self_attention), p.around_self.norm)
        x = norm(x + (across or attend)(x, memory, memory_mask, p.cross_attention), p.around_cross.norm)
        return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)

    return decoder_layer


def decoder_by_torch(
    x: torch.Tensor, memory: torch.Tensor, self_mask: torch.Tensor, memory_mask: torch.Tensor, p: Parameters
) -> torch.Tensor:
    h = p.self_attention.h
    norms = (p.around_self.norm, p.around_cross.norm, p.around_ffn.norm)
    layer = layer_of_torch(nn.TransformerDecoderLayer, x, h, p, norms)
    copy_attention(layer.self_attn, p.self_attention)
    copy_attention(layer.multihead_attn, p.cross_attention)
    hide = ~self_mask.expand(-1, h, -1, -1).flatten(0, 1)
    return layer(x, memory, tgt_mask=hide, memory_key_padding_mask=~memory_mask[:, 0, 0])


def decoder_step_by_step(
    x: torch.Tensor, memory: torch.Tensor, self_mask: torch.Tensor, memory_mask: torch.Tensor, p: Parameters
) -> torch.Tensor:
    """One token after another, as in writing: each sees the tokens up to itself."""
    outputs = []
    for t in range(x.shape[1]):
        now = x[:, t : t + 1]
        seen = self_mask[:, :, t : t + 1]
        now = norm(now + cross_fused(now, x, seen, p.self_attention), p.around_self.norm)
        now = norm(now + cross_fused(now, memory, memory_mask, p.cross_attention), p.around_cross.norm)
        outputs.append(norm(now + feed_forward(now, p.ffn), p.around_ffn.norm))
    return torch.cat(outputs, dim=1)


def decoder_cross_first(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    x = norm(x + cross_fused(x, memory, other, p.cross_attention), p.around_cross.norm)
    x = norm(x + cross_fused(x, x, own, p.self_attention), p.around_self.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def decoder_no_path_across(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    x = norm(x + cross_fused(x, x, own, p.self_attention), p.around_self.norm)
    x = norm(cross_fused(x, memory, other, p.cross_attention), p.around_cross.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def decoder_adds_memory(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    """The mean of the memory instead of a look at it."""
    x = norm(x + cross_fused(x, x, own, p.self_attention), p.around_self.norm)
    weights = other[:, 0, 0].to(x.dtype)[..., None]  # (B, S, 1)
    mean = (memory * weights).sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True)
    x = norm(x + mean, p.around_cross.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def decoder_strictly_causal(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    strict = own & torch.ones(own.shape[-2:], dtype=torch.bool).tril(-1)
    return decoder_with(cross_fused)(x, memory, strict, other, p)


def decoder_padding_only(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    """Hides the padding of the target and not its future."""
    return decoder_with(cross_fused)(x, memory, own[:, :, -1:], other, p)


def decoder_everything_joined(
    x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters
) -> torch.Tensor:
    """Tokens and source as one memory, for both attentions."""
    both = torch.cat([x, memory], dim=1)
    mask = torch.cat([own, other.expand(-1, -1, x.shape[1], -1)], dim=-1)
    x = norm(x + cross_fused(x, both, mask, p.self_attention), p.around_self.norm)
    x = norm(x + cross_fused(x, both, mask, p.cross_attention), p.around_cross.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def decoder_as_encoder(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    x = norm(x + cross_fused(x, x, own, p.self_attention), p.around_self.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def decoder_wrong_pair(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    """Returns the memory too, as a layer of a stack might."""
    return decoder_with(cross_fused)(x, memory, own, other, p), memory


def decoder_normed_twice(x: torch.Tensor, memory: torch.Tensor, own: Any, other: Any, p: Parameters) -> torch.Tensor:
    return norm(decoder_with(cross_fused)(x, memory, own, other, p), p.around_ffn.norm)


# 8.4 -----------------------------------------------------------------------------------------------------------------


def count_by_names(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    attention = {f"W_{name}": d_model * (d_model + 1) for name in "qkvo"}
    feed = {"inner": (d_model + 1) * d_ff, "outer": (d_ff + 1) * d_model}
    total = 0
    for _ in range(N):
        for attentions in (1, 2):  # encoder, decoder
            total += attentions * sum(attention.values()) + sum(feed.values()) + (attentions + 1) * 2 * d_model
    return total + (1 if tied else 3) * V * d_model


def count_by_polynomial(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    return N * (12 * d_model**2 + 24 * d_model + 4 * d_model * d_ff + 2 * d_ff) + V * d_model * (3 - 2 * tied)


def count_by_torch(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(d_model, 1, d_ff), nn.TransformerDecoderLayer(d_model, 1, d_ff)]
        table = nn.Embedding(V, d_model)
    count = [sum(p.numel() for p in part.parameters()) for part in (*layers, table)]
    return N * (count[0] + count[1]) + count[2] * (1 if tied else 3)


def count_all_torch(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    """nn.Transformer has a norm at the end of each stack."""
    return count_by_polynomial(V, d_model, d_ff, N, tied) + 4 * d_model


def count_decoder_like_encoder(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    layer = 4 * d_model * (d_model + 1) + 2 * d_model * d_ff + d_ff + d_model + 4 * d_model
    return 2 * N * layer + (1 if tied else 3) * V * d_model


def count_weights_only(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    return N * (12 * d_model**2 + 4 * d_model * d_ff) + (1 if tied else 3) * V * d_model


def count_ignores_tied(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    return count_by_polynomial(V, d_model, d_ff, N, False)


def count_always_tied(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    return count_by_polynomial(V, d_model, d_ff, N, True)


def count_positions_too(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    return count_by_polynomial(V, d_model, d_ff, N, tied) + 512 * d_model


def count_in_millions(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> float:
    return count_by_polynomial(V, d_model, d_ff, N, tied) / 1e6


def count_half_of_the_layers(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    return count_by_polynomial(V, d_model, d_ff, N // 2, tied)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "8.1": [
        encoder_with(cross_fused),
        encoder_with(cross_einsum),
        encoder_with(cross_by_loops),
        encoder_with(cross_plain),
        encoder_with(cross_large_number),
        encoder_by_torch,
    ],
    "8.2": [cross_fused, cross_einsum, cross_by_loops, cross_by_torch],
    "8.3": [
        decoder_with(cross_fused),
        decoder_with(cross_einsum),
        decoder_with(cross_by_loops),
        decoder_with(cross_plain, cross_by_torch),
        decoder_by_torch,
        decoder_step_by_step,
    ],
    "8.4": [count_by_names, count_by_polynomial, count_by_torch],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "8.1": [
        (encoder_no_paths, "one residual missing"),
        (encoder_pre_norm, "pre-norm"),
        (encoder_with(cross_unmasked), "mask unused"),
        (encoder_in_place, "changes its input"),
        (encoder_detached, "no gradient gets through"),
        (encoder_gelu, "GELU"),
        (encoder_causal, None),
        (encoder_attention_only, None),
        (encoder_one_sum, None),
        (encoder_norm_over_time, None),
        (encoder_with(cross_mask_added), None),
        (encoder_with(cross_bare_reshape), None),
    ],
    "8.2": [
        (cross_asked_by_memory, "Q from memory"),
        (cross_only_itself, "K, V from x"),
        (cross_causal_flag, "causal mask on memory"),
        (cross_plain, "NaN for a source of padding"),
        (cross_unmasked, "mask unused"),
        (cross_large_number, "a large number instead of infinity"),
        (cross_mask_added, "mask as a number in the scores"),
        (cross_bare_reshape, None),
        (cross_with_norm, None),
    ],
    "8.3": [
        (decoder_cross_first, "cross before self"),
        (decoder_no_path_across, "one residual missing"),
        (decoder_with(cross_unmasked, cross_fused), "unmasked self-attention"),
        (decoder_with(cross_fused, cross_unmasked), "memory mask unused"),
        (decoder_with(cross_unmasked), "no mask at all"),
        (decoder_with(cross_fused, cross_causal_flag), "causal mask on memory"),
        (decoder_with(cross_fused, cross_asked_by_memory), "Q from memory"),
        (decoder_as_encoder, "a sublayer left out"),
        (decoder_adds_memory, None),
        (decoder_strictly_causal, None),
        (decoder_padding_only, None),
        (decoder_everything_joined, None),
        (decoder_wrong_pair, None),
        (decoder_normed_twice, None),
    ],
    "8.4": [
        (count_all_torch, "norms at the end of the stacks"),
        (count_decoder_like_encoder, "cross-attention forgotten"),
        (count_ignores_tied, "embeddings counted twice when tied"),
        (count_always_tied, "too few tables when not tied"),
        (count_weights_only, "matrices only"),
        (count_positions_too, None),
        (count_in_millions, None),
        (count_half_of_the_layers, None),
    ],
}
