"""From a trained model to sentences: greedy decoding, and beam search with a length penalty.

A model offers ``start(source) -> state`` and ``step(token, state) -> (logits, state)``. What it need not compute twice
(the encoder's states, a cache of keys and values) it keeps in the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from course_utils.text import BOS, EOS, PAD, Pair, Vocabulary, pad


class StepModel(Protocol):
    """What decoding needs of a model; ``state`` is the model's own business."""

    def start(self, source: torch.Tensor) -> Any: ...

    def step(self, token: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]: ...


@torch.no_grad()
def greedy(model: StepModel, source: torch.Tensor, max_len: int = 40) -> torch.Tensor:
    """(B, S) -> (B, at most max_len) ids without ``<bos>``; after a sentence's ``<eos>`` comes padding."""
    state = model.start(source)
    token = source.new_full((source.shape[0],), BOS)
    done = torch.zeros_like(token, dtype=torch.bool)
    written = []
    for _ in range(max_len):
        logits, state = model.step(token, state)
        token = _only_words(logits).argmax(dim=-1).masked_fill(done, PAD)
        written.append(token)
        done |= token == EOS
        if done.all():
            break
    return torch.stack(written, dim=1) if written else source.new_empty((source.shape[0], 0))


def _only_words(scores: torch.Tensor) -> torch.Tensor:
    """(B, V) with ``<pad>`` and ``<bos>`` ruled out: nothing is ever to be written with them."""
    scores = scores.clone()
    scores[:, [PAD, BOS]] = float("-inf")
    return scores


@dataclass(frozen=True)
class Hypothesis:
    """A candidate translation. ``score`` is its log-probability (nats) divided by the length penalty."""

    tokens: list[int]  # without <bos> and <eos>
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha, with ``<eos>`` counted (Wu et al. 2016, equation 14); 1 when alpha is 0."""
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def beam_search(
    model: StepModel, source: torch.Tensor, beam: int = 4, alpha: float = 0.6, max_len: int = 40
) -> list[list[Hypothesis]]:
    """Up to ``beam`` hypotheses for each sentence of (B, S), the best first.

    Args:
        beam: how many unfinished hypotheses are kept at each step; 1 is greedy decoding.
        alpha: strength of the length penalty; the paper uses 0.6, with a beam of 4 (Vaswani et al. 2017, section 6.1).
        max_len: hypotheses that have not ended by then count as they stand.
    """
    sentences = source.shape[0]
    state = select(model.start(source), torch.arange(sentences, device=source.device).repeat_interleave(beam))
    token = source.new_full((sentences * beam,), BOS)
    # At first all of a sentence's hypotheses are the same one, so only the first may go on.
    scores = torch.full((sentences, beam), float("-inf"), device=source.device)
    scores[:, 0] = 0
    written = source.new_empty((sentences, beam, 0))
    ended: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    for length in range(1, max_len + 1):
        logits, state = model.step(token, state)
        steps = _only_words(logits.log_softmax(dim=-1)).view(sentences, beam, -1)
        total = scores[..., None] + steps.to(scores.dtype)
        # 2 * beam candidates: even if beam of them end here, beam are left to go on
        best, index = total.flatten(1).topk(min(2 * beam, total[0].numel()), dim=1)
        origin, new = index // total.shape[-1], index % total.shape[-1]
        _collect_ended(ended, best, origin, new, written, beam, length_penalty(length, alpha))
        best = best.masked_fill(new == EOS, float("-inf"))
        scores, kept = best.topk(beam, dim=1)
        origin, new = origin.gather(1, kept), new.gather(1, kept)
        written = torch.cat([written.gather(1, origin[..., None].expand(-1, -1, length - 1)), new[..., None]], dim=-1)
        rows = (torch.arange(sentences, device=source.device)[:, None] * beam + origin).flatten()
        state, token = select(state, rows), new.flatten()
        if all(_settled(done, scores[b, 0].item(), beam, alpha, max_len) for b, done in enumerate(ended)):
            break
    else:
        _collect_unfinished(ended, scores, written, length_penalty(max_len, alpha))
    return [sorted(done, key=lambda h: -h.score)[:beam] for done in ended]


def _collect_ended(
    ended: list[list[Hypothesis]],
    best: torch.Tensor,
    origin: torch.Tensor,
    new: torch.Tensor,
    written: torch.Tensor,
    beam: int,
    penalty: float,
) -> None:
    """Hypotheses among the best ``beam`` candidates that end here leave the race."""
    for b, rank in (new[:, :beam] == EOS).nonzero().tolist():
        if best[b, rank] > float("-inf"):
            ended[b].append(Hypothesis(written[b, origin[b, rank]].tolist(), best[b, rank].item() / penalty))


def _settled(done: list[Hypothesis], running: float, beam: int, alpha: float, max_len: int) -> bool:
    """True when no running hypothesis can still come among the best: more tokens only lower its probability."""
    if len(done) < beam:
        return False
    most = running / length_penalty(max_len, alpha)
    return sorted(h.score for h in done)[-beam] >= most


def _collect_unfinished(
    ended: list[list[Hypothesis]], scores: torch.Tensor, written: torch.Tensor, penalty: float
) -> None:
    for b, row in enumerate(scores.tolist()):
        for k, score in enumerate(row):
            if score > float("-inf"):
                ended[b].append(Hypothesis(written[b, k].tolist(), score / penalty))


def select(state: Any, rows: torch.Tensor) -> Any:
    """``state`` of the sentences ``rows``, in that order: a tensor, a tuple of states, or an object with ``select``."""
    if hasattr(state, "select") and not isinstance(state, torch.Tensor):
        return state.select(rows)
    if isinstance(state, torch.Tensor):
        return state[rows]
    return type(state)(*(select(part, rows) for part in state))


def translate(
    model: StepModel, sentences: Sequence[Sequence[str]], source: Vocabulary, target: Vocabulary, max_len: int = 40
) -> list[list[str]]:
    """Greedy translations of tokenised sentences, in their order."""
    device = next(model.parameters()).device if isinstance(model, torch.nn.Module) else "cpu"
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translated: dict[int, list[str]] = {}
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        written = greedy(model, pad([source.encode(sentences[i]) for i in rows]).to(device), max_len)
        translated.update(zip(rows, map(target.decode, written.tolist()), strict=True))
    return [translated[i] for i in range(len(sentences))]


def exact_matches(model: StepModel, pairs: Sequence[Pair], source: Vocabulary, target: Vocabulary) -> list[bool]:
    """For each pair: is the greedy translation the target, token for token?"""
    written = translate(model, [p.source for p in pairs], source, target)
    return [tuple(tokens) == p.target for tokens, p in zip(written, pairs, strict=True)]
