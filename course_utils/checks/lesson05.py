"""Lesson 05: masks, a softmax that respects them, and a test for leaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception, NoGradient

# 5.1 -----------------------------------------------------------------------------------------------------------------


def padding_mask(tokens: torch.Tensor, pad: int) -> torch.Tensor:
    """Ids (B, S) -> (B, 1, 1, S), True = may be attended to: whoever asks, in whichever head, sees no padding."""
    return (tokens != pad)[:, None, None, :]


def _tokens(draw: Draw, B: int, length: int, pad: int) -> torch.Tensor:
    """(B, length) ids below 12 with padding at the end of all but one row, and every other id anywhere."""
    others = [i for i in range(12) if i != pad]
    tokens = torch.tensor([[draw.python.choice(others) for _ in range(length)] for _ in range(B)])
    return tokens.masked_fill(~draw.padding_mask(B, length), pad)


def _padding_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, S = draw.sizes(2, low=3)
        yield Case((_tokens(draw, B, S, 0), 0))
    B, S = draw.sizes(2, low=3)
    yield Case((_tokens(draw, B, S, 7), 7), "when padding is token 7")
    yield Case((_tokens(draw, S, S, 3), 3), "when there are as many words as sentences")
    yield Case((_tokens(draw, 1, S, 0), 0), "with a batch of one")
    yield Case((_tokens(draw, B, 1, 0), 0), "with one word")
    yield Case((torch.tensor([[4, 5, 6], [0, 0, 0]]), 0), "when a sentence is all padding")


def _shaped(shape: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor, int], torch.Tensor]:
    return lambda tokens, pad: shape(tokens != pad)


PADDING_MASK = Exercise(
    id="5.1",
    title="Padding mask",
    points=2,
    function="padding_mask",
    reference=padding_mask,
    cases=_padding_cases,
    misconceptions=(
        Misconception(
            "inverted",
            lambda tokens, pad: (tokens == pad)[:, None, None, :],
            "Your mask is True for padding. Some libraries hide where the mask is True, and code copied from there "
            "looks like yours. In this course True means that a place may be attended to, so with your mask only the "
            "padding would be seen.",
        ),
        Misconception(
            "wrong axis",
            _shaped(lambda real: real[:, None, :, None]),
            "You put the words on the axis of the queries. A padded query may look wherever it likes, since nobody "
            "reads its output; what must not be seen are padded *keys*, and keys are the last axis of the scores "
            "(B, h, T, S).",
        ),
        Misconception(
            "no axes for heads and queries",
            _shaped(lambda real: real),
            "The values are right and the two axes in the middle are missing. Scores are (B, h, T, S). Without them "
            "broadcasting would line the batch up with the queries, and for B = T it would even succeed.",
            also=(_shaped(lambda real: real[:, None, :]), _shaped(lambda real: real[:, :, None, None])),
        ),
        Misconception(
            "padding taken to be 0",
            lambda tokens, pad: (tokens != 0)[:, None, None, :],
            "You compare with 0, whatever `pad` is. In this course padding happens to be 0. In another vocabulary 0 "
            "is a word, which would be hidden, while the padding is seen.",
            also=(lambda tokens, pad: (tokens > 0)[:, None, None, :], lambda tokens, pad: tokens.bool()[:, None, None]),
        ),
        Misconception(
            "greater instead of different",
            lambda tokens, pad: (tokens > pad)[:, None, None, :],
            "You keep the ids above `pad`. That works as long as padding has the smallest id. What is asked is whether "
            "a token *is* the padding.",
        ),
        Misconception(
            "numbers instead of booleans",
            lambda tokens, pad: (tokens != pad).float()[:, None, None, :],
            "Your mask holds numbers. Given to attention as they are, they would silently be *added* to the scores: 1 "
            "to what may be seen and 0 to the padding, which hides nothing. A mask is boolean.",
            also=(
                lambda tokens, pad: (tokens != pad).long()[:, None, None, :],
                lambda tokens, pad: (tokens != pad).int()[:, None, None, :],
            ),
        ),
        Misconception(
            "a square for every sentence",
            lambda tokens, pad: (tokens != pad)[:, None, None, :].expand(-1, 1, tokens.shape[1], -1).clone(),
            "You copied the row for every query. The values are right, but the number of queries is not yours to know: "
            "in the look across from a decoder there are T of them, not S. An axis of length 1 fits any number.",
        ),
    ),
    why="One row a sentence, and axes of length 1: every head and every query, however many, is kept from the padding.",
)

# 5.2 -----------------------------------------------------------------------------------------------------------------


def causal_mask(T: int) -> torch.Tensor:
    """(T, T), True where key j may be seen by query i: j <= i."""
    return torch.ones(T, T, dtype=torch.bool).tril()


def _causal_cases(draw: Draw) -> Iterator[Case]:
    yield Case((draw.integer(4, 6),))
    yield Case((draw.integer(7, 12),))
    yield Case((2,), "for two tokens")
    yield Case((1,), "for one token")
    yield Case((33,), "for 33 tokens")


def _triangle(shape: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[int], torch.Tensor]:
    return lambda T: shape(torch.ones(T, T, dtype=torch.bool))


CAUSAL_MASK = Exercise(
    id="5.2",
    title="Causal mask",
    points=2,
    function="causal_mask",
    reference=causal_mask,
    cases=_causal_cases,
    misconceptions=(
        Misconception(
            "upper triangle",
            _triangle(lambda ones: ones.triu()),
            "Your row i may see itself and everything *after* it: the future is open and the past is hidden. Rows are "
            "those who ask. The first token has only itself to look at, the last one has all.",
        ),
        Misconception(
            "inverted",
            _triangle(lambda ones: ones.triu(1)),
            "Your mask is True exactly where nobody may look. Some libraries mark what is hidden, and their recipe is "
            "the strict upper triangle. Here True means may attend.",
        ),
        Misconception(
            "diagonal excluded",
            _triangle(lambda ones: ones.tril(-1)),
            "A token may not see itself with your mask, and the first one sees nothing at all. Its own token is what a "
            "decoder was just fed, so it lies in the past; what must be hidden starts with the next one.",
            also=(_triangle(lambda ones: ones.triu(0).logical_not()),),
        ),
        Misconception(
            "one step into the future",
            _triangle(lambda ones: ones.tril(1)),
            "Each token also sees the one after it, which is the one that it is to predict. One diagonal too many is "
            "all it takes: the model learns to copy.",
        ),
        Misconception(
            "float",
            lambda T: torch.ones(T, T).tril(),
            "Your mask is not boolean. Ones and zeros of a float would be added to the scores, and hide nothing; an "
            "integer mask is refused or misread by most functions. The place decides, not a number.",
            also=(
                lambda T: torch.ones(T, T, dtype=torch.long).tril(),
                lambda T: torch.ones(T, T, dtype=torch.int).tril(),
                lambda T: torch.ones(T, T, dtype=torch.float64).tril(),
            ),
        ),
        Misconception(
            "minus infinity already filled in",
            lambda T: torch.zeros(T, T).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf),
            "You built what is added to the scores, 0 and minus infinity. That is what becomes of a mask inside "
            "attention. Asked is the mask itself, boolean, which can still be joined with another one.",
            also=(lambda T: torch.full((T, T), -math.inf).triu(1),),
        ),
        Misconception(
            "nothing hidden",
            _triangle(lambda ones: ones),
            "Everybody sees everybody. That is an encoder's self-attention; a decoder in training would read off the "
            "very token it is asked for.",
        ),
        Misconception(
            "only itself",
            _triangle(lambda ones: ones.tril().triu()),
            "Each token sees itself and nothing else. The past is there to be used: only the future is hidden.",
        ),
        Misconception(
            "with axes in front",
            _triangle(lambda ones: ones.tril()[None, None]),
            "The triangle is right, with axes in front of it that were not asked for. (T, T) broadcasts over batch and "
            "heads by itself.",
            also=(_triangle(lambda ones: ones.tril()[None]),),
        ),
    ),
    why="Row i is True up to column i: what a token may see is what has been said, its own input included.",
)

# 5.3 -----------------------------------------------------------------------------------------------------------------


def decoder_mask(tokens: torch.Tensor, pad: int) -> torch.Tensor:
    """Ids (B, T) -> (B, 1, T, T): query i sees key j if j <= i and key j is no padding."""
    return padding_mask(tokens, pad) & causal_mask(tokens.shape[1])


def _decoder_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, T = draw.sizes(2, low=3)
        yield Case((_tokens(draw, B, T, 0), 0))
    B, T = draw.sizes(2, low=3)
    yield Case((_tokens(draw, B, T, 7), 7), "when padding is token 7")
    yield Case((_tokens(draw, T, T, 3), 3), "when there are as many tokens as sentences")
    yield Case((_tokens(draw, 1, T, 0), 0), "with a batch of one")
    yield Case((_tokens(draw, B, 1, 0), 0), "with one token")
    in_the_middle = _tokens(draw, B, T + 2, 0)
    in_the_middle[:, 1] = 0
    yield Case((in_the_middle, 0), "when padding stands between words")


def _joined(
    keys: Callable[[torch.Tensor], torch.Tensor] = lambda real: real[:, None, None, :],
    past: Callable[[int], torch.Tensor] = causal_mask,
    join: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.logical_and,
) -> Callable[[torch.Tensor, int], torch.Tensor]:
    return lambda tokens, pad: join(keys(tokens != pad), past(tokens.shape[1]))


DECODER_MASK = Exercise(
    id="5.3",
    title="Decoder mask",
    points=2,
    function="decoder_mask",
    reference=decoder_mask,
    cases=_decoder_cases,
    misconceptions=(
        Misconception(
            "or instead of and",
            _joined(join=torch.logical_or),
            "You joined the two with *or*, so a place is open as soon as one of the masks allows it: real words of the "
            "future, and padding of the past. Both have to allow it.",
            also=(lambda tokens, pad: (padding_mask(tokens, pad).int() + causal_mask(tokens.shape[1]).int()) > 0,),
        ),
        Misconception(
            "padding on the query axis",
            _joined(keys=lambda real: real[:, None, :, None]),
            "You hid the rows of padded queries and left padded keys open. A padded row does no harm, since its output "
            "is never read. A padded key that is seen does.",
        ),
        Misconception(
            "padding on both axes",
            _joined(keys=lambda real: real[:, None, None, :] & real[:, None, :, None]),
            "You also hid the rows of padded queries. It looks tidy, but such a row has nothing left to attend to, and "
            "a plain softmax over nothing is NaN. It is enough that nobody looks at padding.",
        ),
        Misconception(
            "padding only",
            lambda tokens, pad: padding_mask(tokens, pad).expand(-1, 1, tokens.shape[1], -1).clone(),
            "The padding is hidden and the future is open. A decoder in training has the whole target before it, so it "
            "could copy its answer from there.",
            also=(padding_mask,),
        ),
        Misconception(
            "future only",
            lambda tokens, pad: causal_mask(tokens.shape[1]).expand(len(tokens), 1, -1, -1).clone(),
            "The future is hidden and the padding is open. At the end of a short sentence that seems enough, since its "
            "padding lies in the future of its words; padding in front of or between words is seen.",
            also=(lambda tokens, pad: causal_mask(tokens.shape[1])[None, None],),
        ),
        Misconception(
            "inverted",
            lambda tokens, pad: ~_joined()(tokens, pad),
            "True stands for what is hidden. In this course True means may attend.",
            also=(
                lambda tokens, pad: (
                    (tokens == pad)[:, None, None, :]
                    | torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
                ),
                lambda tokens, pad: (tokens == pad)[:, None, None, :] & causal_mask(tokens.shape[1]),
            ),
        ),
        Misconception(
            "sees the past of nobody",
            _joined(past=lambda T: torch.ones(T, T, dtype=torch.bool).triu()),
            "The triangle lies the wrong way round: each token sees itself and what comes after. Rows ask, columns are "
            "asked, and what was said before stands to the left.",
        ),
        Misconception(
            "diagonal excluded",
            _joined(past=lambda T: torch.ones(T, T, dtype=torch.bool).tril(-1)),
            "A token may not see itself, so the first row of every sentence has nothing to attend to. The token that "
            "was just fed belongs to what is known.",
        ),
        Misconception(
            "no axis for the heads",
            lambda tokens, pad: _joined()(tokens, pad)[:, 0],
            "The values are right, and the axis for the heads is missing: scores are (B, h, T, T). Against (B, T, T) "
            "broadcasting would take your batch for the heads.",
        ),
        Misconception(
            "padding taken to be 0",
            lambda tokens, pad: padding_mask(tokens, 0) & causal_mask(tokens.shape[1]),
            "You compare with 0, whatever `pad` is. Elsewhere 0 is a word.",
        ),
        Misconception(
            "numbers instead of booleans",
            lambda tokens, pad: _joined()(tokens, pad).float(),
            "Your mask holds numbers. Multiplying two masks is a fine *and*, but what comes out would be added to the "
            "scores instead of hiding anything. Keep it boolean.",
            also=(
                lambda tokens, pad: _joined()(tokens, pad).long(),
                lambda tokens, pad: _joined()(tokens, pad).int(),
            ),
        ),
    ),
    why="Two reasons to hide, joined with *and*: broadcasting makes (B, 1, 1, T) and (T, T) into one mask a sentence.",
)

# 5.4 -----------------------------------------------------------------------------------------------------------------


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis where ``mask`` (broadcasts to the scores) is True, exact zeros elsewhere.

    A row with nothing to attend to is all zeros.
    """
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)


