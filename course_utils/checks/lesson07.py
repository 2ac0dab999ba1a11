"""Lesson 07: the sinusoids, adding them to the words, a step as a rotation, and a test for lost order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception

# 7.1 -----------------------------------------------------------------------------------------------------------------


def positional_encoding(T: int, d_model: int) -> torch.Tensor:
    """(T, d_model): sin(p w_i) at index 2i and cos(p w_i) at index 2i + 1, with w_i = 10000^(-2i / d_model).

    Vaswani et al. (2017), section 3.5. An odd ``d_model`` ends with a sine.
    """
    even_indices = torch.arange(0, d_model, 2, dtype=torch.float64)  # 0, 2, 4, ...: the formula's 2i, one for each pair
    speeds = 10_000.0 ** (-even_indices / d_model)  # (pairs,)
    angles = torch.arange(T)[:, None] * speeds  # (T, pairs)
    encoding = torch.empty(T, d_model)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, : d_model // 2]  # an odd d_model has one cosine less
    return encoding  # in torch's default dtype; only the angles need float64


def _encoding_cases(draw: Draw) -> Iterator[Case]:
    even = 2 * draw.integer(2, 5)
    yield Case((draw.integer(11, 20), even))
    yield Case((draw.integer(4, 6), 2 * draw.integer(6, 9)))
    yield Case((draw.integer(60, 90), even + 2), "for many positions")
    yield Case((draw.integer(11, 20), even + 1), "with an odd d_model")
    yield Case((draw.integer(4, 6), even + 7), "with an odd d_model")
    yield Case((1, even), "with a single position")
    yield Case((draw.integer(5, 9), 2), "with a single pair")
    yield Case((draw.integer(5, 9), 1), "when d_model is 1")


def _speeds(d_model: int) -> torch.Tensor:
    return 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)


def _waves(
    T: int,
    d_model: int,
    speeds: torch.Tensor | None = None,
    first: int = 0,
    swapped: bool = False,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    speeds = _speeds(d_model) if speeds is None else speeds
    angles = torch.arange(first, first + T, dtype=torch.float64)[:, None] * speeds
    pair = [angles.cos(), angles.sin()] if swapped else [angles.sin(), angles.cos()]
    return torch.stack(pair, dim=-1).flatten(1)[:, :d_model].to(dtype)


def _halves(T: int, d_model: int, cosines_first: bool = False) -> torch.Tensor:
    angles = torch.arange(T, dtype=torch.float64)[:, None] * _speeds(d_model)
    halves = [angles.cos(), angles.sin()] if cosines_first else [angles.sin(), angles.cos()]
    return torch.cat(halves, dim=1)[:, :d_model].float()


def _pairs(d_model: int) -> torch.Tensor:
    return torch.arange((d_model + 1) // 2, dtype=torch.float64)


def _speed_for_each_index(T: int, d_model: int) -> torch.Tensor:
    index = torch.arange(d_model)
    angles = torch.arange(T, dtype=torch.float64)[:, None] * 10_000.0 ** (-index.double() / d_model)
    return torch.where(index % 2 == 0, angles.sin(), angles.cos()).float()


def _twice_the_index(T: int, d_model: int) -> torch.Tensor:
    index = torch.arange(d_model)
    angles = torch.arange(T, dtype=torch.float64)[:, None] * 10_000.0 ** (-2 * index.double() / d_model)
    return torch.where(index % 2 == 0, angles.sin(), angles.cos()).float()


def _without_the_last(T: int, d_model: int) -> torch.Tensor:
    encoding = _waves(T, d_model)
    if d_model % 2:
        encoding[:, -1] = 0
    return encoding


def _last_as_cosine(T: int, d_model: int) -> torch.Tensor:
    encoding = _waves(T, d_model)
    if d_model % 2:
        encoding[:, -1] = _waves(T, d_model, swapped=True)[:, -1]
    return encoding


POSITIONAL_ENCODING = Exercise(
    id="7.1",
    title="Positional encoding",
    points=3,
    function="positional_encoding",
    reference=positional_encoding,
    cases=_encoding_cases,
    misconceptions=(
        Misconception(
            "exponent i instead of 2i",
            lambda T, d: _waves(T, d, 10_000.0 ** (-_pairs(d) / d)),
            "Your speeds fall only half as far as they should: the exponent counts the pairs 0, 1, 2, … and is divided "
            "by the number of *indices*, d_model. So the slowest hand turns at about 1/100 of the first and not at "
            "about 1/10,000. With one pair there is no difference. Pair i begins at index 2i, and that is what is "
            "divided by d_model.",
        ),
        Misconception(
            "a speed for each index",
            _speed_for_each_index,
            "Sine and cosine of a pair turn at two different speeds in your code: the exponent follows the index, so "
            "it changes within the pair. Then they are not the two coordinates of one hand, their squares do not sum "
            "to 1, and a step is no rotation any more. Both members of a pair share the exponent of the even one.",
            also=(_twice_the_index,),
        ),
        Misconception(
            "concatenated halves",
            _halves,
            "All sines come first and all cosines after them. The numbers are right, and no dot product of two codes "
            "could tell the difference, which is why some programs do it so. This course follows the paper's formula: "
            "a pair stands side by side, the sine at an even index and its cosine right after it.",
            also=(lambda T, d: _halves(T, d, cosines_first=True),),
        ),
        Misconception(
            "starts at 1",
            lambda T, d: _waves(T, d, first=1),
            "Your first row is the code of position 1. Positions are counted from 0, where all hands stand at twelve: "
            "every sine is 0 and every cosine 1. Shifted by one, the codes of a trained model would not fit the words "
            "any more.",
        ),
        Misconception(
            "sin and cos swapped",
            lambda T, d: _waves(T, d, swapped=True),
            "You put the cosine at the even indices and the sine at the odd ones. Each pair is still one hand, seen in "
            "a mirror, so nothing would look wrong in training. The formula has the sine first, so position 0 reads "
            "0, 1, 0, 1 and so on.",
        ),
        Misconception(
            "last speed exactly 1/10000",
            lambda T, d: _waves(T, d, 10_000.0 ** (-_pairs(d) / max(1, len(_pairs(d)) - 1))),
            "You spread the speeds so that the last pair gets exactly 1/10,000. That is a sensible choice, and some "
            "programs make it. The paper divides by d_model, so the last pair stays a little short of it: for d_model "
            "8 it turns at 1/1,000.",
            also=(
                lambda T, d: _waves(T, d, 10_000.0 ** (-2 * _pairs(d) / max(1, d - 1))),
                lambda T, d: _waves(T, d, 10_000.0 ** (-2 * _pairs(d) / max(1, d - 2))),
            ),
        ),
        Misconception(
            "multiplies by 10000 to the exponent",
            lambda T, d: _waves(T, d, 1 / _speeds(d)),
            "Your hands get faster from pair to pair: the sign of the exponent is turned. The first pair is right, "
            "since its exponent is 0. A hand that turns by thousands of radians a step points anywhere, and "
            "neighbouring positions would have nothing in common.",
        ),
        Misconception(
            "odd size rounded up",
            lambda T, d: _waves(T, d, _speeds(d + d % 2)),
            "For an odd d_model you make the code of the next even size and cut off its last column. The shape is "
            "right. But the speeds depend on d_model, so all the other columns are those of another size.",
        ),
        Misconception(
            "odd size left without its last sine",
            _without_the_last,
            "For an odd d_model your last column is empty. The last pair is incomplete there, and what is missing is "
            "its cosine; the index of the sine is even and within the size.",
            also=(_last_as_cosine,),
        ),
        Misconception(
            "float64",
            lambda T, d: _waves(T, d, dtype=torch.float64),
            "All numbers are right, and they are in float64. Computing them so is a good idea. But added to float32 "
            "embeddings they would turn everything behind them into float64, which is slower and does not fit the "
            "weights: return torch's default, float32.",
        ),
    ),
    why="One hand alone repeats or hardly moves; a fast one and slower ones together name every position.",
)

# 7.2 -----------------------------------------------------------------------------------------------------------------


def embed(tokens: torch.Tensor, table: torch.Tensor, pe: torch.Tensor) -> torch.Tensor:
    """tokens (B, T) ids, table (V, D), pe (longest, D) -> (B, T, D): table[tokens] sqrt(D) + pe, position by position.

    Vaswani et al. (2017), sections 3.4 and 3.5.
    """
    T, D = tokens.shape[1], table.shape[1]
    return table[tokens] * D**0.5 + pe[:T]  # (B, T, D) + (T, D): the same positions for every sentence


def _embed_cases(draw: Draw) -> Iterator[Case]:
    def arguments(
        B: int, T: int, more: int = 7, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        V, D = draw.sizes(2, low=3)
        tokens = torch.randint(V, (B, T), generator=draw.torch)
        return tokens, draw.tracked(V, D, dtype=dtype), draw.normal(max(T, B, V) + more, D, dtype=dtype)

    for _ in range(2):
        B, T = draw.sizes(2, low=3)
        yield Case(arguments(B, T))
    B, T = draw.sizes(2, low=3)
    tokens, table, pe = arguments(B, T)
    yield Case((tokens, table, pe[:T].clone()), "when there are just as many positions as words")
    yield Case(arguments(T, T), "when there are as many words as sentences")
    yield Case(arguments(1, T), "with a batch of one")
    yield Case(arguments(B, 1), "with one word")
    yield Case(arguments(B, T, dtype=torch.float32), "in float32")


def _embed_like(combine: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``combine(words, positions, D)`` with words (B, T, D) and positions (T, D)."""
    return lambda tokens, table, pe: combine(table[tokens], pe[: tokens.shape[1]], table.shape[1])


