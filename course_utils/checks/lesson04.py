"""Lesson 04: splitting and merging heads, multi-head attention, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception

# 4.1 -----------------------------------------------------------------------------------------------------------------


def split_heads(x: torch.Tensor, h: int) -> torch.Tensor:
    """(B, T, D) -> (B, h, T, D/h): head i gets the i-th block of columns of every word. ValueError if h does not fit.

    Vaswani et al. (2017), section 3.2.2: d_k = d_model / h.
    """
    B, T, D = x.shape
    if D % h:
        raise ValueError(f"{D} numbers cannot be shared out evenly among {h} heads.")
    return x.reshape(B, T, h, D // h).transpose(1, 2)  # cut the columns, then bring the heads forward


def _split_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, T, h, d_k = draw.sizes(4, high=7)
        yield Case((draw.tracked(B, T, h * d_k), h))
    B, T, h, d_k = draw.sizes(4, high=7)
    yield Case((draw.tracked(B, h, h * d_k), h), "when there are as many words as heads")
    yield Case((draw.tracked(B, T, d_k), 1), "with one head")
    yield Case((draw.tracked(B, T, h), h), "with heads of one number each")
    yield Case((draw.tracked(B, 1, h * d_k), h), "when T = 1")
    yield Case((draw.tracked(1, T, h * d_k), h), "with a batch of one")
    yield Case((draw.tracked(B, T, h * d_k, dtype=torch.float32), h), "in float32")
    # the halved words make T * D divisible by h, so that a reshape of the two together fits
    yield Case((draw.tracked(B, 2 * h, h * d_k + 1), h), "when h does not divide D")


def _split_like(split: Callable[[torch.Tensor, int, int], torch.Tensor]) -> tuple[Callable[..., torch.Tensor], ...]:
    """``split(x, h, d_k)`` with the ValueError, and without it."""

    def unguarded(x: torch.Tensor, h: int) -> torch.Tensor:
        return split(x, h, x.shape[-1] // h)

    def guarded(x: torch.Tensor, h: int) -> torch.Tensor:
        if x.shape[-1] % h:
            raise ValueError
        return unguarded(x, h)

    return guarded, unguarded


def _split_mistake(
    name: str, message: str, *functions: Callable[[torch.Tensor, int, int], torch.Tensor]
) -> Misconception:
    first, *also = (wrong for function in functions for wrong in _split_like(function))
    return Misconception(name, first, message, also=tuple(also))


def _asserts(x: torch.Tensor, h: int) -> torch.Tensor:
    assert x.shape[-1] % h == 0
    return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)


def _slices(x: torch.Tensor, h: int, d_k: int) -> torch.Tensor:
    return torch.stack([x[..., i * d_k : (i + 1) * d_k] for i in range(h)], dim=1)


def _strided(x: torch.Tensor, h: int, d_k: int) -> torch.Tensor:
    return x.reshape(*x.shape[:2], d_k, h).permute(0, 3, 1, 2)


SPLIT_HEADS = Exercise(
    id="4.1",
    title="Split heads",
    points=2,
    function="split_heads",
    reference=split_heads,
    cases=_split_cases,
    views_allowed=True,
    misconceptions=(
        _split_mistake(
            "reshape without transpose",
            "You asked for the final shape at once, and it came, because the number of numbers is right. But a reshape "
            "deals them out in the order in which they lie in memory, word after word. So the first head got all of "
            "the first words and nothing of the last ones. A head must have a part of the columns of every word.",
            lambda x, h, d_k: x.reshape(x.shape[0], h, x.shape[1], d_k),
            lambda x, h, d_k: x.reshape(x.shape[0], h, x.shape[1], -1),
        ),
        _split_mistake(
            "heads strided",
            "Your head i got the columns i, i + h, i + 2h, ...: every h-th number. Each head has every word, so a "
            "network trained like that would work. Here a head owns one block of neighbouring columns, as in the paper "
            "and in torch. Weights that were trained for blocks mean nothing when they are dealt out like cards.",
            _strided,
            lambda x, h, d_k: torch.stack([x[..., i::h] for i in range(h)], dim=1),
        ),
        Misconception(
            "wrong error when h does not divide D",
            _split_like(lambda x, h, d_k: x.reshape(*x.shape[:2], h, d_k).transpose(1, 2))[1],
            "Ordinary sizes come out right. Where h does not divide D there is no even split, and a `ValueError` is "
            "asked for: it tells the caller that this argument cannot be. What torch says there is a RuntimeError "
            "about some shape, an `assert` disappears under `python -O`, and rounding down drops numbers unseen.",
            also=(
                _asserts,
                _split_like(_slices)[1],
                _split_like(lambda x, h, d_k: x[..., : h * d_k].reshape(*x.shape[:2], h, d_k).transpose(1, 2))[1],
            ),
        ),
        _split_mistake(
            "heads left behind the words",
            "You cut the columns into the right blocks and left the axis of heads behind the words: (B, T, h, D/h). "
            "Attention multiplies the last two axes and treats all before them as a batch. With this order the heads "
            "of one word would attend to each other, and no word would ever see another.",
            lambda x, h, d_k: x.reshape(*x.shape[:2], h, d_k),
        ),
        _split_mistake(
            "heads before the batch",
            "Your heads come first and the sentences second: (h, B, T, D/h). The numbers are right, and attention over "
            "the last two axes would be too. The course's order is (B, h, T, D/h), so that a mask which belongs to a "
            "sentence meets the batch axis.",
            lambda x, h, d_k: x.reshape(*x.shape[:2], h, d_k).permute(2, 0, 1, 3),
            lambda x, h, d_k: torch.stack(x[..., : h * d_k].split(d_k, dim=-1)),
        ),
        _split_mistake(
            "batch and heads in one axis",
            "You put sentences and heads into one axis: (B · h, T, D/h). torch does that inside its own attention, "
            "since a batched product needs only one batch axis. Here the two stay apart, or a mask of shape "
            "(B, 1, 1, S) could no longer find its sentence.",
            lambda x, h, d_k: x.reshape(*x.shape[:2], h, d_k).transpose(1, 2).flatten(0, 1),
            lambda x, h, d_k: x.reshape(x.shape[0] * h, x.shape[1], d_k),
        ),
        _split_mistake(
            "number of heads and size of a head exchanged",
            "You made D/h heads of h numbers each. Both cut D evenly, so nothing complains. h is how many heads there "
            "are; what remains for each is D/h.",
            lambda x, h, d_k: x.reshape(*x.shape[:2], d_k, h).transpose(1, 2),
        ),
        NO_GRADIENT,
    ),
    why="Cutting the columns gives every head all of the words; only then may the axes be reordered for the product.",
)

# 4.2 -----------------------------------------------------------------------------------------------------------------


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    """(B, h, T, d_k) -> (B, T, h * d_k): each word's h results side by side, head 1 first. Undoes ``split_heads``."""
    B, h, T, d_k = x.shape
    return x.transpose(1, 2).reshape(B, T, h * d_k)  # first a word's heads next to each other, then join them


