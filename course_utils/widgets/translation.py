"""Lessons 01 and 02: a model's translation beside the right one, and greedy decoding step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as ipw
import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.decoding import translate
from course_utils.models.attention import AttentionSeq2Seq, AttentionState
from course_utils.text import BOS, EOS, Pair, Vocabulary, pad
from course_utils.widgets.explorer import Explorer


def translation_explorer(
    model: torch.nn.Module,
    pair_of: Callable[[int], Pair],
    numbers: Sequence[int],
    source: Vocabulary,
    target: Vocabulary,
) -> Explorer:
    """Lesson 01: choose a number, and see the model's translation beside the right one, errors marked.

    ``pair_of`` gives the source and the right target of a number.
    """

    def draw(number: int) -> Figure:
        pair = pair_of(number)
        (written,) = translate(model, [pair.source], source, target)
        return _translation_picture(pair, written)

    choice = ipw.SelectionSlider(
        options=[(f"{n:,}", n) for n in numbers], description="number", continuous_update=False
    )
    return Explorer(draw, {"number": choice})


def _translation_picture(pair: Pair, written: Sequence[str]) -> Figure:
    words, right = pair.source, pair.target
    longest = max(len(right), len(written))
    figure, (ax,) = plots.new_figure(max(6.0, 0.42 * longest + 2.2), 2.2)
    ax.set_axis_off()
    ax.set(xlim=(-3.2, max(longest, 11)), ylim=(-2.6, 0.9))
    ax.set_title(" ".join(words) if len(words) < 9 else " ".join(words[:8]) + "\n" + " ".join(words[8:]), fontsize=10)
    ax.text(-3.1, -0.4, "right", va="center", color=plots.FAINT)
    ax.text(-3.1, -1.4, "model", va="center", color=plots.FAINT)
    for i in range(longest):
        wanted, got = ([*row, *[""] * longest][i] for row in (right, written))
        ax.text(i, -0.4, wanted, ha="center", va="center", fontsize=14)
        wrong = wanted != got
        ax.text(
            i, -1.4, got or "·", ha="center", va="center", fontsize=14, color=plots.COLOURS[1] if wrong else plots.INK
        )
        if wrong:  # a mark as well, so that colour alone carries nothing
            ax.text(i, -2.1, "×", ha="center", va="center", color=plots.COLOURS[1])
    return figure


class DecodingSteps:
    """Greedy decoding of one sentence, a token at a time, with the attention weights of each step."""

    def __init__(self, model: AttentionSeq2Seq, words: Sequence[str], source: Vocabulary, target: Vocabulary) -> None:
        self.model, self.words, self.target = model, list(words), target
        with torch.no_grad():
            self._state: AttentionState = model.start(pad([source.encode(words)]))
        self.tokens: list[str] = []
        self.alphas: list[np.ndarray] = []
        self._last = BOS

    @property
    def done(self) -> bool:
        return self._last == EOS

    def advance(self) -> None:
        """One more decoder step: alpha is computed anew from the decoder state before it."""
        if self.done:
            return
        with torch.no_grad():
            logits, self._state = self.model.step(torch.tensor([self._last]), self._state)
        self._last = int(logits.argmax(dim=-1))
        self.tokens.append(self.target.tokens[self._last])
        self.alphas.append(self._state.alpha[0].numpy())

    def picture(self, step: int) -> Figure:
        """The weights of step ``step`` (from 1) as bars, above all steps so far as a map."""
        figure, (ax,) = plots.new_figure(max(6.5, 0.62 * len(self.words) + 2), 2.9)
        written = "".join(self.tokens[: step - 1])
        plots.draw_bars(ax, self.alphas[step - 1], self.words, plots.COLOURS[2])
        ax.set_title(f"step {step}:  {written} → {written}{self.tokens[step - 1]}")
        return figure


def decoding_explorer(
    model: AttentionSeq2Seq, words: Sequence[str], source: Vocabulary, target: Vocabulary, longest: int = 40
) -> Explorer:
    """Lesson 02: "next" decodes one syllable and shows where the decoder looked for it."""
    steps = DecodingSteps(model, words, source, target)
    steps.advance()
    shown = ipw.BoundedIntText(value=1, min=1, max=longest, description="step", layout=ipw.Layout(width="12em"))
    forward = ipw.Button(description="next", icon="step-forward", tooltip="decode one more syllable")
    back = ipw.Button(description="back", icon="step-backward", tooltip="look at the step before")

    def draw(step: int) -> Figure:
        while len(steps.tokens) < step and not steps.done:
            steps.advance()
        return steps.picture(min(step, len(steps.tokens)))

    def move(by: int) -> None:
        last = len(steps.tokens) if steps.done else longest
        shown.value = min(max(1, shown.value + by), last)

    forward.on_click(lambda _button: move(1))
    back.on_click(lambda _button: move(-1))
    return Explorer(draw, {"step": shown}, [back, forward])
