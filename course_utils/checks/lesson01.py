"""Lesson 01: the GRU cell, the last state, teacher forcing, the loss, greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from course_utils.checks.exercise import NO_GRADIENT, Case, Draw, Exercise, Misconception, TooManySteps

# 1.1 -----------------------------------------------------------------------------------------------------------------


def gru_cell(
    x: torch.Tensor, h: torch.Tensor, W_ih: torch.Tensor, W_hh: torch.Tensor, b_ih: torch.Tensor, b_hh: torch.Tensor
) -> torch.Tensor:
    """x (B, K), h (B, D), W_ih (3D, K), W_hh (3D, D), biases (3D,) -> the new state (B, D).

    Equal to ``nn.GRUCell``: the blocks of the weights stand in the order r, z, n.
    """
    x_r, x_z, x_n = (x @ W_ih.T + b_ih).chunk(3, dim=-1)  # (B, D) each
    h_r, h_z, h_n = (h @ W_hh.T + b_hh).chunk(3, dim=-1)
    r = torch.sigmoid(x_r + h_r)
    z = torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return (1 - z) * n + z * h


def _gru_cases(draw: Draw) -> Iterator[Case]:
    def arguments(B: int, K: int, D: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
        shapes = (B, K), (B, D), (3 * D, K), (3 * D, D), (3 * D,), (3 * D,)
        return tuple(draw.tracked(*shape, dtype=dtype) for shape in shapes)

    for _ in range(2):
        yield Case(arguments(*draw.sizes(3)))
    B, K, D = draw.sizes(3)
    x, _, *weights = arguments(B, K, D)
    yield Case((x, 0 * draw.tracked(B, D), *weights), "at the first step, when h is zero")
    yield Case(arguments(1, K, D), "with a batch of one")
    yield Case(arguments(B, 1, D), "when the input is one number")
    yield Case(arguments(B, K, D, torch.float32), "in float32")


def _gru_like(
    order: str = "rzn",
    proposal: Callable[..., torch.Tensor] = lambda x_n, r, h, U, b: torch.tanh(x_n + r * (h @ U.T + b)),
    mix: Callable[..., torch.Tensor] = lambda z, n, h: (1 - z) * n + z * h,
) -> Callable[..., torch.Tensor]:
    """A GRU cell with another order of its blocks, another proposal n, or another mixing of old and new."""

    def wrong(
        x: torch.Tensor, h: torch.Tensor, W_ih: torch.Tensor, W_hh: torch.Tensor, b_ih: torch.Tensor, b_hh: torch.Tensor
    ) -> torch.Tensor:
        part = [dict(zip(order, p.chunk(3), strict=True)) for p in (W_ih, W_hh, b_ih, b_hh)]
        W, U, b, c = part
        r = torch.sigmoid(x @ W["r"].T + b["r"] + h @ U["r"].T + c["r"])
        z = torch.sigmoid(x @ W["z"].T + b["z"] + h @ U["z"].T + c["z"])
        return mix(z, proposal(x @ W["n"].T + b["n"], r, h, U["n"], c["n"]), h)

    return wrong


def _swapped_mix(z: torch.Tensor, n: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return z * n + (1 - z) * h


def _reset_first(x_n: torch.Tensor, r: torch.Tensor, h: torch.Tensor, U: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x_n + (r * h) @ U.T + b)


GRU_CELL = Exercise(
    id="1.1",
    title="GRU cell",
    points=3,
    function="gru_cell",
    reference=gru_cell,
    cases=_gru_cases,
    misconceptions=(
        Misconception(
            "z and 1 - z swapped",
            _gru_like(mix=_swapped_mix),
            "Your z says how much of the new proposal to take. That is Bahdanau's way to write it, so you may well "
            "have read it like that, and a network trained with it works. Here z is the share of the old state that "
            "is kept: at z = 1 the word is ignored. Weights of one kind are useless to the other.",
            also=(_gru_like(mix=_swapped_mix, proposal=_reset_first),),
        ),
        Misconception(
            "reset gate before the matrix",
            _gru_like(proposal=_reset_first),
            "You let r shrink the old state before the matrix sees it, as Cho et al. do. Both make good networks. "
            "PyTorch applies the matrix first, adds its bias, and lets r scale what comes out, number by number. "
            "The two differ because a matrix mixes the numbers, so it matters which of them were scaled.",
        ),
        Misconception(
            "reset gate misses the bias",
            _gru_like(proposal=lambda x_n, r, h, U, b: torch.tanh(x_n + r * (h @ U.T) + b)),
            "Your reset gate scales the matrix product, and the hidden bias is added afterwards, so r cannot switch it "
            "off. With biases of zero that is the same thing. In `nn.GRUCell` the gate is applied to all that comes "
            "from the hidden side, its bias included.",
        ),
        Misconception(
            "reset gate on the input too",
            _gru_like(proposal=lambda x_n, r, h, U, b: torch.tanh(r * (x_n + h @ U.T + b))),
            "Your reset gate scales the new word along with the old state. The gate is there to forget the past: at "
            "r = 0 the proposal must come from the word alone, and with yours it comes from nothing.",
        ),
        Misconception(
            "reset gate unused",
            _gru_like(proposal=lambda x_n, r, h, U, b: torch.tanh(x_n + h @ U.T + b)),
            "Your proposal n looks at all of the old state: r is missing from it. "
            "Where r is near 1 the difference is small. Without it the cell cannot start afresh in the middle of a "
            "sentence.",
        ),
        Misconception(
            "sigmoid where tanh",
            _gru_like(proposal=lambda x_n, r, h, U, b: torch.sigmoid(x_n + r * (h @ U.T + b))),
            "Your proposal n comes out of a sigmoid. Gates do, since they are shares between 0 and 1. "
            "The proposal is content, not a share: it has to be able to be negative, or the state could only ever be "
            "pushed up.",
        ),
        Misconception(
            "no tanh",
            _gru_like(proposal=lambda x_n, r, h, U, b: x_n + r * (h @ U.T + b)),
            "Your proposal n has no tanh. For small numbers tanh changes little, which is why it can look right. "
            "It keeps the state between -1 and 1, and without it a state can grow at every step of a long sentence.",
        ),
        Misconception(
            "r and z blocks swapped",
            _gru_like("zrn"),
            "You read the first block of the weights as z and the second as r. Papers name z first, so it is the "
            "natural guess, and nothing in the shapes speaks against it. PyTorch stores r first, then z, then n.",
        ),
        Misconception(
            "n block read first",
            _gru_like("nrz"),
            "You take the first block of the weights for the proposal n. All three blocks have one shape, so only the "
            "convention can tell them apart, and PyTorch's is r, z, n.",
            also=(_gru_like("nzr"),),
        ),
        Misconception(
            "biases left out",
            lambda x, h, W_ih, W_hh, b_ih, b_hh: _gru_like()(x, h, W_ih, W_hh, 0 * b_ih, 0 * b_hh),
            "The biases never enter your result. In a fresh network they are near zero, so hardly anything changes "
            "there. In a trained one they set how far each gate is open when neither the word nor the state "
            "says anything.",
            also=(
                lambda x, h, W_ih, W_hh, b_ih, b_hh: _gru_like()(x, h, W_ih, W_hh, b_ih, 0 * b_hh),
                lambda x, h, W_ih, W_hh, b_ih, b_hh: _gru_like()(x, h, W_ih, W_hh, 0 * b_ih, b_hh),
            ),
        ),
        Misconception(
            "proposal instead of the new state",
            _gru_like(mix=lambda z, n, h: n),
            "You return the proposal n. It is what a cell without memory would have for its next state. "
            "The update gate still has to weigh it against the old state; that is how a word from long ago survives.",
        ),
        NO_GRADIENT,
    ),
    why="At z = 1 a state passes through unchanged, however many words follow: that is how a GRU remembers.",
)

# 1.2 -----------------------------------------------------------------------------------------------------------------


def last_states(outputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """(B, T, D), (B,) -> (B, D): for each sequence the state at its own last token."""
    rows = torch.arange(outputs.shape[0], device=outputs.device)  # (B,)
    return outputs[rows, lengths - 1]


def _last_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(2):
        B, T, D = draw.sizes(3)
        yield Case((draw.tracked(B, T, D), draw.lengths(B, T)))
    B, T, D = draw.sizes(3, low=3)
    yield Case((draw.tracked(B, T + 2, D), draw.lengths(B, T)), "when even the longest sentence is padded")
    yield Case((draw.tracked(1, T, D), torch.tensor([T - 1])), "with a batch of one")
    yield Case((draw.tracked(B, 1, D), torch.ones(B, dtype=torch.int64)), "when T = 1")
    yield Case((draw.tracked(B, T, D, dtype=torch.float32), draw.lengths(B, T)), "in float32")


def _rows(outputs: torch.Tensor) -> torch.Tensor:
    return torch.arange(outputs.shape[0])


LAST_STATES = Exercise(
    id="1.2",
    title="Last states",
    points=2,
    function="last_states",
    reference=last_states,
    cases=_last_cases,
    misconceptions=(
        Misconception(
            "takes index -1",
            lambda outputs, lengths: outputs[:, -1].clone(),
            "You take the last place of the tensor. For the longest sentence of a batch that is its last word, which "
            "is why one row is right. For every shorter sentence it is a state that was computed on padding.",
            also=(lambda outputs, lengths: outputs[:, lengths.max() - 1],),
        ),
        Misconception(
            "off by one",
            lambda outputs, lengths: outputs[_rows(outputs), lengths],
            "You are one place beside the last word. Places are counted from 0, so a sentence of n words ends at place "
            "n - 1. Place n is the first of the padding, or outside the tensor for a sentence that fills it.",
            also=(
                lambda outputs, lengths: outputs[_rows(outputs), lengths.clamp(max=outputs.shape[1] - 1)],
                lambda outputs, lengths: outputs[_rows(outputs), lengths - 2],
                lambda outputs, lengths: outputs[_rows(outputs), (lengths - 2).clamp(min=0)],
            ),
        ),
        Misconception(
            "every sentence at every length",
            lambda outputs, lengths: outputs[:, lengths - 1],
            "Your result has one row for every pair of a sentence and a length. A slice next to an index means all "
            "sentences, each at all of those places. What is wanted is sentence 0 at its own place, sentence 1 at its "
            "own, and so on: the two have to be indexed in step.",
        ),
        Misconception(
            "first feature only",
            lambda outputs, lengths: outputs.gather(1, (lengths - 1)[:, None, None])[:, 0],
            "You found the right places and took one number from each. `gather` returns as many values as its index "
            "has, so an index without the D axis picks the first feature alone.",
            also=(lambda outputs, lengths: outputs.gather(1, (lengths - 1)[:, None, None])[:, 0, 0],),
        ),
        Misconception(
            "first state",
            lambda outputs, lengths: outputs[:, 0].clone(),
            "You take the state after the first word, which knows nothing of the rest. The reader goes from left to "
            "right, so only the state at the last word has seen the whole sentence.",
        ),
        Misconception(
            "mean of the states",
            lambda outputs, lengths: (
                (outputs * (torch.arange(outputs.shape[1]) < lengths[:, None])[..., None]).sum(1) / lengths[:, None]
            ),
            "You average the states of each sentence. That is a fair summary of a sentence, but not what the "
            "encoder hands over: the last state alone has read all of the words.",
        ),
        NO_GRADIENT,
    ),
    why="The state after the padding is not the state after the sentence, and `-1` cannot know the difference.",
)

# 1.3 -----------------------------------------------------------------------------------------------------------------


def teacher_forcing(target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T) of bos ... eos pad -> decoder inputs and labels, (B, T - 1) each: what is fed, and what is to be written.

    At every place the input is the token that comes just before the label.
    """
    return target[:, :-1], target[:, 1:]


