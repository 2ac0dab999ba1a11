"""The attention explorer: two lines of tokens and, between them, where each token looks, for any weights."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import anywidget
import numpy as np
import traitlets
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.widgets.explorer import png

MEAN = -1  # the trait ``head``: the mean over all heads
NONE = -1  # the trait ``query``: no token is pinned
DIGITS = 4  # after the point, of the weights that go to the page
SPOKEN = 5  # a sentence in words names so many keys, and says how much is left
SAID = 0.005  # the smallest weight that is named: it rounds to 1%
TOLERANCE = 0.01  # how far a row may be from a sum of 1: half precision, rounded tables


@dataclass(frozen=True, eq=False)
class Attention:
    """One kind of attention over one sentence, or from one sentence into another.

    Attributes:
        name: what the menu calls it, such as "cross-attention".
        weights: NumPy array or torch tensor, (T, S), (h, T, S) or (layers, h, T, S), without a batch axis; it is kept
            as a float64 array (layers, h, T, S). Each row sums to 1 over the keys, or to 0 where all keys are hidden.
        queries: the T tokens that look.
        keys: the S tokens that are looked at; None = the queries (self-attention). Kept as tuples of strings.

    Raises:
        ValueError: the weights or the tokens do not fit this; the message says what to do.
    """

    name: str
    weights: Any
    queries: Sequence[str]
    keys: Sequence[str] | None = None

    def __post_init__(self) -> None:
        weights = _four_axes(self.weights, self.name)
        queries = _tokens(self.queries, "queries", weights.shape[-2], "last but one", self.name)
        keys = self.queries if self.keys is None else self.keys
        keys = _tokens(keys, "keys", weights.shape[-1], "last", self.name)
        _check_values(weights, queries, self.name)
        for name, value in (("name", str(self.name)), ("weights", weights), ("queries", queries), ("keys", keys)):
            object.__setattr__(self, name, value)


class AttentionExplorer(anywidget.AnyWidget):
    """Queries above, keys below, and lines between them that are as thick as the weights; see ``attention_explorer``.

    What is shown can be read and set. All of it counts from 0, unlike the page, which says "layer 1".

    Attributes:
        attention: which of ``attentions``.
        layer: which layer of it.
        head: which head of it, or -1 for the mean over all heads.
        query: the token that stays selected (a click pins it), or -1 for none.

    Raises:
        traitlets.TraitError: a number is set for which there is no attention, layer, head or token.
    """

    _esm = Path(__file__).with_name("attention.js")
    _css = Path(__file__).with_name("attention.css")
    # ipywidgets 7 shows a widget through this method, and IPython would then never ask for the bundle with the picture.
    _ipython_display_ = None

    attention = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(MEAN).tag(sync=True)
    query = traitlets.Int(NONE).tag(sync=True)
    _spec = traitlets.List().tag(sync=True)  # of dicts: name, queries, keys, layers, heads
    _weights = traitlets.Bytes().tag(sync=True)  # all arrays one after another, little-endian float32

    def __init__(self, attentions: Sequence[Attention]) -> None:
        self.attentions = _distinct(attentions)
        super().__init__(_spec=[_spec(each) for each in self.attentions], _weights=_packed(self.attentions))

    @property
    def shown(self) -> np.ndarray:
        """The weights (T, S) that the page shows: one head, or the mean over all heads."""
        layer = self.attentions[self.attention].weights[self.layer]
        return layer.mean(axis=0) if self.head == MEAN else layer[self.head]

    @property
    def title(self) -> str:
        """What is shown, such as "cross-attention, layer 2, head 1"; what there is only one of is not named."""
        chosen = self.attentions[self.attention]
        layers, heads = chosen.weights.shape[:2]
        parts = [chosen.name]
        if layers > 1:
            parts.append(f"layer {self.layer + 1}")
        if heads > 1:
            parts.append(f"mean of {heads} heads" if self.head == MEAN else f"head {self.head + 1}")
        return ", ".join(parts)

    def in_words(self, query: int) -> str:
        """Where one query (counted from 0) looks, in the words that the page shows under the picture."""
        chosen = self.attentions[self.attention]
        return _in_words(self.shown[query].round(DIGITS), query, _visible(chosen.queries), _visible(chosen.keys))

    def picture(self) -> Figure:
        """The same weights as maps, for where widgets do not run; every head, where the page shows their mean."""
        chosen = self.attentions[self.attention]
        rows, columns = (
            [token.replace("$", r"\$") for token in _visible(line)] for line in (chosen.queries, chosen.keys)
        )
        if self.head == MEAN and chosen.weights.shape[1] > 1:
            return plots.head_maps(chosen.weights[self.layer], rows, columns, self.title.replace("$", r"\$"))
        return plots.attention_map(self.shown, rows, columns, self.title.replace("$", r"\$"))

    def __repr__(self) -> str:
        return f"{type(self).__name__} ({self.title})"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**kwargs)
        text = "\n".join([f"{self!r}:", *map(self.in_words, range(len(self.shown)))])
        data |= {"image/png": base64.b64encode(png(self.picture())).decode("ascii"), "text/plain": text}
        return data, {**metadata, "image/png": {"alt": text}}  # a page made by nbconvert takes its alt text from there

    @traitlets.validate("attention", "layer", "head", "query")
    def _is_there(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        if name == "attention":
            low, end = 0, len(self.attentions)
        else:
            shape = self.attentions[self.attention].weights.shape
            low, end = {"layer": (0, shape[0]), "head": (MEAN, shape[1]), "query": (NONE, shape[2])}[name]
        if not low <= value < end:
            raise traitlets.TraitError(f"{name} is {value}; set it to a number from {low} to {end - 1}.")
        return value

    @traitlets.observe("attention")
    def _stay_inside(self, _change: Any) -> None:
        """Another attention may have fewer layers, heads and tokens; a place that both have stays selected."""
        layers, heads, T, _ = self.attentions[self.attention].weights.shape
        self.layer, self.head = min(self.layer, layers - 1), min(self.head, heads - 1)
        self.query = self.query if self.query < T else NONE


@overload
def attention_explorer(*attentions: Attention) -> AttentionExplorer: ...
@overload
def attention_explorer(
    weights: Any, queries: Sequence[str], keys: Sequence[str] | None = None, *, name: str = "attention"
) -> AttentionExplorer: ...
def attention_explorer(*arguments: Any, **named: Any) -> AttentionExplorer:
    """Where each token looks: hover over one or move to it with the arrow keys, and only its lines stay.

    Two forms::

        attention_explorer(weights, queries, keys=None, name="attention")
        attention_explorer(Attention("encoder", weights, source), Attention("cross", weights, target, source))

    Args:
        weights: array or tensor (T, S), (h, T, S) or (layers, h, T, S), without a batch axis.
        queries: T tokens.
        keys: S tokens; None = the queries (self-attention).
        name: what the picture and its description call it.
        attentions: several kinds of attention to choose from, each with tokens of its own.

    Returns:
        A widget: show it as the last value of a cell. Where widgets do not run, a picture of the weights stands.

    Raises:
        ValueError: the weights or the tokens do not fit each other; the message says what to do.
    """
    if any(isinstance(each, Attention) for each in arguments):
        if named or not all(isinstance(each, Attention) for each in arguments):
            raise ValueError("Give either Attention(...) objects only, or weights and tokens: not both in one call.")
        return AttentionExplorer(arguments)
    return AttentionExplorer([_single(*arguments, **named)])


def _single(weights: Any = None, queries: Any = None, keys: Any = None, *, name: str = "attention") -> Attention:
    if weights is None or queries is None:
        raise ValueError(
            "Give weights and their tokens, attention_explorer(weights, queries), or Attention(...) objects."
        )
    return Attention(name, weights, queries, keys)


# ---- What goes in


def _four_axes(weights: Any, name: str) -> np.ndarray:
    """A copy of the weights as float64 (layers, h, T, S)."""
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double().numpy()  # NumPy knows no bfloat16
    try:
        array = np.array(weights, dtype=np.float64)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"The weights of {name!r} are no array of numbers; give one NumPy array or tensor.") from error
    if not 2 <= array.ndim <= 4:
        raise ValueError(
            f"The weights of {name!r} have {array.ndim} axes; give (T, S), (h, T, S) or (layers, h, T, S), "
            "and take one sentence out of a batch first, for example weights[0]."
        )
    if not array.size:
        raise ValueError(
            f"The weights of {name!r} have the shape {array.shape} and hold nothing; no axis may be empty."
        )
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _tokens(tokens: Any, what: str, count: int, axis: str, name: str) -> tuple[str, ...]:
    if isinstance(tokens, str):
        raise ValueError(f"The {what} of {name!r} are one string; give a list of tokens, for example sentence.split().")
    tokens = tuple(str(token) for token in tokens)
    if len(tokens) != count:
        hint = "" if what == "queries" else " (without keys, the queries are taken for them)"
        raise ValueError(
            f"{name!r} has {len(tokens)} {what}{hint}, but the {axis} axis of its weights has {count} places; "
            f"give one token for each place."
        )
    return tokens


def _check_values(weights: np.ndarray, queries: Sequence[str], name: str) -> None:
    if not np.isfinite(weights).all():
        raise ValueError(
            f"The weights of {name!r} hold NaN or infinity. A softmax over a row that is masked as a whole gives NaN: "
            "set such a row to 0, or leave it one key."
        )
    if weights.min() < 0:
        raise ValueError(
            f"The weights of {name!r} go down to {weights.min():.3g}, but a weight is never negative. "
            "Are they scores? Give what comes after the softmax."
        )
    sums = weights.sum(axis=-1)
    wrong = np.argwhere(np.minimum(abs(sums - 1), sums) > TOLERANCE)
    if not len(wrong):
        return
    layer, head, query = wrong[0]
    swapped = (abs(weights.sum(axis=-2) - 1) <= TOLERANCE).all()
    raise ValueError(
        f"The weights of {queries[query]!r} (query {query} in layer {layer}, head {head} of {name!r}, from 0) "
        f"sum to {sums[layer, head, query]:.3g}, but a row sums to 1, or to 0 where it is masked as a whole. "
        + ("The columns do: swap the last two axes." if swapped else "Give what comes after the softmax over the keys.")
    )


def _distinct(attentions: Sequence[Attention]) -> tuple[Attention, ...]:
    names = [each.name for each in attentions]
    if not names:
        raise ValueError("There is no attention to show; give at least one Attention(...).")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"Two attentions are called {twice!r}; give each a name of its own.")
    return tuple(attentions)


# ---- What goes to the page


def _spec(attention: Attention) -> dict[str, Any]:
    layers, heads = attention.weights.shape[:2]
    lines = {"queries": _visible(attention.queries), "keys": _visible(attention.keys)}
    return {"name": attention.name, **lines, "layers": layers, "heads": heads}


def _packed(attentions: Sequence[Attention]) -> bytes:
    return b"".join(each.weights.round(DIGITS).astype("<f4").tobytes() for each in attentions)


def _visible(tokens: Sequence[str]) -> list[str]:
    """The tokens with a word for those that would show as nothing."""
    return ["(empty)" if not token else "(space)" if token.isspace() else token for token in tokens]


def _in_words(row: np.ndarray, query: int, queries: Sequence[str], keys: Sequence[str]) -> str:
    """As ``inWords`` in attention.js does it, for the static page."""
    subject = f"“{queries[query]}”" + (f" (no. {query + 1})" if queries.count(queries[query]) > 1 else "")
    seen = [key for key in np.argsort(-row, kind="stable") if row[key] >= SAID]
    if not seen:
        return f"{subject} looks at nothing: all keys are hidden from it."
    named = SPOKEN if len(seen) > SPOKEN + 1 else len(seen)  # "and 1 more" would be no shorter than its name
    text = f"{subject} looks at " + ", ".join(_key_in_words(row[key], key, keys) for key in seen[:named])
    if rest := seen[named:]:
        text += f", and {len(rest)} more ({_percent(row[rest].sum())} together)"
    return text + "."


def _key_in_words(weight: float, key: int, keys: Sequence[str]) -> str:
    place = f"no. {key + 1}, " if keys.count(keys[key]) > 1 else ""
    return f"“{keys[key]}” ({place}{_percent(weight)})"


def _percent(weight: float) -> str:
    return f"{math.floor(100 * weight + 0.5)}%"  # halves go up, as they do in the page
