"""Lesson 09: the learning rate's schedule, smoothed labels, beam search, and a key/value cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception, TooManySteps

# 9.1 -----------------------------------------------------------------------------------------------------------------


def noam_rate(step: int, d_model: int, warmup: int) -> float:
    """The learning rate at ``step`` = 1, 2, ... (Vaswani et al. 2017, equation 3)."""
    return _rate(step, d_model, warmup)


def _rate(step: int, d_model: int, warmup: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def _rate_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(3):
        d_model, warmup = draw.integer(30, 700), draw.integer(50, 4_000)
        yield Case((draw.integer(2, warmup - 1), d_model, warmup))
        yield Case((draw.integer(warmup + 1, 20 * warmup), d_model, warmup))
    d_model, warmup = draw.integer(30, 700), draw.integer(50, 4_000)
    yield Case((warmup, d_model, warmup), "at the peak")
    yield Case((1, d_model, warmup), "at the first step")


NOAM_RATE = Exercise(
    id="9.1",
    title="The warm-up schedule",
    points=1,
    function="noam_rate",
    reference=noam_rate,
    cases=_rate_cases,
    misconceptions=(
        Misconception(
            "max for min",
            lambda step, d_model, warmup: d_model**-0.5 * max(step**-0.5, step * warmup**-1.5),
            "You take the larger of the two branches. They cross at the end of the warm-up, so the curve comes out "
            "upside down: it starts at its highest, has its lowest point where the peak should be, and then grows "
            "without end. The rate has to stay below both.",
        ),
        Misconception(
            "no d_model factor",
            lambda step, d_model, warmup: min(step**-0.5, step * warmup**-1.5),
            "The shape is right and the height is not: the width of the model does not occur. Wider models get "
            "smaller steps, by the root of their width.",
        ),
        Misconception(
            "multiplied by the root of d_model",
            lambda step, d_model, warmup: d_model**0.5 * min(step**-0.5, step * warmup**-1.5),
            "Your rate grows with the width of the model. The exponent has a minus sign: a wider layer adds up more "
            "numbers, so the same step in each of its weights moves the output further.",
        ),
        Misconception(
            "counts from 0",
            lambda step, d_model, warmup: _rate(step - 1, d_model, warmup),
            "Your curve is one step late, and at the first step it fails: 0 to a negative power is a division by "
            "zero. The task counts steps from 1; a loop that counts from 0 has to add one before it asks.",
            also=(lambda step, d_model, warmup: _rate(step + 1, d_model, warmup),),
        ),
        Misconception(
            "warm-up without its root",
            lambda step, d_model, warmup: d_model**-0.5 * min(step**-0.5, step / warmup),
            "Your first branch climbs to 1 instead of to where the second one is at that step. Then the two do not "
            "meet at the end of the warm-up but much earlier, and the warm-up is over after a handful of steps. "
            "Check at step = warmup: both must give the same.",
            also=(lambda step, d_model, warmup: d_model**-0.5 * min(step**-0.5, step * warmup**-0.5),),
        ),
        Misconception(
            "never falls",
            lambda step, d_model, warmup: d_model**-0.5 * min(warmup**-0.5, step * warmup**-1.5),
            "After the warm-up your rate stays at its peak. The second branch depends on the step: it falls with one "
            "over its root, so that late steps are small ones.",
        ),
        Misconception(
            "only climbs",
            lambda step, d_model, warmup: d_model**-0.5 * step * warmup**-1.5,
            "Only the climbing branch is there. During the warm-up that is all one sees, and afterwards the rate "
            "grows past every bound.",
        ),
        Misconception(
            "only falls",
            lambda step, d_model, warmup: d_model**-0.5 * step**-0.5,
            "Only the falling branch is there, so the very first step is the largest of all. Those are the steps at "
            "which Adam's averages are still made of one or two gradients, and the reason for a warm-up.",
        ),
    ),
    why="The two branches meet at step = warmup, so no `if` is needed: the smaller one is always the right one.",
)

# 9.2 -----------------------------------------------------------------------------------------------------------------


def label_smoothed_loss(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
    """Logits (B, T, V), labels (B, T) -> the mean over real tokens, against (1 - epsilon) gold + epsilon / V."""
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(-1, labels[..., None])[..., 0]
    losses = -(1 - epsilon) * right - epsilon * log_p.mean(dim=-1)
    return losses[labels != pad].mean()


def _smoothing_cases(draw: Draw) -> Iterator[Case]:
    def case(
        epsilon: float, note: str = "", pad: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0
    ) -> Case:
        B, T, V = draw.sizes(3, low=3)
        logits = scale * draw.tracked(B, T, V, dtype=dtype)
        others = [i for i in range(V) if i != pad]
        labels = torch.tensor([[draw.python.choice(others) for _ in range(T)] for _ in range(B)])
        labels[~draw.padding_mask(B, T)] = pad
        return Case((logits, labels, epsilon, pad), note)

    yield case(draw.integer(10, 30) / 100)
    yield case(draw.integer(10, 30) / 100)
    yield case(0.5, "when epsilon is 0.5")
    yield case(0.0, "without smoothing")
    yield case(0.2, "when padding is token 2", pad=2)
    yield case(0.1, "in float32", dtype=torch.float32)
    yield case(0.1, "when logits are in the thousands", scale=2_000)


def _smoothed_like(
    gold: Callable[[float, int], float] = lambda epsilon, V: 1 - epsilon + epsilon / V,
    other: Callable[[float, int], float] = lambda epsilon, V: epsilon / V,
    log_softmax: Callable[[torch.Tensor], torch.Tensor] = lambda logits: logits.log_softmax(dim=-1),
    mean: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor] = lambda losses, labels, pad: losses[
        labels != pad
    ].mean(),
    no_pad: bool = False,
) -> Callable[..., torch.Tensor]:
    """The loss against a target of which the gold token gets ``gold`` and each other ``other``."""

    def wrong(logits: torch.Tensor, labels: torch.Tensor, epsilon: float, pad: int) -> torch.Tensor:
        V = logits.shape[-1]
        target = torch.full_like(logits, other(epsilon, V))
        target = target.scatter(-1, labels[..., None], gold(epsilon, V))
        if no_pad:
            target[..., pad] = 0
        losses = -(target * log_softmax(logits)).sum(dim=-1)
        return mean(losses, labels, pad)

    return wrong


def _mean_of_means(losses: torch.Tensor, labels: torch.Tensor, pad: int) -> torch.Tensor:
    real = labels != pad
    return ((losses * real).sum(dim=1) / real.sum(dim=1)).mean()


LABEL_SMOOTHED_LOSS = Exercise(
    id="9.2",
    title="Label smoothing",
    points=2,
    function="label_smoothed_loss",
    reference=label_smoothed_loss,
    cases=_smoothing_cases,
    misconceptions=(
        Misconception(
            "gold gets too little",
            _smoothed_like(gold=lambda epsilon, V: 1 - epsilon),
            "Your right token gets 1 − ε and every other ε/V, so the target sums to less than 1. The share ε is spread "
            "over the whole vocabulary, and the right token is in it.",
        ),
        Misconception(
            "spread over the others only",
            _smoothed_like(gold=lambda epsilon, V: 1 - epsilon, other=lambda epsilon, V: epsilon / (V - 1)),
            "You give 1 − ε to the right token and share ε out among the V − 1 others. It is a distribution, and some "
            "papers do it like this. Here ε is spread evenly over all V tokens, the right one among them, as torch's "
            "own loss does it.",
        ),
        Misconception(
            "padding counted",
            _smoothed_like(mean=lambda losses, labels, pad: losses.mean()),
            "Padded places count in your mean. There is no right token there, and with smoothing they pull the model "
            "towards saying everything with equal probability.",
        ),
        Misconception(
            "divides by all places",
            _smoothed_like(mean=lambda losses, labels, pad: (losses * (labels != pad)).sum() / labels.numel()),
            "The losses of padded places are zero, as they should be, and yet they are counted when you divide. The "
            "mean is over real tokens.",
        ),
        Misconception(
            "mean of per-sentence means",
            _smoothed_like(mean=_mean_of_means),
            "You take the mean in each sentence first. Then a token of a short sentence weighs more than one of a long "
            "sentence; every token is to count the same.",
        ),
        Misconception(
            "sum",
            _smoothed_like(mean=lambda losses, labels, pad: losses[labels != pad].sum()),
            "You add the losses up. Then a larger batch has a larger gradient, and the learning rate would have to "
            "know the size of the batch.",
        ),
        Misconception(
            "no smoothing",
            _smoothed_like(gold=lambda epsilon, V: 1.0, other=lambda epsilon, V: 0.0),
            "ε does not occur in your loss: this is plain cross-entropy, which asks for a probability of exactly 1.",
        ),
        Misconception(
            "ε and 1 − ε exchanged",
            _smoothed_like(
                gold=lambda epsilon, V: epsilon + (1 - epsilon) / V, other=lambda epsilon, V: (1 - epsilon) / V
            ),
            "You spread the large share and leave the small one to the right token. At ε = 0.5 nobody could tell. ε is "
            "what is given away.",
        ),
        Misconception(
            "ε to every token",
            _smoothed_like(gold=lambda epsilon, V: 1.0, other=lambda epsilon, V: epsilon),
            "Every other token gets the whole of ε, so the target sums to far more than 1. ε is one share for all of "
            "them together.",
            also=(_smoothed_like(gold=lambda epsilon, V: 1 - epsilon, other=lambda epsilon, V: epsilon),),
        ),
        Misconception(
            "nothing for the padding token",
            _smoothed_like(no_pad=True),
            "You took the padding token out of the spread. That is reasonable, since it is never right, but the "
            "target then sums to less than 1. Here it is a token of the vocabulary like any other; only *places* "
            "that hold padding are left out.",
        ),
        Misconception(
            "padding taken to be 0",
            lambda logits, labels, epsilon, pad: _smoothed_like()(logits, labels, epsilon, 0),
            "Places with label 0 are left out, whatever `pad` says. In this course padding happens to be 0. Another "
            "vocabulary has a word there, which would never be learned, while its padding would.",
        ),
        Misconception(
            "softmax taken twice",
            _smoothed_like(log_softmax=lambda logits: logits.softmax(dim=-1).log_softmax(dim=-1)),
            "A softmax is taken twice. `log_softmax` and `F.cross_entropy` take raw logits; given probabilities, "
            "whose differences are at most 1, they see nearly equal scores.",
        ),
        Misconception(
            "numerically unsafe logarithm",
            _smoothed_like(log_softmax=lambda logits: logits.softmax(dim=-1).log()),
            "The softmax rounds very unlikely tokens to 0, and their logarithm is minus infinity. Smoothing asks about "
            "every token, also the least likely one, so this happens sooner than in the plain loss. Take the "
            "logarithm in one step with the softmax.",
            also=(
                _smoothed_like(log_softmax=lambda logits: (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()),
            ),
        ),
        Misconception(
            "sign",
            lambda logits, labels, epsilon, pad: -_smoothed_like()(logits, labels, epsilon, pad),
            "Your number grows as the model improves, and training makes a loss small. The logarithm of a probability "
            "is negative; a loss is minus that.",
        ),
        NO_GRADIENT,
    ),
    why="With V tokens the lowest loss is reached at 1 − ε + ε/V, so no logit has to grow without end.",
)

# 9.3 -----------------------------------------------------------------------------------------------------------------

Step = Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def _penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def beam_search(
    step: Step, state: torch.Tensor, bos: int, eos: int, beam: int, max_len: int, alpha: float
) -> list[int]:
    """The ids of the best hypothesis, without bos and eos.

    ``step(token, state)`` gives the logits (V,) of the next token and the next state. At each step the ``beam`` best
    candidates (by summed log-probability) are kept; those that end in eos are finished.
    """
    return _search(step, state, bos, eos, beam, max_len, alpha)


def _search(
    step: Step,
    state: torch.Tensor,
    bos: int,
    eos: int,
    beam: int,
    max_len: int,
    alpha: float,
    *,
    finishes: str = "leave",  # what becomes of a hypothesis that ends: leave, drop, first, extend
    normalise: Callable[[int, float], float] = _penalty,
    over_logits: bool = False,
    last_token_only: bool = False,
    unfinished_count: bool = True,
    share_state: bool = False,
    counts_eos: bool = True,
    keeps_eos: bool = False,
    worst: bool = False,
    per_beam: bool = False,
) -> list[int]:
    live = [(0.0, [], state)]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, max_len + 1):
        candidates = []
        for score, tokens, before in live:
            logits, after = step(tokens[-1] if tokens else bos, before)
            log_p = logits if over_logits else logits.log_softmax(dim=-1)
            own = [
                ((0.0 if last_token_only else score) + log_p[i].item(), [*tokens, i], after) for i in range(len(logits))
            ]
            own.sort(key=lambda c: -c[0])
            candidates += own[:1] if per_beam and length > 1 else own
        if share_state:
            candidates = [(score, tokens, candidates[-1][2]) for score, tokens, _ in candidates]
        candidates.sort(key=lambda c: c[0] if worst else -c[0])
        kept = candidates[:beam]
        ended = [c for c in kept if c[1][-1] == eos]
        live = kept if finishes == "extend" else [c for c in kept if c[1][-1] != eos]
        if finishes in ("leave", "first"):
            count = length if counts_eos else length - 1
            finished += [
                (score / normalise(count, alpha), tokens[: None if keeps_eos else -1]) for score, tokens, _ in ended
            ]
        if not live or (finishes == "first" and finished):
            break
    if unfinished_count or not finished:
        finished += [(score / normalise(len(tokens), alpha), tokens) for score, tokens, _ in live]
    best = max(finished, key=lambda f: f[0])[1] if finished else []
    return best if keeps_eos else [t for t in best if t != eos]


def _greedy(step: Step, state: torch.Tensor, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
    return _search(step, state, bos, eos, 1, max_len, alpha)


def _wrong(**options: Any) -> Callable[..., list[int]]:
    def wrong(step: Step, state: torch.Tensor, bos: int, eos: int, beam: int, max_len: int, alpha: float) -> list[int]:
        return _search(step, state, bos, eos, beam, max_len, alpha, **options)

    return wrong


class _Speaker:
    """A decoder whose next token depends on all that was said before, through the state (a place, (1,))."""

    PLACES, LIMIT = 211, 400

    def __init__(self, draw: Draw, vocabulary: int, bos: int, eos: int, ends: float) -> None:
        # log-probabilities plus a constant of each place: sums of raw logits must not be the same thing
        self.logits = 1.2 * draw.normal(self.PLACES, vocabulary)
        self.logits[:, eos] += ends
        self.logits[:, bos] -= 30
        self.logits += 3 * draw.normal(self.PLACES, 1)
        self.calls = 0

    def __call__(self, token: int, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        if self.calls > self.LIMIT:
            raise TooManySteps(f"`step` was called more than {self.LIMIT} times for one sentence.")
        place = (7 * int(state) + 31 * int(token) + 1) % self.PLACES
        return self.logits[place].clone(), torch.tensor([place])


def _search_cases(draw: Draw) -> Iterator[Case]:
    def case(beam: int, max_len: int, alpha: float, note: str = "", ends: float = 0.6) -> tuple[Any, ...]:
        vocabulary = draw.integer(6, 8)
        bos, eos = draw.python.sample(range(vocabulary), 2)
        speaker = _Speaker(draw, vocabulary, bos, eos, ends)
        return speaker, torch.tensor([draw.integer(0, 200)]), bos, eos, beam, max_len, alpha

    def telling(*functions: Callable[..., list[int]], sizes: tuple[Any, ...], ends: float = 0.6) -> tuple[Any, ...]:
        """A case on which the reference and the functions all say something else; the last try if there is none."""
        for _ in range(80):
            arguments = case(*sizes, ends=ends)
            said = {tuple(function(*arguments)) for function in (beam_search, *functions)}
            arguments[0].calls = 0
            if len(said) == 1 + len(functions):
                break
        return arguments

    no_penalty = _wrong(normalise=lambda length, alpha: 1.0)
    times_penalty = _wrong(normalise=lambda length, alpha: 1 / _penalty(length, alpha))
    by_length = _wrong(normalise=lambda length, alpha: float(length))
    yield Case(telling(_greedy, sizes=(3, 6, 0.6)))
    yield Case(telling(no_penalty, sizes=(4, 7, 1.0)))
    yield Case(telling(times_penalty, no_penalty, sizes=(5, 7, 2.0)))
    yield Case(telling(by_length, _wrong(normalise=lambda length, alpha: length**alpha), sizes=(5, 7, 0.4)))
    yield Case(telling(_wrong(finishes="drop"), sizes=(3, 6, 0.6)))
    yield Case(telling(_wrong(finishes="first"), sizes=(4, 7, 1.0)))
    yield Case(telling(_wrong(counts_eos=False), sizes=(4, 7, 1.5)))
    yield Case(telling(_wrong(per_beam=True), sizes=(3, 6, 0.6)))
    some_open = telling(_wrong(unfinished_count=False), sizes=(3, 4, 1.0), ends=-0.5)
    yield Case(some_open, "when some have not ended by `max_len`")
    yield Case(case(5, 6, 0.0), "when alpha is 0")
    yield Case(case(1, 6, 0.6), "with a beam of 1")
    yield Case(case(3, 5, 0.6, ends=-30.0), "when eos never comes")
    yield Case(case(3, 1, 0.6), "with `max_len=1`")


BEAM_SEARCH = Exercise(
    id="9.3",
    title="Beam search",
    points=3,
    function="beam_search",
    reference=beam_search,
    cases=_search_cases,
    misconceptions=(
        Misconception(
            "greedy",
            _greedy,
            "One beginning is kept at each step, whatever `beam` says: that is greedy decoding. It looks right because "
            "the best beginning is often part of the best sentence. The others have to be carried along until it is "
            "known what follows them.",
        ),
        Misconception(
            "no length penalty",
            _wrong(normalise=lambda length, alpha: 1.0),
            "Finished hypotheses are compared by their summed log-probability. Each further token makes that smaller, "
            "so the shortest ones win. The sum has to be divided by the length penalty before hypotheses of different "
            "lengths are compared.",
        ),
        Misconception(
            "divided by the length",
            _wrong(normalise=lambda length, alpha: float(length)),
            "You divide by the number of tokens. That is a length penalty too, the strongest usual one, and it "
            "ignores alpha. Asked for is ((5 + length) / 6) to the power alpha.",
            also=(_wrong(normalise=lambda length, alpha: length**alpha),),
        ),
        Misconception(
            "multiplied by the penalty",
            _wrong(normalise=lambda length, alpha: 1 / _penalty(length, alpha)),
            "You multiply by the length penalty. Log-probabilities are negative, so a larger factor makes a long "
            "sentence look even worse than it did.",
        ),
        Misconception(
            "finished hypotheses dropped",
            _wrong(finishes="drop"),
            "A hypothesis that reaches eos is thrown away, and what you return is the best of those that never ended. "
            "The ended ones are the ones that count: put them aside with their score.",
        ),
        Misconception(
            "extended past eos",
            _wrong(finishes="extend"),
            "Hypotheses go on after their eos. What a decoder would say after the end was never trained, and it costs "
            "the finished sentence probability at every step. Once a hypothesis has ended, it leaves the race.",
        ),
        Misconception(
            "stops at the first end",
            _wrong(finishes="first"),
            "You stop as soon as one hypothesis has ended. Another one, still unfinished, may come out better, and a "
            "longer one often does, since the length penalty is on its side.",
        ),
        Misconception(
            "unfinished hypotheses forgotten",
            _wrong(unfinished_count=False),
            "Hypotheses that have not ended when `max_len` is reached are not considered. They count as they stand, "
            "with the length they have.",
        ),
        Misconception(
            "eos not counted",
            _wrong(counts_eos=False),
            "The length in the penalty leaves eos out. The model wrote that token and its probability is in the sum, "
            "so it counts.",
        ),
        Misconception(
            "logits added up",
            _wrong(over_logits=True),
            "You add up logits. Those are comparable within one step only: adding a constant to all logits of a step "
            "changes no probability and would change your order. Sums over steps need log-probabilities.",
        ),
        Misconception(
            "only the last token's probability",
            _wrong(last_token_only=True),
            "Candidates are ranked by the probability of their newest token. What came before has to be added, or an "
            "unlikely beginning with a sure next token beats everything.",
        ),
        Misconception(
            "one continuation for each beam",
            _wrong(per_beam=True),
            "Each hypothesis keeps its own best continuation, so from the first step on you run several greedy "
            "decoders side by side. All continuations of all hypotheses compete: one beginning may have two good "
            "ones and another none.",
        ),
        Misconception(
            "states not kept apart",
            _wrong(share_state=True),
            "All hypotheses go on from one state. A state belongs to what was said before it, so each hypothesis has "
            "to carry its own.",
        ),
        Misconception(
            "keeps eos",
            _wrong(keeps_eos=True),
            "Your sentence still ends with eos. It told the search that the sentence is complete, and it is not a word "
            "of it.",
        ),
        Misconception(
            "keeps the worst",
            _wrong(worst=True),
            "You keep the candidates with the smallest sums. Log-probabilities are negative, and the best one is the "
            "largest, the one nearest to 0.",
        ),
    ),
    why="Sums of log-probabilities rank beginnings of one length; the penalty makes ended ones comparable.",
)

# 9.4 -----------------------------------------------------------------------------------------------------------------

Cache = dict[str, torch.Tensor]


def cached_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
    """New tokens q, k (B, h, t, d_k), v (B, h, t, d_v) after those in the cache -> output (B, h, t, d_v), new cache.

    ``cache`` is {} or {"k": (B, h, s, d_k), "v": (B, h, s, d_v)}; each new token sees the cached ones, the new ones
    before it, and itself.
    """
    keys = torch.cat([cache["k"], k], dim=2) if cache else k.clone()
    values = torch.cat([cache["v"], v], dim=2) if cache else v.clone()
    return _attend(q, keys, values, _visible(q, keys)), {"k": keys, "v": values}


def _visible(q: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(t, s + t), True where a new token may look."""
    new, total = q.shape[2], keys.shape[2]
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def _attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = q @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ values


