"""Lesson 05: a mask to be clicked together, and the weights that it leaves."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as ipw
import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.models.masks import causal_mask, masked_softmax
from course_utils.widgets.explorer import Explorer

OWN = "my own"  # what the menu says once a cell has been clicked
PRESETS = ("everything", "causal", "padding", "causal and padding", "nothing")


def preset(name: str, real: np.ndarray) -> np.ndarray:
    """The mask (T, T) called ``name`` for tokens of which ``real`` (T,) are no padding."""
    size = len(real)
    everything, past = np.ones((size, size), dtype=bool), causal_mask(size).numpy()
    return {
        "everything": everything,
        "causal": past,
        "padding": everything & real,
        "causal and padding": past & real,
        "nothing": ~everything,
    }[name]


class MaskExplorer(Explorer):
    """One button for each cell of the mask, and a menu that sets them all."""

    def __init__(self, tokens: Sequence[str], real: Sequence[bool], scores: np.ndarray) -> None:
        self._quiet = True
        self.tokens, self.real, self.scores = list(tokens), np.asarray(real), torch.as_tensor(scores)
        cells = {
            f"cell_{i}_{j}": ipw.ToggleButton(
                value=True,
                description="✓",
                tooltip=f"may {row} look at {column}?",
                layout=ipw.Layout(width="2.6em", min_width="2.6em", padding="0"),
            )
            for i, row in enumerate(tokens)
            for j, column in enumerate(tokens)
        }
        super().__init__(self._draw_cells, cells)
        self.menu = ipw.Dropdown(options=(*PRESETS, OWN), value="causal and padding", description="preset")
        self.menu.observe(lambda _change: self.set_preset(self.menu.value), names="value")
        grid = ipw.GridBox(
            list(cells.values()), layout=ipw.Layout(grid_template_columns=f"repeat({len(tokens)}, 2.8em)")
        )
        self.box.children = (self.menu, ipw.HBox([grid, self.image], layout=ipw.Layout(flex_flow="row wrap")))
        self.set_preset(self.menu.value)

    def set_preset(self, name: str) -> None:
        """Set all cells at once and draw once; ``OWN`` leaves them as they are."""
        if name == OWN:
            return
        self._quiet = True
        for button, seen in zip(self.controls.values(), preset(name, self.real).flat, strict=True):
            button.value = bool(seen)
        self._quiet = False
        super().redraw()

    def redraw(self) -> None:
        for button in self.controls.values():
            button.description = "✓" if button.value else "×"
        if not self._quiet:
            self.menu.value = OWN
            super().redraw()

    def _draw_cells(self, **cells: bool) -> Figure:
        mask = torch.tensor(list(cells.values())).view(len(self.tokens), -1)
        weights = masked_softmax(self.scores, mask)
        return plots.masked_weights(mask.numpy(), weights.numpy(), self.tokens, self.tokens)


def mask_explorer(tokens: Sequence[str], real: Sequence[bool], seed: int = 0) -> MaskExplorer:
    """Click cells of a (T, T) mask over ``tokens``; ``real`` is False for padding. The scores are random."""
    scores = np.random.default_rng(seed).normal(size=(len(tokens), len(tokens)))
    return MaskExplorer(tokens, real, scores)
