"""Lesson 06: layer normalisation, the residual path, the feed-forward sublayer, and gradients by depth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception

EPS = 1e-5

# 6.1 -----------------------------------------------------------------------------------------------------------------


def layer_norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """x (..., D), gamma and beta (D,) -> (..., D): each token by itself (Ba et al. 2016, equation 4).

    The variance is the biased one, and eps stands inside the root.
    """
    return _norm_like()(x, gamma, beta, eps)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(dim=-1, keepdim=True)


def _biased(x: torch.Tensor) -> torch.Tensor:
    return x.var(dim=-1, keepdim=True, correction=0)


def _norm_like(
    mean: Callable[[torch.Tensor], torch.Tensor] = _mean,
    variance: Callable[[torch.Tensor], torch.Tensor] = _biased,
    size: Callable[[torch.Tensor, float], torch.Tensor] = lambda variance, eps: (variance + eps).sqrt(),
    affine: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = lambda y, gamma, beta: (
        y * gamma + beta
    ),
    always: float | None = None,
) -> Callable[..., torch.Tensor]:
    def wrong(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float = EPS) -> torch.Tensor:
        y = (x - mean(x)) / size(variance(x), eps if always is None else always)
        return affine(y, gamma, beta)

    return wrong


def _over(*axes: int) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Mean and variance over other axes; over all of them if there are fewer."""

    def usable(x: torch.Tensor) -> tuple[int, ...]:
        return tuple(axis for axis in axes if -x.ndim <= axis < x.ndim) or (-1,)

    return {
        "mean": lambda x: x.mean(dim=usable(x), keepdim=True),
        "variance": lambda x: x.var(dim=usable(x), keepdim=True, correction=0),
    }


def _norm_cases(draw: Draw) -> Iterator[Case]:
    def case(*shape: int, scale: float = 2.0, eps: float | None = None, note: str = "", dtype: torch.dtype) -> Case:
        x = scale * draw.tracked(*shape, dtype=dtype) + draw.integer(-2, 2) * scale / 2
        arguments = (x, draw.tracked(shape[-1], dtype=dtype), draw.tracked(shape[-1], dtype=dtype))
        return Case(arguments if eps is None else (*arguments, eps), note)

    double = torch.float64
    B, T, D = draw.sizes(3, low=3)
    yield case(B, T, D, dtype=double)
    yield case(B, T, D, dtype=double)
    yield case(T, D, note="for one sentence, without a batch axis", dtype=double)
    yield case(B, 3, T, D, note="with two axes in front", dtype=double)
    yield case(1, 1, D, note="for a single token", dtype=double)
    yield case(D, note="for one token without any axis in front", dtype=double)
    yield case(B, T, D, scale=0.003, note="when the numbers are as small as eps", dtype=double)
    yield case(B, T, D, eps=0.1, note="when eps is 0.1", dtype=double)
    constant = torch.full((2, 3, D), 4.0, dtype=double)
    yield Case((constant, draw.normal(D), draw.normal(D)), "when all numbers of a token are equal")
    yield case(B, T, D, dtype=torch.float32, note="in float32")


