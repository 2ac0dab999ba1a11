"""Lesson 08: where a Transformer looks, by layer, head and kind of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ipywidgets as ipw
import numpy as np
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.explorer import Explorer

KINDS = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
ALL = 0  # the menus' value for all layers or heads; number i has the value i

# What ``look`` gives: kind -> weights (layers, h, T, S), then the source's and the target's tokens.
Look = Callable[[int], tuple[Mapping[str, np.ndarray], Sequence[str], Sequence[str]]]


def layers_explorer(look: Look, choices: Mapping[str, int], layers: int, h: int) -> Explorer:
    """Choose an example, the kind of attention, a layer and a head, or all heads of all layers.

    ``choices`` maps what the menu shows to what ``look`` is called with.
    """

    def draw(example: int, kind: str, layer: int, head: int) -> Figure:
        weights, source, target = look(example)
        rows = source if kind == "encoder" else target
        columns = target if kind == "decoder" else source
        chosen = weights[kind][layer - 1 : layer] if layer else weights[kind]
        if layer and head:
            title = f"{KINDS[kind]}, layer {layer}, head {head}"
            return plots.attention_map(chosen[0, head - 1], rows, columns, title)
        return plots.layer_maps(chosen[:, head - 1 : head] if head else chosen, rows, columns, KINDS[kind])

    return Explorer(
        draw,
        {
            "example": _menu("example", [(text, value) for text, value in choices.items()]),
            "kind": _menu("kind", [(text, kind) for kind, text in KINDS.items()], value="cross"),
            "layer": _menu("layer", [("all", ALL), *((str(i), i) for i in range(1, layers + 1))]),
            "head": _menu("head", [("all", ALL), *((str(i), i) for i in range(1, h + 1))]),
        },
    )


def _menu(label: str, options: list[tuple[str, object]], value: object = None) -> ipw.Dropdown:
    return ipw.Dropdown(
        options=options,
        value=options[0][1] if value is None else value,
        description=label,
        layout=ipw.Layout(width="20em" if label in ("example", "kind") else "12em"),
    )