def _run_cached(answer: Callable[..., Any], args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    """Feed the chunks one after another; then go on from the first cache once more, as a beam search does."""
    *chunks, branch = args
    outputs, caches = [], [{}]
    for chunk in chunks:
        output, cache = _checked(answer(*chunk, caches[-1]))
        outputs.append(output)
        caches.append(cache)
    again, branched = _checked(answer(*branch, caches[1]))
    return torch.cat(outputs, dim=2), caches[-1]["k"], caches[-1]["v"], again, branched["k"], branched["v"]


def _checked(value: Any) -> tuple[torch.Tensor, Cache]:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], torch.Tensor):
        cache = value[1]
        if isinstance(cache, dict) and {"k", "v"} <= cache.keys():
            return value[0], dict(cache) if type(cache) is not dict else cache
    raise TypeError('the result is to be the output and the new cache, a dictionary with "k" and "v"')


def _cached_cases(draw: Draw) -> Iterator[Case]:
    def case(counts: tuple[int, ...], note: str = "", dtype: torch.dtype = torch.float64, B: int = 0) -> Case:
        b, h, d_k, d_v = draw.sizes(4)
        b = B or b

        def tokens(t: int) -> tuple[torch.Tensor, ...]:
            return tuple(draw.normal(b, h, t, d, dtype=dtype) for d in (d_k, d_k, d_v))

        return Case(tuple(tokens(t) for t in (*counts, draw.integer(1, 2))), note)

    yield case((1, 1, 1, 1))
    yield case((5, 1, 1))
    yield case((3, 2, 4), "when several tokens come at once")
    yield case((6, 1), "after a long beginning")
    yield case((1, 3), "with a batch of one", B=1)
    yield case((2, 1, 1), "in float32", torch.float32)


