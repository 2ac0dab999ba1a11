"""Interactive explorers: controls above a picture that is drawn anew when one of them changes.

They need nothing that ipywidgets 7.7 lacks. Where widgets do not run (a static page, a preview), the picture stands.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as ipw
import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.decoding import translate
from course_utils.models.attention import AttentionSeq2Seq, AttentionState
from course_utils.text import BOS, EOS, Vocabulary, pad

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=figure.dpi)
    return buffer.getvalue()


class Explorer:
    """Controls, and a picture drawn by ``draw(**values of the controls)``.

    Show it as the last value of a cell. ``controls`` maps the names of draw's arguments to ipywidgets; ``buttons`` are
    shown beside them and call their function, which usually sets a control.
    """

    def __init__(
        self, draw: Callable[..., Figure], controls: dict[str, ipw.Widget], buttons: Sequence[ipw.Button] = ()
    ) -> None:
        self._draw = draw
        self.controls = controls
        self.image = ipw.Image(format="png", layout=ipw.Layout(max_width="100%"))
        row = ipw.HBox([*buttons, *controls.values()], layout=ipw.Layout(flex_flow="row wrap"))
        self.box = ipw.VBox([row, self.image])
        for control in controls.values():
            control.observe(lambda _change: self.redraw(), names="value")
        self.redraw()

    def redraw(self) -> None:
        self.image.value = png(self._draw(**{name: control.value for name, control in self.controls.items()}))

    def _repr_mimebundle_(self, **_kwargs: Any) -> dict[str, Any]:
        return {
            WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id},
            "image/png": base64.b64encode(self.image.value).decode("ascii"),
            "text/plain": f"{type(self).__name__} (run the cell to use it)",
        }


def slider(label: str, value: float, low: float, high: float, step: float) -> ipw.FloatSlider:
    return ipw.FloatSlider(
        value=value, min=low, max=high, step=step, description=label, continuous_update=False, readout_format=".2f"
    )


def softmax_explorer(scores: Sequence[float]) -> Explorer:
    """Lesson 00: a slider multiplies the scores before the softmax; another adds the same number to all of them."""

    def draw(factor: float, shift: float) -> Figure:
        x = np.asarray(scores, dtype=float) * factor + shift
        weights = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        figure, (left, right) = plots.new_figure(8, 2.9, columns=2)
        left.bar(range(len(x)), x, color=plots.COLOURS[5], width=0.7)
        left.axhline(0, color=plots.FAINT, linewidth=0.8)
        left.set(title="scores", ylim=(-25, 25), xticks=range(len(x)))
        plots.draw_bars(right, weights, [str(i) for i in range(len(x))])
        right.set_title("softmax of the scores")
        return figure

    return Explorer(draw, {"factor": slider("× factor", 1, 0, 6, 0.25), "shift": slider("+ shift", 0, -10, 10, 1)})


def translation_explorer(
    model: torch.nn.Module,
    sentence: Callable[[int], tuple[Sequence[str], Sequence[str]]],
    numbers: Sequence[int],
    source: Vocabulary,
    target: Vocabulary,
) -> Explorer:
    """Lesson 01: choose a number, and see the model's translation beside the right one, errors marked.

    ``sentence`` gives source and target tokens of a number.
    """

    def draw(number: int) -> Figure:
        words, right = sentence(number)
        (written,) = translate(model, [words], source, target)
        return _translation_picture(number, words, right, written)

    choice = ipw.SelectionSlider(
        options=[(f"{n:,}", n) for n in numbers], description="number", continuous_update=False
    )
    return Explorer(draw, {"number": choice})


def _translation_picture(number: int, words: Sequence[str], right: Sequence[str], written: Sequence[str]) -> Figure:
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
    shown = ipw.BoundedIntText(value=1, min=1, max=longest, description="step", layout=ipw.Layout(width="9em"))
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


def show_prediction(prediction: object, measured: object) -> None:
    """Print what was expected beside what came: the cell that shows a result shows both."""
    print(f"you predicted: {prediction}")
    print(f"     measured: {f'{measured:.3g}' if isinstance(measured, float) else measured}")