def _weights_and_gradient(answer: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The weights, and for tracked scores also what training would send back through them."""
    scores, _ = args
    weights = answer(*args)
    if not scores.requires_grad or not isinstance(weights, torch.Tensor) or weights.shape != scores.shape:
        return weights
    if not weights.requires_grad:
        raise NoGradient("no gradient gets from the result back to the arguments")
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores)
    return weights, gradient


def _some(draw: Draw, *shape: int) -> torch.Tensor:
    """A random mask; every row has one True and one False at least."""
    mask = torch.rand(*shape, generator=draw.torch) < 0.6
    first = draw.integer(0, shape[-1] - 1)
    mask[..., first], mask[..., first - 1] = True, False
    return mask


def _softmax_cases(draw: Draw) -> Iterator[Case]:
    B, h, T, S = draw.sizes(4, low=3)
    yield Case((draw.tracked(B, h, T, S), _some(draw, B, h, T, S)))
    yield Case((draw.tracked(B, h, T, S), _some(draw, B, 1, 1, S)))
    yield Case((draw.tracked(T, S), _some(draw, T, S)), "for one table of scores")
    yield Case((draw.tracked(B, h, T, T), torch.ones(T, T, dtype=torch.bool).tril()), "with a causal mask")
    empty = _some(draw, B, T, S)
    empty[1, draw.integer(0, T - 1)] = False
    yield Case((draw.tracked(B, T, S), empty), "for a row with nothing to attend to")
    yield Case((3 * draw.normal(B, T, S, dtype=torch.float16), _some(draw, B, T, S)), "in float16")
    empty = _some(draw, B, T, S)
    empty[0] = False
    yield Case((draw.normal(B, T, S, dtype=torch.float16), empty), "in float16, for rows with nothing to attend to")
    yield Case((draw.tracked(B, T, S, dtype=torch.float32), _some(draw, B, T, S)), "in float32")
    mask = _some(draw, B, T, S)
    high = draw.normal(B, T, S).masked_fill(~mask, 5_000.0)
    yield Case((high, mask), "when hidden scores are the largest")
    yield Case((1_000 * draw.normal(B, T, S), _some(draw, B, T, S)), "when scores are in the thousands")
    yield Case((draw.normal(B, T, S) - 2_000, _some(draw, B, T, S)), "when all scores are far below 0")


def _exp_of(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    e = scores.exp() * mask
    return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-9)


MASKED_SOFTMAX = Exercise(
    id="5.4",
    title="Masked softmax",
    points=3,
    function="masked_softmax",
    reference=masked_softmax,
    cases=_softmax_cases,
    drive=_weights_and_gradient,
    misconceptions=(
        Misconception(
            "mask after the softmax",
            lambda scores, mask: scores.softmax(dim=-1) * mask,
            "You took the softmax over everything and set the hidden weights to zero afterwards. The zeros are right, "
            "and the rest of the row no longer sums to 1: what was hidden had already taken its share.",
            also=(lambda scores, mask: scores.softmax(dim=-1).masked_fill(~mask, 0.0),),
        ),
        Misconception(
            "mask after the softmax, then rescaled",
            lambda scores, mask: (
                (scores.softmax(dim=-1) * mask) / (scores.softmax(dim=-1) * mask).sum(dim=-1, keepdim=True)
            ),
            "You took the softmax over everything, hid, and divided by what was left. On paper that is the same. If a "
            "hidden score is much larger than the others, the visible weights have already been rounded to 0, and 0/0 "
            "is NaN; the same happens to a row in which all is hidden.",
            also=(
                lambda scores, mask: (
                    (scores.softmax(dim=-1) * mask)
                    / (scores.softmax(dim=-1) * mask).sum(dim=-1, keepdim=True).clamp(min=1e-9)
                ),
            ),
        ),
        Misconception(
            "−1e9 in float16",
            lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(dim=-1),
            "Hidden scores become −1e9. In float32 that is as good as minus infinity, until a row is hidden as a "
            "whole: then all are equally bad and each gets the same weight. And float16 ends at 65,504, so there the "
            "number does not exist. Minus infinity is right in every precision.",
            also=(lambda scores, mask: scores + (~mask).to(scores.dtype) * -1e9,),
        ),
        Misconception(
            "the lowest number instead of infinity",
            lambda scores, mask: scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1),
            "Hidden scores become the lowest number that there is, which works in every precision. For a row in which "
            "everything is hidden they are all equally low, and the softmax spreads its 1 evenly over what nobody may "
            "see. Such a row must be zeros.",
            also=(lambda scores, mask: scores.masked_fill(~mask, -1e4).softmax(dim=-1),),
        ),
        Misconception(
            "NaN rows",
            lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(dim=-1),
            "Right, except for a row with nothing to attend to. There every exponential is 0, and 0/0 is NaN, which "
            "spreads through everything that touches it. Such a row is to be zeros, as torch's own attention has it.",
            also=(lambda scores, mask: torch.where(mask, scores, -math.inf).softmax(dim=-1),),
        ),
        Misconception(
            "NaN in the gradient",
            lambda scores, mask: (
                (scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf))
                .softmax(dim=-1)
                .nan_to_num()
            ),
            "The weights are right everywhere. The gradient is not: for a row in which everything is hidden it is NaN, "
            "because minus infinity was *added* to scores that are still part of the computation. Filling a place "
            "cuts its score off; adding to it does not.",
        ),
        Misconception(
            "masked scores set to 0",
            lambda scores, mask: (scores * mask).softmax(dim=-1),
            "Hidden scores become 0. A score of 0 is an ordinary score, often a good one: e to the 0 is 1. Only minus "
            "infinity has an exponential of 0.",
            also=(
                lambda scores, mask: scores.masked_fill(~mask, 0.0).softmax(dim=-1),
                lambda scores, mask: scores.masked_fill(~mask, 0.0).softmax(dim=-1) * mask,
            ),
        ),
        Misconception(
            "mask inverted",
            lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(dim=-1).masked_fill(mask, 0.0),
            "You hid what may be seen and kept what may not. True means may attend.",
            also=(lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(dim=-1),),
        ),
        Misconception(
            "mask unused",
            lambda scores, mask: scores.softmax(dim=-1),
            "The mask has no effect: this is the softmax over everything.",
        ),
        Misconception(
            "the mask as a number in the scores",
            lambda scores, mask: (scores + mask).softmax(dim=-1),
            "Your mask was added to the scores as a number: what may be seen got one more, and nothing is hidden. This "
            "is what happens when a mask of ones and zeros meets a function that expects minus infinity.",
        ),
        Misconception(
            "softmax over the wrong axis",
            lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(dim=-2).nan_to_num(),
            "Your columns sum to 1 instead of your rows. A query shares out its attention among the keys, and keys are "
            "the last axis.",
            also=(lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(dim=1).nan_to_num(),),
        ),
        Misconception(
            "overflows",
            _exp_of,
            "You took exponentials of the scores as they are. On paper the formula is right. In float16 an exponential "
            "is infinite from a score of 12 on, in float64 from 710 on. Only differences count, so the largest visible "
            "score may be subtracted first.",
            also=(lambda scores, mask: (scores.exp() * mask) / (scores.exp() * mask).sum(dim=-1, keepdim=True),),
        ),
        NO_GRADIENT,
    ),
    why="Minus infinity before the softmax is right in every precision; the fill after it mends the empty row's 0/0.",
)

# 5.5 -----------------------------------------------------------------------------------------------------------------


class Layer:
    """(B, T, D) -> (B, T, E). ``weights`` (B, T, T) of the last call, where the layer has attention weights."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        self._function = function
        self.weights: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        value = self._function(x)
        if isinstance(value, tuple):
            value, self.weights = value[0], value[1].detach()
        return value


def leaks_future(layer: Layer, x: torch.Tensor) -> bool:
    """True if any output at t depends on an input after t; x (B, T, D). Every place is exchanged, one at a time."""
    before = layer(x)
    for t in range(1, x.shape[1]):
        other = x.clone()
        other[:, t] = torch.randn(x[:, t].shape, dtype=x.dtype, generator=torch.Generator().manual_seed(t))
        if not torch.allclose(layer(other)[:, :t], before[:, :t], rtol=1e-6, atol=1e-9):
            return True
    return False


def _past(T: int) -> torch.Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril()


class _Layers:
    """Layers with weights from ``draw``, in float64; T, D and E are their sizes."""

    def __init__(self, draw: Draw, T: int, D: int, E: int) -> None:
        self.draw, self.T, self.D, self.E = draw, T, D, E

    def _matrix(self, rows: int, columns: int) -> torch.Tensor:
        return self.draw.normal(rows, columns) / rows**0.5

    def attention(self, mask: torch.Tensor | None, look: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Layer:
        """One head; ``look`` changes what keys and values are made of."""
        W_q, W_k, W_v = self._matrix(self.D, 3), self._matrix(self.D, 3), self._matrix(self.D, self.E)

        def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            seen = look(x) if look else x
            scores = (x @ W_q) @ (seen @ W_k).transpose(1, 2)
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            weights = scores.softmax(dim=-1)
            return weights @ (seen @ W_v), weights

        return Layer(function)

    def one_pair(self, query: int, key: int) -> Layer:
        """Causal, but for one place that sees one later one; a small weight is enough."""
        mask = _past(self.T)
        mask[query, key] = True
        return self.attention(mask)

    def mixing(self, table: torch.Tensor) -> Layer:
        """Fixed weights (T, T), no attention."""
        W = self._matrix(self.D, self.E)
        return Layer(lambda x: torch.einsum("ts,bsd->btd", table, x.tanh()) @ W)

    def causal_with(self, leak: Callable[[torch.Tensor], torch.Tensor]) -> Layer:
        """Causal attention whose weights are honest, plus something that need not be."""
        inner = self.attention(_past(self.T))
        W = self._matrix(self.D, self.E)

        def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return inner(x) + leak(x) @ W, inner.weights

        return Layer(function)

    def gru(self, backwards: bool) -> Layer:
        U, W = self._matrix(self.E, self.E), self._matrix(self.D, self.E)

        def function(x: torch.Tensor) -> torch.Tensor:
            words = x.flip(1) if backwards else x
            h, states = x.new_zeros(x.shape[0], self.E), []
            for word in words.unbind(dim=1):
                h = 0.5 * h + 0.5 * torch.tanh(word @ W + h @ U)
                states.append(h)
            out = torch.stack(states, dim=1)
            return out.flip(1) if backwards else out

        return Layer(function)


def _normed_over_time(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True, correction=0).clamp(min=1e-3)


def _normed_over_features(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True, correction=0).clamp(min=1e-3)


def _centred(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def _direction(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def _leak_cases(draw: Draw) -> Iterator[Case]:
    B, T, D, E = draw.sizes(4, low=4, high=8)
    T = max(T, 6)
    make = _Layers(draw, T, D, E)
    x = draw.normal(B, T, D)

    def next_only(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)

    def feature(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[..., -1] = next_only(x)[..., -1]
        return out

    def sentence(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        if len(x) > 1:
            out[1] = x[1].mean(dim=0)
        return out

    def middle(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[:, 2] = x[:, 3]
        return out

    def far(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[:, 0] = x[:, -1]
        return out

    def differences(x: torch.Tensor) -> torch.Tensor:
        return next_only(_normed_over_features(x))

    yield Case((make.attention(_past(T)), x), "for attention with a causal mask")
    yield Case((make.attention(None), x), "for attention without a mask")
    yield Case((make.attention(torch.ones(T, T, dtype=torch.bool).tril(1)), x), "for a mask one diagonal too wide")
    yield Case((make.one_pair(2, 3), x), "when one token sees one later token")
    yield Case((make.one_pair(1, 3), x), "when one token sees one later token")
    yield Case((make.one_pair(0, 2), x), "when only the first token sees a later one")
    yield Case((make.one_pair(0, T - 1), x), "when only the first token sees the last")
    yield Case((make.causal_with(middle), x), "when a leak does not go through the weights")
    yield Case((make.causal_with(next_only), x), "when every output gets the next input")
    yield Case((make.causal_with(feature), x), "when only one feature leaks")
    yield Case((make.causal_with(sentence), x), "when only one sentence of the batch leaks")
    yield Case((make.causal_with(far), x), "when only the first output depends on the last input")
    yield Case((make.causal_with(differences), x), "when a leak goes through a norm over features")
    yield Case((make.causal_with(lambda x: next_only(_centred(x))), x), "when a leak goes through a centring")
    yield Case((make.causal_with(lambda x: next_only(_direction(x))), x), "when only the direction of a token leaks")
    yield Case((make.attention(_past(T), _normed_over_time), x), "for causal attention after a norm over time")
    yield Case((make.attention(_past(T), _normed_over_features), x), "for causal attention after a norm over features")
    yield Case((make.gru(backwards=False), x), "for a recurrent layer")
    yield Case((make.gru(backwards=True), x), "for a recurrent layer that reads backwards")
    yield Case(
        (make.mixing(torch.rand(T, T, generator=draw.torch, dtype=torch.float64).tril()), x), "for fixed weights"
    )
    yield Case((make.causal_with(lambda x: x.roll(1, dims=0)), x), "for a layer that mixes the sentences of the batch")
    yield Case((make.causal_with(lambda x: x.cumsum(dim=1)), x), "for a layer that adds up the past")
    yield Case((make.attention(torch.ones(1, 1, dtype=torch.bool)), x[:, :1]), "with a single token")


def _by_exchange(
    places: Callable[[int], Any] = lambda T: range(1, T),
    change: Callable[[torch.Tensor], torch.Tensor] = lambda part: torch.randn(
        part.shape, dtype=part.dtype, generator=torch.Generator().manual_seed(0)
    ),
    read: Callable[[torch.Tensor, int], torch.Tensor] = lambda out, t: out[:, :t],
    prepare: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    inverted: bool = False,
) -> Callable[[Layer, torch.Tensor], bool]:
    """Exchange the inputs at some places, one at a time, and compare some of the outputs."""

    def wrong(layer: Layer, x: torch.Tensor) -> bool:
        x = prepare(x)
        before = layer(x)
        for t in places(x.shape[1]):
            other = x.clone()
            other[:, t] = change(x[:, t])
            if not torch.allclose(read(layer(other), t), read(before, t)):
                return not inverted
        return inverted

    return wrong


def _weights_only(layer: Layer, x: torch.Tensor) -> bool:
    layer(x)
    return layer.weights is not None and bool((layer.weights.triu(1) > 0).any())


LEAKS_FUTURE = Exercise(
    id="5.5",
    title="Does it leak?",
    points=3,
    function="leaks_future",
    reference=leaks_future,
    cases=_leak_cases,
    misconceptions=(
        Misconception(
            "looks at the weights only",
            _weights_only,
            "You looked at the attention weights above the diagonal. Weights say who was *asked*, and information has "
            "other ways: a norm over time before the attention, a shifted copy, a layer without weights. The "
            "only witness is the output, when an input changes.",
        ),
        Misconception(
            "one position only",
            _by_exchange(places=lambda T: [T - 1] if T > 1 else []),
            "You exchanged the last input and nothing else. Most leaks use it, so this finds most. A leak from the "
            "fourth token to the third goes by unseen: every place has to be exchanged once.",
            also=(
                _by_exchange(places=lambda T: [T - 1] if T > 1 else [], read=lambda out, t: out[:, 0]),
                _by_exchange(places=lambda T: [1] if T > 1 else []),
                _by_exchange(places=lambda T: [T // 2] if T > 1 else []),
            ),
        ),
        Misconception(
            "misses the next position",
            _by_exchange(places=lambda T: range(2, T), read=lambda out, t: out[:, : t - 1]),
            "You compare outputs that lie two places or more before the input that was exchanged. The commonest leak "
            "of all, a mask with one diagonal too many, reaches exactly one place into the future.",
            also=(_by_exchange(read=lambda out, t: out[:, : t - 1]),),
        ),
        Misconception(
            "reads the first output only",
            _by_exchange(read=lambda out, t: out[:, 0]),
            "You exchange every input, and read the first output each time. A later output may leak although the "
            "first one does not.",
        ),
        Misconception(
            "counts its own place",
            _by_exchange(read=lambda out, t: out[:, : t + 1]),
            "You compare the output at the very place whose input was exchanged, or after it. Of course that one "
            "changes; it is allowed to. Only earlier outputs may not.",
            also=(
                _by_exchange(read=lambda out, t: out),
                _by_exchange(read=lambda out, t: out[:, t]),
                _by_exchange(read=lambda out, t: out[:, t:]),
                _by_exchange(read=lambda out, t: out[:, t + 1 :]),
            ),
        ),
        Misconception(
            "answers the opposite",
            _by_exchange(inverted=True),
            "You return True for a layer that is causal. The question is whether it *leaks*.",
        ),
        Misconception(
            "one sentence only",
            _by_exchange(read=lambda out, t: out[:1, :t]),
            "You look at the first sentence of the batch. A leak may hide in another one.",
            also=(_by_exchange(prepare=lambda x: x[:1]),),
        ),
        Misconception(
            "one feature only",
            _by_exchange(change=lambda part: torch.cat([part[:, :1] + 3.0, part[:, 1:]], dim=1)),
            "You change one number of the input, and a layer may pass on another one. Exchange the whole token.",
        ),
        Misconception(
            "shifts the token as a whole",
            _by_exchange(change=lambda part: part + 1.0),
            "You add the same number to all features of a token. A norm over features takes exactly that out again, so "
            "behind one the leak is invisible. Put another token in its place.",
            also=(_by_exchange(change=lambda part: part + 10.0), _by_exchange(change=lambda part: part + 0.1)),
        ),
        Misconception(
            "scales the token",
            _by_exchange(change=lambda part: 2.0 * part),
            "You multiply the token by a number. A norm over features takes that out again, so behind one the leak is "
            "invisible. Put another token in its place.",
            also=(_by_exchange(change=lambda part: 10.0 * part),),
        ),
    ),
    why="Exchange one input at a time and watch all earlier outputs: what does not move does not depend on it.",
)

EXERCISES = (PADDING_MASK, CAUSAL_MASK, DECODER_MASK, MASKED_SOFTMAX, LEAKS_FUTURE)
