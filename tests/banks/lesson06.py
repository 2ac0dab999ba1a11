"""Lesson 06: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# 6.1 -----------------------------------------------------------------------------------------------------------------


def norm_of_torch(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), gamma, beta, eps)


def norm_by_squares(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return gamma * centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + eps) + beta


def norm_by_var_mean(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(beta, (x - mean) / torch.sqrt(variance + eps), gamma)


def norm_token_by_token(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    rows = []
    for token in x.reshape(-1, x.shape[-1]):
        m = token.sum() / len(token)
        v = ((token - m) ** 2).sum() / len(token)
        rows.append((token - m) / (v + eps) ** 0.5 * gamma + beta)
    return torch.stack(rows).reshape(x.shape)


def norm_to_length_one(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    return F.normalize(x, dim=-1) * gamma + beta


def norm_by_range(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + eps) * gamma + beta


# 6.2 -----------------------------------------------------------------------------------------------------------------


def add_with_torch(x: Tensor, sublayer_output: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return F.layer_norm(x + sublayer_output, x.shape[-1:], gamma, beta)


def add_by_formula(x: Tensor, sublayer_output: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return norm_by_squares(torch.add(sublayer_output, x), gamma, beta)


def add_by_stack(x: Tensor, sublayer_output: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return norm_by_var_mean(torch.stack([x, sublayer_output]).sum(0), gamma, beta)


def add_joined(x: Tensor, sublayer_output: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return norm_of_torch(torch.maximum(x, sublayer_output), gamma, beta)


def add_twice_the_sublayer(x: Tensor, sublayer_output: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return norm_of_torch(x + 2 * sublayer_output, gamma, beta)


# 6.3 -----------------------------------------------------------------------------------------------------------------


def feed_with_linear(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(x, W_1.T, b_1)), W_2.T, b_2)


def feed_by_einsum(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    inner = (torch.einsum("...d,df->...f", x, W_1) + b_1).clamp(min=0)
    return torch.einsum("...f,fd->...d", inner, W_2) + b_2


def feed_word_by_word(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    words = [torch.maximum(w @ W_1 + b_1, torch.zeros_like(b_1)) @ W_2 + b_2 for w in x.flatten(0, -2)]
    return torch.stack(words).view_as(x)


def feed_absolute(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    return (x @ W_1 + b_1).abs() @ W_2 + b_2


def feed_bias_after_the_bend(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    return ((x @ W_1).relu() + b_1) @ W_2 + b_2


# 6.4 -----------------------------------------------------------------------------------------------------------------

Function = Callable[[Tensor], Tensor]


def block_in_two_lines(x: Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function) -> Tensor:
    x = x + attention(norm_1(x))
    return x + ffn(norm_2(x))


def block_by_loop(x: Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function) -> Tensor:
    h = x
    for f, norm in ((attention, norm_1), (ffn, norm_2)):
        h = torch.add(f(norm(h)), h)
    return h


def block_as_a_sum(x: Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function) -> Tensor:
    found = attention(norm_1(x))
    thought = ffn(norm_2(x + found))
    return x + found + thought


def block_of_attention_alone(
    x: Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function
) -> Tensor:
    return x + attention(norm_1(x))


def block_in_place(x: Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function) -> Tensor:
    x += attention(norm_1(x))
    x += ffn(norm_2(x))
    return x


# 6.5 -----------------------------------------------------------------------------------------------------------------


def depth_with_retain_grad(layers: Sequence[Function], x: Tensor) -> list[float]:
    h = x.clone().requires_grad_()
    states = [h]
    for layer in layers:
        h = layer(h)
        h.retain_grad()
        states.append(h)
    (h**2).mean().backward()
    return [float(state.grad.norm()) for state in states]


def depth_with_grad(layers: Sequence[Function], x: Tensor) -> list[float]:
    h = x.detach().clone().requires_grad_(True)
    states = [h]
    for layer in layers:
        states.append(layer(states[-1]))
    loss = states[-1].pow(2).mean()
    return [torch.autograd.grad(loss, s, retain_graph=True)[0].square().sum().sqrt().item() for s in states]


def depth_backwards(layers: Sequence[Function], x: Tensor) -> list[float]:
    states = [x]
    for layer in layers:
        states.append(layer(states[-1]).detach())
    gradient = 2 * states[-1] / states[-1].numel()
    norms = [gradient.norm().item()]
    for layer, h in zip(reversed(layers), reversed(states[:-1]), strict=True):
        h = h.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(h), h, gradient)
        norms.insert(0, gradient.norm().item())
    return norms


def depth_relative(layers: Sequence[Function], x: Tensor) -> list[float]:
    norms = depth_with_grad(layers, x)
    return [n / norms[-1] for n in norms]


def depth_as_one_tensor(layers: Sequence[Function], x: Tensor) -> Tensor:
    return torch.tensor(depth_with_grad(layers, x))


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "6.1": [norm_of_torch, norm_by_squares, norm_by_var_mean, norm_token_by_token],
    "6.2": [add_with_torch, add_by_formula, add_by_stack],
    "6.3": [feed_with_linear, feed_by_einsum, feed_word_by_word],
    "6.4": [block_in_two_lines, block_by_loop, block_as_a_sum],
    "6.5": [depth_with_retain_grad, depth_with_grad, depth_backwards],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "6.1": [(norm_to_length_one, None), (norm_by_range, None)],
    "6.2": [(add_joined, None), (add_twice_the_sublayer, None)],
    "6.3": [(feed_absolute, None), (feed_bias_after_the_bend, None)],
    "6.4": [(block_of_attention_alone, None), (block_in_place, "changes its input")],
    "6.5": [(depth_relative, None), (depth_as_one_tensor, None)],
}
