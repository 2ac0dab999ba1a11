"""Lesson 04: one head after another over a sentence, or all of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as ipw
import numpy as np
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.models.multi_head import MultiHeadSeq2Seq
from course_utils.text import Vocabulary
from course_utils.widgets.explorer import Explorer
from course_utils.widgets.translation import DecodingSteps

ALL = 0  # the menu's value for all heads; head i has the value i


def decode_with_heads(
    model: MultiHeadSeq2Seq, words: Sequence[str], source: Vocabulary, target: Vocabulary, longest: int = 40
) -> tuple[np.ndarray, list[str]]:
    """Greedy translation of one sentence: the weights (h, T, S), and the T tokens written."""
    steps = DecodingSteps(model, words, source, target)
    while not steps.done and len(steps.tokens) < longest:
        steps.advance()
    return np.stack(steps.alphas, axis=1), steps.tokens


def head_explorer(
    model: MultiHeadSeq2Seq,
    words_of: Callable[[int], Sequence[str]],
    numbers: Sequence[int],
    source: Vocabulary,
    target: Vocabulary,
) -> Explorer:
    """Choose a number, and one head or all of them. ``words_of`` gives the source words of a number."""

    def draw(number: int, head: int) -> Figure:
        words = words_of(number)
        alpha, written = decode_with_heads(model, words, source, target)
        if head == ALL:
            return plots.head_maps(alpha, written, words, f"{number:,}")
        return plots.attention_map(alpha[head - 1], written, words, f"{number:,}, head {head}")

    number = ipw.SelectionSlider(
        options=[(f"{n:,}", n) for n in numbers], description="number", continuous_update=False
    )
    options = [("all heads", ALL), *((f"head {i + 1}", i + 1) for i in range(model.attention.h))]
    head = ipw.Dropdown(options=options, value=ALL, description="show", layout=ipw.Layout(width="14em"))
    return Explorer(draw, {"number": number, "head": head})