LAYER_NORM = Exercise(
    id="6.1",
    title="Layer normalisation",
    points=3,
    function="layer_norm",
    reference=layer_norm,
    cases=_norm_cases,
    misconceptions=(
        Misconception(
            "unbiased variance",
            _norm_like(variance=lambda x: x.var(dim=-1, keepdim=True)),
            "You divided the squares by D − 1. `std` and `var` of torch do that unless they are told otherwise: it is "
            "right for guessing the variance of many from a few. Here the D numbers are all there are, and with D − 1 "
            "the result of a token of two numbers would be .7 instead of 1.",
        ),
        Misconception(
            "eps outside the root",
            _norm_like(size=lambda variance, eps: variance.sqrt() + eps),
            "You added eps to the root instead of to the variance. For ordinary tokens nobody sees a difference. For "
            "very small ones the two are far apart, since the root of 1e-5 is .003, three hundred times as much.",
        ),
        Misconception(
            "both: D − 1, and eps outside the root",
            _norm_like(
                variance=lambda x: x.var(dim=-1, keepdim=True), size=lambda variance, eps: variance.sqrt() + eps
            ),
            "You divided by the sample's standard deviation plus eps. A well-known annotated Transformer does just "
            "that; it trains as well. It is not the formula of the paper, in two places: the squares are divided by D, "
            "and eps stands under the root.",
        ),
        Misconception(
            "over time or batch",
            _norm_like(**_over(-2)),
            "You took mean and variance over the words instead of over the numbers of each word. Then a token's result "
            "depends on its neighbours, padding included, and a decoder would see its own future through the norm.",
            also=(_norm_like(**_over(0)), _norm_like(**_over(1)), _norm_like(**_over(0, 1))),
        ),
        Misconception(
            "over the whole sentence",
            _norm_like(**_over(-2, -1)),
            "You took mean and variance over all numbers of a sentence (or of the batch) together. Each token is to be "
            "normalised by itself, or a loud word makes the others faint.",
            also=(_norm_like(**_over(-3, -2, -1)), _norm_like(**_over(-4, -3, -2, -1))),
        ),
        Misconception(
            "no affine",
            _norm_like(affine=lambda y, gamma, beta: y),
            "gamma and beta are not used. Without them every token has mean 0 and variance 1 for ever; with them the "
            "layer can learn another size for each feature, or undo the norm.",
        ),
        Misconception(
            "beta left out",
            _norm_like(affine=lambda y, gamma, beta: y * gamma),
            "You scale with gamma and do not shift with beta.",
        ),
        Misconception(
            "gamma left out",
            _norm_like(affine=lambda y, gamma, beta: y + beta),
            "You shift with beta and do not scale with gamma.",
        ),
        Misconception(
            "gamma and beta exchanged",
            _norm_like(affine=lambda y, gamma, beta: y * beta + gamma),
            "gamma and beta have changed places: gamma is the factor, beta is added.",
            also=(_norm_like(affine=lambda y, gamma, beta: (y + beta) * gamma),),
        ),
        Misconception(
            "mean not subtracted",
            _norm_like(mean=lambda x: torch.zeros_like(x[..., :1])),
            "The token's mean is still in it. Dividing alone makes the spread 1 and leaves the token where it was.",
        ),
        Misconception(
            "root mean square",
            _norm_like(
                mean=lambda x: torch.zeros_like(x[..., :1]), variance=lambda x: x.square().mean(dim=-1, keepdim=True)
            ),
            "You divide by the root of the mean square and subtract nothing. That is RMSNorm (Zhang and Sennrich "
            "2019), which many later models use. Layer normalisation takes the mean out first.",
        ),
        Misconception(
            "divided by the variance",
            _norm_like(size=lambda variance, eps: variance + eps),
            "You divided by the variance. It is in squared units: a token ten times as large would come out ten times "
            "as small. The standard deviation is its root.",
        ),
        Misconception(
            "no eps",
            _norm_like(size=lambda variance, eps: variance.sqrt()),
            "eps is not used. A token whose numbers are all equal has variance 0, and 0/0 is NaN.",
        ),
        Misconception(
            "always the same eps",
            _norm_like(always=EPS),
            "You write 1e-5 whatever `eps` says. It is the default, so it is mostly right.",
        ),
        NO_GRADIENT,
    ),
    why="Each token gets mean 0 and variance 1 from its own numbers alone, then the size that training chose.",
)

# 6.2 -----------------------------------------------------------------------------------------------------------------

_norm = _norm_like()