EMBED = Exercise(
    id="7.2",
    title="Words and positions",
    points=2,
    function="embed",
    reference=embed,
    cases=_embed_cases,
    misconceptions=(
        Misconception(
            "no scale",
            _embed_like(lambda words, places, D: words + places),
            "The words come in without their factor. A row of the Transformer's table starts with a norm near 1, and a "
            "position has a norm of sqrt(D / 2), so in your sum the position is many times louder than the word. The "
            "root of d_model brings the two to one size.",
        ),
        Misconception(
            "pe scaled too",
            _embed_like(lambda words, places, D: (words + places) * D**0.5),
            "You multiplied the whole sum, so the position grew with the word. The factor is there to change their "
            "proportion; applied to both it changes nothing but the size of everything.",
        ),
        Misconception(
            "only pe scaled",
            _embed_like(lambda words, places, D: words + places * D**0.5),
            "The factor went to the position instead of the word. The positions have their size already; it is the "
            "word, whose table row is small, that has to be lifted.",
        ),
        Misconception(
            "scaled by d_model",
            _embed_like(lambda words, places, D: words * D + places),
            "You multiplied by d_model and not by its root. A norm is a root of a sum of squares, so it grows with "
            "the root of the size; with the whole d_model the word would drown its position.",
        ),
        Misconception(
            "divided by the root",
            _embed_like(lambda words, places, D: words / D**0.5 + places),
            "You divided by the root of d_model. That is what attention does with its scores, which are too large. "
            "Here the word is too small next to its position, and is multiplied.",
        ),
        Misconception(
            "root of another size",
            lambda tokens, table, pe: table[tokens] * tokens.shape[1] ** 0.5 + pe[: tokens.shape[1]],
            "Your factor is the root of the number of words (or of the vocabulary), not of d_model. A word's embedding "
            "must not depend on how long its sentence is. What the factor makes up for is the size of one vector.",
            also=(
                lambda tokens, table, pe: table[tokens] * table.shape[0] ** 0.5 + pe[: tokens.shape[1]],
                lambda tokens, table, pe: table[tokens] * pe.shape[0] ** 0.5 + pe[: tokens.shape[1]],
            ),
        ),
        Misconception(
            "pe by batch index",
            lambda tokens, table, pe: table[tokens] * table.shape[1] ** 0.5 + pe[: tokens.shape[0], None],
            "All words of a sentence got one and the same position, that of the sentence in the batch: the batch was "
            "taken for the time axis, as in code where time comes first. The order of the words is as lost as before. "
            "Position runs along T.",
        ),
        Misconception(
            "pe by token",
            lambda tokens, table, pe: table[tokens] * table.shape[1] ** 0.5 + pe[tokens],
            "You looked up the position with the word's id. Then a word carries the same code wherever it stands, and "
            "the code says nothing about the place. The row of `pe` is the place of the word in its sentence.",
        ),
        Misconception(
            "one position too far",
            lambda tokens, table, pe: table[tokens] * table.shape[1] ** 0.5 + pe.roll(-1, 0)[: tokens.shape[1]],
            "The first word got the code of position 1. Row 0 of `pe` belongs to the first word.",
        ),
        Misconception(
            "no positions",
            _embed_like(lambda words, places, D: words * D**0.5),
            "`pe` has no influence on your result. Everything would run and train, and the model would read a bag of "
            "words: this is one of the commonest silent mistakes in Transformers.",
        ),
        NO_GRADIENT,
    ),
    why="Without the root the position, of norm sqrt(D / 2), would shout down a word whose row starts with norm 1.",
)