def _merge_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        yield Case((draw.tracked(*draw.sizes(4, high=7)),))
    B, h, T, d_k = draw.sizes(4, high=7)
    split = draw.tracked(B, T, h * d_k).reshape(B, T, h, d_k).transpose(1, 2)
    yield Case((split,), "when the heads lie in memory as a split left them")
    yield Case((draw.tracked(B, h, h, d_k),), "when there are as many words as heads")
    yield Case((draw.tracked(B, 1, T, d_k),), "with one head")
    yield Case((draw.tracked(B, h, T, 1),), "with heads of one number each")
    yield Case((draw.tracked(B, h, 1, d_k),), "when T = 1")
    yield Case((draw.tracked(1, h, T, d_k),), "with a batch of one")
    yield Case((draw.tracked(B, h, T, d_k, dtype=torch.float32),), "in float32")


MERGE_HEADS = Exercise(
    id="4.2",
    title="Merge heads",
    points=2,
    function="merge_heads",
    reference=merge_heads,
    cases=_merge_cases,
    views_allowed=True,
    misconceptions=(
        Misconception(
            "reshape without transpose",
            lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            "You asked for (B, T, D) at once. The numbers lie head after head, so the first row that a reshape fills "
            "is made of several words of head 1, and the other heads are not in it at all. After a split with the same "
            "slip even a round trip gives the input back, which is why a round trip proves nothing. Every row has to "
            "hold the results of all heads for one word.",
        ),
        Misconception(
            "numbers of the heads interleaved",
            lambda x: x.permute(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1),
            "Each row has the right numbers of the right word, in another order: the first number of every head, then "
            "the second of every head. A head's results are to stay together, one block a head, since W_o has a block "
            "of its own for each.",
        ),
        Misconception(
            "view after the transpose",
            lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1),
            "Your order of steps is right. A transpose does not move any numbers, it only reads them in another order, "
            "and `view` promises not to move them either; so the new rows do not exist in memory and `view` refuses. "
            "Something has to copy the numbers into their new order.",
        ),
        Misconception(
            "heads added up",
            lambda x: x.sum(dim=1),
            "You merged the heads into one by adding or averaging them, so the result is only d_k wide. Then nothing "
            "after it could tell which head found what. They are put side by side, and it is W_o that weighs and adds "
            "them.",
            also=(lambda x: x.mean(dim=1),),
        ),
        Misconception(
            "words joined instead of heads",
            lambda x: x.reshape(x.shape[0], -1, x.shape[3]),
            "You joined the axes of heads and words: (B, h · T, d_k). They are neighbours, so it is the easy join. "
            "What belongs together are the heads of one word: the sentence keeps its length, and each word gets its D "
            "numbers back.",
            also=(lambda x: x.transpose(1, 2).reshape(x.shape[0], -1, x.shape[3]),),
        ),
        Misconception(
            "heads not joined",
            lambda x: x.transpose(1, 2),
            "You brought each word's heads next to each other and left them as two axes. The rest of the model wants "
            "D numbers a word: the last two axes still have to become one.",
        ),
        Misconception(
            "words and numbers exchanged",
            lambda x: x.transpose(2, 3).reshape(x.shape[0], -1, x.shape[2]),
            "Your result is (B, D, T): the words ended up as the last axis. The blocks are joined rightly, and they "
            "stand on their side. One row a word is what everything after this expects.",
        ),
        NO_GRADIENT,
    ),
    why="A word's heads must be neighbours in memory before they can become one row: hence the transpose.",
)

