"""Lesson 03: query, key and value, scaled dot-product attention, and what the scale is for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception

# 3.1 -----------------------------------------------------------------------------------------------------------------


def project_qkv(
    X: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, W_v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (T, D), one row a word, and three W (D, d) -> queries, keys, values, each (T, d).

    Vaswani et al. (2017), section 3.2.2, for one head.
    """
    return X @ W_q, X @ W_k, X @ W_v


def _project_cases(draw: Draw) -> Iterator[Case]:
    def arguments(T: int, D: int, d: int, dtype: type = np.float64) -> tuple[np.ndarray, ...]:
        return tuple(draw.array(*shape).astype(dtype) for shape in ((T, D), (D, d), (D, d), (D, d)))

    for _ in range(2):
        yield Case(arguments(*draw.sizes(3, low=3)))
    T, D, d = draw.sizes(3, low=3)
    yield Case(arguments(T, D, D), "when d = D")
    yield Case(arguments(1, D, d), "with one word")
    yield Case(arguments(T, D, 1), "when queries are single numbers")
    yield Case(arguments(T, D, d, np.float32), "in float32")


def _project_like(project: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., Any]:
    return lambda X, W_q, W_k, W_v: tuple(project(X, W) for W in (W_q, W_k, W_v))


def _projections(order: str) -> Callable[..., Any]:
    """The three projections with the matrices named by ``order``: "qkv" is right, "qvk" swaps keys and values."""
    return lambda X, *matrices: tuple(X @ matrices["qkv".index(name)] for name in order)


def _chained(X: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, W_v: np.ndarray) -> tuple[np.ndarray, ...]:
    Q = X @ W_q
    K = Q @ W_k
    return Q, K, K @ W_v


PROJECT_QKV = Exercise(
    id="3.1",
    title="Query, key, value",
    points=2,
    function="project_qkv",
    reference=project_qkv,
    cases=_project_cases,
    misconceptions=(
        Misconception(
            "weights transposed",
            _project_like(lambda X, W: X @ W.T),
            "You multiplied by the transposed matrices. `nn.Linear` stores its weight as (d, D) and does exactly that, "
            "so the habit is a good one there. Here W is (D, d), as in the paper: word times matrix. When d = D the "
            "shapes fit both ways, and the wrong way runs silently.",
        ),
        Misconception(
            "same matrix thrice",
            _projections("qqq"),
            "Queries, keys and values are all the same in your result. Then every word asks for exactly what it is "
            "itself, so it finds itself first. The three roles need three matrices: what a word looks for, what it is "
            "found by, and what it gives are different things.",
            also=(_projections("kkk"), _projections("vvv"), _projections("qqv"), _projections("qkk")),
        ),
        Misconception(
            "K and V swapped",
            _projections("qvk"),
            "Your keys are the values and your values the keys. The shapes are equal, so nothing complains. The key is "
            "compared with queries, the value is handed out: with the two exchanged, words would be found by what "
            "they were meant to give.",
        ),
        Misconception(
            "Q and K swapped",
            _projections("kqv"),
            "Your queries are the keys and your keys the queries. The table of scores comes out transposed: each word "
            "would be looked at by those it wanted to look at. The order asked for is query, key, value.",
        ),
        Misconception(
            "chained",
            _chained,
            "You made the keys from the queries, and the values from the keys. It only runs when d = D. All three are "
            "made from the words themselves, side by side: what a word is found by does not depend on what it asks.",
        ),
        Misconception(
            "words in columns",
            _project_like(lambda X, W: (X @ W).T),
            "Your result lies on its side: one column a word. The numbers are right, and some books write it so. "
            "In this course a row is a word, before and after the projection, so that a batch is only one more axis "
            "in front.",
        ),
        Misconception(
            "only the first two numbers",
            _project_like(lambda X, W: np.array([x[0] * W[0] + x[1] * W[1] for x in X])),
            "You took over the sum from the lesson's worked example, whose words had two numbers. A word has D of "
            "them, and each brings in its row of W. Which operation adds up number times row for all of them?",
        ),
        Misconception(
            "scaled already",
            lambda X, W_q, W_k, W_v: (X @ W_q / W_q.shape[1] ** 0.5, X @ W_k, X @ W_v),
            "Your queries are divided by the root of d already. Later it would make no difference where the scale "
            "goes. But this function only projects: whoever divides the scores as well would scale twice.",
            also=(_project_like(lambda X, W: X @ W / W.shape[1] ** 0.5),),
        ),
        Misconception(
            "one array instead of three",
            lambda *args: np.stack(_projections("qkv")(*args)),
            "The numbers are right, in one array of shape (3, T, d). Three results are asked for, so that a caller can "
            "write `Q, K, V = ...` and keep them apart even when the values are of another width.",
        ),
    ),
    why="One matrix product projects all words at once: no word has to wait for another.",
)