# 7.3 -----------------------------------------------------------------------------------------------------------------


def shift_matrix(k: int, d_model: int) -> torch.Tensor:
    """M (d_model, d_model) with PE(p + k) = M PE(p) for every p. ``d_model`` is even, ``k`` may be negative.

    From sin(a + b) = cos(b) sin(a) + sin(b) cos(a) and cos(a + b) = -sin(b) sin(a) + cos(b) cos(a).
    """
    turns = k * 10_000.0 ** (-torch.arange(0, d_model, 2) / d_model)  # (pairs,), the angle of each hand
    M = torch.zeros(d_model, d_model)
    sines, cosines = torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)  # where each is in the code
    M[sines, sines], M[sines, cosines] = turns.cos(), turns.sin()
    M[cosines, sines], M[cosines, cosines] = -turns.sin(), turns.cos()
    return M


def _shift_cases(draw: Draw) -> Iterator[Case]:
    sizes = [2 * n for n in draw.python.sample(range(2, 8), 3)]
    yield Case((draw.integer(2, 6), sizes[0]))
    yield Case((draw.integer(7, 30), sizes[1]))
    yield Case((1, sizes[2]), "for a single step")
    yield Case((-draw.integer(2, 9), sizes[0]), "for a step back")
    yield Case((draw.integer(2, 6), 2), "with a single pair")
    yield Case((0, sizes[1]), "for k = 0, which moves nothing")