def add_and_norm(
    x: torch.Tensor, sublayer_output: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    """LayerNorm(x + sublayer(x)), (..., D): post-norm, as in 2017 (Vaswani et al., section 3.1)."""
    return _norm(x + sublayer_output, gamma, beta)


def _add_cases(draw: Draw) -> Iterator[Case]:
    def arguments(*shape: int, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
        D = shape[-1]
        both = (scale * draw.tracked(*shape, dtype=dtype) for _ in range(2))
        return *both, draw.tracked(D, dtype=dtype), draw.tracked(D, dtype=dtype)

    for _ in range(2):
        yield Case(arguments(*draw.sizes(3, low=3)))
    B, T, D = draw.sizes(3, low=3)
    yield Case(arguments(T, D), "for one sentence, without a batch axis")
    yield Case(arguments(B, 1, D), "with one word")
    yield Case(arguments(B, T, D, scale=0.003), "when the numbers are as small as eps")
    x, _, gamma, beta = arguments(B, T, D)
    yield Case((x, torch.zeros_like(x), gamma, beta), "when the sublayer says nothing")
    yield Case(arguments(B, T, D, dtype=torch.float32), "in float32")


ADD_AND_NORM = Exercise(
    id="6.2",
    title="Add and norm",
    points=2,
    function="add_and_norm",
    reference=add_and_norm,
    cases=_add_cases,
    misconceptions=(
        Misconception(
            "normalises only the sublayer",
            lambda x, y, gamma, beta: x + _norm(y, gamma, beta),
            "You normalised what the sublayer says and added x as it is. Then nothing bounds the sum, and after many "
            "layers the tokens have grown. Post-norm normalises the sum.",
        ),
        Misconception(
            "forgets x",
            lambda x, y, gamma, beta: _norm(y, gamma, beta),
            "x is gone: this is a norm of the sublayer's output. Without the path around it, everything has to go "
            "through every sublayer, the gradient too.",
        ),
        Misconception(
            "forgets the sublayer",
            lambda x, y, gamma, beta: _norm(x, gamma, beta),
            "What the sublayer computed is not used.",
        ),
        Misconception(
            "norm before add",
            lambda x, y, gamma, beta: _norm(x, gamma, beta) + y,
            "You normalised x first and added afterwards. That is neither of the two usual orders: pre-norm normalises "
            "what the sublayer *reads* and leaves x itself alone. Post-norm adds first.",
            also=(lambda x, y, gamma, beta: _norm(x, gamma, beta) + _norm(y, gamma, beta),),
        ),
        Misconception(
            "adds x again",
            lambda x, y, gamma, beta: x + _norm(x + y, gamma, beta),
            "You added x a second time, after the norm. The sum inside the norm is all there is.",
        ),
        Misconception(
            "no norm",
            lambda x, y, gamma, beta: x + y,
            "The sum is right and not normalised.",
        ),
        Misconception(
            "multiplied instead of added",
            lambda x, y, gamma, beta: _norm(x * y, gamma, beta),
            "You multiplied x with the sublayer's output. A path around a sublayer adds: where the sublayer is silent, "
            "x goes through unchanged.",
        ),
        Misconception(
            "difference",
            lambda x, y, gamma, beta: _norm(x - y, gamma, beta),
            "You subtracted the sublayer's output from x.",
            also=(lambda x, y, gamma, beta: _norm(y - x, gamma, beta),),
        ),
        Misconception(
            "mean instead of sum",
            lambda x, y, gamma, beta: _norm((x + y) / 2, gamma, beta),
            "You halved the sum. The norm hides it almost completely, since it takes the size out; only eps, which "
            "does not shrink with the token, tells the two apart.",
        ),
        Misconception(
            "gamma and beta left out",
            lambda x, y, gamma, beta: _norm_like(affine=lambda z, gamma, beta: z)(x + y, gamma, beta),
            "The norm's own factor and shift are not used.",
        ),
        Misconception(
            "unbiased variance",
            lambda x, y, gamma, beta: _norm_like(variance=lambda z: z.var(dim=-1, keepdim=True))(x + y, gamma, beta),
            "The order is right; the norm inside divides by D − 1 instead of D.",
        ),
        NO_GRADIENT,
    ),
    why="Post-norm: add first, then normalise the sum, so that no token grows from layer to layer.",
)

# 6.3 -----------------------------------------------------------------------------------------------------------------


def feed_forward(
    x: torch.Tensor, W_1: torch.Tensor, b_1: torch.Tensor, W_2: torch.Tensor, b_2: torch.Tensor
) -> torch.Tensor:
    """max(0, x W_1 + b_1) W_2 + b_2; x (..., D), W_1 (D, F), b_1 (F,), W_2 (F, D), b_2 (D,) (equation 2)."""
    return _feed_like()(x, W_1, b_1, W_2, b_2)


def _feed_like(
    bend: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
    first: float = 1.0,
    second: float = 1.0,
    after: Callable[[torch.Tensor], torch.Tensor] = lambda y: y,
    before: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    transposed: bool = False,
) -> Callable[..., torch.Tensor]:
    def wrong(
        x: torch.Tensor, W_1: torch.Tensor, b_1: torch.Tensor, W_2: torch.Tensor, b_2: torch.Tensor
    ) -> torch.Tensor:
        if transposed:
            W_1, W_2 = W_1.T, W_2.T
        return after(bend(before(x) @ W_1 + first * b_1) @ W_2 + second * b_2)

    return wrong


def _words_as_features(
    x: torch.Tensor, W_1: torch.Tensor, b_1: torch.Tensor, W_2: torch.Tensor, b_2: torch.Tensor
) -> torch.Tensor:
    return (torch.relu(x.transpose(-2, -1) @ W_1 + b_1) @ W_2 + b_2).transpose(-2, -1)


def _feed_cases(draw: Draw) -> Iterator[Case]:
    def arguments(*shape: int, F: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
        D = shape[-1]
        shapes = (shape, (D, F), (F,), (F, D), (D,))
        return tuple(draw.tracked(*s, dtype=dtype) for s in shapes)

    for _ in range(2):
        B, T, D, F = draw.sizes(4, low=3)
        yield Case(arguments(B, T, D, F=F))
    B, T, D, F = draw.sizes(4, low=3)
    yield Case(arguments(T, D, F=F), "for one sentence, without a batch axis")
    yield Case(arguments(B, 1, D, F=F), "with one word")
    yield Case(arguments(B, D, D, F=F), "when there are as many words as features")
    yield Case(arguments(B, T, D, F=D), "when F = D")
    yield Case(arguments(B, T, D, F=1), "when F = 1")
    yield Case(arguments(B, T, D, F=F, dtype=torch.float32), "in float32")


FEED_FORWARD = Exercise(
    id="6.3",
    title="Feed-forward sublayer",
    points=2,
    function="feed_forward",
    reference=feed_forward,
    cases=_feed_cases,
    misconceptions=(
        Misconception(
            "no ReLU",
            _feed_like(bend=lambda y: y),
            "Nothing bends between the two matrices, so they are one matrix in two pieces: a wider middle gains "
            "nothing. The ReLU in between is what makes the layer more than a projection.",
        ),
        Misconception(
            "ReLU last",
            _feed_like(bend=lambda y: y, after=torch.relu),
            "The ReLU comes after the second matrix. Then the sublayer can only add to the path around it, never take "
            "away, and between the two matrices nothing bends. It belongs in the middle.",
            also=(_feed_like(after=torch.relu),),
        ),
        Misconception(
            "ReLU first",
            _feed_like(bend=lambda y: y, before=torch.relu),
            "The ReLU is applied to x, so all its negative numbers are lost before the first matrix sees them.",
            also=(_feed_like(before=torch.relu),),
        ),
        Misconception(
            "mixes positions",
            _words_as_features,
            "Your matrices run over the words instead of over the features of each word. With as many words as "
            "features it even runs. This sublayer is position-wise: exchanging information between words is left to "
            "attention.",
            also=(_feed_like(before=lambda x: x.mean(dim=-2, keepdim=True).expand_as(x)),),
        ),
        Misconception(
            "biases left out",
            _feed_like(first=0.0, second=0.0),
            "Neither bias is used.",
        ),
        Misconception("first bias left out", _feed_like(first=0.0), "b_1 is not used: every bend sits at 0."),
        Misconception("second bias left out", _feed_like(second=0.0), "b_2 is not used."),
        Misconception(
            "weights transposed",
            _feed_like(transposed=True),
            "You transposed the matrices, as code for `nn.Linear` weights does. Here they are as in the paper's "
            "equation: W_1 is (D, F), in and out.",
        ),
        Misconception(
            "another bend",
            _feed_like(bend=torch.nn.functional.gelu),
            "You bend with another function than ReLU. GELU came later and is common today; the 2017 paper, and this "
            "task, has max(0, ·).",
            also=(
                _feed_like(bend=torch.tanh),
                _feed_like(bend=torch.sigmoid),
                _feed_like(bend=torch.nn.functional.silu),
                _feed_like(bend=torch.nn.functional.leaky_relu),
            ),
        ),
        Misconception(
            "residual already added",
            lambda x, *rest: x + _feed_like()(x, *rest),
            "x is added to the result. That is the job of add & norm around this sublayer; here it would be added "
            "twice.",
        ),
        NO_GRADIENT,
    ),
    why="Two matrices with a bend between them, the same for every position and blind to all others.",
)

# 6.4 -----------------------------------------------------------------------------------------------------------------

Function = Callable[[torch.Tensor], torch.Tensor]


def pre_norm_block(
    x: torch.Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function
) -> torch.Tensor:
    """x + attention(norm_1(x)), then h + ffn(norm_2(h)): (B, T, D) -> (B, T, D) (Xiong et al. 2020)."""
    h = x + attention(norm_1(x))
    return h + ffn(norm_2(h))


def _block_cases(draw: Draw) -> Iterator[Case]:
    def arguments(B: int, T: int, D: int, dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
        A, V = (draw.normal(D, D, dtype=dtype) / D**0.5 for _ in range(2))
        W_1, W_2 = draw.normal(D, 7, dtype=dtype), draw.normal(7, D, dtype=dtype) / 7**0.5
        norms = [(draw.normal(D, dtype=dtype), draw.normal(D, dtype=dtype)) for _ in range(2)]

        def attention(y: torch.Tensor) -> torch.Tensor:
            return (y @ A @ y.transpose(1, 2) / D**0.5).softmax(dim=-1) @ (y @ V)

        def ffn(y: torch.Tensor) -> torch.Tensor:
            return torch.relu(y @ W_1) @ W_2

        return (
            2 * draw.tracked(B, T, D, dtype=dtype) + 0.5,
            attention,
            ffn,
            *(lambda y, gamma=gamma, beta=beta: _norm(y, gamma, beta) for gamma, beta in norms),
        )

    for _ in range(2):
        yield Case(arguments(*draw.sizes(3, low=3)))
    B, T, D = draw.sizes(3, low=3)
    yield Case(arguments(1, T, D), "with a batch of one")
    yield Case(arguments(B, 1, D), "with one word")
    yield Case(arguments(B, T, D, torch.float32), "in float32")


def _two_paths(
    one: Callable[[torch.Tensor, Function, Function], torch.Tensor],
    two: Callable[[torch.Tensor, torch.Tensor, Function, Function], torch.Tensor],
) -> Callable[..., torch.Tensor]:
    """The block from its first half (x, sublayer, norm) and its second (h, x, sublayer, norm)."""

    def wrong(x: torch.Tensor, attention: Function, ffn: Function, norm_1: Function, norm_2: Function) -> torch.Tensor:
        return two(one(x, attention, norm_1), x, ffn, norm_2)

    return wrong


def _pre(x: torch.Tensor, f: Function, norm: Function) -> torch.Tensor:
    return x + f(norm(x))


def _pre_2(h: torch.Tensor, _x: torch.Tensor, f: Function, norm: Function) -> torch.Tensor:
    return h + f(norm(h))


def _in_order(x: torch.Tensor, first: Function, second: Function, one: Function, two: Function) -> torch.Tensor:
    """As the reference, for wrong orders of its arguments."""
    h = x + first(one(x))
    return h + second(two(h))


PRE_NORM_BLOCK = Exercise(
    id="6.4",
    title="Pre-norm block",
    points=2,
    function="pre_norm_block",
    reference=pre_norm_block,
    cases=_block_cases,
    misconceptions=(
        Misconception(
            "post-norm",
            _two_paths(lambda x, f, n: n(x + f(x)), lambda h, x, f, n: n(h + f(h))),
            "This is the order of 2017: add, then normalise the sum. The norms then sit on the path from input to "
            "output. In a pre-norm block a norm is what a sublayer *reads*, and the path itself is free.",
        ),
        Misconception(
            "second residual from x",
            _two_paths(_pre, lambda h, x, f, n: x + f(n(h))),
            "The second path starts at the block's input, so what attention found reaches the output only through the "
            "feed-forward layer. Each path leads around one sublayer: the second one starts where the first ended.",
            also=(_two_paths(_pre, lambda h, x, f, n: x + f(n(x))),),
        ),
        Misconception(
            "norm on the residual path",
            _two_paths(lambda x, f, n: n(x) + f(n(x)), lambda h, x, f, n: n(h) + f(n(h))),
            "You normalise x and use the result for both: for the sublayer, as asked, and for the path around it. Then "
            "the path is no longer free, and the gradient has to go through every norm.",
            also=(
                _two_paths(lambda x, f, n: n(x) + f(n(x)), _pre_2),
                _two_paths(_pre, lambda h, x, f, n: n(h) + f(n(h))),
            ),
        ),
        Misconception(
            "norm of the sublayer's output",
            _two_paths(lambda x, f, n: x + n(f(x)), lambda h, x, f, n: h + n(f(h))),
            "You normalise what the sublayers say instead of what they read. Some later models do that as well as "
            "pre-norm; here the norm comes before the sublayer.",
        ),
        Misconception(
            "no residual",
            _two_paths(lambda x, f, n: f(n(x)), lambda h, x, f, n: f(n(h))),
            "There is no path around the sublayers, so whatever they do not pass on is lost.",
            also=(_two_paths(lambda x, f, n: f(n(x)), _pre_2), _two_paths(_pre, lambda h, x, f, n: f(n(h)))),
        ),
        Misconception(
            "norms left out",
            _two_paths(lambda x, f, n: x + f(x), lambda h, x, f, n: h + f(h)),
            "The norms are not used: the sublayers read a sum that grows with every layer.",
            also=(_two_paths(lambda x, f, n: x + f(x), _pre_2), _two_paths(_pre, lambda h, x, f, n: h + f(h))),
        ),
        Misconception(
            "norms exchanged",
            lambda x, attention, ffn, norm_1, norm_2: _in_order(x, attention, ffn, norm_2, norm_1),
            "The norms have changed places. Each has a gamma and a beta of its own: norm_1 belongs to attention.",
            also=(
                lambda x, attention, ffn, norm_1, norm_2: _in_order(x, attention, ffn, norm_1, norm_1),
                lambda x, attention, ffn, norm_1, norm_2: _in_order(x, attention, ffn, norm_2, norm_2),
            ),
        ),
        Misconception(
            "feed-forward first",
            lambda x, attention, ffn, norm_1, norm_2: _in_order(x, ffn, attention, norm_1, norm_2),
            "The sublayers come in the other order. First the words exchange what they know, then each one thinks it "
            "over.",
            also=(lambda x, attention, ffn, norm_1, norm_2: _in_order(x, ffn, attention, norm_2, norm_1),),
        ),
        Misconception(
            "both sublayers side by side",
            lambda x, attention, ffn, norm_1, norm_2: x + attention(norm_1(x)) + ffn(norm_2(x)),
            "Both sublayers read the block's input. Some large models do that to save time; here the feed-forward "
            "layer reads what attention has changed.",
        ),
        Misconception(
            "one norm more at the end",
            lambda x, attention, ffn, norm_1, norm_2: norm_2(_in_order(x, attention, ffn, norm_1, norm_2)),
            "A norm closes your block. A pre-norm *stack* has one after its last block, not one in every block.",
        ),
        NO_GRADIENT,
    ),
    why="The norm is on the branch: along the path there is nothing but additions, so the gradient goes straight.",
)


# 6.5 -----------------------------------------------------------------------------------------------------------------


class Layer:
    """h (..., D) -> (..., D): ``path`` times h plus tanh(h W), with ``weight`` W (D, D)."""

    def __init__(self, weight: torch.Tensor, path: float) -> None:
        self.weight, self.path = weight.clone().requires_grad_(), path

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        return self.path * h + torch.tanh(h @ self.weight)


def gradient_norm_by_depth(layers: Sequence[Function], x: torch.Tensor) -> list[float]:
    """The norms of d loss / d h_l for h_0 = x, h_l = layers[l - 1](h_{l - 1}) and loss = mean of h_L squared."""
    states = _states(layers, x)
    return [g.norm().item() for g in torch.autograd.grad(states[-1].square().mean(), states)]


def _states(layers: Sequence[Function], x: torch.Tensor) -> list[torch.Tensor]:
    return list(itertools.accumulate(layers, lambda h, f: f(h), initial=x.detach().clone().requires_grad_()))


def _depth_cases(draw: Draw) -> Iterator[Case]:
    def case(L: int, path: float, size: float = 1.0, note: str = "", shape: tuple[int, ...] = ()) -> Case:
        B, T, D = draw.sizes(3, low=3)
        layers = [Layer(size * draw.normal(D, D) / D**0.5, path) for _ in range(L)]
        return Case((layers, draw.normal(*(shape or (B, T)), D)), note)

    yield case(draw.integer(3, 5), 1.0)
    yield case(draw.integer(6, 9), 0.0)
    yield case(20, 0.0, 0.5, "for 20 layers through which the gradient fades")
    yield case(12, 1.0, 1.0, "for 12 layers with a path around each")
    yield case(1, 1.0, note="with one layer")
    yield case(0, 1.0, note="without layers")
    yield case(4, 0.5, note="for vectors without a batch", shape=(1,))


def _depth_like(
    loss: Callable[[torch.Tensor], torch.Tensor] = lambda h: h.square().mean(),
    measure: Callable[[torch.Tensor], torch.Tensor] = torch.norm,
    pick: Callable[[list[float]], list[float]] = lambda norms: norms,
) -> Callable[..., list[float]]:
    def wrong(layers: Sequence[Function], x: torch.Tensor) -> list[float]:
        states = _states(layers, x)
        gradients = torch.autograd.grad(loss(states[-1]), states)
        return pick([measure(g).item() for g in gradients])

    return wrong


def _of_the_weights(layers: Sequence[Any], x: torch.Tensor) -> list[float]:
    weights = [layer.weight for layer in layers]
    if not weights:
        return []
    return [g.norm().item() for g in torch.autograd.grad(_states(layers, x)[-1].square().mean(), weights)]


def _of_the_states(layers: Sequence[Function], x: torch.Tensor) -> list[float]:
    return [h.norm().item() for h in _states(layers, x)]


def _layer_by_layer(layers: Sequence[Function], x: torch.Tensor) -> list[float]:
    """A loss of its own at each depth."""
    states = _states(layers, x)
    return [torch.autograd.grad(h.square().mean(), h, retain_graph=True)[0].norm().item() for h in states]


def _always_to_the_input(layers: Sequence[Function], x: torch.Tensor) -> list[float]:
    """The gradient at x of a loss taken after each layer."""
    states = _states(layers, x)
    return [torch.autograd.grad(h.square().mean(), states[0], retain_graph=True)[0].norm().item() for h in states]


GRADIENT_NORM_BY_DEPTH = Exercise(
    id="6.5",
    title="Gradient norm by depth",
    points=2,
    function="gradient_norm_by_depth",
    reference=gradient_norm_by_depth,
    cases=_depth_cases,
    misconceptions=(
        Misconception(
            "of the weights",
            _of_the_weights,
            "You measured the gradients of the layers' weights. They tell how each layer will move. Asked is how much "
            "of the signal arrives at each *depth*: the gradient with respect to the states h_l between the layers.",
        ),
        Misconception(
            "reversed",
            _depth_like(pick=lambda norms: norms[::-1]),
            "The list runs from the output back to the input, the way the gradient travels. Asked is by depth: h_0, "
            "the input, comes first.",
        ),
        Misconception(
            "input left out",
            _depth_like(pick=lambda norms: norms[1:]),
            "The first entry, for h_0 = x, is missing: L layers have L + 1 states. It is the one that shows best what "
            "is left after all layers.",
        ),
        Misconception(
            "output left out",
            _depth_like(pick=lambda norms: norms[:-1]),
            "The last entry, for h_L, is missing: L layers have L + 1 states. It is what all others are compared with.",
        ),
        Misconception(
            "only the states between the layers",
            _depth_like(pick=lambda norms: norms[1:-1]),
            "Input and output are both missing: L layers have L + 1 states.",
        ),
        Misconception(
            "sum of squares",
            _depth_like(loss=lambda h: h.square().sum()),
            "Your loss is the sum of the squares; asked is their mean. The shape of the curve is the same, the numbers "
            "are larger by the number of entries.",
            also=(_depth_like(loss=lambda h: 0.5 * h.square().sum()),),
        ),
        Misconception(
            "another loss",
            _depth_like(loss=lambda h: h.sum()),
            "Your loss is not the mean of the squares of h_L. With a plain sum or mean, the gradient at the output is "
            "the same for every state.",
            also=(_depth_like(loss=lambda h: h.mean()), _depth_like(loss=lambda h: h.norm())),
        ),
        Misconception(
            "mean size instead of the norm",
            _depth_like(measure=lambda g: g.abs().mean()),
            "You took the mean of the absolute values. A norm is the root of the sum of the squares.",
            also=(
                _depth_like(measure=lambda g: g.abs().sum()),
                _depth_like(measure=lambda g: g.abs().max()),
                _depth_like(measure=lambda g: g.square().mean().sqrt()),
            ),
        ),
        Misconception(
            "norm squared",
            _depth_like(measure=lambda g: g.square().sum()),
            "The root is missing: this is the square of the norm.",
        ),
        Misconception(
            "of the states",
            _of_the_states,
            "You measured how large the states are. How large the *gradients* with respect to them are is another "
            "question, and often has the opposite answer.",
        ),
        Misconception(
            "a loss at every depth",
            _layer_by_layer,
            "Each of your gradients belongs to a loss taken at its own depth, so none of them has come through a "
            "layer. There is one loss, at the output, and its gradient travels back.",
        ),
        Misconception(
            "always with respect to the input",
            _always_to_the_input,
            "You took a loss after each layer and the gradient at x each time. There is one loss, after the last "
            "layer, and a gradient at every state.",
        ),
    ),
    why="One loss, one backward pass, and its size at every state on the way: that is what a learning signal is.",
)

EXERCISES = (LAYER_NORM, ADD_AND_NORM, FEED_FORWARD, PRE_NORM_BLOCK, GRADIENT_NORM_BY_DEPTH)
