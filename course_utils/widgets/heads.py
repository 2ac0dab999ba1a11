"""Lesson 04: what every head looked at during one translation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_utils.models.multi_head import MultiHeadSeq2Seq
from course_utils.text import Vocabulary
from course_utils.widgets.translation import DecodingSteps


def decode_with_heads(
    model: MultiHeadSeq2Seq, words: Sequence[str], source: Vocabulary, target: Vocabulary, longest: int = 40
) -> tuple[np.ndarray, list[str]]:
    """Greedy translation of one sentence: the weights (h, T, S), and the T tokens written."""
    steps = DecodingSteps(model, words, source, target)
    while not steps.done and len(steps.tokens) < longest:
        steps.advance()
    return np.stack(steps.alphas, axis=1), steps.tokens
