"""Lesson 04: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# 4.1 -----------------------------------------------------------------------------------------------------------------


def split_by_view(x: Tensor, h: int) -> Tensor:
    B, T, D = x.shape
    if D % h != 0:
        raise ValueError("h does not divide D")
    return x.reshape(B, T, h, D // h).permute(0, 2, 1, 3)


def split_by_chunks(x: Tensor, h: int) -> Tensor:
    if x.shape[-1] % h:
        raise ValueError(f"{x.shape[-1]} is not divisible by {h}")
    return torch.stack(x.chunk(h, dim=-1), dim=1)


def split_by_unflatten(x: Tensor, h: int) -> Tensor:
    size, rest = divmod(x.shape[2], h)
    if rest:
        raise ValueError("no")
    return x.unflatten(2, (h, size)).swapaxes(1, 2).contiguous()


def split_by_loop(x: Tensor, h: int) -> Tensor:
    B, T, D = x.shape
    if D % h:
        raise ValueError("h must divide D")
    out = x.new_empty(B, h, T, D // h)
    for i in range(h):
        out[:, i] = x[:, :, i * D // h : (i + 1) * D // h]
    return out


def split_cuts_off(x: Tensor, h: int) -> Tensor:
    size = x.shape[2] // h
    return x[:, :, : h * size].reshape(*x.shape[:2], h, size).transpose(1, 2)


def split_reversed_heads(x: Tensor, h: int) -> Tensor:
    return split_by_chunks(x, h).flip(1)


# 4.2 -----------------------------------------------------------------------------------------------------------------


def merge_by_reshape(x: Tensor) -> Tensor:
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, h * d_k)


def merge_by_concatenation(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(dim=1), dim=-1)


def merge_by_flatten(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().flatten(start_dim=2)


def merge_mean(x: Tensor) -> Tensor:
    return x.mean(dim=1)


def merge_reversed_heads(x: Tensor) -> Tensor:
    return merge_by_concatenation(x.flip(1))


# 4.3 -----------------------------------------------------------------------------------------------------------------


def multi_by_einsum(
    query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, h: int, mask: Any = None
) -> Tensor:
    D = query.shape[-1]
    Wq, Wk, Wv = (W.reshape(h, D // h, D) for W in (W_q, W_k, W_v))
    q = torch.einsum("btd,hkd->bhtk", query, Wq)
    k, v = (torch.einsum("bsd,hkd->bhsk", memory, W) for W in (Wk, Wv))
    e = torch.einsum("bhtk,bhsk->bhts", q, k) / (D // h) ** 0.5
    if mask is not None:
        e = torch.where(mask, e, torch.tensor(-torch.inf, dtype=e.dtype))
    return torch.einsum("bhts,bhsk,dhk->btd", e.softmax(-1), v, W_o.reshape(D, h, D // h))


def multi_of_torch(
    query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, h: int, mask: Any = None
) -> Tensor:
    Q, K, V = (split_by_chunks(F.linear(x, W), h) for x, W in ((query, W_q), (memory, W_k), (memory, W_v)))
    return F.linear(merge_by_concatenation(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)), W_o)


def multi_head_by_head(
    query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, h: int, mask: Any = None
) -> Tensor:
    size = query.shape[-1] // h
    if mask is not None:
        mask = mask.expand(query.shape[0], h, query.shape[1], memory.shape[1])
    out = 0
    for i in range(h):
        own = slice(i * size, (i + 1) * size)
        scores = (query @ W_q[own].T) @ (memory @ W_k[own].T).mT / size**0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, i].logical_not(), float("-inf"))
        out = out + scores.softmax(-1) @ (memory @ W_v[own].T) @ W_o[:, own].T
    return out


def multi_with_residual(
    query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, h: int, mask: Any = None
) -> Tensor:
    return query + multi_of_torch(query, memory, W_q, W_k, W_v, W_o, h, mask)


def multi_values_of_the_query(
    query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, h: int, mask: Any = None
) -> Tensor:
    return multi_of_torch(query, memory, W_v, W_k, W_q, W_o, h, mask)


# 4.4 -----------------------------------------------------------------------------------------------------------------


def count_by_adding(d_model: int, h: int, bias: bool) -> int:
    per_head = 3 * d_model * (d_model // h) + (3 * (d_model // h) if bias else 0)
    return h * per_head + d_model**2 + (d_model if bias else 0)


def count_by_factor(d_model: int, h: int, bias: bool) -> int:
    return 4 * d_model * (d_model + bias)


def count_by_torch(d_model: int, h: int, bias: bool) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in torch.nn.MultiheadAttention(d_model, h, bias=bias).parameters())


def count_of_one_matrix(d_model: int, h: int, bias: bool) -> int:
    return d_model**2 + d_model * bias


def count_as_text(d_model: int, h: int, bias: bool) -> str:
    return str(count_by_factor(d_model, h, bias))


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "4.1": [split_by_view, split_by_chunks, split_by_unflatten, split_by_loop],
    "4.2": [merge_by_reshape, merge_by_concatenation, merge_by_flatten],
    "4.3": [multi_by_einsum, multi_of_torch, multi_head_by_head],
    "4.4": [count_by_adding, count_by_factor, count_by_torch],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "4.1": [(split_cuts_off, None), (split_reversed_heads, None)],
    "4.2": [(merge_mean, None), (merge_reversed_heads, None)],
    "4.3": [(multi_with_residual, None), (multi_values_of_the_query, None)],
    "4.4": [(count_of_one_matrix, None), (count_as_text, None)],
}
