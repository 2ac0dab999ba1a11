"""Lesson 02: the parts of Bahdanau's attention, a decoder step, and Luong's score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception, call

# 2.1 -----------------------------------------------------------------------------------------------------------------


def additive_score(s: torch.Tensor, H: torch.Tensor, W: torch.Tensor, U: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """s (B, D), H (B, S, E), W (A, D), U (A, E), v (A,) -> (B, S): v . tanh(W s + U h_j) for every word j.

    Bahdanau et al. (2015), appendix A.1.2.
    """
    of_state = (s @ W.T)[:, None, :]  # (B, 1, A), the same for every word
    of_words = H @ U.T  # (B, S, A)
    return torch.tanh(of_state + of_words) @ v


def _additive_cases(draw: Draw) -> Iterator[Case]:
    def arguments(
        B: int, S: int, D: int, E: int, A: int, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, ...]:
        shapes = (B, D), (B, S, E), (A, D), (A, E), (A,)
        return tuple(draw.tracked(*shape, dtype=dtype) for shape in shapes)

    for _ in range(2):
        yield Case(arguments(*draw.sizes(5)))
    B, S, D, E, A = draw.sizes(5)
    yield Case(arguments(1, S, D, E, A), "with a batch of one")
    yield Case(arguments(B, 1, D, E, A), "with one source word")
    yield Case(arguments(B, B, D, E, A), "when there are as many words as sentences")
    yield Case(arguments(B, S, D, E, A, torch.float32), "in float32")


def _additive_like(combine: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """``combine(W s, U h, v)``, with W s (B, 1, A) and U h (B, S, A)."""
    return lambda s, H, W, U, v: combine((s @ W.T)[:, None], H @ U.T, v)


ADDITIVE_SCORE = Exercise(
    id="2.1",
    title="Additive score",
    points=2,
    function="additive_score",
    reference=additive_score,
    cases=_additive_cases,
    misconceptions=(
        Misconception(
            "no tanh",
            _additive_like(lambda a, b, v: (a + b) @ v),
            "Without the tanh the score falls apart into one number for the state and one for each word. The state's "
            "number is the same for all words, so the softmax cancels it: the weights could not depend on where the "
            "decoder is. The bend in the tanh is what lets the two parts interact.",
        ),
        Misconception(
            "tanh on one part only",
            _additive_like(lambda a, b, v: (a.tanh() + b) @ v),
            "You bend the parts and then add them. The sum has to come first: the state has to be able to push a "
            "word's numbers towards the flat or the steep part of the curve. Added afterwards, it gives all words the "
            "same bonus, and the softmax cancels that.",
            also=(
                _additive_like(lambda a, b, v: (a + b.tanh()) @ v),
                _additive_like(lambda a, b, v: (a.tanh() + b.tanh()) @ v),
            ),
        ),
        Misconception(
            "tanh after v",
            _additive_like(lambda a, b, v: ((a + b) @ v).tanh()),
            "You apply the tanh to the finished score. Then all scores lie between -1 and 1, and no word can ever "
            "get more than about seven times the weight of another. The tanh belongs to the hidden layer, and v adds "
            "up what comes out of it.",
        ),
        Misconception(
            "relu",
            _additive_like(lambda a, b, v: (a + b).relu() @ v),
            "You bend with a ReLU, which works in most hidden layers. Bahdanau's score uses tanh: it keeps what is "
            "negative, so a hidden number can also speak against a word, and it stays bounded.",
        ),
        Misconception(
            "sigmoid",
            _additive_like(lambda a, b, v: (a + b).sigmoid() @ v),
            "You bend with a sigmoid, as in a gate. It has the same form as tanh but runs from 0 to 1, so its zero "
            "point is not zero: where state and word say nothing, it says one half. This is a hidden layer, not a "
            "gate.",
        ),
        Misconception(
            "state matched with words by place",
            lambda s, H, W, U, v: torch.tanh(s @ W.T + H @ U.T) @ v,
            "You let the states of the batch line up with the words: broadcasting matches axes from the right, so "
            "(B, A) against (B, S, A) pairs sentence 1 with word 1, sentence 2 with word 2. It stops with an error "
            "unless the two are equally many, and then it is silently wrong. All words of a sentence meet the same "
            "state.",
        ),
        Misconception(
            "weights instead of scores",
            _additive_like(lambda a, b, v: ((a + b).tanh() @ v).softmax(dim=-1)),
            "You return the weights: the softmax is taken already. A score is only a preference. The mask has to be "
            "applied between the two, which is why they are separate functions.",
        ),
        Misconception(
            "mean instead of v",
            _additive_like(lambda a, b, v: (a + b).tanh().mean(dim=-1)),
            "You add up the hidden numbers without v. With v all ones, as in the lesson's example, it makes no "
            "difference except for the scale. v is learned: it says how much each hidden number speaks for or against "
            "a word.",
            also=(_additive_like(lambda a, b, v: (a + b).tanh().sum(dim=-1)),),
        ),
        NO_GRADIENT,
    ),
    why="The tanh makes state and word meet: without it the state would add the same to every word, for nothing.",
)

# 2.2 -----------------------------------------------------------------------------------------------------------------


def attention_weights(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scores (B, S), mask (B, S) True = may attend -> weights (B, S) that sum to 1 over what may be attended to.

    Every row of the mask has one True at least.
    """
    hidden_places_out = scores.masked_fill(~mask, float("-inf"))  # mask
    return hidden_places_out.softmax(dim=-1)  # normalise


