"""Lesson 09: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

# 9.1 -----------------------------------------------------------------------------------------------------------------


def rate_with_an_if(step: int, d_model: int, warmup: int) -> float:
    if step < warmup:
        return step / (math.sqrt(d_model) * warmup * math.sqrt(warmup))
    return 1 / math.sqrt(d_model * step)


def rate_from_its_peak(step: int, d_model: int, warmup: int) -> float:
    peak = (d_model * warmup) ** -0.5
    return peak * min(step / warmup, (warmup / step) ** 0.5)


def rate_in_torch(step: int, d_model: int, warmup: int) -> torch.Tensor:
    s = torch.tensor(float(step), dtype=torch.float64)
    return d_model**-0.5 * torch.minimum(s**-0.5, s * warmup**-1.5)


def rate_divided_by_d_model(step: int, d_model: int, warmup: int) -> float:
    return min(step**-0.5, step * warmup**-1.5) / d_model


def rate_linear_decay(step: int, d_model: int, warmup: int) -> float:
    return (d_model * warmup) ** -0.5 * min(step / warmup, warmup / step)


def rate_of_whole_numbers(step: int, d_model: int, warmup: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step // warmup * warmup**-0.5)


# 9.2 -----------------------------------------------------------------------------------------------------------------


def loss_of_torch(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad, label_smoothing=epsilon)


def loss_against_a_distribution(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    V = logits.shape[-1]
    target = F.one_hot(labels, V).to(logits.dtype) * (1 - epsilon) + epsilon / V
    losses = -(target * logits.log_softmax(dim=-1)).sum(dim=-1)
    real = labels != pad
    return (losses * real).sum() / real.sum()


def loss_by_loops(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    losses = []
    for scores, row in zip(logits, labels, strict=True):
        for score, label in zip(score_rows(scores), row.tolist(), strict=True):
            if label != pad:
                log_p = score - score.logsumexp(dim=0)
                losses.append(-(1 - epsilon) * log_p[label] - epsilon * log_p.mean())
    return torch.stack(losses).mean()


def score_rows(scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return scores.unbind(0)


def loss_as_two_losses(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    real = labels != pad
    scores, gold = logits[real], labels[real]
    log_p = scores.log_softmax(-1)
    return (1 - epsilon) * F.nll_loss(log_p, gold) + epsilon * -log_p.mean()


def loss_of_the_last_batch_row(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    return loss_of_torch(logits[-1:], labels[-1:], epsilon, pad)


def loss_with_pad_ignored_by_value_zero(
    logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int
) -> torch.Tensor:
    return loss_of_torch(logits, labels, epsilon, 0)


def loss_detached(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    return torch.tensor(loss_of_torch(logits, labels, epsilon, pad).item(), dtype=logits.dtype)


def loss_summed_over_classes(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    log_p = logits.log_softmax(-1)
    right = log_p.gather(-1, labels[..., None])[..., 0]
    return (-(1 - epsilon) * right - epsilon * log_p.sum(-1))[labels != pad].mean()


# 9.3 -----------------------------------------------------------------------------------------------------------------

Step = Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def search_with_a_heap(step: Step, state: Any, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
    live, done = [(0.0, (), bos, state)], []
    for length in range(1, max_len + 1):
        everything = []
        for score, tokens, last, before in live:
            logits, after = step(last, before)
            for token, log_p in enumerate(logits.log_softmax(-1).tolist()):
                everything.append((score + log_p, (*tokens, token), token, after))
        live = []
        for candidate in heapq.nlargest(beam, everything, key=lambda c: c[0]):
            if candidate[2] == eos:
                done.append((candidate[0] / ((5 + length) / 6) ** alpha, candidate[1][:-1]))
            else:
                live.append(candidate)
        if not live:
            break
    done += [(score / ((5 + len(tokens)) / 6) ** alpha, tokens) for score, tokens, *_ in live]
    return list(max(done, key=lambda d: d[0])[1])


def search_with_topk(step: Step, state: Any, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
    tokens, scores, states, best = [[bos]], torch.zeros(1, dtype=torch.float64), [state], (-math.inf, [])
    for length in range(1, max_len + 1):
        results = [step(t[-1], s) for t, s in zip(tokens, states, strict=True)]
        table = scores[:, None] + torch.stack([logits.log_softmax(-1) for logits, _ in results])  # (live, V)
        values, flat = table.flatten().topk(min(beam, table.numel()))
        new: list[tuple[list[int], float, Any]] = []
        for value, index in zip(values.tolist(), flat.tolist(), strict=True):
            origin, token = divmod(index, table.shape[1])
            if token == eos:
                best = max(best, (value / ((5 + length) / 6) ** alpha, tokens[origin][1:]))
            else:
                new.append(([*tokens[origin], token], value, results[origin][1]))
        if not new:
            return best[1]
        tokens, states = [n[0] for n in new], [n[2] for n in new]
        scores = torch.tensor([n[1] for n in new], dtype=torch.float64)
    for t, value in zip(tokens, scores.tolist(), strict=True):
        best = max(best, (value / ((5 + max_len) / 6) ** alpha, t[1:]))
    return best[1]


def search_by_recursion(step: Step, state: Any, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
    def scored(sum_: float, tokens: list[int]) -> tuple[float, list[int]]:
        return sum_ / ((5 + len(tokens)) / 6) ** alpha, [t for t in tokens if t != eos]

    def go(live: list[tuple[float, list[int], Any]], left: int) -> list[tuple[float, list[int]]]:
        if not live or left == 0:
            return [scored(s, tokens) for s, tokens, _ in live]
        grown = []
        for s, tokens, before in live:
            logits, after = step(tokens[-1] if tokens else bos, before)
            log_p = F.log_softmax(logits, dim=0)
            grown += [(s + log_p[i].item(), [*tokens, i], after) for i in range(len(log_p))]
        grown = sorted(grown, key=lambda g: g[0], reverse=True)[:beam]
        ended = [scored(s, tokens) for s, tokens, _ in grown if tokens[-1] == eos]
        return ended + go([g for g in grown if g[1][-1] != eos], left - 1)

    return max(go([(0.0, [], state)], max_len))[1]


def search_keeps_bos(step: Step, state: Any, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
    return [bos, *search_with_a_heap(step, state, bos, eos, beam, max_len, alpha)]


def search_off_by_one(step: Step, state: Any, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
    return search_with_a_heap(step, state, bos, eos, beam, max_len + 1, alpha)


def search_without_logarithm(
    step: Step, state: Any, bos: int, eos: int, beam: int, max_len: int, alpha: float
) -> list[int]:
    def probabilities(token: int, before: Any) -> tuple[torch.Tensor, Any]:
        logits, after = step(token, before)
        return logits.softmax(-1).exp(), after

    return search_with_a_heap(probabilities, state, bos, eos, beam, max_len, alpha)


# 9.4 -----------------------------------------------------------------------------------------------------------------

Cache = dict[str, torch.Tensor]


def cache_with_torchs_attention(q: Any, k: Any, v: Any, cache: Cache) -> tuple[torch.Tensor, Cache]:
    K = torch.cat([cache["k"], k], dim=-2) if "k" in cache else k.clone()
    V = torch.cat([cache["v"], v], dim=-2) if "v" in cache else v.clone()
    past = K.shape[-2] - q.shape[-2]
    i = torch.arange(q.shape[-2])[:, None] + past
    return F.scaled_dot_product_attention(q, K, V, attn_mask=torch.arange(K.shape[-2]) <= i), {"k": K, "v": V}


def cache_token_by_token(q: Any, k: Any, v: Any, cache: Cache) -> tuple[torch.Tensor, Cache]:
    K, V = cache.get("k", k[:, :, :0]), cache.get("v", v[:, :, :0])
    outputs = []
    for t in range(q.shape[2]):
        K, V = torch.cat([K, k[:, :, t : t + 1]], dim=2), torch.cat([V, v[:, :, t : t + 1]], dim=2)
        scores = torch.einsum("bhd,bhsd->bhs", q[:, :, t], K) / K.shape[-1] ** 0.5
        outputs.append(torch.einsum("bhs,bhsd->bhd", scores.softmax(dim=-1), V))
    return torch.stack(outputs, dim=2), {"k": K, "v": V}


def cache_with_triu(q: Any, k: Any, v: Any, cache: Cache) -> tuple[torch.Tensor, Cache]:
    new = dict(cache)
    new["k"] = torch.cat([cache["k"], k], 2) if cache else torch.clone(k)
    new["v"] = torch.cat([cache["v"], v], 2) if cache else torch.clone(v)
    past = new["k"].size(2) - k.size(2)
    hidden = torch.triu(torch.ones(q.size(2), new["k"].size(2)), diagonal=past + 1).bool()
    scores = (q / math.sqrt(q.size(-1))) @ new["k"].mT
    scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ new["v"], new


def cache_of_values_only(q: Any, k: Any, v: Any, cache: Cache) -> tuple[torch.Tensor, Cache]:
    output, new = cache_with_triu(q, k, v, cache)
    return output, {"k": k.clone(), "v": new["v"]}


def cache_is_a_tuple(q: Any, k: Any, v: Any, cache: Cache) -> Any:
    output, new = cache_with_triu(q, k, v, cache)
    return output, (new["k"], new["v"])


def cache_softmax_over_queries(q: Any, k: Any, v: Any, cache: Cache) -> tuple[torch.Tensor, Cache]:
    _, new = cache_with_triu(q, k, v, cache)
    weights = (q @ new["k"].mT / math.sqrt(q.size(-1))).softmax(dim=-2)
    return weights @ new["v"], new


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "9.1": [rate_with_an_if, rate_from_its_peak, rate_in_torch],
    "9.2": [loss_of_torch, loss_against_a_distribution, loss_by_loops, loss_as_two_losses],
    "9.3": [search_with_a_heap, search_with_topk, search_by_recursion],
    "9.4": [cache_with_torchs_attention, cache_token_by_token, cache_with_triu],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "9.1": [(rate_divided_by_d_model, None), (rate_linear_decay, None), (rate_of_whole_numbers, None)],
    "9.2": [
        (loss_of_the_last_batch_row, None),
        (loss_with_pad_ignored_by_value_zero, "padding taken to be 0"),
        (loss_detached, "no gradient gets through"),
        (loss_summed_over_classes, "ε to every token"),
    ],
    "9.3": [(search_keeps_bos, None), (search_off_by_one, None), (search_without_logarithm, None)],
    "9.4": [(cache_of_values_only, None), (cache_is_a_tuple, None), (cache_softmax_over_queries, None)],
}