# 3.2 -----------------------------------------------------------------------------------------------------------------


def attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q (..., T, d_k), K (..., S, d_k), V (..., S, d_v) -> output (..., T, d_v), weights (..., T, S).

    softmax(Q K^T / sqrt(d_k)) V, the softmax over the keys (Vaswani et al. 2017, equation 1).
    """
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5  # score
    weights = scores.softmax(dim=-1)  # normalise
    return weights @ V, weights  # mix


def _attention_cases(draw: Draw) -> Iterator[Case]:
    def arguments(
        *batch: int, T: int, S: int, d_k: int, d_v: int, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, ...]:
        return tuple(draw.tracked(*batch, *shape, dtype=dtype) for shape in ((T, d_k), (S, d_k), (S, d_v)))

    def sizes() -> tuple[int, int, dict[str, int]]:
        B, h, T, S, d_k, d_v = draw.sizes(6, low=3)
        return B, h, {"T": T, "S": S, "d_k": d_k, "d_v": d_v}

    B, h, shape = sizes()
    yield Case(arguments(B, **shape))
    B, h, shape = sizes()
    yield Case(arguments(B, **shape))
    yield Case(arguments(B, h, **shape), "with two batch axes, (B, h, T, d_k)")
    yield Case(arguments(**shape), "for one sentence, without a batch axis")
    yield Case(arguments(B, **{**shape, "S": shape["T"]}), "when T = S")
    yield Case(arguments(B, **{**shape, "T": 1}), "with one query")
    yield Case(arguments(B, **{**shape, "S": 1}), "with one key")
    yield Case(arguments(1, **{**shape, "d_k": 1}), "when d_k = 1")
    yield Case(arguments(B, **shape, dtype=torch.float32), "in float32")
    Q, K, V = arguments(B, **shape)
    yield Case((100 * Q, 100 * K, V), "when scores are in the thousands")


def _no_scale(scores: torch.Tensor, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    return scores


def _root_scale(scores: torch.Tensor, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    return scores / Q.shape[-1] ** 0.5


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    return scores.softmax(dim=-1)


def _over(axis: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda scores: scores.softmax(dim=axis)


def _plain_exponentials(scores: torch.Tensor) -> torch.Tensor:
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def _attention_like(
    scale: Callable[..., torch.Tensor] = _root_scale,
    normalise: Callable[[torch.Tensor], torch.Tensor] = _softmax,
    rescale: Callable[..., torch.Tensor] = _no_scale,
) -> Callable[..., Any]:
    """Attention with another scale, another softmax, or something done to the weights after it."""

    def wrong(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = rescale(normalise(scale(Q @ K.transpose(-2, -1), Q, K, V)), Q, K, V)
        return weights @ V, weights

    return wrong


def _scaled_late(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    output, weights = _attention_like(_no_scale)(Q, K, V)
    return output / Q.shape[-1] ** 0.5, weights


def _for_one_sentence(transpose: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def wrong(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = (Q @ transpose(K) / Q.shape[-1] ** 0.5).softmax(dim=-1)
        return weights @ V, weights

    return wrong


def _reversed_axes(K: torch.Tensor) -> torch.Tensor:
    return K.permute(*reversed(range(K.ndim)))  # what K.T does


def _keys_ask(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = (K @ Q.transpose(-2, -1) / Q.shape[-1] ** 0.5).softmax(dim=-1)
    return weights @ V, weights


def _with_scores(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ V, scores


NO_SCALE = (
    "Your scores are not scaled. For small d_k the weights look much the same, which is why a first try seems "
    "right. The variance of a dot product grows with d_k, so at d_k = 512 the softmax would give nearly everything to "
    "one word before anything is learned."
)
DIVIDED_BY_WIDTH = (
    "You divided by d_k itself. What grows as d_k is the *variance* of the scores; their standard deviation, "
    "by which a number is to be divided, grows as its root. Divided by d_k, the scores of a wide head all come out "
    "near 0, and its weights nearly equal."
)
OVER_QUERIES = (
    "Your columns sum to 1: you normalised over the queries, so the queries share out each key among "
    "themselves. Each query has a whole 1 to share out among the keys, so its row is what must sum to 1."
)
OVERFLOWS = (
    "Your formula is right on paper. An exponential of a score in the thousands is infinite, and infinity divided by "
    "infinity is NaN. Only differences of scores matter; torch's own softmax makes use of that, and so did your "
    "exercise 0.1."
)
ROOT_OF_TWO = (
    "You took over the √2 of the lesson's worked example. There a query had two numbers. The scale goes with the "
    "number of products that are added up in a score, and that is d_k, whatever it is."
)

ATTENTION = Exercise(
    id="3.2",
    title="Scaled dot-product attention",
    points=3,
    function="attention",
    reference=attention,
    cases=_attention_cases,
    misconceptions=(
        Misconception("softmax over queries", _attention_like(normalise=_over(-2)), OVER_QUERIES),
        Misconception("no scale", _attention_like(_no_scale), NO_SCALE),
        Misconception(
            "divided by d_k", _attention_like(lambda scores, Q, K, V: scores / Q.shape[-1]), DIVIDED_BY_WIDTH
        ),
        Misconception(
            "divided by the root of a length",
            _attention_like(lambda scores, Q, K, V: scores / Q.shape[-2] ** 0.5),
            "You divided by the root of the number of words. A score is a sum of d_k products, and it is that sum "
            "which grows: two words have the same score in a short sentence and in a long one. Look for the axis that "
            "disappears in Q Kᵀ.",
            also=(_attention_like(lambda scores, Q, K, V: scores / K.shape[-2] ** 0.5),),
        ),
        Misconception(
            "divided by the root of d_v",
            _attention_like(lambda scores, Q, K, V: scores / V.shape[-1] ** 0.5),
            "You took the width of the values. Usually it is the same as that of the keys, so it looks right. "
            "Values are not part of the score: only queries and keys are multiplied there.",
        ),
        Misconception(
            "scale after the softmax",
            _attention_like(_no_scale, rescale=_root_scale),
            "You divided after the softmax. Then the rows no longer sum to 1, and the softmax itself still saw the "
            "large scores: it was saturated already. The scores have to be made small before they are exponents.",
            also=(_scaled_late, _attention_like(_root_scale, rescale=_root_scale)),
        ),
        Misconception(
            "multiplied by the root",
            _attention_like(lambda scores, Q, K, V: scores * Q.shape[-1] ** 0.5),
            "You multiplied by the root of d_k. The scores were too large to begin with, and now they are larger: "
            "the softmax turns into a choice of one. The factor is there to bring their spread back to 1.",
        ),
        Misconception("root of 2", _attention_like(lambda scores, Q, K, V: scores / 2**0.5), ROOT_OF_TWO),
        Misconception(
            "axis counted from the front",
            _attention_like(normalise=_over(1)),
            "You named the axis of the softmax by its number from the front. That is right for one number of batch "
            "axes only: with one more in front, the same number is another axis, and nothing complains. The keys are "
            "always the last axis, whatever stands before.",
            also=(_attention_like(normalise=_over(2)), _attention_like(normalise=_over(0))),
        ),
        Misconception(
            "for one sentence only",
            _for_one_sentence(_reversed_axes),
            "For a single sentence you are right. With a batch axis in front, the two axes to be exchanged are no "
            "longer the first and the second, and `.T` turns all of them around. Words and numbers are always the "
            "last two.",
            also=(_for_one_sentence(lambda K: K.transpose(0, 1)),),
        ),
        Misconception(
            "keys ask the queries",
            _keys_ask,
            "You turned the product around, K Qᵀ: each key asks the queries. With T = S it runs, and the weights of "
            "word i are those that others give to it. A row of the scores belongs to a query.",
        ),
        Misconception(
            "scores instead of weights",
            _with_scores,
            "The output is right, and the second result holds the scores before the softmax. Asked for are the "
            "weights that the output was mixed with: positive, each row with sum 1.",
        ),
        Misconception(
            "output and weights exchanged",
            lambda Q, K, V: _attention_like()(Q, K, V)[::-1],
            "Both results are right, and they have changed places. The task asks for the output first, then the "
            "weights: whoever calls your function unpacks them in this order.",
        ),
        Misconception("overflows", _attention_like(normalise=_plain_exponentials), OVERFLOWS),
        NO_GRADIENT,
    ),
    why="Divided by √d_k, the scores start with a spread of 1 at any width, so the softmax is still undecided.",
)

# 3.3 -----------------------------------------------------------------------------------------------------------------


def self_attention(X: torch.Tensor, W_q: torch.Tensor, W_k: torch.Tensor, W_v: torch.Tensor) -> torch.Tensor:
    """X (B, T, D), three W (D, d) -> (B, T, d): in each sentence, every word attends to all words of that sentence."""
    Q, K, V = X @ W_q, X @ W_k, X @ W_v  # each (B, T, d)
    scores = Q @ K.transpose(1, 2) / Q.shape[-1] ** 0.5  # score, (B, T, T)
    weights = scores.softmax(dim=-1)  # normalise
    return weights @ V  # mix


def _self_cases(draw: Draw) -> Iterator[Case]:
    def arguments(B: int, T: int, D: int, d: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
        # W of about this size keeps the scores moderate, so that no weight is 0 or 1
        shapes = (D, d), (D, d), (D, d)
        return draw.tracked(B, T, D, dtype=dtype), *(1.5 * draw.tracked(*s, dtype=dtype) / D**0.5 for s in shapes)

    for _ in range(2):
        yield Case(arguments(*draw.sizes(4, low=3)))
    B, T, D, d = draw.sizes(4, low=3)
    yield Case(arguments(1, T, D, d), "with a batch of one")
    yield Case(arguments(B, 1, D, d), "with one word")
    yield Case(arguments(B, T, D, D), "when d = D")
    yield Case(arguments(B, B, D, d), "when there are as many words as sentences")
    yield Case(arguments(B, T, D, d, torch.float32), "in float32")
    X, *matrices = arguments(B, T, D, d)
    yield Case((300 * X, *matrices), "when scores are in the thousands")


def _self_like(
    inner: Callable[..., Any] = attention,
    project: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] | None = None,
) -> Callable[..., torch.Tensor]:
    """Self-attention with another attention (its first result counts), or with other queries, keys and values."""

    def wrong(X: torch.Tensor, *matrices: torch.Tensor) -> torch.Tensor:
        parts = project(X, *matrices) if project else tuple(X @ W for W in matrices)
        return inner(*parts)[0]

    return wrong


def _all_sentences_as_one(X: torch.Tensor, *matrices: torch.Tensor) -> torch.Tensor:
    output = _self_like()(X.reshape(1, -1, X.shape[-1]), *matrices)
    return output.reshape(*X.shape[:2], -1)


def _across_sentences(X: torch.Tensor, *matrices: torch.Tensor) -> torch.Tensor:
    return _self_like()(X.transpose(0, 1), *matrices).transpose(0, 1)


SELF_ATTENTION = Exercise(
    id="3.3",
    title="Self-attention for a batch",
    points=2,
    function="self_attention",
    reference=self_attention,
    cases=_self_cases,
    misconceptions=(
        Misconception(
            "mixes the sentences of the batch",
            _all_sentences_as_one,
            "Your words attend to the words of all sentences in the batch, as if they were one long sentence. With a "
            "batch of one it is right. What a sentence means must not depend on which others happen to be in its "
            "batch.",
        ),
        Misconception(
            "attends across the batch",
            _across_sentences,
            "The words at one place of all sentences attend to each other, instead of the words of one sentence. The "
            "shapes come out right because both are axes of words. Attention runs over the axis before the last, so "
            "that one has to be the words of a sentence.",
        ),
        Misconception(
            "uses X as V",
            _self_like(project=lambda X, W_q, W_k, W_v: (X @ W_q, X @ W_k, X)),
            "You mix the words themselves, and W_v has no say. The weights are right. What a word gives is not what it "
            "is: the third matrix chooses which part of it is handed on.",
        ),
        Misconception(
            "keys without W_k",
            _self_like(project=lambda X, W_q, W_k, W_v: (X @ W_q, X, X @ W_v)),
            "You compare the queries with the words themselves; W_k is not used. It only runs when d = D. What a word "
            "is found by is learned too, apart from what it is.",
            also=(_self_like(project=lambda X, W_q, W_k, W_v: (X, X @ W_k, X @ W_v)),),
        ),
        Misconception(
            "nothing projected",
            _self_like(project=lambda X, W_q, W_k, W_v: (X, X, X)),
            "You let the words attend to each other as they are, and none of the three matrices is used. Then a "
            "word always finds itself first, and there is nothing to learn.",
        ),
        Misconception(
            "one matrix for query and key",
            _self_like(project=lambda X, W_q, W_k, W_v: (X @ W_q, X @ W_q, X @ W_v)),
            "Queries and keys come from one matrix, so your scores are symmetric: word 1 cares for word 2 exactly as "
            "much as the other way round. An adjective looks for its noun; the noun need not look back.",
            also=(_self_like(project=lambda X, W_q, W_k, W_v: (X @ W_k, X @ W_k, X @ W_v)),),
        ),
        Misconception(
            "Q and K exchanged",
            _self_like(project=lambda X, W_q, W_k, W_v: (X @ W_k, X @ W_q, X @ W_v)),
            "You ask with the keys and look in the queries. In self-attention both have the same shape, so it runs, "
            "and the table of scores comes out transposed. Row i has to be what word i asks.",
        ),
        Misconception(
            "K and V exchanged",
            _self_like(project=lambda X, W_q, W_k, W_v: (X @ W_q, X @ W_v, X @ W_k)),
            "You compare the queries with the values and hand out the keys. The shapes are equal, so nothing "
            "complains. Keys are for being found, values for being given.",
        ),
        Misconception(
            "weights transposed",
            _self_like(project=lambda X, *matrices: tuple(X @ W.T for W in matrices)),
            "You multiplied by the transposed matrices, as `nn.Linear` does with its weight of shape (d, D). Here W is "
            "(D, d), as in the paper. When d = D the wrong way runs silently.",
        ),
        Misconception("no scale", _self_like(_attention_like(_no_scale)), NO_SCALE),
        Misconception(
            "divided by d", _self_like(_attention_like(lambda s, Q, K, V: s / Q.shape[-1])), DIVIDED_BY_WIDTH
        ),
        Misconception(
            "scaled by √D",
            lambda X, *W: _self_like(_attention_like(lambda s, Q, K, V: s / X.shape[-1] ** 0.5))(X, *W),
            "You divided by the root of D, the width of the words. The dot product is taken between queries and keys, "
            "which have d numbers, and its variance grows with those. When d = D the two agree.",
        ),
        Misconception(
            "divided by the root of the length",
            _self_like(_attention_like(lambda s, Q, K, V: s / Q.shape[-2] ** 0.5)),
            "You divided by the root of the number of words. A score is a sum over the numbers of a query, not over "
            "words: it does not grow with the sentence.",
        ),
        Misconception("softmax over queries", _self_like(_attention_like(normalise=_over(-2))), OVER_QUERIES),
        Misconception(
            "softmax over the batch",
            _self_like(_attention_like(normalise=_over(0))),
            "You normalised over the sentences of the batch, so they share out each pair of words among themselves. "
            "With a batch of one every weight is 1. The words that are asked have to share out the 1.",
        ),
        Misconception(
            "returns the weights as well",
            lambda X, W_q, W_k, W_v: attention(X @ W_q, X @ W_k, X @ W_v),
            "Both are right: the output, and the weights that it was mixed with. Only the output is asked for here, so "
            "that the next layer can take it as it is.",
            also=(lambda X, W_q, W_k, W_v: attention(X @ W_q, X @ W_k, X @ W_v)[::-1],),
        ),
        Misconception("overflows", _self_like(_attention_like(normalise=_plain_exponentials)), OVERFLOWS),
        NO_GRADIENT,
    ),
    why="Every output is one mix of its own sentence's values: no steps, and no sentence sees another.",
)

# 3.4 -----------------------------------------------------------------------------------------------------------------


def score_std(d_k: int, n: int, generator: torch.Generator) -> float:
    """The standard deviation of n dot products q . k, all components drawn from the unit normal distribution."""
    q = torch.randn(n, d_k, generator=generator)
    k = torch.randn(n, d_k, generator=generator)
    return (q * k).sum(dim=-1).std().item()


MANY, FEW = 4000, 8  # draws


def _std_cases(draw: Draw) -> Iterator[Case]:
    """The first argument says what is looked at, see ``_measure``; the last is the generator's seed."""
    for d_k in (16, 64, 4, 64, 16):
        yield Case(("size", d_k, MANY, draw.integer(0, 2**31)))
    yield Case(("repeat", 16, 50, draw.integer(0, 2**31)), "when it is called twice with generators of the same seed")
    yield Case(("spread", 16, FEW, draw.integer(0, 2**31)), f"when n = {FEW}, for {FEW + 4} seeds")


