"""Lesson 10's experiment: learn numbers in Korean, then in German, by several methods, and watch both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from course_utils.corpora import TwoTasks
from course_utils.decoding import exact_matches
from course_utils.models.continual import ContinuumMemory, ContinuumOptimiser, ewc_penalty, fisher
from course_utils.models.transformer import Transformer
from course_utils.text import Batch, Pair, endless_batches, make_batch
from course_utils.training import seed_everything, sequence_loss, warmup_then_decay


@dataclass(frozen=True)
class Method:
    """How the second task is learned.

    Args:
        rate: constant over the second phase.
        replay, kept: the share of each batch that is old Korean examples, and out of how many they are drawn.
        ewc, equal_votes: the penalty's strength, and how its Fisher information is averaged (see ``fisher``).
        periods: of the levels (see ``feed_forward_levels``), in both phases.
        chain: every feed-forward layer is a chain of blocks, one for each period.
        trained: what German may change: "all", "feed-forward" or "the rest".
    """

    name: str
    rate: float = 3e-3
    replay: float = 0.0
    kept: int = 200
    ewc: float = 0.0
    equal_votes: bool = False
    periods: tuple[int, ...] | None = None
    chain: bool = False
    trained: str = "all"


@dataclass
class Curve:
    """Accuracy on both tasks at some steps of the second phase; the first entry is before it."""

    steps: list[int] = field(default_factory=list)
    korean: list[float] = field(default_factory=list)
    german: list[float] = field(default_factory=list)


def new_model(tasks: TwoTasks, chained: int = 0) -> Transformer:
    """The Transformer of lesson 08; with ``chained``, each feed-forward layer is a chain of that many blocks."""
    model = Transformer(len(tasks.english), len(tasks.target), d_model=64, h=4, d_ff=128, N=2, dropout=0.0)
    if chained:
        for layer in [*model.encoder, *model.decoder]:
            layer.ffn = ContinuumMemory(64, 128, chained)
    return model


def feed_forward_levels(model: Transformer, levels: int) -> list[list[nn.Parameter]]:
    """The parameters of each level, the fastest first. All but the feed-forward layers' are in level 0.

    Of a chain, block l is in level l (equations 70 and 71 of Nested Learning). Plain feed-forward layers are dealt out
    whole, the deepest to the slowest level: section 7.3 there regroups a pretrained model's in this manner.
    """
    layers = [layer.ffn for layer in [*reversed(model.encoder), *reversed(model.decoder)]]
    groups: list[list[nn.Parameter]] = [[] for _ in range(levels)]
    for i, ffn in enumerate(layers):
        if isinstance(ffn, ContinuumMemory):
            for level, block in enumerate(ffn.blocks):
                groups[level].extend(block.parameters())
        else:
            groups[min(levels - 1, 1 + i * (levels - 1) // len(layers))].extend(ffn.parameters())
    taken = {id(p) for group in groups for p in group}
    groups[0].extend(p for p in model.parameters() if id(p) not in taken)
    return groups


def freeze_all_but(model: Transformer, trained: str) -> None:
    """Let only the feed-forward layers learn, or only "the rest", or "all"."""
    if trained not in ("all", "feed-forward", "the rest"):
        raise ValueError(f'trained is "all", "feed-forward" or "the rest", and it is {trained!r}.')
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained == "all" or (".ffn." in name) == (trained == "feed-forward"))


def learn(
    model: Transformer,
    batches: Iterator[Batch],
    steps: int,
    rate: float,
    periods: Sequence[int] | None = None,
    penalty: Callable[[], torch.Tensor] | None = None,
    constant: bool = False,
    each: Callable[[int], None] = lambda step: None,
) -> None:
    """``steps`` updates with teacher forcing; ``each`` is called after every one with how many there were."""
    torch.set_num_threads(1)
    levels = feed_forward_levels(model, len(periods)) if periods else [list(model.parameters())]
    optimiser = ContinuumOptimiser(levels, periods or [1], rate)
    model.train()
    for step in tqdm(range(steps), leave=False, disable=steps < 200):
        optimiser.scale(1.0 if constant else warmup_then_decay(step, steps, min(50, steps // 4)), rate)
        batch = next(batches)
        loss = sequence_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:])
        if penalty is not None:
            loss = loss + penalty()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step(clip=1.0)
        each(step + 1)
    model.eval()


def accuracy(model: Transformer, pairs: Sequence[Pair], tasks: TwoTasks) -> float:
    was_training = model.training
    model.eval()
    right = float(np.mean(exact_matches(model, pairs, tasks.english, tasks.target)))
    model.train(was_training)
    return right


def first_phase(tasks: TwoTasks, seed: int, steps: int, method: Method) -> Transformer:
    """Korean from nothing."""
    generator = seed_everything(seed)
    model = new_model(tasks, len(method.periods or ()) if method.chain else 0)
    batches = endless_batches(tasks.korean[0], tasks.english, tasks.target, 32, generator)
    learn(model, batches, steps, 3e-3, method.periods)
    return model


def second_phase(model: Transformer, tasks: TwoTasks, method: Method, seed: int, steps: int, every: int) -> Curve:
    """German on top, at a constant rate; both tasks are measured every few steps."""
    generator = seed_everything(seed + 1_000)
    freeze_all_but(model, method.trained)
    penalty = None
    if method.ewc:
        importance = fisher(model, _losses(model, tasks, generator), method.equal_votes)
        penalty = ewc_penalty(model, importance, method.ewc)
    curve = Curve()

    def measure(step: int) -> None:
        if step % every == 0:
            curve.steps.append(step)
            curve.korean.append(accuracy(model, tasks.korean[1], tasks))
            curve.german.append(accuracy(model, tasks.german[1], tasks))

    measure(0)
    batches = _mixed(tasks, method, generator)
    learn(model, batches, steps, method.rate, method.periods, penalty, constant=True, each=measure)
    return curve


def _losses(model: Transformer, tasks: TwoTasks, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Losses of single Korean sentences, for the Fisher information."""
    singles = endless_batches(tasks.korean[0], tasks.english, tasks.target, 1, generator)
    for batch in itertools.islice(singles, 100):
        yield sequence_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:])


def _mixed(tasks: TwoTasks, method: Method, generator: torch.Generator) -> Iterator[Batch]:
    """German batches of 32, some of them replaced by kept Korean examples."""
    old, size = tasks.korean[0][: method.kept], 32
    from_old = round(method.replay * size)
    while True:
        new = _pick(tasks.german[0], size - from_old, generator)
        yield make_batch([*new, *_pick(old, from_old, generator)], tasks.english, tasks.target)


def _pick(pairs: Sequence[Pair], count: int, generator: torch.Generator) -> list[Pair]:
    return [pairs[i] for i in torch.randint(len(pairs), (count,), generator=generator).tolist()]


def kept_at(curve: Curve, german: float) -> float:
    """Korean accuracy at the first measurement with at least this German accuracy; NaN if there is none."""
    return next((k for k, g in zip(curve.korean, curve.german, strict=True) if g >= german), float("nan"))