# 4.3 -----------------------------------------------------------------------------------------------------------------


def multi_head_attention(
    query: torch.Tensor,
    memory: torch.Tensor,
    W_q: torch.Tensor,
    W_k: torch.Tensor,
    W_v: torch.Tensor,
    W_o: torch.Tensor,
    h: int,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """query (B, T, D) looks at memory (B, S, D); four weights (D, D) as ``nn.Linear`` keeps them -> (B, T, D).

    ``mask`` broadcasts to (B, h, T, S), True = may attend. Vaswani et al. (2017), section 3.2.2.
    """

    def split(x: torch.Tensor) -> torch.Tensor:  # (B, length, D) -> (B, h, length, d_k)
        return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)

    Q, K, V = split(query @ W_q.T), split(memory @ W_k.T), split(memory @ W_v.T)
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5  # score: (B, h, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))  # mask
    weights = scores.softmax(dim=-1)  # normalise
    heads = weights @ V  # mix: (B, h, T, d_k)
    return heads.transpose(1, 2).reshape(query.shape) @ W_o.T


def _attention_cases(draw: Draw) -> Iterator[Case]:
    def arguments(
        B: int, T: int, S: int, h: int, d_k: int, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor | int, ...]:
        D = h * d_k
        # large enough for weights that are far from equal, small enough that no softmax saturates
        weights = [1.3 * draw.tracked(D, D, dtype=dtype) / D**0.5 for _ in range(4)]
        return draw.tracked(B, T, D, dtype=dtype), draw.tracked(B, S, D, dtype=dtype), *weights, h

    def some(*shape: int) -> torch.Tensor:
        """A random mask; every row has one True and, where it has room, one False."""
        mask = torch.rand(*shape, generator=draw.torch) < 0.6
        first = draw.integer(0, shape[-1] - 1)
        mask[..., first] = True
        if shape[-1] > 1:
            mask[..., first - 1] = False
        return mask

    B, T, S, h, d_k = draw.sizes(5, high=6)
    yield Case(arguments(B, T, S, h, d_k))
    yield Case((*arguments(B, T, S, h, d_k), draw.padding_mask(B, S)[:, None, None, :]))
    B, T, S, h, d_k = draw.sizes(5, high=6)
    yield Case((*arguments(B, T, S, h, d_k), some(T, S)), "with a (T, S) mask, the same for all sentences and heads")
    yield Case((*arguments(B, T, S, h, d_k), some(B, h, T, S)), "with a mask for each head")
    query, _, *rest = arguments(B, T, S, h, d_k)
    yield Case((query, query, *rest, torch.ones(T, T, dtype=torch.bool).tril()), "in masked self-attention")
    yield Case(arguments(B, T, S, 1, d_k), "with one head")
    yield Case((*arguments(B, 1, S, h, d_k), some(B, 1, 1, S)), "with one query")
    yield Case(arguments(B, T, 1, h, d_k), "with one word to look at")
    yield Case(arguments(1, T, S, h, d_k), "with a batch of one")
    yield Case(arguments(B, T, S, h, d_k, torch.float32), "in float32")