PAD, BOS, EOS = 0, 1, 2


def _sentences(draw: Draw, words: list[int]) -> torch.Tensor:
    """One row of bos, so many random words, eos and padding for each number of ``words``."""
    rows = [[BOS, *(draw.integer(3, 60) for _ in range(n)), EOS] for n in words]
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def _forcing_cases(draw: Draw) -> Iterator[Case]:
    for _ in range(3):
        B, longest = draw.sizes(2, low=3)
        yield Case((_sentences(draw, [longest, 1, *(draw.integer(1, longest) for _ in range(B - 2))]),))
    yield Case((_sentences(draw, [draw.integer(3, 7)]),), "with a batch of one")
    yield Case((_sentences(draw, [0, 0, 0]),), "when all sentences are empty, so that T = 2")
    padded = torch.cat([_sentences(draw, [4, 2, 3]), torch.full((3, 2), PAD)], dim=1)
    yield Case((padded,), "when even the longest sentence is padded")


TEACHER_FORCING = Exercise(
    id="1.3",
    title="Teacher forcing",
    points=2,
    function="teacher_forcing",
    reference=teacher_forcing,
    cases=_forcing_cases,
    views_allowed=True,
    misconceptions=(
        Misconception(
            "not shifted",
            lambda target: (target, target),
            "Inputs and labels are the same here: at each place the decoder is fed the very token that it has to "
            "write. Its loss will fall to zero quickly, by copying, and in use it has nothing to copy from. "
            "The label has to be the token after the one that is fed.",
            also=(
                lambda target: (target[:, 1:], target[:, 1:]),
                lambda target: (target[:, :-1], target[:, :-1]),
            ),
        ),
        Misconception(
            "shifted the wrong way",
            lambda target: (target[:, 1:], target[:, :-1]),
            "You feed each token and ask for the one before it. Both parts have the right shape, which is why it looks "
            "right. The decoder writes forwards: it starts from bos and must learn what comes next.",
        ),
        Misconception(
            "labels keep bos",
            lambda target: (target[:, :-1], target),
            "Your labels begin with bos. The decoder never has to write that token: it is given as the first input, "
            "and the first thing to write is the first word. With bos in the labels there is one label more than there "
            "are inputs.",
        ),
        Misconception(
            "inputs keep the last place",
            lambda target: (target, target[:, 1:]),
            "Your inputs run to the last place of the tensor, which leaves one input without a label. After the last "
            "token there is nothing left to write, so there is no reason to feed it.",
        ),
        Misconception(
            "rolled round",
            lambda target: (target, target.roll(-1, dims=1)),
            "Rolling shifts the sentence, but what falls off at one end comes back at the other: bos is asked for "
            "at the last place. In a padded sentence that label counts as a word and is learned.",
            also=(
                lambda target: (target[:, :-1], target.roll(-1, dims=1)),
                lambda target: (target.roll(1, dims=1), target),
            ),
        ),
        Misconception(
            "cuts the batch",
            lambda target: (target[:-1], target[1:]),
            "You shifted along the first axis, which holds the sentences. So each sentence is asked to become the next "
            "one in the batch, and one sentence is lost. The tokens lie along the second axis.",
        ),
        Misconception(
            "bos and eos both cut from both",
            lambda target: (target[:, 1:-1], target[:, 1:-1]),
            "You removed the first and the last place from both parts. The decoder needs bos as its first input, since "
            "something has to start it. And it has to be asked for eos, or it will never learn to stop.",
        ),
    ),
    why="One shift by one place turns every prefix of the sentence into a training example, all in a single pass.",
)

