"""Lesson 08: the encoder's layer, the look across, the decoder's layer, and how many numbers a Transformer learns.

``p`` holds the tensors of a layer under the names that they have in ``course_utils.models.transformer``, as plain
namespaces: ``p.attention.W_q.weight``, ``p.ffn.inner.bias``, ``p.around_ffn.norm.gamma``. ``h`` is with each attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception

Parameters = SimpleNamespace


def linear(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    """(..., D) -> (..., D'); ``p.weight`` (D', D) and ``p.bias`` (D',), as ``nn.Linear`` keeps them."""
    return x @ p.weight.T + p.bias


def norm(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    """(..., D) -> (..., D): LayerNorm with ``p.gamma`` and ``p.beta`` (D,), lesson 06."""
    return F.layer_norm(x, x.shape[-1:], p.gamma, p.beta)


def feed_forward(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    """(..., D) -> (..., D) through d_ff: ``p.inner``, ReLU, ``p.outer``."""
    return linear(torch.relu(linear(x, p.inner)), p.outer)


# 8.2, which both layers are made of ----------------------------------------------------------------------------------


def cross_attention(x: torch.Tensor, memory: torch.Tensor, memory_mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    """x (B, T, D) asks memory (B, S, D); memory_mask (B, 1, 1, S) -> (B, T, D). ``p`` has W_q, W_k, W_v, W_o and h.

    A row with nothing to attend to gets weights of zero. Vaswani et al. (2017), section 3.2.3, first point.
    """
    Q, K, V = _heads(linear(x, p.W_q), p.h), _heads(linear(memory, p.W_k), p.h), _heads(linear(memory, p.W_v), p.h)
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5  # score: (B, h, T, S)
    scores = scores.masked_fill(~memory_mask, float("-inf"))  # mask
    weights = scores.softmax(dim=-1).masked_fill(~memory_mask, 0.0)  # normalise
    found = weights @ V  # mix: (B, h, T, d_k)
    return linear(found.transpose(1, 2).flatten(2), p.W_o)


def _heads(x: torch.Tensor, h: int) -> torch.Tensor:
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


# 8.1 -----------------------------------------------------------------------------------------------------------------


def encoder_layer(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    """x (B, S, D), mask (B, 1, 1, S) -> (B, S, D): self-attention, then feed-forward, add & norm after each.

    ``p`` has attention, around_attention, ffn and around_ffn. Vaswani et al. (2017), section 3.1.
    """
    x = norm(x + cross_attention(x, x, mask, p.attention), p.around_attention.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def _linear_of(draw: Draw, d_in: int, d_out: int, dtype: torch.dtype) -> Parameters:
    weight = 1.3 * draw.normal(d_out, d_in, dtype=dtype) / d_in**0.5
    return Parameters(weight=weight, bias=0.5 * draw.normal(d_out, dtype=dtype))


def _attention_of(draw: Draw, h: int, d_k: int, dtype: torch.dtype) -> Parameters:
    D = h * d_k
    return Parameters(h=h, **{name: _linear_of(draw, D, D, dtype) for name in ("W_q", "W_k", "W_v", "W_o")})


def _layer_of(draw: Draw, kinds: tuple[str, ...], h: int, d_k: int, d_ff: int, dtype: torch.dtype) -> Parameters:
    """The parameters of a layer with these attentions; its paths are around_attention, or around_self and so on."""
    D = h * d_k

    def around() -> Parameters:
        gamma, beta = 1 + 0.3 * draw.normal(D, dtype=dtype), 0.3 * draw.normal(D, dtype=dtype)
        return Parameters(norm=Parameters(gamma=gamma, beta=beta))

    ffn = Parameters(inner=_linear_of(draw, D, d_ff, dtype), outer=_linear_of(draw, d_ff, D, dtype))
    attentions = {kind: _attention_of(draw, h, d_k, dtype) for kind in kinds}
    paths = {f"around_{kind.removesuffix('_attention')}": around() for kind in (*kinds, "ffn")}
    return Parameters(**attentions, ffn=ffn, **paths)


def _padding(draw: Draw, B: int, S: int) -> torch.Tensor:
    return draw.padding_mask(B, S)[:, None, None]


def _encoder_cases(draw: Draw) -> Iterator[Case]:
    def case(B: int, S: int, h: int, d_k: int, d_ff: int, note: str = "", dtype: torch.dtype = torch.float64) -> Case:
        p = _layer_of(draw, ("attention",), h, d_k, d_ff, dtype)
        return Case((draw.tracked(B, S, h * d_k, dtype=dtype), _padding(draw, B, S), p), note)

    for _ in range(2):
        B, S, h, d_k = draw.sizes(4, high=6)
        yield case(B, S, h, d_k, h * d_k + draw.integer(1, 9))
    B, S, h, d_k = draw.sizes(4, high=6)
    yield case(B, S, 1, d_k, 7, "with one head")
    yield case(B, S, h, d_k, h * d_k, "when d_ff is d_model")
    yield case(B, 1, h, d_k, 7, "with one word")
    yield case(1, S, h, d_k, 7, "with a batch of one")
    yield case(B, S, h, d_k, 7, "in float32", torch.float32)


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Parameters], Any]
Normalise = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Sublayer = Callable[[torch.Tensor], torch.Tensor]
Around = Callable[[torch.Tensor, Sublayer, Parameters], torch.Tensor]


def _plain(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As lesson 02 had it: NaN where there is nothing to attend to."""
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)


def _safe(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _plain(scores, mask).masked_fill(~mask, 0.0)


def _unmasked(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores.softmax(dim=-1)


def _masked_late(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores.softmax(dim=-1) * mask


def _inverted(normalise: Normalise) -> Normalise:
    return lambda scores, mask: normalise(scores, ~mask)


def _attend_like(
    normalise: Normalise = _safe,
    sides: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]] = lambda x, m: (x, m, m),
    scale: Callable[[int, int], float] = lambda d_k, D: d_k**0.5,
    parts: Callable[[Parameters], tuple[Parameters, ...]] = lambda p: (p.W_q, p.W_k, p.W_v, p.W_o),
    heads: Callable[[int], int] = lambda h: h,
    finish: Callable[..., Any] = lambda joined, W_o, alpha: linear(joined, W_o),
) -> Attend:
    """Attention with one of its steps done otherwise."""

    def attend(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor, p: Parameters) -> Any:
        W_q, W_k, W_v, W_o = parts(p)
        for_q, for_k, for_v = sides(x, memory)
        h = heads(p.h)
        Q, K, V = _heads(linear(for_q, W_q), h), _heads(linear(for_k, W_k), h), _heads(linear(for_v, W_v), h)
        alpha = normalise(Q @ K.transpose(-2, -1) / scale(Q.shape[-1], x.shape[-1]), mask)
        return finish((alpha @ V).transpose(1, 2).flatten(2), W_o, alpha)

    return attend


_attend = _attend_like()


def _without_bias(p: Parameters) -> Parameters:
    return Parameters(weight=p.weight, bias=torch.zeros_like(p.bias))


def _no_biases(p: Parameters) -> tuple[Parameters, ...]:
    return tuple(map(_without_bias, (p.W_q, p.W_k, p.W_v, p.W_o)))


def _post(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    return norm(x + sublayer(x), p)


def _pre(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    return x + sublayer(norm(x, p))


def _no_residual(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    return norm(sublayer(x), p)


def _no_norm(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    return x + sublayer(x)


def _norm_then_add(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    return x + norm(sublayer(x), p)


def _unbiased(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    x = x + sublayer(x)
    spread = (x.var(dim=-1, keepdim=True) + 1e-5).sqrt()
    return (x - x.mean(dim=-1, keepdim=True)) / spread * p.gamma + p.beta


def _unbiased_std(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    x = x + sublayer(x)
    return p.gamma * (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-6) + p.beta


def _no_affine(x: torch.Tensor, sublayer: Sublayer, p: Parameters) -> torch.Tensor:
    return F.layer_norm(x + sublayer(x), x.shape[-1:])


def _each(mistake: Around, places: int) -> list[tuple[Around, ...]]:
    """All ways to make ``mistake`` at one place or several; everywhere comes first."""
    ways = product((mistake, _post), repeat=places)
    return [way for way in ways if mistake in way]


def _encoder_like(
    attend: Attend = _attend,
    feed: Callable[[torch.Tensor, Parameters], torch.Tensor] = feed_forward,
    arounds: tuple[Around, ...] = (_post, _post),
    norms: Callable[[Parameters], tuple[Parameters, ...]] = lambda p: (p.around_attention.norm, p.around_ffn.norm),
    feed_first: bool = False,
) -> Callable[..., torch.Tensor]:
    def wrong(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
        sublayers = [lambda y: attend(y, y, mask, p.attention), lambda y: feed(y, p.ffn)]
        steps = list(zip(arounds, sublayers, norms(p), strict=True))
        for around, sublayer, own_norm in reversed(steps) if feed_first else steps:
            x = around(x, sublayer, own_norm)
        return x

    return wrong


def _encoder_residual_from_x(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    y = norm(x + _attend(x, x, mask, p.attention), p.around_attention.norm)
    return norm(x + feed_forward(y, p.ffn), p.around_ffn.norm)


def _encoder_side_by_side(x: torch.Tensor, mask: torch.Tensor, p: Parameters) -> torch.Tensor:
    y = norm(x + _attend(x, x, mask, p.attention), p.around_attention.norm)
    return norm(y + feed_forward(x, p.ffn), p.around_ffn.norm)


def _feed_no_relu(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return linear(linear(x, p.inner), p.outer)


def _feed_relu_last(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return torch.relu(_feed_no_relu(x, p))


def _feed_relu_twice(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return torch.relu(feed_forward(x, p))


def _feed_gelu(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return linear(F.gelu(linear(x, p.inner)), p.outer)


def _feed_no_biases(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return feed_forward(x, Parameters(inner=_without_bias(p.inner), outer=_without_bias(p.outer)))


def _mistake(name: str, message: str, *functions: Callable[..., Any]) -> Misconception:
    return Misconception(name, functions[0], message, also=functions[1:])


ENCODER_LAYER = Exercise(
    id="8.1",
    title="Encoder layer",
    points=2,
    function="encoder_layer",
    reference=encoder_layer,
    cases=_encoder_cases,
    misconceptions=(
        _mistake(
            "one residual missing",
            "What goes into a sublayer is not added to what comes out of it, at one place at least. The shapes are "
            "the same with and without the sum. But then a layer has to carry the word through attention and "
            "feed-forward by itself, and a deep stack does not train. Each of the two sublayers has a path around it.",
            *(_encoder_like(arounds=way) for way in _each(_no_residual, 2)),
        ),
        _mistake(
            "pre-norm",
            "You normalise what goes into a sublayer and leave the sum alone. That is pre-norm, which most newer "
            "models use, and it is well worth knowing from lesson 06. The layer of 2017 is post-norm: it normalises "
            "the sum.",
            *(_encoder_like(arounds=way) for way in _each(_pre, 2)),
        ),
        _mistake(
            "one norm missing",
            "A sum of input and sublayer goes on as it is, without its LayerNorm. There are two sublayers and so two "
            "sums, and each one has a norm of its own.",
            *(_encoder_like(arounds=way) for way in _each(_no_norm, 2)),
        ),
        _mistake(
            "norm before the sum",
            "You normalise what the sublayer puts out and add the input after that. It has both parts, a norm and a "
            "sum, in the wrong order: the sum that goes on is not normalised, and grows from layer to layer.",
            *(_encoder_like(arounds=way) for way in _each(_norm_then_add, 2)),
        ),
        _mistake(
            "second residual from the layer's input",
            "The second sum takes up the layer's input again, so the result of the first add & norm only gets through "
            "the feed-forward layer. A residual path goes around *one* sublayer: it starts where that sublayer reads.",
            _encoder_residual_from_x,
        ),
        _mistake(
            "feed-forward reads the layer's input",
            "Your feed-forward layer works on what came into the layer, side by side with attention. Some newer models "
            "do that. Here it comes after: it is to work on what the word has become by looking around.",
            _encoder_side_by_side,
        ),
        _mistake(
            "feed-forward first",
            "You have both sublayers, in the other order. Nothing in the shapes forbids it. The encoder's layer first "
            "lets the words look at each other and then works on each of them alone.",
            _encoder_like(feed_first=True),
        ),
        _mistake(
            "norms exchanged",
            "The two norms are not in their places: each sum has its own gamma and beta, named after the sublayer that "
            "it goes around. In a fresh model all gammas are 1 and all betas 0, so the slip shows only after training.",
            _encoder_like(norms=lambda p: (p.around_ffn.norm, p.around_attention.norm)),
            _encoder_like(norms=lambda p: (p.around_attention.norm, p.around_attention.norm)),
            _encoder_like(norms=lambda p: (p.around_ffn.norm, p.around_ffn.norm)),
        ),
        _mistake(
            "gamma and beta left out",
            "Your norms have no gamma and beta. In a fresh model that makes no difference, since they start at 1 and "
            "0. They are learned, and give each feature back the scale that the model wants for it.",
            *(_encoder_like(arounds=way) for way in _each(_no_affine, 2)),
        ),
        _mistake(
            "unbiased variance",
            "Your norm divides by the spread with D - 1 in it, which is the default of `std` and `var`. A well-known "
            "program does so too. LayerNorm describes the D numbers at hand and divides by D.",
            *(_encoder_like(arounds=way) for way in _each(_unbiased, 2)),
            *(_encoder_like(arounds=way) for way in _each(_unbiased_std, 2)),
        ),
        _mistake(
            "ReLU missing or misplaced",
            "The ReLU is not where it belongs. Without one between the two linear maps they are one linear map, and "
            "d_ff buys nothing; with one at the end the sublayer could only ever add to a feature. It stands between "
            "the two, and nowhere else.",
            _encoder_like(feed=_feed_no_relu),
            _encoder_like(feed=_feed_relu_last),
            _encoder_like(feed=_feed_relu_twice),
        ),
        _mistake(
            "GELU",
            "You bend with GELU where the paper has ReLU. BERT and GPT use GELU, so it may well be what you have seen. "
            "The feed-forward layer of 2017 is max(0, x) between its two maps.",
            _encoder_like(feed=_feed_gelu),
        ),
        _mistake(
            "biases left out",
            "Some bias is not added. Each linear map has a weight and a bias, those in attention as well as those in "
            "the feed-forward layer. The paper's formulas leave attention's biases out; this course's layers, like "
            "torch's, have them.",
            _encoder_like(attend=_attend_like(parts=_no_biases)),
            _encoder_like(feed=_feed_no_biases),
            _encoder_like(attend=_attend_like(parts=_no_biases), feed=_feed_no_biases),
        ),
        _mistake(
            "mask unused",
            "The words look at padding, since the mask never enters. Sentences that fill the tensor are right. In the "
            "others the outputs depend on how far the batch was padded, so the same sentence is read differently in "
            "different company.",
            _encoder_like(attend=_attend_like(_unmasked)),
        ),
        _mistake(
            "mask inverted",
            "Your words look at the padding and hide each other. `nn.Transformer`'s padding masks say True for what is "
            "hidden. In this course, and in `F.scaled_dot_product_attention`, True means *may attend*.",
            _encoder_like(attend=_attend_like(_inverted(_plain))),
            _encoder_like(attend=_attend_like(_inverted(_safe))),
        ),
        _mistake(
            "mask after the softmax",
            "Padding gets no weight in the end, but it took its share of the softmax before, so the weights of the "
            "words sum to less than 1. It has to be hidden from the softmax.",
            _encoder_like(attend=_attend_like(_masked_late)),
        ),
        _mistake(
            "scale",
            "Your scores are not divided by the root of the size of a *head*. With d_model in its place, or nothing at "
            "all, everything still runs, and the weights come out too even or too sharp. A dot product here has "
            "d_model / h terms.",
            _encoder_like(attend=_attend_like(scale=lambda d_k, D: D**0.5)),
            _encoder_like(attend=_attend_like(scale=lambda d_k, D: 1.0)),
        ),
        _mistake(
            "no W_o",
            "The joined heads go on without passing through W_o. The shape is right without it. But then head i can "
            "change only the i-th part of each word.",
            _encoder_like(attend=_attend_like(finish=lambda joined, W_o, alpha: joined)),
        ),
        _mistake(
            "one head only",
            "The number of heads has no influence on your result: one softmax decides for all D numbers. The heads "
            "share out the columns, and each has a softmax of its own.",
            _encoder_like(attend=_attend_like(heads=lambda h: 1)),
        ),
        NO_GRADIENT,
    ),
    why="Look around, then think alone, and carry the word past both: this layer, six times, is the encoder.",
)

# 8.2 -----------------------------------------------------------------------------------------------------------------


def _cross_cases(draw: Draw) -> Iterator[Case]:
    def arguments(
        B: int, T: int, S: int, h: int, d_k: int, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Parameters]:
        D = h * d_k
        x, memory = draw.tracked(B, T, D, dtype=dtype), draw.tracked(B, S, D, dtype=dtype)
        return x, memory, _padding(draw, B, S), _attention_of(draw, h, d_k, dtype)

    for _ in range(2):
        B, T, S, h, d_k = draw.sizes(5, high=7)
        yield Case(arguments(B, T, S, h, d_k))
    B, T, S, h, d_k = draw.sizes(5, high=7)
    yield Case(arguments(B, T, T, h, d_k), "when both sentences are of one length")
    yield Case(arguments(B, B, S, h, d_k), "when there are as many tokens as sentences")
    yield Case(arguments(B, T, S, 1, d_k), "with one head")
    yield Case(arguments(B, 1, S, h, d_k), "with one token that asks")
    yield Case(arguments(B, T, 1, h, d_k), "with one word to look at")
    yield Case(arguments(1, T, S, h, d_k), "with a batch of one")
    x, memory, mask, p = arguments(B, T, S, h, d_k)
    mask = mask.clone()
    mask[draw.integer(0, B - 1)] = False
    yield Case((x, memory, mask, p), "for a source of nothing but padding")
    yield Case(arguments(B, T, S, h, d_k, torch.float32), "in float32")


def _causal_too(normalise: Normalise) -> Normalise:
    """Also hides the words of the memory that stand further on than the token that asks."""
    return lambda scores, mask: normalise(scores, mask & torch.ones(scores.shape[-2:], dtype=torch.bool).tril())


def _cross_mistake(name: str, message: str, *changes: dict[str, Any]) -> Misconception:
    """Each of ``changes`` to the attention, with zeros and with NaN for a source of padding alone."""
    ways = [_attend_like(normalise, **change) for change in changes for normalise in (_safe, _plain)]
    return _mistake(name, message, *ways)


def _over_queries(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-2)


def _sides(which: str) -> dict[str, Any]:
    """What queries, keys and values are made of: x or m."""
    return {"sides": lambda x, m: tuple(x if side == "x" else m for side in which)}


def _x_added(attend: Attend) -> Attend:
    return lambda x, memory, mask, p: x + attend(x, memory, mask, p)


CROSS_ATTENTION = Exercise(
    id="8.2",
    title="Cross-attention",
    points=2,
    function="cross_attention",
    reference=cross_attention,
    cases=_cross_cases,
    misconceptions=(
        _cross_mistake(
            "Q from memory",
            "Your queries are made from the memory. The encoder's output is what is *asked*, and it is easy to think "
            "of it as what does the asking, since it comes in first. The decoder's tokens have the questions, and "
            "there has to be one answer for each token.",
            _sides("mxx"),
            _sides("mmm"),
            _sides("mxm"),
            _sides("mmx"),
        ),
        _cross_mistake(
            "K, V from x",
            "Your keys or values are made from the decoder's own tokens. With all three from x this is self-attention "
            "once more, and nothing of the source gets into the translation. What is found, and what is brought back, "
            "is in the memory.",
            _sides("xxx"),
            _sides("xxm"),
            _sides("xmx"),
        ),
        _mistake(
            "causal mask on memory",
            "Token t may look at the first t words of the source only. In the decoder's self-attention that is right. "
            "The source is complete before the first token is written, and a translation may need its last word first, "
            "so only padding is hidden here.",
            _attend_like(_causal_too(_safe)),
            _attend_like(_causal_too(_plain)),
        ),
        Misconception(
            "NaN for a source of padding",
            _attend_like(_plain),
            "Where the whole source is padding, your result is NaN: a softmax over nothing is 0 / 0. Everywhere else "
            "it is right. One such row is enough to make the loss of the whole batch NaN. Weights of zero are asked "
            "for there, as in lesson 05.",
        ),
        Misconception(
            "a large number instead of infinity",
            _attend_like(lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(dim=-1)),
            "You hide with a large negative number. As long as one word is left, that is as good as minus infinity. "
            "Where the whole source is padding, all scores are equally low and the softmax makes an average of the "
            "padding out of them. Weights of zero are asked for there.",
        ),
        _mistake(
            "mask as a number in the scores",
            "Your mask enters the scores as a number: 1 or 0 is added or multiplied, which hides nothing. A boolean "
            "mask that is turned into floats ends like this without any warning. Only minus infinity becomes a weight "
            "of zero.",
            _attend_like(lambda scores, mask: (scores + mask).softmax(dim=-1)),
            _attend_like(lambda scores, mask: (scores * mask).softmax(dim=-1)),
        ),
        _mistake(
            "mask unused",
            "The mask has no influence, so padding of the source gets its share of every translation. Sources that "
            "fill the tensor come out right.",
            _attend_like(_unmasked),
        ),
        _mistake(
            "mask inverted",
            "Your tokens look at the padding and at nothing else. Where you have seen True for *hide*, it was "
            "`nn.MultiheadAttention`. In this course True means *may attend*.",
            _attend_like(_inverted(_plain)),
            _attend_like(_inverted(_safe)),
        ),
        _mistake(
            "mask after the softmax",
            "You hide the padding when the weights are made already. What it took is lost, and the weights of the "
            "words sum to less than 1. It is the softmax that must not see it.",
            _attend_like(_masked_late),
        ),
        _mistake(
            "softmax over queries",
            "In your weights each word of the source shares itself out among the tokens. It is the other way round: "
            "each token shares out its attention among the words, so its weights sum to 1 over the source.",
            _attend_like(_over_queries),
            _attend_like(lambda scores, mask: _over_queries(scores, mask).masked_fill(~mask, 0.0)),
        ),
        _cross_mistake(
            "scale",
            "Your scores are not divided by the root of a head's size. A dot product here has d_model / h terms, so "
            "that is the number under the root, and not d_model, nor nothing.",
            {"scale": lambda d_k, D: D**0.5},
            {"scale": lambda d_k, D: 1.0},
        ),
        _cross_mistake(
            "keys and values exchanged",
            "You score against what W_v makes and mix what W_k makes. Both are (B, S, D), so it runs. Keys are what a "
            "word is found by; values are what it gives.",
            {"parts": lambda p: (p.W_q, p.W_v, p.W_k, p.W_o)},
        ),
        _cross_mistake(
            "no W_o",
            "The joined heads are returned as they are. Without W_o each head can only write into its own part of the "
            "token.",
            {"finish": lambda joined, W_o, alpha: joined},
        ),
        _cross_mistake(
            "one head only",
            "h has no influence on your result, so all D numbers share one softmax. Each head is to choose its words "
            "by itself.",
            {"heads": lambda h: 1},
        ),
        _cross_mistake(
            "biases left out",
            "Your projections have no biases. The paper's formulas have none, so it is a fair reading. The course's "
            "attention, like torch's, has one for each of its four maps, and `p` holds them.",
            {"parts": _no_biases},
        ),
        _mistake(
            "residual already added",
            "You add x to what attention found. The decoder's layer does that, but outside of its attention: the path "
            "around a sublayer belongs to the layer. Here only what was found is asked for.",
            _x_added(_attend_like(_safe)),
            _x_added(_attend_like(_plain)),
        ),
        _cross_mistake(
            "weights returned too",
            "You return the weights along with the output. They are good to look at, and torch's module does the same. "
            "The task asks for the output alone.",
            {"finish": lambda joined, W_o, alpha: (linear(joined, W_o), alpha)},
        ),
        NO_GRADIENT,
    ),
    why="The one who writes asks, and the one who has read answers: rows are target tokens, columns source words.",
)

# 8.3 -----------------------------------------------------------------------------------------------------------------


def decoder_layer(
    x: torch.Tensor, memory: torch.Tensor, self_mask: torch.Tensor, memory_mask: torch.Tensor, p: Parameters
) -> torch.Tensor:
    """x (B, T, D), memory (B, S, D), self_mask (B, 1, T, T), memory_mask (B, 1, 1, S) -> (B, T, D).

    Masked self-attention, cross-attention, feed-forward, add & norm after each. ``p`` has self_attention, around_self,
    cross_attention, around_cross, ffn and around_ffn. Vaswani et al. (2017), section 3.1.
    """
    x = norm(x + cross_attention(x, x, self_mask, p.self_attention), p.around_self.norm)
    x = norm(x + cross_attention(x, memory, memory_mask, p.cross_attention), p.around_cross.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def _decoder_cases(draw: Draw) -> Iterator[Case]:
    def case(
        B: int, T: int, S: int, h: int, d_k: int, d_ff: int, note: str = "", dtype: torch.dtype = torch.float64
    ) -> Case:
        D = h * d_k
        x, memory = draw.tracked(B, T, D, dtype=dtype), draw.tracked(B, S, D, dtype=dtype)
        self_mask = _padding(draw, B, T) & torch.ones(T, T, dtype=torch.bool).tril()
        p = _layer_of(draw, ("self_attention", "cross_attention"), h, d_k, d_ff, dtype)
        return Case((x, memory, self_mask, _padding(draw, B, S), p), note)

    for _ in range(2):
        B, T, S, h, d_k = draw.sizes(5, high=7)
        yield case(B, T, S, h, d_k, h * d_k + draw.integer(1, 9))
    B, T, S, h, d_k = draw.sizes(5, low=3, high=8)
    yield case(B, T, T, h, d_k, 7, "when both sentences are of one length")
    yield case(B, T, S, 1, d_k, 7, "with one head")
    yield case(B, 1, S, h, d_k, 7, "with one token")
    yield case(B, T, 1, h, d_k, 7, "with one source word")
    yield case(1, T, S, h, d_k, 7, "with a batch of one")
    yield case(B, T, S, h, d_k, 7, "in float32", torch.float32)


def _around_self_cross_ffn(p: Parameters) -> tuple[Parameters, ...]:
    return p.around_self.norm, p.around_cross.norm, p.around_ffn.norm


def _decoder_like(
    order: str = "scf",
    arounds: tuple[Around, ...] = (_post, _post, _post),
    look_back: Attend = _attend,
    look_across: Attend = _attend,
    masks: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = lambda own, other: (own, other),
    norms: Callable[[Parameters], tuple[Parameters, ...]] = _around_self_cross_ffn,
    attentions: Callable[[Parameters], tuple[Parameters, ...]] = lambda p: (p.self_attention, p.cross_attention),
    feed: Callable[[torch.Tensor, Parameters], torch.Tensor] = feed_forward,
    query: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda now, first: now,
    residual: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
) -> Callable[..., torch.Tensor]:
    """A decoder layer whose sublayers s, c, f come in ``order``, with one thing done otherwise.

    ``query(now, first)`` asks the memory, with ``first`` the layer's input; ``residual(now, first)`` is added.
    """

    def wrong(
        x: torch.Tensor, memory: torch.Tensor, self_mask: torch.Tensor, memory_mask: torch.Tensor, p: Parameters
    ) -> torch.Tensor:
        own, other = masks(self_mask, memory_mask)
        back, across = attentions(p)
        first = x
        sublayers: dict[str, Sublayer] = {
            "s": lambda y: look_back(y, y, own, back),
            "c": lambda y: look_across(query(y, first), memory, other, across),
            "f": lambda y: feed(y, p.ffn),
        }
        for name in order:
            place = "scf".index(name)
            if residual is None:
                x = arounds[place](x, sublayers[name], norms(p)[place])
            else:
                x = norm(residual(x, first) + sublayers[name](x), norms(p)[place])
        return x

    return wrong


def _looks_at_itself(
    x: torch.Tensor, memory: torch.Tensor, self_mask: torch.Tensor, memory_mask: torch.Tensor, p: Parameters
) -> torch.Tensor:
    """The look across goes to the layer's own tokens, under their own mask."""
    x = norm(x + _attend(x, x, self_mask, p.self_attention), p.around_self.norm)
    x = norm(x + _attend(x, x, self_mask, p.cross_attention), p.around_cross.norm)
    return norm(x + feed_forward(x, p.ffn), p.around_ffn.norm)


def _picked(*order: int) -> Callable[[Parameters], tuple[Parameters, ...]]:
    return lambda p: tuple(_around_self_cross_ffn(p)[i] for i in order)


def _residual_from_first(x: torch.Tensor, memory: torch.Tensor, self_mask: Any, memory_mask: Any, p: Any) -> Any:
    y = norm(x + _attend(x, x, self_mask, p.self_attention), p.around_self.norm)
    y = norm(x + _attend(y, memory, memory_mask, p.cross_attention), p.around_cross.norm)
    return norm(y + feed_forward(y, p.ffn), p.around_ffn.norm)


def _causal_part(own: torch.Tensor) -> torch.Tensor:
    return torch.ones(own.shape[-2:], dtype=torch.bool).tril()


DECODER_LAYER = Exercise(
    id="8.3",
    title="Decoder layer",
    points=3,
    function="decoder_layer",
    reference=decoder_layer,
    cases=_decoder_cases,
    misconceptions=(
        _mistake(
            "cross before self",
            "You ask the memory first and look back at the tokens afterwards. All parts are there, and such a model "
            "would train. But the question to the source should come from a token that knows what was written before "
            "it, so self-attention is first.",
            _decoder_like("csf"),
        ),
        _mistake(
            "one residual missing",
            "At least one of the three sublayers replaces the state instead of adding to it. The shapes cannot tell. "
            "After cross-attention it is the worst: without the sum a token would forget what has been written and "
            "keep only what it found in the source.",
            *(_decoder_like(arounds=way) for way in _each(_no_residual, 3)),
        ),
        _mistake(
            "unmasked self-attention",
            "Your self-attention is not masked, so each token sees the tokens after it. In training those are the "
            "answers: the loss falls as never before, and when it has to write by itself the model knows nothing.",
            _decoder_like(look_back=_attend_like(_unmasked)),
        ),
        _mistake(
            "pre-norm",
            "You normalise what goes into a sublayer, and the sum stays as it is. Most newer models do so. The layer "
            "asked for is the one of 2017, with the norm after each sum.",
            *(_decoder_like(arounds=way) for way in _each(_pre, 3)),
        ),
        _mistake(
            "one norm missing",
            "A sum goes on without being normalised. The decoder's layer has three sublayers, so three sums and three "
            "norms.",
            *(_decoder_like(arounds=way) for way in _each(_no_norm, 3)),
        ),
        _mistake(
            "norm before the sum",
            "You normalise what a sublayer puts out and add its input after that, so the state that goes on is not "
            "normalised. The norm comes after the sum.",
            *(_decoder_like(arounds=way) for way in _each(_norm_then_add, 3)),
        ),
        _mistake(
            "query is the layer's input",
            "Your question to the memory is made from what came into the layer. What asks is the state after "
            "self-attention, which knows by then what has been written so far.",
            _decoder_like(query=lambda now, first: first),
        ),
        _mistake(
            "residual from the layer's input",
            "A later sum takes up the layer's input instead of the state it has reached, so an earlier sublayer's "
            "work only gets through where it was read. A path goes around one sublayer and starts where that one "
            "reads.",
            _residual_from_first,
            _decoder_like(residual=lambda now, first: first),
        ),
        _mistake(
            "Q from memory",
            "The memory asks and the tokens answer in your cross-attention. It only runs where both sentences have "
            "the same length. A decoder needs one answer a token, so the tokens ask.",
            _decoder_like(look_across=_attend_like(sides=lambda x, m: (m, x, x))),
            _decoder_like(look_across=_attend_like(sides=lambda x, m: (m, m, m))),
        ),
        _mistake(
            "K, V from x",
            "In your cross-attention the tokens look at themselves once more, and the memory has no influence. The "
            "model would be a fluent writer that has not read the source.",
            _looks_at_itself,
            _decoder_like(look_across=_attend_like(sides=lambda x, m: (x, x, x))),
        ),
        _mistake(
            "causal mask on memory",
            "Token t looks only at the first t words of the source. Only its own sentence has a future to be hidden; "
            "the source was read to its end before.",
            _decoder_like(look_across=_attend_like(_causal_too(_safe))),
        ),
        _mistake(
            "memory mask unused",
            "The look across has no mask, so padding of the source gets weight. Where the source fills the tensor all "
            "is right.",
            _decoder_like(look_across=_attend_like(_unmasked)),
        ),
        _mistake(
            "no mask at all",
            "Neither of your attentions uses its mask: tokens see the future of their own sentence and the padding of "
            "the source.",
            _decoder_like(look_back=_attend_like(_unmasked), look_across=_attend_like(_unmasked)),
        ),
        _mistake(
            "masks exchanged",
            "The two masks have changed places. The self-attention's one is (B, 1, T, T) and hides the future, the "
            "other is (B, 1, 1, S) and hides padding of the source. Only for sentences of one length does that even "
            "run.",
            _decoder_like(masks=lambda own, other: (other, own)),
        ),
        _mistake(
            "mask inverted",
            "A mask is used the wrong way round, so a token sees just what it should not. torch's modules say True "
            "for *hide*. In this course True means *may attend*.",
            *(
                _decoder_like(look_back=_attend_like(back), look_across=_attend_like(across))
                for back, across in (
                    (_inverted(_plain), _inverted(_plain)),
                    (_inverted(_safe), _inverted(_safe)),
                    (_inverted(_plain), _plain),
                    (_inverted(_safe), _safe),
                    (_plain, _inverted(_plain)),
                    (_safe, _inverted(_safe)),
                )
            ),
        ),
        _mistake(
            "mask after the softmax",
            "You set weights to zero that the softmax has given out already. What was hidden has taken its share, and "
            "the weights that remain sum to less than 1.",
            _decoder_like(look_back=_attend_like(_masked_late), look_across=_attend_like(_masked_late)),
            _decoder_like(look_back=_attend_like(_masked_late)),
            _decoder_like(look_across=_attend_like(_masked_late)),
        ),
        _mistake(
            "norms exchanged",
            "A norm stands at another sublayer's sum, or one is used twice. Fresh norms are all alike, so only a "
            "trained model shows it. Each is named after the sublayer that it goes around.",
            *(_decoder_like(norms=_picked(*order)) for order in product(range(3), repeat=3) if order != (0, 1, 2)),
        ),
        _mistake(
            "attentions exchanged",
            "The weights of the two attentions are mixed up, or one set does both. They have the same shapes. Looking "
            "back and looking across are learned separately, each with its own four maps.",
            _decoder_like(attentions=lambda p: (p.cross_attention, p.self_attention)),
            _decoder_like(attentions=lambda p: (p.self_attention, p.self_attention)),
            _decoder_like(attentions=lambda p: (p.cross_attention, p.cross_attention)),
        ),
        _mistake(
            "a sublayer left out",
            "One of the three sublayers is not there. The encoder's layer has two; the decoder's has one more, the "
            "look across in the middle.",
            _decoder_like("sf"),
            _decoder_like("sc"),
            _decoder_like("cf"),
        ),
        _mistake(
            "ReLU missing or misplaced",
            "The ReLU is not between the two maps of the feed-forward layer. Two linear maps without it are one, and "
            "a ReLU at the end lets the layer add to features and never take away.",
            _decoder_like(feed=_feed_no_relu),
            _decoder_like(feed=_feed_relu_last),
        ),
        NO_GRADIENT,
    ),
    why="Look back at what is written, ask the source with that, then think: the order of the three is the idea.",
)

# 8.4 -----------------------------------------------------------------------------------------------------------------


def transformer_parameters(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
    """How many numbers a post-norm Transformer with N + N layers learns, source and target of V tokens each.

    Linear maps have biases, except the output layer. ``tied``: one table serves both embeddings and the output layer;
    else there are three. The sinusoids are not learned.
    """
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    tables = 1 if tied else 3
    return N * (encoder_layer + decoder_layer) + tables * V * d_model


def _count_cases(draw: Draw) -> Iterator[Case]:
    for tied in (True, False, True, False):
        V, D, d_ff, N = draw.integer(50, 90), draw.integer(5, 16), draw.integer(17, 40), draw.integer(2, 6)
        yield Case((V, D, d_ff, N, tied))
    yield Case((37_000, 512, 2048, 6, True), "for the paper's base model")
    yield Case((draw.integer(50, 90), draw.integer(5, 16), draw.integer(17, 40), 1, True), "with N = 1")


def _count_like(
    attentions: tuple[int, int] = (1, 2),
    norms: tuple[int, int] = (2, 3),
    feeds: tuple[int, int] = (1, 1),
    attention: Callable[[int], int] = lambda D: 4 * D * D + 4 * D,
    feed: Callable[[int, int], int] = lambda D, F: 2 * D * F + F + D,
    norm_size: Callable[[int], int] = lambda D: 2 * D,
    tables: tuple[int, int] = (1, 3),
    more: Callable[[int, int], int] = lambda V, D: 0,
    layers: Callable[[int], int] = lambda N: N,
) -> Callable[..., int]:
    """Counted otherwise; pairs are (encoder, decoder), for ``tables`` (tied, not tied)."""

    def wrong(V: int, d_model: int, d_ff: int, N: int, tied: bool) -> int:
        a, f, n = attention(d_model), feed(d_model, d_ff), norm_size(d_model)
        stacks = sum(i * a + j * n + k * f for i, j, k in zip(attentions, norms, feeds, strict=True))
        return layers(N) * stacks + tables[0 if tied else 1] * V * d_model + more(V, d_model)

    return wrong


def _no_bias_attention(D: int) -> int:
    return 4 * D * D


def _no_bias_feed(D: int, F: int) -> int:
    return 2 * D * F


TRANSFORMER_PARAMETERS = Exercise(
    id="8.4",
    title="Parameters of a Transformer",
    points=3,
    function="transformer_parameters",
    reference=transformer_parameters,
    cases=_count_cases,
    misconceptions=(
        _mistake(
            "cross-attention forgotten",
            "Your decoder layer is as large as an encoder layer. It has two attentions: besides looking back it looks "
            "across, with four maps more.",
            _count_like(attentions=(1, 1)),
            _count_like(attentions=(1, 1), norms=(2, 2)),
        ),
        _mistake(
            "norms forgotten",
            "The norms are missing from your count. A gamma and a beta are learned for every feature, at each sum. "
            "They are few, a twentieth of a percent of the base model, so a rough check does not notice.",
            _count_like(norms=(0, 0)),
            _count_like(norms=(1, 1)),
        ),
        _mistake(
            "third norm forgotten",
            "You are 2 D short in each pair of layers. The decoder's layer has three sublayers, and a sum with a norm "
            "of its own after each; the third is easily missed. (The biases of size D in the two feed-forward layers "
            "are just as many numbers: check those too.)",
            _count_like(norms=(2, 2)),
            _count_like(feed=lambda D, F: 2 * D * F + F),
        ),
        _mistake(
            "norms without beta",
            "You count one number a feature for each norm. There are two: gamma scales it, beta shifts it.",
            _count_like(norm_size=lambda D: D),
            _count_like(norm_size=lambda D: 2),
        ),
        _mistake(
            "norms at the end of the stacks",
            "You count a further norm after each stack. Pre-norm models need one there, and `nn.Transformer` puts one "
            "there always. In the post-norm layer the last thing is a norm already, and the paper has no other.",
            _count_like(more=lambda V, D: 4 * D),
            _count_like(more=lambda V, D: 2 * D),
        ),
        _mistake(
            "biases",
            "Some biases are missing or too many. Every linear map inside a layer has one number more for each number "
            "that it puts out: D for each of the four maps of an attention, d_ff and D for the two of the "
            "feed-forward layer.",
            _count_like(attention=_no_bias_attention, feed=_no_bias_feed),
            _count_like(attention=_no_bias_attention),
            _count_like(feed=_no_bias_feed),
            _count_like(attention=lambda D: 4 * D * D + 3 * D),
            _count_like(attention=lambda D: 4 * D * D + D),
            _count_like(feed=lambda D, F: 2 * D * F + D),
            _count_like(feed=lambda D, F: 2 * D * F + 2 * D),
            _count_like(feed=lambda D, F: 2 * D * F + 2 * F),
        ),
        _mistake(
            "matrices only",
            "You count the matrices and the tables. Every linear map of a layer has a bias besides, and every norm a "
            "gamma and a beta. All of these are vectors, so they are few, and they are learned like the rest.",
            _count_like(attention=_no_bias_attention, feed=_no_bias_feed, norms=(0, 0)),
        ),
        _mistake(
            "bias of the output layer",
            "You count V numbers for a bias of the output layer. `nn.Linear` has one unless it is told not to. Here "
            "the output layer is a table and nothing else, which is what lets it be the embedding's table.",
            _count_like(more=lambda V, D: V),
        ),
        _mistake(
            "embeddings counted twice when tied",
            "You count the table more than once where it is shared. When `tied` is True, the source's embedding, the "
            "target's embedding and the output layer are one and the same table: it is learned once.",
            _count_like(tables=(2, 3)),
            _count_like(tables=(3, 3)),
        ),
        _mistake(
            "too few tables when not tied",
            "You miss a table where nothing is shared. Three places need one then: the source's embedding, the "
            "target's embedding, and the output layer.",
            _count_like(tables=(1, 2)),
            _count_like(tables=(1, 1)),
            _count_like(tables=(0, 2)),
            _count_like(tables=(0, 1)),
        ),
        _mistake(
            "tied and untied exchanged",
            "You count three tables when they are tied and one when they are not. Tying is sharing: it makes the "
            "model smaller.",
            _count_like(tables=(3, 1)),
        ),
        _mistake(
            "no tables",
            "Your count is that of the layers alone. The embeddings are learned too, and for the base model they are "
            "nearly a third of everything.",
            _count_like(tables=(0, 0)),
        ),
        _mistake(
            "W_o forgotten",
            "You give an attention three maps. The fourth, W_o, mixes the joined heads.",
            _count_like(attention=lambda D: 3 * D * D + 3 * D),
            _count_like(attention=lambda D: 3 * D * D),
        ),
        _mistake(
            "feed-forward counted once",
            "You count one of the two maps of the feed-forward layer. It goes from D up to d_ff and from there down "
            "to D again, and both ways cost D times d_ff.",
            _count_like(feed=lambda D, F: D * F + F),
            _count_like(feed=lambda D, F: D * F + F + D),
            _count_like(feed=lambda D, F: D * F + D),
            _count_like(feed=lambda D, F: D * F),
        ),
        _mistake(
            "feed-forward in one stack only",
            "One of your stacks has no feed-forward layers. Every layer has one, in the encoder and in the decoder.",
            _count_like(feeds=(1, 0)),
            _count_like(feeds=(0, 1)),
        ),
        _mistake(
            "one layer of each",
            "N has no influence on your count. Each of the N layers has weights of its own; nothing is shared between "
            "them.",
            _count_like(layers=lambda N: 1),
        ),
        _mistake(
            "encoder forgotten",
            "You count one stack. There are N layers in the encoder and N more in the decoder.",
            _count_like(attentions=(0, 2), norms=(0, 3), feeds=(0, 1)),
            _count_like(attentions=(1, 0), norms=(2, 0), feeds=(1, 0)),
        ),
    ),
    why="Most of it is in the feed-forward layers and the tables; heads cost nothing, and norms next to nothing.",
)

EXERCISES = (ENCODER_LAYER, CROSS_ATTENTION, DECODER_LAYER, TRANSFORMER_PARAMETERS)