def _cached_like(
    join: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda old, new: torch.cat([old, new], dim=2),
    visible: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _visible,
    keep: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda whole, new: whole,
    look: Callable[[torch.Tensor, Cache, str], torch.Tensor] = lambda whole, cache, name: whole,
    in_place: bool = False,
    scale: bool = True,
) -> Callable[..., Any]:
    def wrong(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
        keys = join(cache["k"], k) if cache else k.clone()
        values = join(cache["v"], v) if cache else v.clone()
        seen = look(keys, cache, "k"), look(values, cache, "v")
        asked = q if scale else q * q.shape[-1] ** 0.5
        output = _attend(asked, *seen, visible(q, seen[0]))
        new = {"k": keep(keys, k), "v": keep(values, v)}
        if in_place:
            cache.update(new)
            new = cache
        return output, new

    return wrong


def _everything(q: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool)


def _own_corner(q: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """A causal mask laid at the beginning of the keys instead of at their end."""
    return torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).tril()


CACHED_ATTENTION = Exercise(
    id="9.4",
    title="A key/value cache",
    points=2,
    function="cached_attention",
    reference=cached_attention,
    cases=_cached_cases,
    drive=_run_cached,
    misconceptions=(
        Misconception(
            "overwrites the cache",
            _cached_like(keep=lambda whole, new: new.clone()),
            "The new cache holds the newest tokens only. The step itself is right, since you joined old and new for "
            "it; the step after that has forgotten everything before. What was joined is what has to be kept.",
            also=(_cached_like(join=lambda old, new: new.clone()),),
        ),
        Misconception(
            "wrong axis",
            _cached_like(join=lambda old, new: torch.cat([old, new], dim=1), visible=_everything),
            "Old and new are joined along the wrong axis. Tokens are axis 2 of (B, h, t, d); joined along the heads or "
            "the batch, the shapes may even fit when one token follows one token.",
            also=(_cached_like(join=lambda old, new: torch.cat([old, new], dim=0), visible=_everything),),
        ),
        Misconception(
            "mutates the caller's cache",
            _cached_like(in_place=True),
            "You write into the cache that you were given. For one sentence written once, that is fine. Beam search "
            "goes on from the same cache with two different tokens, and the second one finds the first one's keys in "
            "it. Return a new dictionary.",
        ),
        Misconception(
            "new tokens see each other's future",
            _cached_like(visible=_everything),
            "When several tokens come at once, the first of them already sees the last. One token at a time there is "
            "nothing to hide, which is why it seems right. Among the new tokens the causal mask still holds.",
        ),
        Misconception(
            "mask at the wrong end",
            _cached_like(visible=_own_corner),
            "Your causal mask starts at the first cached token instead of at the first new one, so a single new token "
            "sees only the very beginning. Everything in the cache lies in the past and may be seen.",
        ),
        Misconception(
            "does not see itself",
            _cached_like(
                look=lambda whole, cache, name: cache[name] if cache else whole,
                visible=lambda q, keys: _everything(q, keys),
            ),
            "You attend to what was in the cache, before the new tokens were added. A token may see itself; in the "
            "causal mask the diagonal is True.",
        ),
        Misconception(
            "new before old",
            _cached_like(join=lambda old, new: torch.cat([new, old], dim=2), visible=_everything),
            "New keys are put in front of the old ones. One token at a time the output is the same, since attention "
            "does not care about order; the cache is upside down all the same, and a mask or a position would fall on "
            "the wrong tokens.",
        ),
        Misconception(
            "no scale",
            _cached_like(scale=False),
            "The scores are not divided by the root of d_k. The cache changes what is computed anew, not what "
            "attention is.",
        ),
    ),
    why="Keys and values of past tokens depend on nothing later: the causal mask is what makes a cache right.",
)

EXERCISES = (NOAM_RATE, LABEL_SMOOTHED_LOSS, BEAM_SEARCH, CACHED_ATTENTION)
