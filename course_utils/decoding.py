"""From a trained model to sentences. So far greedy: the likeliest token at every step.

A model offers ``start(source) -> state`` and ``step(token, state) -> (logits, state)``.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        token = logits.argmax(dim=-1).masked_fill(done, PAD)
        written.append(token)
        done |= token == EOS
        if done.all():
            break
    return torch.stack(written, dim=1) if written else source.new_empty((source.shape[0], 0))


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
