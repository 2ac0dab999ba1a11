"""Lesson 01: answers that are right in other ways, and wrong in further ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# 1.1 -----------------------------------------------------------------------------------------------------------------


def gru_in_chunks(x: Tensor, h: Tensor, W_ih: Tensor, W_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    r_i, z_i, n_i = F.linear(x, W_ih, b_ih).chunk(3, dim=1)
    r_h, z_h, n_h = F.linear(h, W_hh, b_hh).chunk(3, dim=1)
    z = (z_i + z_h).sigmoid()
    n = torch.tanh(n_i + (r_i + r_h).sigmoid() * n_h)
    return n + z * (h - n)


def gru_gate_by_gate(x: Tensor, h: Tensor, W_ih: Tensor, W_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    H = h.shape[1]
    W, U, b, c = (t.split(H) for t in (W_ih, W_hh, b_ih, b_hh))
    r = torch.sigmoid(x @ W[0].T + b[0] + h @ U[0].T + c[0])
    z = torch.sigmoid(x @ W[1].T + b[1] + h @ U[1].T + c[1])
    n = torch.tanh(x @ W[2].T + b[2] + r * (h @ U[2].T + c[2]))
    return torch.lerp(n, h, z)


def gru_by_einsum(x: Tensor, h: Tensor, W_ih: Tensor, W_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    H = h.shape[-1]
    i = (torch.einsum("bx,gx->bg", x, W_ih) + b_ih).unflatten(1, (3, H))
    j = (torch.einsum("bh,gh->bg", h, W_hh) + b_hh).unflatten(1, (3, H))
    gates = 1 / (1 + torch.exp(-(i[:, :2] + j[:, :2])))
    n = torch.tanh(i[:, 2] + gates[:, 0] * j[:, 2])
    return (1 - gates[:, 1]) * n + gates[:, 1] * h


def gru_of_torch(x: Tensor, h: Tensor, W_ih: Tensor, W_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    return torch.gru_cell(x, h, W_ih, W_hh, b_ih, b_hh)


def plain_rnn(x: Tensor, h: Tensor, W_ih: Tensor, W_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    H = h.shape[1]
    return torch.tanh(x @ W_ih[:H].T + b_ih[:H] + h @ W_hh[:H].T + b_hh[:H])


def gru_without_new(x: Tensor, h: Tensor, W_ih: Tensor, W_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    H = h.shape[1]
    z = torch.sigmoid((x @ W_ih.T + b_ih + h @ W_hh.T + b_hh)[:, H : 2 * H])
    return z * h


# 1.2 -----------------------------------------------------------------------------------------------------------------


def last_by_index(outputs: Tensor, lengths: Tensor) -> Tensor:
    return outputs[torch.arange(len(outputs)), lengths - 1]


def last_by_gather(outputs: Tensor, lengths: Tensor) -> Tensor:
    place = (lengths - 1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, place).squeeze(1)


def last_by_loop(outputs: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([outputs[b, int(n) - 1] for b, n in enumerate(lengths)])


def last_by_mask(outputs: Tensor, lengths: Tensor) -> Tensor:
    return outputs[torch.arange(outputs.shape[1]) == (lengths - 1)[:, None]]


def last_of_the_longest(outputs: Tensor, lengths: Tensor) -> Tensor:
    return outputs[:, int(lengths.max()) - 1].clone()


def largest_over_time(outputs: Tensor, lengths: Tensor) -> Tensor:
    return outputs.amax(dim=1)


# 1.3 -----------------------------------------------------------------------------------------------------------------


def forcing_by_slices(target: Tensor) -> tuple[Tensor, Tensor]:
    return target[:, :-1], target[:, 1:]


def forcing_by_narrow(target: Tensor) -> tuple[Tensor, Tensor]:
    T = target.size(1)
    return target.narrow(1, 0, T - 1).clone(), target.narrow(1, 1, T - 1).clone()


def forcing_by_unfold(target: Tensor) -> tuple[Tensor, Tensor]:
    pairs = target.unfold(1, 2, 1)  # (B, T - 1, 2)
    return pairs[..., 0].contiguous(), pairs[..., 1].contiguous()


def forcing_as_a_list(target: Tensor) -> list[Tensor]:
    rows = target.tolist()
    return [torch.tensor([row[:-1] for row in rows]), torch.tensor([row[1:] for row in rows])]


def forcing_drops_two(target: Tensor) -> tuple[Tensor, Tensor]:
    return target[:, :-2], target[:, 2:]


def forcing_exchanged(target: Tensor) -> tuple[Tensor, Tensor]:
    return target[:, 1:], target[:, :-1]


# 1.4 -----------------------------------------------------------------------------------------------------------------


def loss_of_torch(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad)


def loss_of_the_real(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    real = labels != pad
    return F.cross_entropy(logits[real], labels[real])


def loss_by_logsumexp(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    right = torch.einsum("btv,btv->bt", logits, F.one_hot(labels, logits.shape[-1]).to(logits.dtype))
    losses = (logits.logsumexp(-1) - right) * (labels != pad)
    return losses.sum() / (labels != pad).sum()


def loss_by_loop(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    losses = []
    for row, gold in zip(logits.flatten(0, 1), labels.flatten().tolist(), strict=True):
        if gold != pad:
            losses.append(-F.log_softmax(row, dim=0)[gold])
    return sum(losses) / len(losses)


def loss_in_bits(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    return loss_of_torch(logits, labels, pad) / torch.log(torch.tensor(2.0, dtype=logits.dtype))


def loss_of_the_first_sentence(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    return loss_of_torch(logits[:1], labels[:1], pad)


def loss_as_a_number(logits: Tensor, labels: Tensor, pad: int) -> float:
    return loss_of_torch(logits, labels, pad).item()


# 1.5 -----------------------------------------------------------------------------------------------------------------

Step = Callable[[int, Tensor], tuple[Tensor, Tensor]]


def decode_with_for(step: Step, state: Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    out = [bos]
    for _ in range(max_len):
        logits, state = step(out[-1], state)
        best = torch.argmax(logits).item()
        if best == eos:
            return out[1:]
        out.append(best)
    return out[1:]


def decode_by_recursion(step: Step, state: Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    if max_len == 0:
        return []
    logits, after = step(bos, state)
    token = int(logits.max(dim=0).indices)
    return [] if token == eos else [token, *decode_by_recursion(step, after, token, eos, max_len - 1)]


def decode_with_a_generator(step: Step, state: Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    def words() -> Any:
        token, now = bos, state
        for _ in count():
            logits, now = step(token, now)
            token = logits.tolist().index(max(logits.tolist()))
            if token == eos:
                return
            yield token

    return list(islice(words(), max_len))


def decode_with_softmax(step: Step, state: Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    written, token = [], bos
    while len(written) < max_len:
        logits, state = step(token, state)
        token = int(logits.softmax(dim=-1).argmax())
        if token == eos:
            break
        written += [token]
    return written


def decode_second_best(step: Step, state: Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    written, token = [], bos
    while len(written) < max_len:
        logits, state = step(token, state)
        token = int(logits.topk(2).indices[1])
        if token == eos:
            break
        written.append(token)
    return written


def decode_stops_at_bos(step: Step, state: Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    return decode_with_for(step, state, bos, bos, max_len)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "1.1": [gru_in_chunks, gru_gate_by_gate, gru_by_einsum, gru_of_torch],
    "1.2": [last_by_index, last_by_gather, last_by_loop, last_by_mask],
    "1.3": [forcing_by_slices, forcing_by_narrow, forcing_by_unfold, forcing_as_a_list],
    "1.4": [loss_of_torch, loss_of_the_real, loss_by_logsumexp, loss_by_loop],
    "1.5": [decode_with_for, decode_by_recursion, decode_with_a_generator, decode_with_softmax],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str | None]]] = {
    "1.1": [(plain_rnn, None), (gru_without_new, None)],
    "1.2": [(last_of_the_longest, None), (largest_over_time, None)],
    "1.3": [(forcing_drops_two, None), (forcing_exchanged, "shifted the wrong way")],
    "1.4": [(loss_in_bits, None), (loss_of_the_first_sentence, None), (loss_as_a_number, None)],
    "1.5": [(decode_second_best, None), (decode_stops_at_bos, None)],
}
