"""Lesson 05: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# 5.1 -----------------------------------------------------------------------------------------------------------------


def padding_by_unsqueeze(tokens: Tensor, pad: int) -> Tensor:
    return tokens.ne(pad).unsqueeze(1).unsqueeze(2)


def padding_by_view(tokens: Tensor, pad: int) -> Tensor:
    B, S = tokens.shape
    return (~(tokens == pad)).view(B, 1, 1, S)


def padding_from_lists(tokens: Tensor, pad: int) -> Tensor:
    return torch.tensor([[[[token != pad for token in row]]] for row in tokens.tolist()])


def padding_after_the_first(tokens: Tensor, pad: int) -> Tensor:
    return ((tokens == pad).cumsum(dim=1) < 2)[:, None, None]


def padding_of_the_first_sentence(tokens: Tensor, pad: int) -> Tensor:
    return (tokens[:1] != pad)[:, None, None]


# 5.2 -----------------------------------------------------------------------------------------------------------------


def causal_by_comparison(T: int) -> Tensor:
    i = torch.arange(T)
    return i[None, :] <= i[:, None]


def causal_by_loops(T: int) -> Tensor:
    return torch.tensor([[j <= i for j in range(T)] for i in range(T)])


def causal_by_triu(T: int) -> Tensor:
    return torch.triu(torch.ones(T, T), diagonal=1) == 0


def causal_from_torch(T: int) -> Tensor:
    return torch.nn.Transformer.generate_square_subsequent_mask(T) == 0


def causal_window(T: int) -> Tensor:
    i = torch.arange(T)
    return (i[None] <= i[:, None]) & (i[None] > i[:, None] - 3)


def causal_flipped(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril().flip(1)


# 5.3 -----------------------------------------------------------------------------------------------------------------


def decoder_by_comparison(tokens: Tensor, pad: int) -> Tensor:
    i = torch.arange(tokens.shape[1])
    return (i <= i[:, None]) & (tokens != pad)[:, None, None]


def decoder_by_loops(tokens: Tensor, pad: int) -> Tensor:
    B, T = tokens.shape
    mask = torch.zeros(B, 1, T, T, dtype=torch.bool)
    for b in range(B):
        for i in range(T):
            for j in range(i + 1):
                mask[b, 0, i, j] = tokens[b, j] != pad
    return mask


def decoder_by_tril(tokens: Tensor, pad: int) -> Tensor:
    B, T = tokens.shape
    return tokens.ne(pad).view(B, 1, 1, T).expand(B, 1, T, T).tril()


def decoder_by_product(tokens: Tensor, pad: int) -> Tensor:
    T = tokens.shape[1]
    return (tokens != pad)[:, None, None, :] * torch.ones(T, T, dtype=torch.bool).tril()


def decoder_of_the_first_sentence(tokens: Tensor, pad: int) -> Tensor:
    return decoder_by_comparison(tokens, pad)[:1].expand(len(tokens), -1, -1, -1).clone()


def decoder_exclusive_or(tokens: Tensor, pad: int) -> Tensor:
    T = tokens.shape[1]
    return (tokens != pad)[:, None, None] ^ torch.ones(T, T, dtype=torch.bool).tril()


# 5.4 -----------------------------------------------------------------------------------------------------------------


def softmax_then_nan_to_num(scores: Tensor, mask: Tensor) -> Tensor:
    return F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).nan_to_num(0.0)


def softmax_by_exponentials(scores: Tensor, mask: Tensor) -> Tensor:
    mask = mask.expand_as(scores)
    hidden = scores.masked_fill(~mask, float("-inf"))
    largest = hidden.amax(dim=-1, keepdim=True).detach()
    largest = torch.where(largest.isinf(), torch.zeros_like(largest), largest)
    e = (hidden - largest).exp()
    total = e.sum(dim=-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


def softmax_with_where(scores: Tensor, mask: Tensor) -> Tensor:
    some = mask.any(dim=-1, keepdim=True)
    safe = torch.where(mask, scores, torch.full_like(scores, float("-inf")))
    safe = torch.where(some, safe, torch.zeros_like(scores))
    return torch.where(mask & some, safe.softmax(-1), torch.zeros_like(scores))


def softmax_lowest_then_cleared(scores: Tensor, mask: Tensor) -> Tensor:
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0)


def softmax_in_float32(scores: Tensor, mask: Tensor) -> Tensor:
    return softmax_then_nan_to_num(scores.float(), mask)


def softmax_minus_ten(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores - 10 * (~mask).to(scores.dtype)).softmax(-1)


def softmax_of_the_largest(scores: Tensor, mask: Tensor) -> Tensor:
    hidden = scores.masked_fill(~mask, float("-inf"))
    return F.one_hot(hidden.argmax(-1), scores.shape[-1]).to(scores.dtype)


# 5.5 -----------------------------------------------------------------------------------------------------------------


def leaks_by_gradient(layer: Any, x: Tensor) -> bool:
    x = x.clone().requires_grad_()
    y = layer(x)
    for t in range(x.shape[1] - 1):
        for e in range(y.shape[2]):
            (gradient,) = torch.autograd.grad(y[:, t, e].sum(), x, retain_graph=True, allow_unused=True)
            if gradient is not None and gradient[:, t + 1 :].abs().max() > 1e-12:
                return True
    return False


def leaks_by_jacobian(layer: Any, x: Tensor) -> bool:
    J = torch.autograd.functional.jacobian(lambda x: layer(x).sum(dim=0), x)  # (T, E, B, T, D)
    strength = J.abs().amax(dim=(1, 2, 4))  # (T, T): output t, input s
    return bool((strength.triu(1) > 1e-12).any())


def leaks_by_new_suffixes(layer: Any, x: Tensor) -> bool:
    generator = torch.Generator().manual_seed(1)
    for t in range(1, x.shape[1]):
        other = x.clone()
        other[:, t:] = torch.randn(other[:, t:].shape, generator=generator, dtype=x.dtype)
        if (layer(x)[:, :t] - layer(other)[:, :t]).abs().max() > 1e-8:
            return True
    return False


def leaks_by_swapping(layer: Any, x: Tensor) -> bool:
    for t in range(1, x.shape[1]):
        other = torch.cat([x[:, :t], -3 * x[:, t:].flip(2) + 0.5], dim=1)
        if not torch.allclose(layer(x)[:, t - 1], layer(other)[:, t - 1], atol=1e-9):
            return True
    return False


def leaks_by_shape(layer: Any, x: Tensor) -> bool:
    return layer(x).shape[-1] != x.shape[-1]


def leaks_by_the_mean(layer: Any, x: Tensor) -> bool:
    other = x.clone()
    other[:, -1] += 1
    return bool((layer(other) - layer(x)).mean().abs() > 1e-9)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "5.1": [padding_by_unsqueeze, padding_by_view, padding_from_lists],
    "5.2": [causal_by_comparison, causal_by_loops, causal_by_triu, causal_from_torch],
    "5.3": [decoder_by_comparison, decoder_by_loops, decoder_by_tril, decoder_by_product],
    "5.4": [softmax_then_nan_to_num, softmax_by_exponentials, softmax_with_where, softmax_lowest_then_cleared],
    "5.5": [leaks_by_gradient, leaks_by_jacobian, leaks_by_new_suffixes, leaks_by_swapping],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "5.1": [(padding_after_the_first, None), (padding_of_the_first_sentence, None)],
    "5.2": [(causal_window, None), (causal_flipped, None)],
    "5.3": [(decoder_of_the_first_sentence, None), (decoder_exclusive_or, None)],
    "5.4": [(softmax_in_float32, None), (softmax_minus_ten, None), (softmax_of_the_largest, None)],
    "5.5": [(leaks_by_shape, None), (leaks_by_the_mean, None)],
}