def _rotation(turns: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Blocks [[cos, sin], [-sin, cos]] on the diagonal, one for each of ``turns`` (float64)."""
    c, s = turns.cos(), turns.sin()
    return torch.block_diag(*torch.stack([c, s, -s, c], dim=-1).view(-1, 2, 2)).to(dtype)


def _turned(turns: Callable[[int, int], torch.Tensor]) -> Callable[[int, int], torch.Tensor]:
    return lambda k, d: _rotation(turns(k, d))


def _halves_layout(k: int, d_model: int) -> torch.Tensor:
    c, s = (torch.diag(f(k * _speeds(d_model))) for f in (torch.cos, torch.sin))
    return torch.cat([torch.cat([c, s], dim=1), torch.cat([-s, c], dim=1)]).float()


def _reflection(k: int, d_model: int) -> torch.Tensor:
    c, s = (k * _speeds(d_model)).cos(), (k * _speeds(d_model)).sin()
    return torch.block_diag(*torch.stack([c, s, s, c], dim=-1).view(-1, 2, 2)).float()


def _diagonal(k: int, d_model: int) -> torch.Tensor:
    return torch.diag(_waves(k + 1, d_model)[k]) if k >= 0 else torch.diag(_waves(1, d_model, first=k)[0])


SHIFT_MATRIX = Exercise(
    id="7.3",
    title="A step as a matrix",
    points=2,
    function="shift_matrix",
    reference=shift_matrix,
    cases=_shift_cases,
    misconceptions=(
        Misconception(
            "inverse rotation",
            _turned(lambda k, d: -k * _speeds(d)),
            "Your matrix steps back where it should step forward: M PE(p) is PE(p - k). The block you used is the one "
            "from geometry books, for vectors (cos, sin). In the code the sine comes first, and in that order the "
            "minus sign stands in the lower row. For k = 0 the two are equal.",
        ),
        Misconception(
            "halves layout",
            _halves_layout,
            "Your matrix is right for codes with all sines first and all cosines after them. With a single pair the "
            "two layouts are the same. In this course sine and cosine of a pair are neighbours, so each pair's block "
            "stands by itself on the diagonal.",
            also=(lambda k, d: _halves_layout(-k, d),),
        ),
        Misconception(
            "both signs positive",
            _reflection,
            "Your blocks have no minus sign. Turning a hand past twelve makes its height fall while its width grows, "
            "so one of the two has to enter negatively: cos(a + b) = cos a cos b - sin a sin b.",
        ),
        Misconception(
            "one angle for all pairs",
            _turned(lambda k, d: torch.full((d // 2,), float(k), dtype=torch.float64)),
            "All your blocks turn by the same angle. With a single pair that is right. Each hand has its own speed, so "
            "k steps turn hand i by k times its speed: much for the first, hardly anything for the last.",
        ),
        Misconception(
            "exponent i instead of 2i",
            _turned(lambda k, d: k * 10_000.0 ** (-_pairs(d) / d)),
            "The blocks are right and their speeds are not: the exponent counts the pairs and is divided by the number "
            "of indices. These have to be the same speeds as in the code itself, where pair i begins at index 2i.",
        ),
        Misconception(
            "k ignored",
            _turned(lambda k, d: _speeds(d)),
            "Your matrix makes one step whatever `k` is. Turning twice by an angle is turning by twice the angle, so "
            "the angle of each hand grows with k.",
        ),
        Misconception(
            "a product number by number",
            _diagonal,
            "You put the code of position k on the diagonal, so it multiplies the code of p number by number. The "
            "sine of a sum is not the product of two sines: each new coordinate needs both old ones, so each pair "
            "needs a block of 2 by 2.",
        ),
        Misconception(
            "float64",
            lambda k, d: _rotation(k * _speeds(d), torch.float64),
            "All numbers are right, and they are in float64. The codes are in torch's default, float32, and a product "
            "of the two would stop with an error about dtypes: return the default.",
        ),
    ),
    why="k words further is the same linear map at every place, so one weight matrix can learn to look k words back.",
)

# 7.4 -----------------------------------------------------------------------------------------------------------------

Layer = Callable[[torch.Tensor], torch.Tensor]
UNUSED = "and nothing was drawn from the generator"


def is_permutation_equivariant(layer: Layer, x: torch.Tensor, generator: torch.Generator) -> bool:
    """True if layer(x in another order) is layer(x) in that order. ``x`` (B, T, D), orders of T from ``generator``.

    Twenty random orders, since one could be the identity, or one that the layer happens not to notice.
    """
    y = layer(x)  # (B, T, D')
    for _ in range(20):
        order = torch.randperm(x.shape[1], generator=generator)
        if not torch.allclose(layer(x[:, order]), y[:, order], rtol=1e-5, atol=1e-8):
            return False
    return True


class _Layers:
    """Layers (B, T, D) -> (B, T, D'), in float64, with weights from ``draw``."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def _matrix(self, rows: int, columns: int) -> torch.Tensor:
        return self.draw.normal(rows, columns) / rows**0.5

    def attention(self, D: int, E: int, causal: bool = False, places: float = 0.0) -> Layer:
        """One head; ``places`` times a sinusoid is added to the words first."""
        W_q, W_k, W_v = self._matrix(D, 3), self._matrix(D, 3), self._matrix(D, E)

        def layer(x: torch.Tensor) -> torch.Tensor:
            T = x.shape[1]
            x = x + places * _waves(T, D, dtype=x.dtype)
            scores = (x @ W_q) @ (x @ W_k).transpose(1, 2)
            if causal:
                scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
            return scores.softmax(dim=-1) @ (x @ W_v)

        return layer

    def mlp(self, D: int, E: int) -> Layer:
        W_1, W_2 = self._matrix(D, 11), self._matrix(11, E)
        return lambda x: (x @ W_1 + 0.5).relu() @ W_2

    def mean_for_all(self, D: int, E: int) -> Layer:
        W = self._matrix(D, E)
        return lambda x: (x.mean(dim=1, keepdim=True) @ W).expand(-1, x.shape[1], -1) + (x @ W).tanh()

    def invariant(self, D: int, E: int) -> Layer:
        """The same output for every order of the input, and a different one at each place."""
        W, places = self._matrix(D, E), 1 + self.draw.normal(16, 1).abs().cumsum(dim=0)
        return lambda x: (x.mean(dim=1, keepdim=True) @ W) * places[: x.shape[1]]

    def gru(self, D: int, E: int) -> Layer:
        U, W = self._matrix(E, E), self._matrix(D, E)

        def layer(x: torch.Tensor) -> torch.Tensor:
            h, states = x.new_zeros(x.shape[0], E), []
            for word in x.unbind(dim=1):
                h = 0.5 * h + 0.5 * torch.tanh(word @ W + h @ U)
                states.append(h)
            return torch.stack(states, dim=1)

        return layer

    def batch_mixing(self, D: int, E: int) -> Layer:
        """Each sentence also gets the sentence after it in the batch, word by word."""
        W, V = self._matrix(D, E), self._matrix(D, E)
        return lambda x: x @ W + x.roll(1, dims=0) @ V

    def neighbours(self, D: int, E: int) -> Layer:
        """Each word gets the sum of its two neighbours: reading backwards makes no difference."""
        W, V = self._matrix(D, E), self._matrix(D, E)

        def layer(x: torch.Tensor) -> torch.Tensor:
            padded = torch.nn.functional.pad(x, (0, 0, 1, 1))
            return x @ W + (padded[:, :-2] + padded[:, 2:]) @ V

        return layer

    def ring(self, D: int, E: int) -> Layer:
        """Each word gets the one before it, the first gets the last: starting elsewhere makes no difference."""
        W, V = self._matrix(D, E), self._matrix(D, E)
        return lambda x: x @ W + x.roll(1, dims=1) @ V

    def ring_of_neighbours(self, D: int, E: int) -> Layer:
        """Both at once: neither reading backwards nor starting elsewhere makes a difference."""
        W, V = self._matrix(D, E), self._matrix(D, E)
        return lambda x: x @ W + (x.roll(1, dims=1) + x.roll(-1, dims=1)) @ V

    def faint_places(self, D: int, E: int) -> Layer:
        """Every other word gets 0.002 more: far above rounding, far below the words themselves."""
        W = self._matrix(D, E)
        return lambda x: x @ W + 0.002 * (torch.arange(x.shape[1]) % 2)[:, None]


def _first_orders(seed: int, size: int) -> list[torch.Tensor]:
    """The order that a generator with this seed gives first, by each of the usual ways to draw one."""
    generators = [torch.Generator().manual_seed(seed) for _ in range(5)]
    return [
        torch.randperm(size, generator=generators[0]),
        torch.rand(size, generator=generators[1]).argsort(),
        torch.randn(size, generator=generators[2]).argsort(),
        torch.rand(size, generator=generators[3], dtype=torch.float64).argsort(),
        torch.multinomial(torch.ones(size), size, generator=generators[4]),
    ]


def _generator(draw: Draw, size: int, identity: bool = False) -> torch.Generator:
    """A generator whose first order of ``size`` things is the identity, or (the default) is not."""
    same = torch.arange(size)
    while True:
        seed = draw.integer(0, 2**31)
        if all(torch.equal(order, same) == identity for order in _first_orders(seed, size)):
            return torch.Generator().manual_seed(seed)


def _equivariance_cases(draw: Draw) -> Iterator[Case]:
    make = _Layers(draw)

    def case(layer: Callable[[int, int], Layer], note: str = "", B: int = 0, T: int = 0, unlucky: bool = False) -> Case:
        drawn = draw.sizes(4, low=5, high=10)
        B, T, D, E = B or drawn[0], T or drawn[1], drawn[2], drawn[3]
        if T > 1:
            generator = _generator(draw, T, identity=unlucky)
        else:
            generator = torch.Generator().manual_seed(draw.integer(0, 2**31))
        return Case((layer(D, E), draw.normal(B, T, D), generator), note)

    def with_places(size: float) -> Callable[[int, int], Layer]:
        return lambda D, E: make.attention(D, E, places=size)

    yield case(make.attention)
    yield case(with_places(1.0))
    yield case(lambda D, E: make.attention(D, E, causal=True), "for attention with a causal mask")
    yield case(make.mlp, "for a layer that works on each word alone")
    yield case(make.mean_for_all, "for a layer that tells every word the mean of all")
    yield case(make.invariant, "for a layer whose output is the same for every order of the input")
    yield case(make.gru, "for a recurrent layer")
    yield case(make.batch_mixing, "for a layer that mixes the sentences of the batch")
    yield case(make.neighbours, "for a layer that looks at both neighbours", T=7)
    yield case(make.ring, "for a layer that looks at the word before", T=8)
    yield case(make.ring_of_neighbours, "for a layer that looks at both neighbours", T=9)
    yield case(with_places(1.0), "with two words", T=2, unlucky=True)
    yield case(make.gru, "with two words", T=2)
    yield case(lambda D, E: make.attention(D, E, causal=True), "with three words", T=3, unlucky=True)
    yield case(with_places(1.0), "with a single word, where there is only one order", T=1)
    yield case(with_places(1.0), "with a batch of one", B=1)
    yield case(make.faint_places, "when the position matters only a little")


def _ask(answer: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The answer's verdict, marked where it left the generator alone; a tensor stays a tensor."""
    _, x, generator = args
    before = generator.get_state()
    verdict = answer(*args)
    if isinstance(verdict, torch.Tensor):
        return verdict.detach().reshape(-1)
    if x.shape[1] > 1 and torch.equal(before, generator.get_state()):
        return f"{verdict}, {UNUSED}"
    return verdict


Orders = Callable[[torch.Tensor, torch.Generator], list[torch.Tensor]]


def _several(x: torch.Tensor, generator: torch.Generator, axis: int = 1) -> list[torch.Tensor]:
    return [torch.randperm(x.shape[axis], generator=generator) for _ in range(20)]


def _one(x: torch.Tensor, generator: torch.Generator, axis: int = 1) -> list[torch.Tensor]:
    return [torch.randperm(x.shape[axis], generator=generator)]


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-8)


def _test(
    same: Callable[[Layer, torch.Tensor, torch.Tensor], Any], orders: Orders = _several
) -> Callable[[Layer, torch.Tensor, torch.Generator], bool]:
    """``same(layer, x, order)`` for all of ``orders(x, generator)``."""
    return lambda layer, x, generator: all(same(layer, x, order) for order in orders(x, generator))


def _equivariant(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return _close(layer(x[:, order]), layer(x)[:, order])


def _invariant(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return _close(layer(x[:, order]), layer(x))


def _invariant_mean(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return _close(layer(x[:, order]).mean(dim=1), layer(x).mean(dim=1))


def _same_bag(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return _close(layer(x[:, order]).sort(dim=1).values, layer(x).sort(dim=1).values)


def _over_the_batch(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return _close(layer(x[order]), layer(x)[order])


def _same_order_twice(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return _close(layer(x[:, order])[:, order], layer(x))


def _exactly(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return torch.equal(layer(x[:, order]), layer(x)[:, order])


def _roughly(layer: Layer, x: torch.Tensor, order: torch.Tensor) -> bool:
    return torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=0.05)


def _reversed(x: torch.Tensor, _generator: torch.Generator) -> list[torch.Tensor]:
    return [torch.arange(x.shape[1]).flip(0)]


def _rotated(x: torch.Tensor, _generator: torch.Generator) -> list[torch.Tensor]:
    return [torch.arange(x.shape[1]).roll(1)]


def _rotated_by_chance(x: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    T = x.shape[1]
    return [torch.arange(T).roll(int(torch.randint(1, max(2, T), (1,), generator=generator)))]


def _own_randomness(x: torch.Tensor, _generator: torch.Generator) -> list[torch.Tensor]:
    return _several(x, torch.Generator().manual_seed(0))


IS_PERMUTATION_EQUIVARIANT = Exercise(
    id="7.4",
    title="Is the order lost?",
    points=3,
    function="is_permutation_equivariant",
    reference=is_permutation_equivariant,
    cases=_equivariance_cases,
    drive=_ask,
    misconceptions=(
        Misconception(
            "tests invariance",
            _test(_invariant),
            "You ask whether the output stays as it is when the input is shuffled. That is invariance, and "
            "self-attention does not have it: its outputs move along with their words. Equivariant means that the "
            "output of the shuffled input is the *shuffled* output, so one side of your comparison has to be "
            "shuffled too.",
            also=(_test(_invariant, _one),),
        ),
        Misconception(
            "outputs compared as a bag",
            _test(_invariant_mean),
            "You compare the outputs after forgetting their order: their mean, their sum, or all of them sorted. "
            "Every equivariant layer passes that. So does a layer whose outputs do not move with their words at all. "
            "The output of each word has to be found again where the word has gone.",
            also=(_test(_invariant_mean, _one), _test(_same_bag), _test(_same_bag, _one)),
        ),
        Misconception(
            "may draw the identity",
            _test(_equivariant, _one),
            "You try one random order, and it can be the one in which everything stays where it was. Then every layer "
            "passes. Of forty words that never happens; of two words it happens every other time. Make sure that the "
            "order moves something, or try many.",
        ),
        Misconception(
            "identity permutation",
            _test(_equivariant, lambda x, _generator: [torch.arange(x.shape[1])]),
            "The order that you try leaves every word where it is, so any layer at all passes. It looks right on "
            "self-attention, where True is the answer. A test has to be able to fail: the order must move something.",
            also=(lambda layer, x, generator: True,),
        ),
        Misconception(
            "permutes the batch",
            _test(_over_the_batch, lambda x, g: _one(x, g, axis=0)),
            "You shuffled the sentences of the batch. Almost every layer treats them independently, so almost every "
            "layer passes, also one with positions; and a layer that mixes the batch fails for a reason that has "
            "nothing to do with order. The words stand on the second axis.",
            also=(_test(_over_the_batch, lambda x, g: _several(x, g, axis=0)),),
        ),
        Misconception(
            "same order applied twice",
            _test(_same_order_twice),
            "You shuffle the input and try to undo it on the output with the same order. Applied twice, an order does "
            "not undo itself: that takes its inverse (`argsort`). A swap of two words happens to be its own inverse, "
            "so with two words it works. Shuffling the other side instead needs no inverse at all.",
            also=(_test(_same_order_twice, _one),),
        ),
        Misconception(
            "exact comparison",
            _test(_exactly),
            "You ask for equality to the last bit. A sum taken in another order is rounded differently, by about 1e-16 "
            "here, and your test calls that a difference. Compare with a tolerance.",
            also=(_test(_exactly, _one),),
        ),
        Misconception(
            "tolerance too wide",
            _test(_roughly),
            "Your tolerance lets real differences through: a layer whose positions change the output by a thousandth "
            "passes. Rounding is smaller by many orders of magnitude, so there is room for a much stricter one.",
            also=(
                _test(lambda layer, x, o: torch.allclose(layer(x[:, o]), layer(x)[:, o], atol=0.01)),
                _test(lambda layer, x, o: torch.allclose(layer(x[:, o]), layer(x)[:, o], atol=0.1)),
            ),
        ),
        Misconception(
            "one special order only",
            _test(_equivariant, _reversed),
            "You try one order of your own making, such as reading backwards or moving everything by one. Some layers "
            "do not notice just that one: a sum over both neighbours is the same backwards, and one over a ring does "
            "not mind where it starts. An order drawn at random leaves no such symmetry.",
            also=(
                _test(_equivariant, _rotated),
                _test(_equivariant, _rotated_by_chance),
                lambda layer, x, generator: all(
                    _equivariant(layer, x, order) for f in (_reversed, _rotated) for order in f(x, generator)
                ),
            ),
        ),
        Misconception(
            "generator unused",
            _test(_equivariant, _own_randomness),
            "Your verdicts are right, and your orders do not come from `generator`. With randomness of your own, "
            "nobody can run the same test twice, and a rare wrong verdict could never be looked into. torch's random "
            "functions take the generator as an argument.",
        ),
        Misconception(
            "a tensor instead of a bool",
            lambda *args: torch.tensor(_test(_equivariant)(*args)),
            "Your verdict is right, and it is a tensor that holds a truth value. It prints almost like a bool, but "
            "`is True` does not hold for it and it does not count as one in a table. Make it a Python bool.",
        ),
    ),
    why="Shuffle before, shuffle after, compare: what passes this test cannot know the order of its words.",
)

EXERCISES = (POSITIONAL_ENCODING, EMBED, SHIFT_MATRIX, IS_PERMUTATION_EQUIVARIANT)