Split = Callable[[torch.Tensor, int], torch.Tensor]


def _columns(x: torch.Tensor, h: int) -> torch.Tensor:
    return x.reshape(*x.shape[:2], h, -1).transpose(1, 2)


def _bare_split(x: torch.Tensor, h: int) -> torch.Tensor:
    return x.reshape(x.shape[0], h, x.shape[1], -1)


def _strided_split(x: torch.Tensor, h: int) -> torch.Tensor:
    return x.reshape(*x.shape[:2], -1, h).permute(0, 3, 1, 2)


def _joined(heads: torch.Tensor) -> torch.Tensor:
    return heads.transpose(1, 2).flatten(2)


def _bare_merge(heads: torch.Tensor) -> torch.Tensor:
    return heads.reshape(heads.shape[0], heads.shape[2], -1)


def _strided_merge(heads: torch.Tensor) -> torch.Tensor:
    return heads.permute(0, 2, 3, 1).flatten(2)


def _softmax(scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return (scores if mask is None else scores.masked_fill(~mask, float("-inf"))).softmax(dim=-1)


def _attention_like(
    sides: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]] = lambda q, m: (q, m, m),
    weights: Callable[..., tuple[torch.Tensor, ...]] = lambda q, k, v, o: (q.T, k.T, v.T, o.T),
    split: Split = _columns,
    scale: Callable[[int, int], float] = lambda d_k, D: d_k**0.5,
    normalise: Callable[..., torch.Tensor] = _softmax,
    share: Callable[[torch.Tensor], torch.Tensor] = lambda alpha: alpha,
    merge: Callable[[torch.Tensor], torch.Tensor] = _joined,
    finish: Callable[..., Any] = lambda joined, W_o, alpha: joined @ W_o,
) -> Callable[..., Any]:
    """Multi-head attention with one of its steps done otherwise."""

    def wrong(
        query: torch.Tensor,
        memory: torch.Tensor,
        W_q: torch.Tensor,
        W_k: torch.Tensor,
        W_v: torch.Tensor,
        W_o: torch.Tensor,
        h: int,
        mask: torch.Tensor | None = None,
    ) -> Any:
        P_q, P_k, P_v, P_o = weights(W_q, W_k, W_v, W_o)
        for_q, for_k, for_v = sides(query, memory)
        Q, K, V = split(for_q @ P_q, h), split(for_k @ P_k, h), split(for_v @ P_v, h)
        scores = Q @ K.transpose(-2, -1) / scale(Q.shape[-1], query.shape[-1])
        alpha = share(normalise(scores, mask))
        return finish(merge(alpha @ V), P_o, alpha)

    return wrong