def _measure(answer: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What the answer's random numbers have in common with right ones, in words.

    "size": how large is it; "repeat": do equal generators give equal results; "spread": do few draws scatter as they
    must. A right answer may draw in any order, so its numbers cannot be compared one by one.
    """
    question, d_k, n, seed = args
    seeds = {"size": [seed], "repeat": [seed, seed], "spread": [seed + i for i in range(FEW + 4)]}[question]
    values = [answer(d_k, n, torch.Generator().manual_seed(s)) for s in seeds]
    if not all(_is_number(value) for value in values):
        return values[0]
    numbers = [float(value) for value in values]
    if question == "size":
        return _in_words(numbers[0], d_k)
    if question == "repeat":
        return "the same number twice" if numbers[0] == numbers[1] else "two different numbers"
    spread = float(np.std(numbers)) / max(float(np.mean(np.abs(numbers))), 1e-12)
    return f"scattered as {n} draws are" if spread > 0.06 else "hardly scattered" if spread > 0 else "always the same"


def _is_number(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.ndim == 0
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _in_words(value: float, d_k: int) -> str:
    """Coarse on purpose: two samples of the same thing get the same words."""
    right = d_k**0.5
    if abs(value / right - 1) < 0.08:
        return f"about {right:.3g}, the root of {d_k}"
    if not math.isfinite(value):
        return str(value)
    if abs(value) < 0.05 * right:
        return "about 0"
    step = round(4 * math.log2(abs(value))) / 4
    rounded = 2.0**step if abs(2.0**step / right - 1) > 0.15 else abs(value)
    return f"about {math.copysign(rounded, value):.2g}"


def _std_like(
    score: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    measure: Callable[[torch.Tensor], torch.Tensor] = torch.std,
    draw: Callable[..., torch.Tensor] = torch.randn,
) -> Callable[..., float]:
    def wrong(d_k: int, n: int, generator: torch.Generator) -> float:
        q, k = draw(n, d_k, generator=generator), draw(n, d_k, generator=generator)
        return measure(score(q, k)).item()

    return wrong


def _dot(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q * k).sum(dim=-1)


def _one_query(query_first: bool) -> Callable[..., float]:
    def wrong(d_k: int, n: int, generator: torch.Generator) -> float:
        shapes = ((d_k,), (n, d_k)) if query_first else ((n, d_k), (d_k,))
        a, b = (torch.randn(*shape, generator=generator) for shape in shapes)
        return (a * b).sum(dim=-1).std().item()

    return wrong


def _ignores_the_generator(d_k: int, n: int, generator: torch.Generator) -> float:
    return _std_like(_dot)(d_k, n, torch.Generator().manual_seed(int(torch.randint(2**31, ()))))


def _ignores_n(d_k: int, n: int, generator: torch.Generator) -> float:
    return _std_like(_dot)(d_k, MANY, generator)


SCORE_STD = Exercise(
    id="3.4",
    title="How far scores spread",
    points=2,
    function="score_std",
    reference=score_std,
    cases=_std_cases,
    drive=_measure,
    misconceptions=(
        Misconception(
            "of the scaled score",
            _std_like(lambda q, k: _dot(q, k) / q.shape[-1] ** 0.5),
            "Your number is near 1 at every width. That is what scaled scores have, and single products as well. "
            "Asked is the spread of the bare q·k, the sum of all d_k products, since it shows why a scale is needed.",
            also=(_std_like(lambda q, k: q * k), _std_like(lambda q, k: q)),
        ),
        Misconception(
            "of the mean",
            _std_like(lambda q, k: (q * k).mean(dim=-1)),
            "You took the mean of the products instead of their sum, so your number falls with d_k. A dot product adds "
            "up. That a mean gets calmer and a sum gets wilder with every term is the point of this measurement.",
        ),
        Misconception(
            "the mean score",
            _std_like(_dot, torch.mean),
            "You measured the mean of the scores. It is about 0 at any width, because positive and negative scores "
            "balance. The softmax does not feel the mean; it feels how far the scores lie apart.",
        ),
        Misconception(
            "variance",
            _std_like(_dot, torch.var),
            "You measured the variance: it grows as d_k. The standard deviation is its root, in the same unit as the "
            "scores themselves, and that is what they are divided by.",
        ),
        Misconception(
            "mean size",
            _std_like(lambda q, k: _dot(q, k).abs(), torch.mean),
            "You measured how far scores lie from 0 on average. It grows just as the standard deviation does, but for "
            "normal numbers it is only .8 of it. The standard deviation is the root of the mean *square*.",
            also=(_std_like(lambda q, k: _dot(q, k).abs()),),
        ),
        Misconception(
            "uniform numbers",
            _std_like(_dot, draw=torch.rand),
            "Your components are uniform between 0 and 1 (`rand`), so they have neither mean 0 nor variance 1. The "
            "root of d_k follows from those two. `randn` draws from the unit normal distribution.",
        ),
        Misconception(
            "one query for all keys",
            _one_query(query_first=True),
            "You drew one query and n keys. Then the spread depends on how long that one query happens to be. Each of "
            "the n scores needs a query and a key of its own.",
            also=(_one_query(query_first=False),),
        ),
        Misconception(
            "not measured",
            lambda d_k, n, generator: d_k**0.5,
            "You computed what the number should be, and it is right. Asked is a measurement: draw n pairs and look. "
            "A claim that is only computed can be wrong in its assumptions without anyone noticing.",
        ),
        Misconception(
            "ignores n",
            _ignores_n,
            "Your number is right, and it does not depend on `n`: with only a few draws it ought to scatter. Draw "
            "exactly n queries and n keys.",
        ),
        Misconception(
            "ignores the generator",
            _ignores_the_generator,
            "Called twice with equal generators, your function gives two different numbers. An experiment that cannot "
            "be repeated cannot be checked: let every random number come from the generator that is passed in.",
        ),
    ),
    why="A sum of d_k independent products has variance d_k, so scores spread by √d_k: measured, not believed.",
)

# 3.5 -----------------------------------------------------------------------------------------------------------------


def attend_one(q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """Query (d,), keys (S, d), values (S, d_v) -> (d_v,): a dictionary look-up in which every key matches a little."""
    matches = torch.stack([q @ k for k in K]) / q.shape[0] ** 0.5  # score, one a key
    shares = matches.softmax(dim=0)  # normalise
    return sum(share * value for share, value in zip(shares, V, strict=True))  # mix


def _one_cases(draw: Draw) -> Iterator[Case]:
    def arguments(S: int, d: int, d_v: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
        return tuple(draw.tracked(*shape, dtype=dtype) for shape in ((d,), (S, d), (S, d_v)))

    for _ in range(2):
        yield Case(arguments(*draw.sizes(3, low=3)))
    S, d, d_v = draw.sizes(3, low=3)
    yield Case(arguments(1, d, d_v), "with one key")
    yield Case(arguments(S, d, 1), "when a value is a single number")
    yield Case(arguments(S, S, d_v), "when there are as many keys as numbers in a key")
    yield Case(arguments(S, d, d), "when keys and values are of one width")
    yield Case(arguments(S, d, d_v, torch.float32), "in float32")
    q, K, V = arguments(S, d, d_v)
    yield Case((100 * q, 100 * K, V), "when scores are in the thousands")


def _one_like(weights_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The look-up with another way from query and keys to the weights."""
    return lambda q, K, V: weights_of(q, K) @ V


def _matches(q: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    return K @ q / q.shape[0] ** 0.5


def _shares(q: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    return _matches(q, K).softmax(dim=0)


ATTEND_ONE = Exercise(
    id="3.5",
    title="One look-up",
    points=3,
    function="attend_one",
    reference=attend_one,
    cases=_one_cases,
    misconceptions=(
        Misconception(
            "hard look-up",
            lambda q, K, V: V[(K @ q).argmax()].clone(),
            "You hand out the value of the best key, as a Python dictionary would. When one key matches far better "
            "than the others, that is nearly the same. A choice has no gradient towards the keys that were not "
            "chosen, so the query could never learn to look elsewhere: every value has to come along, by its share.",
        ),
        Misconception("no scale", _one_like(lambda q, K: (K @ q).softmax(dim=0)), NO_SCALE),
        Misconception("divided by d", _one_like(lambda q, K: (K @ q / q.shape[0]).softmax(dim=0)), DIVIDED_BY_WIDTH),
        Misconception(
            "divided by the root of S",
            _one_like(lambda q, K: (K @ q / K.shape[0] ** 0.5).softmax(dim=0)),
            "You divided by the root of the number of keys. How well a key matches does not depend on how many others "
            "there are. A score is a sum of d products, and it is d that makes it grow.",
        ),
        Misconception("root of 2", _one_like(lambda q, K: (K @ q / 2**0.5).softmax(dim=0)), ROOT_OF_TWO),
        Misconception(
            "plain mean",
            lambda q, K, V: V.mean(dim=0),
            "Every value comes out with the same share, whatever is asked. That is a summary, not a look-up: the "
            "answer must depend on the query.",
            also=(lambda q, K, V: V.sum(dim=0),),
        ),
        Misconception(
            "scores as weights",
            _one_like(_matches),
            "You mix with the scores themselves. They can be negative, and they do not sum to 1, so the result can lie "
            "far outside of all values. The softmax turns preferences into shares.",
            also=(_one_like(lambda q, K: K @ q), _one_like(lambda q, K: _matches(q, K) / _matches(q, K).sum())),
        ),
        Misconception(
            "shares do not sum to 1",
            _one_like(lambda q, K: _matches(q, K).exp()),
            "You took the exponentials and did not divide by their sum. Which value gets most is right. But with more "
            "keys the result would grow and grow, where a mix has to stay among the values.",
        ),
        Misconception(
            "sigmoid",
            _one_like(lambda q, K: _matches(q, K).sigmoid()),
            "You judge each key by itself, with a sigmoid. In attention the keys compete: what one gets, the others "
            "lose, and all shares together are 1.",
        ),
        Misconception(
            "mixes the keys",
            lambda q, K, V: _shares(q, K) @ K,
            "You mix the keys. The weights are right. A dictionary does not hand back the word that you looked up; it "
            "hands back what is written beside it.",
        ),
        Misconception(
            "values compared",
            lambda q, K, V: (V @ q / q.shape[0] ** 0.5).softmax(dim=0) @ V,
            "You compared the query with the values. That only runs when keys and values are of one width. The key is "
            "what an entry is found by.",
        ),
        Misconception(
            "values not added up",
            lambda q, K, V: _shares(q, K)[:, None] * V,
            "Each value is multiplied by its share, and they are still apart: one row a key. The look-up has one "
            "answer, their sum.",
        ),
        Misconception(
            "cosine",
            _one_like(lambda q, K: torch.cosine_similarity(K, q[None], dim=-1).softmax(dim=0)),
            "You divided by the lengths of the vectors, so your scores lie between -1 and 1 and no key can ever win "
            "clearly. The dot product keeps the lengths: a longer query asks more firmly.",
        ),
        Misconception(
            "by distance",
            _one_like(lambda q, K: (-((K - q) ** 2).sum(dim=-1) / q.shape[0] ** 0.5).softmax(dim=0)),
            "You score a key by how near it lies to the query. That is a sensible look-up, and not this one: "
            "the dot product asks how far the two point the same way, and rewards long keys.",
        ),
        Misconception("overflows", _one_like(lambda q, K: _plain_exponentials(_matches(q, K))), OVERFLOWS),
        NO_GRADIENT,
    ),
    why="Attention is this look-up, once for every query; the matrices of 3.2 only do all of them at the same time.",
)

EXERCISES = (PROJECT_QKV, ATTENTION, SELF_ATTENTION, SCORE_STD, ATTEND_ONE)
