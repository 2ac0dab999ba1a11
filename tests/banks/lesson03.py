"""Lesson 03: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# 3.1 -----------------------------------------------------------------------------------------------------------------

Array = np.ndarray


def project_by_einsum(X: Array, W_q: Array, W_k: Array, W_v: Array) -> tuple[Array, ...]:
    return tuple(np.einsum("td,dk->tk", X, W) for W in (W_q, W_k, W_v))


def project_at_once(X: Array, W_q: Array, W_k: Array, W_v: Array) -> list[Array]:
    return np.split(X @ np.hstack([W_q, W_k, W_v]), 3, axis=1)


def project_word_by_word(X: Array, W_q: Array, W_k: Array, W_v: Array) -> tuple[Array, ...]:
    return tuple(
        np.stack([sum(x * row for x, row in zip(word, W, strict=True)) for word in X]) for W in (W_q, W_k, W_v)
    )


def project_normalised(X: Array, W_q: Array, W_k: Array, W_v: Array) -> tuple[Array, ...]:
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X @ W_q, X @ W_k, X @ W_v


def project_rectified(X: Array, W_q: Array, W_k: Array, W_v: Array) -> tuple[Array, ...]:
    return tuple(np.maximum(X @ W, 0) for W in (W_q, W_k, W_v))


# 3.2 -----------------------------------------------------------------------------------------------------------------


def attention_by_einsum(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(torch.einsum("...td,...sd->...ts", Q, K) / math.sqrt(K.size(-1)), dim=-1)
    return torch.einsum("...ts,...sv->...tv", weights, V), weights


def attention_scaled_first(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    scores = (Q * Q.shape[-1] ** -0.25) @ (K * K.shape[-1] ** -0.25).mT
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = e / e.sum(-1, keepdim=True)
    return weights @ V, weights


def attention_query_by_query(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    rows = []
    for t in range(Q.shape[-2]):
        scores = (K * Q[..., t : t + 1, :]).sum(-1) / Q.shape[-1] ** 0.5
        rows.append(F.softmax(scores, dim=-1))
    weights = torch.stack(rows, dim=-2)
    return torch.matmul(weights, V), weights


def attention_of_torch(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    weights = (Q @ K.transpose(-1, -2)).mul(1 / K.shape[-1] ** 0.5).softmax(-1)
    return F.scaled_dot_product_attention(Q, K, V), weights


def attention_by_cosine(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    weights = (F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT).softmax(-1)
    return weights @ V, weights


def attention_over_everything(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    weights = scores.flatten(-2).softmax(-1).view_as(scores)
    return weights @ V, weights


def attention_sigmoid(Q: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    weights = (Q @ K.mT / Q.shape[-1] ** 0.5).sigmoid()
    return weights @ V, weights


# 3.3 -----------------------------------------------------------------------------------------------------------------


def self_by_loop(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    out = []
    for x in X:
        q, k, v = x @ W_q, x @ W_k, x @ W_v
        out.append(((q @ k.T) / q.shape[1] ** 0.5).softmax(dim=1) @ v)
    return torch.stack(out)


def self_of_torch(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v)


def self_by_bmm(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    Q, K, V = (F.linear(X, W.T) for W in (W_q, W_k, W_v))
    return torch.bmm(F.softmax(torch.bmm(Q, K.mT) / math.sqrt(K.shape[2]), 2), V)


def self_plus_residual(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    V = X @ W_v
    return self_of_torch(X, W_q, W_k, W_v) + V


def self_causal(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v, is_causal=True)


# 3.4 -----------------------------------------------------------------------------------------------------------------


def std_by_einsum(d_k: int, n: int, generator: torch.Generator) -> float:
    q, k = torch.randn(2, n, d_k, generator=generator, dtype=torch.float64)
    return float(torch.einsum("nd,nd->n", q, k).std())


def std_by_loop(d_k: int, n: int, generator: torch.Generator) -> float:
    scores = []
    for _ in range(n):
        q = torch.randn(d_k, generator=generator)
        k = torch.randn(d_k, generator=generator)
        scores.append((q @ k).item())
    return float(np.std(scores))


def std_by_its_definition(d_k: int, n: int, generator: torch.Generator) -> Tensor:
    k = torch.randn(d_k, n, generator=generator)
    q = torch.randn(d_k, n, generator=generator)
    scores = (q * k).sum(0)
    return ((scores - scores.mean()) ** 2).mean().sqrt()


def std_of_the_query(d_k: int, n: int, generator: torch.Generator) -> float:
    return torch.randn(n, d_k, generator=generator).norm(dim=-1).std().item()


def std_of_a_square(d_k: int, n: int, generator: torch.Generator) -> float:
    q = torch.randn(n, d_k, generator=generator)
    return (q * q).sum(-1).std().item()


# 3.5 -----------------------------------------------------------------------------------------------------------------


def one_by_product(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.softmax(K @ q / K.shape[1] ** 0.5, dim=0) @ V


def one_as_a_batch(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q[None, None], K[None], V[None])[0, 0]


def one_by_einsum(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    e = torch.einsum("d,sd->s", q, K) / math.sqrt(len(q))
    return torch.einsum("s,sv->v", (e - e.logsumexp(0)).exp(), V)


def one_median(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return V.median(dim=0).values


def one_last(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return V[-1].clone()


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "3.1": [project_by_einsum, project_at_once, project_word_by_word],
    "3.2": [attention_by_einsum, attention_scaled_first, attention_query_by_query, attention_of_torch],
    "3.3": [self_by_loop, self_of_torch, self_by_bmm],
    "3.4": [std_by_einsum, std_by_loop, std_by_its_definition],
    "3.5": [one_by_product, one_as_a_batch, one_by_einsum],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "3.1": [(project_normalised, None), (project_rectified, None)],
    "3.2": [(attention_by_cosine, None), (attention_over_everything, None), (attention_sigmoid, None)],
    "3.3": [(self_plus_residual, None), (self_causal, None)],
    "3.4": [(std_of_the_query, None), (std_of_a_square, None)],
    "3.5": [(one_median, None), (one_last, None)],
}