def _mask_with(apply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Weights from ``apply(scores, mask)``, and the plain softmax where there is no mask."""
    return lambda scores, mask: scores.softmax(dim=-1) if mask is None else apply(scores, mask)


def _repeated_mean(heads: torch.Tensor) -> torch.Tensor:
    return heads.mean(dim=1).repeat(1, 1, heads.shape[1])


MULTI_HEAD_ATTENTION = Exercise(
    id="4.3",
    title="Multi-head attention",
    points=4,
    function="multi_head_attention",
    reference=multi_head_attention,
    cases=_attention_cases,
    misconceptions=(
        Misconception(
            "scaled by the square root of d_model",
            _attention_like(scale=lambda d_k, D: D**0.5),
            "You divide the scores by the square root of D. With one head that is right, and with more it is close "
            "enough to train. But each dot product here adds up only D/h numbers, so its spread is the square root of "
            "D/h; divided by more than that, the weights come out too even.",
        ),
        Misconception(
            "no scale",
            _attention_like(scale=lambda d_k, D: 1.0),
            "Your scores are not scaled. Heads are narrow, so the effect is smaller than it was in lesson 03, which "
            "may be why it seemed to do without. A dot product of d_k numbers still spreads as the square root of d_k.",
            also=(_attention_like(scale=lambda d_k, D: d_k), _attention_like(scale=lambda d_k, D: d_k**-0.5)),
        ),
        Misconception(
            "heads averaged",
            _attention_like(merge=_repeated_mean),
            "You average over the heads. An average is what several heads are there to avoid: two heads that look at "
            "two words would give their mean again. The results of the heads are put side by side, and W_o mixes them.",
            also=(
                _attention_like(share=lambda alpha: alpha.mean(dim=1, keepdim=True)),
                _attention_like(merge=lambda heads: heads.sum(dim=1).repeat(1, 1, heads.shape[1])),
                _attention_like(merge=lambda heads: heads.mean(dim=1), finish=lambda joined, W_o, alpha: joined),
                _attention_like(merge=lambda heads: heads.sum(dim=1), finish=lambda joined, W_o, alpha: joined),
            ),
        ),
        Misconception(
            "no W_o",
            _attention_like(finish=lambda joined, W_o, alpha: joined),
            "You stop when the heads are joined. The shape is right already, which is why it looks finished. Without "
            "W_o head i can write only into its own D/h numbers; W_o lets each head write to all of them.",
        ),
        Misconception(
            "query and memory exchanged",
            _attention_like(sides=lambda q, m: (m, q, q)),
            "Your queries come from the memory and your keys and values from the query, or all of them from one side. "
            "In self-attention the two are one tensor, and nobody notices. Who asks decides how many rows there are: "
            "one output a query. What is asked, and what is brought back, is the memory.",
            also=(
                _attention_like(sides=lambda q, m: (q, q, q)),
                _attention_like(sides=lambda q, m: (m, m, m)),
                _attention_like(sides=lambda q, m: (m, q, m)),
                _attention_like(sides=lambda q, m: (q, q, m)),
                _attention_like(sides=lambda q, m: (q, m, q)),
                _attention_like(sides=lambda q, m: (m, m, q)),
            ),
        ),
        Misconception(
            "weights not transposed",
            _attention_like(weights=lambda q, k, v, o: (q, k, v, o)),
            "You multiply by a weight as it stands. The matrices are square, so nothing complains. `nn.Linear` keeps "
            "one row for each number that comes out, so its weight has to be turned before it stands on the right of "
            "x.",
            also=(
                _attention_like(weights=lambda q, k, v, o: (q.T, k.T, v.T, o)),
                _attention_like(weights=lambda q, k, v, o: (q, k, v, o.T)),
            ),
        ),
        Misconception(
            "split or merge without transpose",
            _attention_like(split=_bare_split, merge=_bare_merge),
            "Somewhere you reshape straight to the final shape, where the axes have to change places. The numbers lie "
            "in memory word by word, so a bare split gives each head a piece of the sentence instead of a piece of "
            "every word, and a bare merge joins different words. Every shape is right on the way.",
            also=(_attention_like(split=_bare_split), _attention_like(merge=_bare_merge)),
        ),
        Misconception(
            "heads strided",
            _attention_like(split=_strided_split, merge=_strided_merge),
            "A head's numbers are not kept together: you deal the columns out, or join the results, number by number "
            "instead of block by block. A network trained like that would work. These weights belong to blocks: rows "
            "1 to D/h of W_q are head 1, and so are columns 1 to D/h of W_o.",
            also=(_attention_like(merge=_strided_merge), _attention_like(split=_strided_split)),
        ),
        Misconception(
            "one head only",
            _attention_like(split=lambda x, h: x[:, None]),
            "h never enters your result: one softmax decides for all D numbers. All shapes are right, since the "
            "projections have the same size for any h. Several heads are several softmaxes, each over the scores of "
            "its own D/h numbers.",
        ),
        Misconception(
            "mask unused",
            _attention_like(normalise=lambda scores, mask: scores.softmax(dim=-1)),
            "Without a mask your result is right; with one it does not change. What the mask hides must get no weight "
            "in any head.",
        ),
        Misconception(
            "mask inverted",
            _attention_like(normalise=_mask_with(lambda scores, mask: _softmax(scores, ~mask))),
            "You hide what may be seen. For `nn.MultiheadAttention` and for `F.multi_head_attention_forward` True "
            "means *hide*, so code for those has it your way. In this course True means *may attend*.",
        ),
        Misconception(
            "mask after the softmax",
            _attention_like(normalise=_mask_with(lambda scores, mask: scores.softmax(dim=-1) * mask)),
            "You compute the weights first and set the hidden ones to zero afterwards. Hidden places get nothing, as "
            "they should. But they have taken their share before, so the rest no longer sums to 1. The softmax must "
            "not see them at all.",
        ),
        Misconception(
            "hidden scores set to zero",
            _attention_like(normalise=_mask_with(lambda scores, mask: (scores * mask).softmax(dim=-1))),
            "You set hidden scores to 0, or add the mask to them as a number. For a softmax 0 is a score like any "
            "other: it gets e⁰ = 1 before normalising, more than every negative score. Only minus infinity becomes a "
            "weight of nothing.",
            also=(_attention_like(normalise=_mask_with(lambda scores, mask: (scores + mask).softmax(dim=-1))),),
        ),
        Misconception(
            "softmax over queries",
            _attention_like(
                normalise=lambda scores, mask: (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(
                    dim=-2
                )
            ),
            "Your columns sum to 1: each key shares itself out among the queries. It is the queries that choose. For "
            "each query, in each head, the weights over the memory sum to 1.",
            also=(
                _attention_like(
                    normalise=lambda scores, mask: (
                        scores if mask is None else scores.masked_fill(~mask, float("-inf"))
                    ).softmax(dim=-2)
                ),
            ),
        ),
        Misconception(
            "keys and values exchanged",
            _attention_like(weights=lambda q, k, v, o: (q.T, v.T, k.T, o.T)),
            "You score against what W_v makes and mix what W_k makes. Both have one shape, so it runs. Keys are what a "
            "word is found by, values are what it gives.",
        ),
        Misconception(
            "weights returned too",
            _attention_like(finish=lambda joined, W_o, alpha: (joined @ W_o, alpha)),
            "You return the attention weights along with the output, as torch's modules do. They are good to look at. "
            "The task asks for the output alone.",
        ),
        NO_GRADIENT,
    ),
    why="h softmaxes over D/h numbers each cost what one costs over D, and fetch h different averages.",
)

# 4.4 -----------------------------------------------------------------------------------------------------------------


def parameter_count(d_model: int, h: int, bias: bool) -> int:
    """How many learned numbers multi-head attention has: W_q, W_k, W_v and W_o, each with a bias or without.

    h heads of d_model / h columns are one matrix of d_model columns, so h does not matter (section 3.2.2).
    """
    weights = 4 * d_model * d_model
    return weights + 4 * d_model if bias else weights


def _count_cases(draw: Draw) -> Iterator[Case]:
    for bias in (False, True, False, True):
        h, d_k = draw.sizes(2, low=3)
        yield Case((h * d_k, h, bias))
    yield Case((512, 8, True), "for the paper's base model")
    yield Case((draw.integer(3, 40), 1, True), "with one head")
    h = draw.integer(3, 9)
    yield Case((h, h, True), "with heads of one number each")


def _count_like(
    weights: Callable[[int, int], int], biases: Callable[[int, int], int] = lambda D, h: 4 * D
) -> Callable[..., int]:
    return lambda d_model, h, bias: weights(d_model, h) + (biases(d_model, h) if bias else 0)


PARAMETER_COUNT = Exercise(
    id="4.4",
    title="Parameter count",
    points=2,
    function="parameter_count",
    reference=parameter_count,
    cases=_count_cases,
    misconceptions=(
        Misconception(
            "grows with h",
            _count_like(lambda D, h: 3 * h * D * D + D * D, lambda D, h: 3 * h * D + D),
            "Your count grows with the number of heads: you gave each head matrices of full width. A head's matrices "
            "go from D numbers to D/h, and h of them together are as wide as one of D. That is how several looks cost "
            "no more than one.",
            also=(
                _count_like(lambda D, h: 4 * h * D * D, lambda D, h: 4 * h * D),
                _count_like(lambda D, h: 4 * h * D * D, lambda D, h: 3 * h * D + D),
                _count_like(lambda D, h: 4 * h * D * D),
                _count_like(lambda D, h: 3 * h * D * D + D * D),
                _count_like(lambda D, h: 3 * h * D * D, lambda D, h: 3 * h * D),
            ),
        ),
        Misconception(
            "forgets W_o",
            _count_like(lambda D, h: 3 * D * D, lambda D, h: 3 * D),
            "You count query, key and value. The fourth matrix, W_o, comes after the heads are joined: it is learned "
            "too, and as large as each of the three.",
            also=(_count_like(lambda D, h: 3 * D * D), _count_like(lambda D, h: 3 * D * D, lambda D, h: 0)),
        ),
        Misconception(
            "forgets biases",
            _count_like(lambda D, h: 4 * D * D, lambda D, h: 0),
            "Your count is right without biases and does not change with them. Each of the four linear maps then adds "
            "one learned number to every number that it puts out.",
        ),
        Misconception(
            "too few biases",
            _count_like(lambda D, h: 4 * D * D, lambda D, h: D),
            "Some biases are missing. The four maps each have their own, one for every number that comes out, and for "
            "query, key and value that is D/h numbers in each of h heads, hence D again.",
            also=(
                _count_like(lambda D, h: 4 * D * D, lambda D, h: 3 * D),
                _count_like(lambda D, h: 4 * D * D, lambda D, h: 4),
                _count_like(lambda D, h: 4 * D * D, lambda D, h: 3 * (D // h) + D),
                _count_like(lambda D, h: 4 * D * D, lambda D, h: 4 * (D // h)),
            ),
        ),
        Misconception(
            "too many biases",
            _count_like(lambda D, h: 4 * D * D, lambda D, h: 3 * h * D + D),
            "Your matrices are right and your biases grow with h. A head puts out D/h numbers, so it needs D/h biases, "
            "and all heads together D.",
            also=(_count_like(lambda D, h: 4 * D * D, lambda D, h: 4 * h * D),),
        ),
        Misconception(
            "shrinks with h",
            _count_like(lambda D, h: 3 * D * (D // h) + D * D, lambda D, h: 3 * (D // h) + D),
            "Your count falls as h grows. You have the width of one head right, D/h, and there are h of those side by "
            "side. Also, a head reads all D numbers of a word, not only its share of them: only what comes out is "
            "narrow.",
            also=(
                _count_like(lambda D, h: 3 * h * (D // h) ** 2 + D * D),
                _count_like(lambda D, h: 3 * h * (D // h) ** 2 + D * D, lambda D, h: 3 * (D // h) * h + D),
                _count_like(lambda D, h: 4 * h * (D // h) ** 2),
                _count_like(lambda D, h: 4 * D * (D // h)),
                _count_like(lambda D, h: 4 * D * (D // h), lambda D, h: 4 * (D // h)),
            ),
        ),
        Misconception(
            "one matrix for query, key and value",
            _count_like(lambda D, h: 2 * D * D, lambda D, h: 2 * D),
            "You count one matrix before the heads and one after. Query, key and value are three different questions "
            "to a word, each with its own matrix. Software often packs them into one block, which is then 3D wide.",
        ),
        Misconception(
            "biases always counted",
            lambda d_model, h, bias: 4 * d_model * (d_model + 1),
            "You count biases even where `bias` is False. The argument decides; leave them out then.",
        ),
    ),
    why="h matrices of D × D/h are one of D × D: the heads are a way to use the numbers, not more numbers.",
)

EXERCISES = (SPLIT_HEADS, MERGE_HEADS, MULTI_HEAD_ATTENTION, PARAMETER_COUNT)