def _weights_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, S = draw.sizes(2, low=3)
        yield Case((2 * draw.tracked(B, S), draw.padding_mask(B, S)))
    B, S = draw.sizes(2, low=3)
    holes = torch.rand(B, S, generator=draw.torch) < 0.5
    holes[:, draw.integer(1, S - 1)] = True
    holes[:, 0] = False
    yield Case((2 * draw.tracked(B, S), holes), "when the hidden places are not at the end")
    yield Case((2 * draw.tracked(1, S), torch.arange(S)[None] < S - 1), "with a batch of one")
    yield Case((draw.tracked(B, 1), torch.ones(B, 1, dtype=torch.bool)), "with one source word")
    yield Case((2 * draw.tracked(B, S), torch.ones(B, S, dtype=torch.bool)), "when nothing is hidden")
    yield Case((2 * draw.tracked(B, S, dtype=torch.float32), draw.padding_mask(B, S)), "in float32")
    mask = draw.padding_mask(B, S)
    yield Case(
        (1000 * draw.tracked(B, S) + 20_000 * ~mask, mask), "when the hidden places have by far the largest score"
    )
    yield Case((draw.tracked(B, S) - 5000, draw.padding_mask(B, S)), "when all scores are far below zero")


def _softmax_then(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda scores, mask: change(scores.softmax(dim=-1), mask)


def _fill(value: float) -> Callable[..., torch.Tensor]:
    return lambda scores, mask: scores.masked_fill(~mask, value).softmax(dim=-1)


def _by_exponentials(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    exponentials = scores.exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def _by_infinite_exponents(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    exponentials = scores.masked_fill(~mask, float("-inf")).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


ATTENTION_WEIGHTS = Exercise(
    id="2.2",
    title="Attention weights",
    points=2,
    function="attention_weights",
    reference=attention_weights,
    cases=_weights_cases,
    misconceptions=(
        Misconception(
            "softmax over the batch",
            lambda scores, mask: scores.masked_fill(~mask, float("-inf")).softmax(dim=0),
            "Your columns sum to 1: you normalised over the sentences of the batch, so the sentences share out each "
            "place among themselves. One sentence's weights must not depend on which others are in the batch. The "
            "words of a sentence compete with each other, along the last axis.",
            also=(
                lambda scores, mask: scores.softmax(dim=0),
                lambda scores, mask: scores.softmax(dim=0) * mask,
            ),
        ),
        Misconception(
            "normalised over the whole batch",
            lambda scores, mask: scores.masked_fill(~mask, float("-inf")).flatten().softmax(0).view(scores.shape),
            "All weights of the batch together sum to 1. With a batch of one that is right. Each sentence is a choice "
            "of its own, with a whole 1 to share out among its words.",
        ),
        Misconception(
            "mask after the softmax",
            _softmax_then(lambda alpha, mask: alpha * mask),
            "You hid the padding after the softmax, by making its weights zero. The zeros are in the right places, "
            "which is why it looks right. But the padding had already taken its share, so what is left sums to less "
            "than 1, and the context comes out too small. Hide the places before they can compete.",
        ),
        Misconception(
            "mask after the softmax, then rescaled",
            _softmax_then(lambda alpha, mask: alpha * mask / (alpha * mask).sum(dim=-1, keepdim=True)),
            "You hid the padding after the softmax and rescaled the rest to 1. For ordinary scores that is the same as "
            "hiding it before. When a hidden place has by far the largest score, though, the softmax gives it "
            "everything, the real words are rounded to zero, and there is nothing left to rescale.",
        ),
        Misconception(
            "mask inverted",
            lambda scores, mask: scores.masked_fill(mask, float("-inf")).softmax(dim=-1),
            "You attend to the padding and hide the words. In `nn.MultiheadAttention` and other code True means "
            "*hide*, so the habit is a common one. In this course True means *may attend*, everywhere.",
            also=(lambda scores, mask: scores.softmax(dim=-1) * ~mask,),
        ),
        Misconception(
            "mask unused",
            lambda scores, mask: scores.softmax(dim=-1),
            "The mask has no influence on your weights, so the padding is attended to like words. Where a sentence "
            "fills the tensor nothing is hidden, and those rows are right. In the others the context is mixed with "
            "states that mean nothing.",
        ),
        Misconception(
            "padding gets a little",
            lambda scores, mask: (scores * mask).softmax(dim=-1),
            "You gave hidden places the score zero. That feels like nothing, but a score is an exponent, and e to the "
            "0 is 1: more than a word with a negative score gets. No finite score is below every other one, so hidden "
            "places need a score that no word can have.",
            also=tuple(map(_fill, (-1.0, -10.0, -100.0, -1000.0, 1e-9, -1e-9))),
        ),
        Misconception(
            "overflows",
            _by_exponentials,
            "Your formula is right on paper. An exponential of a large score is infinite, and one of a score far below "
            "zero is rounded to zero, so a row ends as NaN. Scores matter only by their differences; torch's own "
            "softmax makes use of that, and so did your exercise 0.1.",
            also=(_by_infinite_exponents,),
        ),
        NO_GRADIENT,
    ),
    why="Minus infinity before the softmax: a hidden place gets exactly nothing, and the others share all of it.",
)

# 2.3 -----------------------------------------------------------------------------------------------------------------


def context_vector(alpha: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
    """Weights (B, S), encoder states (B, S, E) -> (B, E): sum over j of alpha_j h_j (Bahdanau et al., equation 5)."""
    return torch.einsum("bs,bse->be", alpha, H)


def _context_cases(draw: Draw) -> Iterator[Case]:
    def weights(B: int, S: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        scores = 2 * draw.tracked(B, S, dtype=dtype)
        return scores.masked_fill(~draw.padding_mask(B, S), float("-inf")).softmax(dim=-1)

    for _ in range(2):
        B, S, E = draw.sizes(3, low=3)
        yield Case((weights(B, S), draw.tracked(B, S, E)))
    B, S, E = draw.sizes(3, low=3)
    yield Case((weights(1, S), draw.tracked(1, S, E)), "with a batch of one")
    yield Case((weights(B, 1), draw.tracked(B, 1, E)), "with one source word")
    yield Case((weights(B, S), draw.tracked(B, S, 1)), "when a state is a single number")
    yield Case((weights(B, S, torch.float32), draw.tracked(B, S, E, dtype=torch.float32)), "in float32")


CONTEXT_VECTOR = Exercise(
    id="2.3",
    title="Context vector",
    points=2,
    function="context_vector",
    reference=context_vector,
    cases=_context_cases,
    misconceptions=(
        Misconception(
            "plain mean",
            lambda alpha, H: H.mean(dim=1),
            "Every word goes into your context with the same share, and alpha has no say. Then the context would be "
            "the same at every step, which is the bottleneck again in another form. Each state is to count as much as "
            "its weight says.",
            also=(lambda alpha, H: H.sum(dim=1),),
        ),
        Misconception(
            "the argmax state",
            lambda alpha, H: H[torch.arange(H.shape[0]), alpha.argmax(dim=-1)],
            "You pick the state with the largest weight. When one weight is near 1 that is nearly the same thing. "
            "A choice has no gradient, so the weights could never be learned from it, and what the other words have "
            "to say is lost. The mixture is what makes the choice soft.",
        ),
        Misconception(
            "sum over the features",
            lambda alpha, H: (alpha[..., None] * H).sum(dim=-1),
            "You summed over E, the numbers within a state, so the words are still apart: the result has one number a "
            "word. The words are what has to be mixed, so S is the axis that must disappear.",
        ),
        Misconception(
            "sum over the batch",
            lambda alpha, H: (alpha[..., None] * H).sum(dim=0),
            "You summed over the first axis, so the sentences of the batch are mixed with each other, place by place. "
            "A translation must not depend on its neighbours in the batch. Within each sentence, mix over its words.",
        ),
        Misconception(
            "not summed",
            lambda alpha, H: alpha[..., None] * H,
            "You weighted each state and left them side by side. The decoder needs one vector of a fixed size, however "
            "many words there are; that is what adding them up gives.",
        ),
        Misconception(
            "mean of the weighted states",
            lambda alpha, H: (alpha[..., None] * H).mean(dim=1),
            "You weighted the states and then took their mean, which divides by S once more. The weights already sum "
            "to 1, so the sum of the weighted states is a mean. Yours gets smaller the longer the sentence is.",
        ),
        Misconception(
            "every sentence's weights on every sentence",
            lambda alpha, H: alpha @ H,
            "Your result has the batch in it twice: `@` took alpha for one matrix and multiplied it with each "
            "sentence's states, so all weights met all sentences. The right answers are among them, on the diagonal. "
            "Each sentence's weights belong to its own states only.",
        ),
        Misconception(
            "an axis of length 1 is left",
            lambda alpha, H: alpha[:, None] @ H,
            "Your numbers are right, and the result has three axes: the 1 that made the matrix product possible is "
            "still there. The next layer would broadcast it silently against the batch.",
        ),
        Misconception(
            "squeeze removes too much",
            lambda alpha, H: (alpha[:, None] @ H).squeeze(),
            "A bare `squeeze()` removes every axis of length 1. With a batch of several sentences that is the one you "
            "meant. With a batch of one it takes the batch away as well, and a program that worked in training breaks "
            "on a single sentence. Name the axis that is to go.",
            also=(lambda alpha, H: (H.transpose(1, 2) @ alpha[..., None]).squeeze(),),
        ),
        NO_GRADIENT,
    ),
    why="The weights sum to 1, so the context lies among the states: a soft choice, which has a gradient.",
)

# 2.4 -----------------------------------------------------------------------------------------------------------------

Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Cell = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Step = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def decoder_step(
    y_embedding: torch.Tensor, s_prev: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score, cell: Cell
) -> Step:
    """y_embedding (B, K), s_prev (B, D), H (B, S, E), mask (B, S) -> s_i (B, D), context (B, E), alpha (B, S).

    ``score(s, H)`` gives (B, S); ``cell(x, s)`` takes x (B, K + E) and gives the next state (B, D).
    Bahdanau et al. (2015), section 3.1 and appendix A.2.2.
    """
    scores = score(s_prev, H)  # score
    scores = scores.masked_fill(~mask, float("-inf"))  # mask
    alpha = scores.softmax(dim=-1)  # normalise
    context = torch.einsum("bs,bse->be", alpha, H)  # mix
    s = cell(torch.cat([y_embedding, context], dim=-1), s_prev)
    return s, context, alpha


def _additive(W: torch.Tensor, U: torch.Tensor, v: torch.Tensor) -> Score:
    return lambda s, H: torch.tanh((s @ W.T)[:, None] + H @ U.T) @ v


def _simple_cell(W: torch.Tensor, R: torch.Tensor) -> Cell:
    """tanh(x W + s R). It puts up with an x that is too narrow, so that the result shows what was left out."""
    return lambda x, s: torch.tanh(x @ W[: x.shape[-1]] + s @ R)


def _step_cases(draw: Draw) -> Iterator[Case]:
    def arguments(steps: int, B: int, S: int, dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
        K, D, E, A = draw.sizes(4, low=3)
        shapes = (A, D), (A, E), (A,), (K + E, D), (D, D)
        W, U, v, X, R = (draw.normal(*shape, dtype=dtype) for shape in shapes)
        return (
            draw.tracked(steps, B, K, dtype=dtype),
            draw.tracked(B, D, dtype=dtype),
            draw.tracked(B, S, E, dtype=dtype),
            draw.padding_mask(B, S) if S > 1 else torch.ones(B, S, dtype=torch.bool),
            _additive(2 * W / D**0.5, 2 * U / E**0.5, 2 * v),
            _simple_cell(X / (K + E) ** 0.5, R / D**0.5),
        )

    B, S = draw.sizes(2, low=3)
    yield Case(arguments(1, B, S))
    yield Case(arguments(1, S, B))
    yield Case(arguments(3, B, S), "over three steps in a row")
    yield Case(arguments(3, S, B), "over three steps in a row")
    yield Case(arguments(2, 1, S), "over two steps, with a batch of one")
    yield Case(arguments(1, B, 1), "with one source word")
    yield Case(arguments(1, B, S, torch.float32), "in float32")


def _run_steps(answer: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Feed the state that each step returns to the next; args[0] holds the embeddings (steps, B, K)."""
    y_embeddings, s, *rest = args
    results: list[Any] = []
    for y_embedding in y_embeddings:
        result = call(answer, (y_embedding, s, *rest))
        if not isinstance(result, (tuple, list)) or len(result) != 3:
            return result
        s = result[0]
        results.extend(result)
    return results


def _attend(s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score) -> tuple[torch.Tensor, torch.Tensor]:
    alpha = score(s, H).masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return torch.einsum("bs,bse->be", alpha, H), alpha


def _join(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts, dim=-1)


def _step_like(
    attend: Callable[..., tuple[torch.Tensor, torch.Tensor]] = _attend,
    feed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _join,
) -> Callable[..., Step]:
    """A decoder step with another way to attend, or another input ``feed(y_embedding, context)`` to the cell."""

    def wrong(y: torch.Tensor, s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score, cell: Cell) -> Step:
        context, alpha = attend(s, H, mask, score)
        return cell(feed(y, context), s), context, alpha

    return wrong


class _AttendOnce:
    """Attends at the first step of a sentence, and gives the same again at all others."""

    def __init__(self) -> None:
        self.H: torch.Tensor | None = None
        self.first: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(
        self, s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.first is None or self.H is not H:
            self.H, self.first = H, _attend(s, H, mask, score)
        return self.first


def _attend_late_mask(
    s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score
) -> tuple[torch.Tensor, torch.Tensor]:
    alpha = score(s, H).softmax(dim=-1) * mask
    return torch.einsum("bs,bse->be", alpha, H), alpha


def _luong(y: torch.Tensor, s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score, cell: Cell) -> Step:
    s = cell(y, s)
    return s, *_attend(s, H, mask, score)


def _alpha_renewed(
    y: torch.Tensor, s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score, cell: Cell
) -> Step:
    """The state is right; what is returned with it was computed from it, one step too late."""
    context, _ = _attend(s, H, mask, score)
    s = cell(_join(y, context), s)
    return s, *_attend(s, H, mask, score)


def _two_cells(y: torch.Tensor, s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score, cell: Cell) -> Step:
    context, alpha = _attend(cell(y, s), H, mask, score)
    return cell(_join(y, context), s), context, alpha


def _two_cells_in_a_row(
    y: torch.Tensor, s: torch.Tensor, H: torch.Tensor, mask: torch.Tensor, score: Score, cell: Cell
) -> Step:
    return _step_like()(y, cell(y, s), H, mask, score, cell)


DECODER_STEP = Exercise(
    id="2.4",
    title="Decoder step",
    points=3,
    function="decoder_step",
    reference=decoder_step,
    cases=_step_cases,
    drive=_run_steps,
    misconceptions=(
        Misconception(
            "alpha from the new state",
            _luong,
            "Your alpha comes from the state after the step. Luong's model does it in that order, so it is not a "
            "foolish one. Bahdanau's decoder looks first and moves afterwards: the state before the step says what to "
            "look for, and what it finds goes into the new state.",
            also=(_alpha_renewed, _two_cells, _two_cells_in_a_row),
        ),
        Misconception(
            "context not fed",
            _step_like(feed=lambda y, context: y),
            "You computed the context and the cell never saw it. Alpha and context are right at the first step, and "
            "the state is not. Without the context the new state knows only the previous token and the old state, "
            "which is lesson 01's decoder once more.",
            also=(_step_like(feed=lambda y, context: _join(y, 0 * context)),),
        ),
        Misconception(
            "word not fed",
            _step_like(feed=lambda y, context: context),
            "The cell got the context and not the token that was written last. The decoder has to be told what it "
            "wrote, or it can lose its place in the sentence: two steps with the same context would write the same "
            "word.",
        ),
        Misconception(
            "context before the word",
            _step_like(feed=lambda y, context: _join(context, y)),
            "You joined the context and the embedding in the other order. The width is the same, so nothing complains, "
            "and a network trained like that would work. The cell's weights here belong to the order embedding first, "
            "context second.",
        ),
        Misconception(
            "the same alpha at every step",
            _step_like(attend=_AttendOnce()),
            "Your weights do not change from step to step although the decoder's state does. At the first step that "
            "may well be right. The point of attention is that each step asks anew, with the state that it has "
            "reached; weights that stay fixed make one fixed vector, the old bottleneck.",
            also=(
                _step_like(lambda s, H, mask, score: _attend(torch.zeros_like(s), H, mask, score)),
                _step_like(lambda s, H, mask, score: _attend(s, H, mask, lambda s, H: 0 * score(s, H))),
            ),
        ),
        Misconception(
            "mask unused",
            _step_like(lambda s, H, mask, score: _attend(s, H, torch.ones_like(mask), score)),
            "The padding gets weight in your step, because the mask is never used. Sentences that fill the tensor come "
            "out right. In the others the context is mixed with states that mean nothing.",
            also=(_step_like(_attend_late_mask),),
        ),
        Misconception(
            "mask inverted",
            _step_like(lambda s, H, mask, score: _attend(s, H, ~mask, score)),
            "Your step attends to the padding and hides the words. Elsewhere True often means *hide*. In this course "
            "True means *may attend*.",
        ),
        Misconception(
            "old state returned",
            lambda y, s, H, mask, score, cell: (s, *_attend(s, H, mask, score)),
            "You return the state that came in, so the decoder stands still: it would look at the same words at every "
            "step. The cell makes the new state out of the old one and its input, and that new one goes on.",
        ),
        Misconception(
            "alpha and context exchanged",
            lambda *args: tuple(_step_like()(*args)[i] for i in (0, 2, 1)),
            "All three results are right, and the last two have changed places. The task asks for the state, then the "
            "context, then alpha: whoever calls your function unpacks them in this order.",
        ),
        NO_GRADIENT,
    ),
    why="Look first, then move: the old state asks the question, and the answer goes into the new one.",
)

# 2.5 -----------------------------------------------------------------------------------------------------------------


def dot_score(s: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
    """s (B, D), H (B, S, D) -> (B, S): the dot product of the state with each h_j (Luong et al. 2015, equation 8)."""
    return torch.einsum("bd,bsd->bs", s, H)


def _dot_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, S, D = draw.sizes(3, low=2)
        yield Case((draw.tracked(B, D), draw.tracked(B, S, D)))
    B, S, D = draw.sizes(3, low=2)
    yield Case((draw.tracked(1, D), draw.tracked(1, S, D)), "with a batch of one")
    yield Case((draw.tracked(B, D), draw.tracked(B, 1, D)), "with one source word")
    yield Case((draw.tracked(B, D), draw.tracked(B, B, D)), "when there are as many words as sentences")
    dtype = torch.float32
    yield Case((draw.tracked(B, D, dtype=dtype), draw.tracked(B, S, D, dtype=dtype)), "in float32")


def _product(s: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
    return s[:, None] * H


DOT_SCORE = Exercise(
    id="2.5",
    title="Dot score",
    points=2,
    function="dot_score",
    reference=dot_score,
    cases=_dot_cases,
    misconceptions=(
        Misconception(
            "elementwise without the sum",
            _product,
            "You multiplied state and words number by number and stopped there. A score is one number for each word: "
            "how far the two vectors agree over all their numbers. The products still have to be added up.",
        ),
        Misconception(
            "scaled",
            lambda s, H: _product(s, H).sum(dim=-1) / s.shape[-1] ** 0.5,
            "You divided by the square root of the size. That is the Transformer's score, and lesson 03 shows why it "
            "needs it. Luong's dot score is the bare product.",
        ),
        Misconception(
            "mean of the products",
            lambda s, H: _product(s, H).mean(dim=-1),
            "You took the mean of the products, which divides by D. The order of the words is the same, so it looks "
            "right. But the size of the scores decides how sharp the softmax is, and with D in the hundreds your "
            "weights would be almost equal.",
        ),
        Misconception(
            "cosine",
            lambda s, H: torch.cosine_similarity(s[:, None], H, dim=-1),
            "You divided by the lengths of the two vectors, so your score is a cosine and lies between -1 and 1. "
            "The dot score keeps the lengths: a longer state can make the choice sharper, and the network learns to "
            "use that.",
        ),
        Misconception(
            "every state against every sentence",
            lambda s, H: torch.einsum("ad,bsd->abs", s, H),
            "Your result has the batch in it twice: each sentence's state was compared with the words of all "
            "sentences. The right scores are on the diagonal. Sentences of a batch must not look at each other.",
            also=(lambda s, H: H @ s.T,),
        ),
        Misconception(
            "state matched with words by place",
            lambda s, H: torch.einsum("sd,bsd->bs", s, H),
            "You let the states line up with the words instead of with the sentences: broadcasting matches axes from "
            "the right, so (B, D) against (B, S, D) pairs B with S. It only runs when the two are equal, and then it "
            "is silently wrong. The state has to be the same for all words of its sentence.",
            also=(lambda s, H: (s * H).sum(dim=-1),),
        ),
        Misconception(
            "squeeze removes too much",
            lambda s, H: (H @ s[..., None]).squeeze(),
            "A bare `squeeze()` removes every axis of length 1: with one source word, or a single sentence, it removes "
            "one that you need. Only the last axis is the leftover of the matrix product; say that one.",
        ),
        Misconception(
            "weights instead of scores",
            lambda s, H: _product(s, H).sum(dim=-1).softmax(dim=-1),
            "You took the softmax already, so these are weights. A score is only a preference, and the mask has to be "
            "applied before the softmax.",
        ),
        NO_GRADIENT,
    ),
    why="A dot product is large where two vectors point the same way, and a matrix product takes all of them at once.",
)

EXERCISES = (ADDITIVE_SCORE, ATTENTION_WEIGHTS, CONTEXT_VECTOR, DECODER_STEP, DOT_SCORE)