# 1.4 -----------------------------------------------------------------------------------------------------------------


def sequence_loss(logits: torch.Tensor, labels: torch.Tensor, pad: int) -> torch.Tensor:
    """(B, T, V), (B, T) -> a single number: the mean cross-entropy in nats over the labels that are not ``pad``."""
    log_probabilities = logits.log_softmax(dim=-1)  # (B, T, V)
    of_labels = log_probabilities.gather(-1, labels[:, :, None])[:, :, 0]  # (B, T)
    real = labels != pad
    return -(of_labels * real).sum() / real.sum()


def _loss_cases(draw: Draw) -> Iterator[Case]:
    def arguments(
        B: int, T: int, V: int, pad: int, lengths: torch.Tensor, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        words = torch.randint(V - 1, (B, T), generator=draw.torch)
        words += words >= pad  # every id but pad
        labels = words.masked_fill(torch.arange(T) >= lengths[:, None], pad)
        return 2 * draw.tracked(B, T, V, dtype=dtype), labels, pad

    for pad in (0, 3):
        B, T, V = draw.sizes(3, low=4, high=9)
        yield Case(arguments(B, T, V, pad, draw.lengths(B, T, shortest=1)))
    B, T, V = draw.sizes(3, low=4, high=9)
    yield Case(arguments(1, T, V, 0, torch.tensor([T - 2])), "with a batch of one")
    yield Case(arguments(B, T, V, V - 1, draw.lengths(B, T)), "when `pad` is the last id of the vocabulary")
    yield Case(arguments(B, 1, V, 0, torch.ones(B, dtype=torch.int64)), "when every sentence is a single token")
    logits, labels, pad = arguments(B, T, V, 1, draw.lengths(B, T))
    yield Case((1e4 * logits, labels, pad), "when logits are as large as 1e4")
    yield Case(arguments(B, T, V, 0, draw.lengths(B, T), torch.float32), "in float32")


def _token_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return -logits.log_softmax(dim=-1).gather(-1, labels[..., None])[..., 0]


def _real_mean(values: torch.Tensor, labels: torch.Tensor, pad: int) -> torch.Tensor:
    return values[labels != pad].mean()


def _label_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return logits.softmax(dim=-1).gather(-1, labels[..., None])[..., 0]


def _unsafe_sum(logits: torch.Tensor, labels: torch.Tensor, pad: int) -> torch.Tensor:
    real = labels != pad
    return -(_label_probabilities(logits, labels).log() * real).sum() / real.sum()


def _mean_of_means(logits: torch.Tensor, labels: torch.Tensor, pad: int) -> torch.Tensor:
    real = labels != pad
    return ((_token_losses(logits, labels) * real).sum(dim=1) / real.sum(dim=1)).mean()


SEQUENCE_LOSS = Exercise(
    id="1.4",
    title="Sequence loss",
    points=2,
    function="sequence_loss",
    reference=sequence_loss,
    cases=_loss_cases,
    misconceptions=(
        Misconception(
            "padding counted",
            lambda logits, labels, pad: _token_losses(logits, labels).mean(),
            "Padding counts as a word here. Writing padding after the end is easy, so this loss soon looks excellent, "
            "and the more padding a batch has the better it looks. Only the labels that stand for a real token may "
            "count.",
        ),
        Misconception(
            "divides by all places",
            lambda logits, labels, pad: (_token_losses(logits, labels) * (labels != pad)).sum() / labels.numel(),
            "You gave padding a loss of zero and then averaged over all places, padding included. The zeros pull the "
            "mean down, by more the shorter the sentences are. Divide by the number of losses that you let in.",
        ),
        Misconception(
            "mean of per-sentence means",
            _mean_of_means,
            "You averaged within each sentence first and over the sentences afterwards. With equal lengths both ways "
            "agree. With unequal ones, a token of a sentence of 2 weighs as much as five tokens of a sentence of 10. "
            "Every token is to have the same weight.",
        ),
        Misconception(
            "sum",
            lambda logits, labels, pad: (_token_losses(logits, labels) * (labels != pad)).sum(),
            "You added up the losses of all real tokens. A sum grows with the size of the batch, so the same learning "
            "rate would take larger steps for longer sentences. What is asked for is the mean for one token.",
        ),
        Misconception(
            "padding taken to be 0",
            lambda logits, labels, pad: _real_mean(_token_losses(logits, labels), labels, 0),
            "You leave out the labels that are 0, whatever `pad` says. In this course padding happens to be 0, which "
            "is why it looks right. Another vocabulary has a word there, and that word would never be learned.",
        ),
        Misconception(
            "softmax taken twice",
            lambda logits, labels, pad: _real_mean(_token_losses(logits.softmax(dim=-1), labels), labels, pad),
            "A softmax is taken twice. `F.cross_entropy` and `log_softmax` expect raw logits and normalise them on "
            "their own. Given probabilities, which lie between 0 and 1, they see nearly equal scores, and the loss "
            "cannot come near zero however good the model is.",
        ),
        Misconception(
            "probability instead of its logarithm",
            lambda logits, labels, pad: _real_mean(-_label_probabilities(logits, labels), labels, pad),
            "You average the probabilities of the right tokens, without the logarithm. That number also falls as the "
            "model improves, but it hardly punishes a token that the model thought impossible. Cross-entropy is "
            "the mean surprise, and surprise is minus the logarithm.",
            also=(lambda logits, labels, pad: _real_mean(_label_probabilities(logits, labels), labels, pad),),
        ),
        Misconception(
            "sign",
            lambda logits, labels, pad: -_real_mean(_token_losses(logits, labels), labels, pad),
            "You return the mean log-probability, which is at most zero and grows as the model improves. "
            "Training makes a loss small, so it would teach the model to avoid the right tokens.",
        ),
        Misconception(
            "numerically unsafe logarithm",
            lambda logits, labels, pad: _real_mean(-_label_probabilities(logits, labels).log(), labels, pad),
            "You take the softmax first and its logarithm afterwards. In mathematics that is right, and for ordinary "
            "logits on a computer too. When a token is thought very unlikely, its probability is rounded to zero and "
            "the logarithm becomes infinite. Taken in one step, nothing has to be rounded in between.",
            also=(
                _unsafe_sum,
                lambda logits, labels, pad: _real_mean(
                    -(logits.exp().gather(-1, labels[..., None])[..., 0] / logits.exp().sum(-1)).log(), labels, pad
                ),
            ),
        ),
        NO_GRADIENT,
    ),
    why="Padding is no word: it belongs neither in the sum of losses nor in the number they are divided by.",
)

# 1.5 -----------------------------------------------------------------------------------------------------------------

Step = Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def greedy_decode(step: Step, state: torch.Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    """The ids that a decoder writes, without bos and eos, ``max_len`` at most.

    ``step(token, state)`` gives the logits (V,) of the next token and the next state.
    """
    written: list[int] = []
    token = bos
    while len(written) < max_len:
        logits, state = step(token, state)
        token = int(logits.argmax())
        if token == eos:
            break
        written.append(token)
    return written


class _Writer:
    """A decoder that writes ``plan`` when it is fed what it wrote, with the state that it gave out (a place, (1,)).

    Anything else leads it astray, to random words and never to eos.
    """

    LIMIT = 60  # calls; no limit on the length is above 13

    def __init__(self, draw: Draw, plan: list[int], bos: int, eos: int, vocabulary: int) -> None:
        self.plan, self.bos, self.eos = plan, bos, eos
        places = len(plan) + 40
        self.logits = draw.normal(places, vocabulary, vocabulary) - 3  # by place and by token fed
        self.logits[:, :, [bos, eos]] -= 20
        for place, (fed, next_token) in enumerate(zip([bos, *plan], plan, strict=False)):
            self.logits[place, fed, next_token] = self.logits[place, fed].max() + 1
        self.calls = 0

    def __call__(self, token: int, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        if self.calls > self.LIMIT:
            raise TooManySteps(f"`step` was called more than {self.LIMIT} times for one sentence.")
        place = int(state) % len(self.logits)
        return self.logits[place, int(token)].clone(), state + 1


def _decode_cases(draw: Draw) -> Iterator[Case]:
    def case(words: int, max_len: int, note: str = "", ends: bool = True) -> Case:
        vocabulary = draw.integer(8, 12)
        bos, eos = draw.python.sample(range(vocabulary), 2)
        others = [i for i in range(vocabulary) if i not in (bos, eos)]
        first, second, *_ = draw.python.sample(others, len(others))
        plan = [first, second, second, *draw.python.choices(others, k=words)][:words] + [eos] * ends
        return Case((_Writer(draw, plan, bos, eos, vocabulary), torch.tensor([0]), bos, eos, max_len), note)

    for _ in range(2):
        yield case(draw.integer(4, 7), max_len=draw.integer(10, 13))
    yield case(9, 5, "when eos would come only after `max_len` tokens")
    yield case(4, 4, "when eos would come just after `max_len` tokens")
    yield case(30, 11, "when eos never comes", ends=False)
    yield case(0, 6, "when the first token is eos")
    yield case(3, 1, "with `max_len=1`")


def _decode_like(
    stops: bool = True,
    keeps_eos: bool = False,
    keeps_bos: bool = False,
    room: int | None = 0,
    feeds_bos: bool = False,
    carries_state: bool = True,
    choose: Callable[[torch.Tensor], torch.Tensor] = torch.argmax,
) -> Callable[..., list[int]]:
    """A greedy decoder with a slip. ``room`` is added to ``max_len``; None takes the limit away."""

    def wrong(step: Step, state: torch.Tensor, bos: int, eos: int, max_len: int) -> list[int]:
        written = [bos] if keeps_bos else []
        token, calls = bos, 0
        while room is None or calls < max_len + room:
            calls += 1
            logits, new_state = step(bos if feeds_bos else token, state)
            state = new_state if carries_state else state
            token = int(choose(logits))
            if token != eos or keeps_eos:
                written.append(token)
            if token == eos and stops:
                break
        return written

    return wrong


def _skips_eos(step: Step, state: torch.Tensor, bos: int, eos: int, max_len: int) -> list[int]:
    """Leaves eos out and writes on until there are ``max_len`` words."""
    written: list[int] = []
    token = bos
    while len(written) < max_len:
        logits, state = step(token, state)
        token = int(logits.argmax())
        if token != eos:
            written.append(token)
    return written


GREEDY_DECODE = Exercise(
    id="1.5",
    title="Greedy decoding",
    points=2,
    function="greedy_decode",
    reference=greedy_decode,
    cases=_decode_cases,
    misconceptions=(
        Misconception(
            "does not stop at eos",
            _decode_like(stops=False, keeps_eos=True),
            "You always write `max_len` tokens. The decoder says eos when it is done, and what it would write after "
            "that was never trained. The limit is only for a decoder that does not find an end.",
            also=(_decode_like(stops=False), _skips_eos, _decode_like(stops=False, keeps_eos=True, keeps_bos=True)),
        ),
        Misconception(
            "keeps eos",
            _decode_like(keeps_eos=True),
            "Your sentence ends with eos as its last token. The token is a signal from the decoder to the loop, not a "
            "word of the translation, and compared with the right sentence every translation would count as wrong.",
        ),
        Misconception(
            "keeps bos",
            _decode_like(keeps_bos=True),
            "Your sentence begins with bos. You gave that token to the decoder to get it started; the decoder did not "
            "write it.",
            also=(_decode_like(keeps_bos=True, room=-1), _decode_like(keeps_bos=True, keeps_eos=True)),
        ),
        Misconception(
            "ignores max_len",
            _decode_like(room=None),
            "Your loop ends at eos and nowhere else. A trained decoder nearly always gets there, which is why it looks "
            "right. One that has lost the thread can repeat itself for ever, and then your loop never ends.",
            also=(
                _decode_like(room=None, keeps_eos=True),
                _decode_like(room=None, keeps_bos=True),
                _decode_like(room=None, keeps_eos=True, keeps_bos=True),
                _decode_like(room=None, feeds_bos=True),
            ),
        ),
        Misconception(
            "max_len off by one",
            _decode_like(room=-1),
            "You write one token too few or too many when the limit is what ends the sentence. `max_len` counts the "
            "tokens that are returned: neither bos nor eos is among them.",
            also=(_decode_like(room=1), _decode_like(room=-1, keeps_eos=True), _decode_like(room=1, keeps_eos=True)),
        ),
        Misconception(
            "feeds bos every step",
            _decode_like(feeds_bos=True),
            "You feed bos at every step. The state moves on, so the words still differ, and that is why it can look "
            "alive. But the decoder has to be told which word it wrote: it chose one of several, and its state was "
            "computed before that choice.",
            also=(_decode_like(feeds_bos=True, keeps_eos=True),),
        ),
        Misconception(
            "state not carried on",
            _decode_like(carries_state=False),
            "You feed the token that was written, and the first state again and again. So each word depends on the one "
            "before it alone, and the decoder cannot know how far it has come. The state that a step returns belongs "
            "into the next step.",
            also=(_decode_like(carries_state=False, keeps_eos=True),),
        ),
        Misconception(
            "least likely token",
            _decode_like(choose=torch.argmin),
            "You take the smallest logit, which is the token that the model thinks least likely. Logits are scores: "
            "the larger, the more probable. Only a loss is better when it is small.",
        ),
    ),
    why="Greedy decoding feeds the model its own words, so it needs the two exits that training never showed it.",
)

EXERCISES = (GRU_CELL, LAST_STATES, TEACHER_FORCING, SEQUENCE_LOSS, GREEDY_DECODE)
