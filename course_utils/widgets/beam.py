"""Lesson 09: type a sentence, and see what the beam holds."""

from __future__ import annotations

import ipywidgets as ipw
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.translation import Translator
from course_utils.widgets.explorer import Explorer


def beam_explorer(translator: Translator, sentence: str) -> Explorer:
    """A text field, the size of the beam, and the length penalty's alpha; each hypothesis with its score."""

    def draw(sentence: str, beam: int, alpha: float) -> Figure:
        if not sentence.strip():
            return plots.hypothesis_bars([("(type a sentence)", 0.0, 0)])
        found = translator.hypotheses(sentence, beam, alpha)
        return plots.hypothesis_bars([(text, h.score, len(h.tokens) + 1) for text, h in found])

    wide = ipw.Layout(width="36em", max_width="100%")
    return Explorer(
        draw,
        {
            "sentence": ipw.Text(value=sentence, description="English", continuous_update=False, layout=wide),
            "beam": ipw.IntSlider(value=4, min=1, max=8, description="beam", continuous_update=False),
            "alpha": ipw.FloatSlider(value=0.6, min=0, max=2, step=0.2, description="alpha", continuous_update=False),
        },
    )
