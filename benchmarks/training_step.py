"""A training step of the course's Transformer against ``torch.nn.Transformer`` of the same size.

    python benchmarks/training_step.py            # one step, equal batches
    python benchmarks/training_step.py --corpus   # and whole tokens a second on Multi30k

One process, one thread, processor time, medians of paired ratios, and the measured matmul peak of the machine. First
both get the same random batch. The second part compares ways of training: this course's loop (batches of like length by
tokens, one table for all embeddings, fused Adam) against the usual tutorial (random batches of a fixed number of
sentences, separate tables, Adam as it comes).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from course_utils import corpora, training
from course_utils.models.masks import causal_mask
from course_utils.models.positions import PositionalEmbedding
from course_utils.models.transformer import Transformer
from course_utils.text import PAD, Batch, Corpus, TokenBatches, make_batch

SIZES = {"d_model": 256, "h": 8, "d_ff": 1024, "N": 3}
VOCABULARY = 10_000


class Tutorial(nn.Module):
    """torch.nn.Transformer with embeddings and an output layer of its own, as most tutorials build it."""

    def __init__(self, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.source = PositionalEmbedding(vocabulary, SIZES["d_model"], dropout)
        self.target = PositionalEmbedding(vocabulary, SIZES["d_model"], dropout)
        self.inner = nn.Transformer(
            SIZES["d_model"],
            SIZES["h"],
            SIZES["N"],
            SIZES["N"],
            SIZES["d_ff"],
            dropout,
            batch_first=True,
        )
        self.output = nn.Linear(SIZES["d_model"], vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        padding = source == PAD
        hidden = self.inner(
            self.source(source),
            self.target(target),
            tgt_mask=~causal_mask(target.shape[1]),
            src_key_padding_mask=padding,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=padding,
        )
        return self.output(hidden)


def stepper(model: nn.Module, fused: bool | None) -> Callable[[Batch], None]:
    """One update: forward, backward, clip, Adam."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)

    def step(batch: Batch) -> None:
        logits = model(batch.source, batch.target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def matmul_peak() -> float:
    """Gigaflops a second of one float32 product of 1024 x 1024 matrices, the best of 20."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / min(seconds(lambda: torch.mm(a, b)) for _ in range(20)) / 1e9


def one_step(dropout: float, rounds: int = 7) -> None:
    training.seed_everything(0)
    ours = Transformer(VOCABULARY, VOCABULARY, **SIZES, dropout=dropout, tied="none")
    theirs = Tutorial(VOCABULARY, dropout)
    source, target = torch.randint(4, VOCABULARY, (64, 32)), torch.randint(4, VOCABULARY, (64, 33))
    batch = Batch(source, target)
    steps = [stepper(ours, None), stepper(theirs, None)]
    for step in steps:
        step(batch)
    pairs = [(seconds(partial(steps[0], batch)), seconds(partial(steps[1], batch))) for _ in range(rounds)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    share = flops(ours, batch) / mine / 1e9 / matmul_peak()
    print(f"dropout {dropout}: ours {mine:.2f} s, torch.nn.Transformer {other:.2f} s, {ratio:.2f}× as fast")
    print(f"             ours reaches {share:.0%} of the measured matmul peak")


def flops(model: nn.Module, batch: Batch) -> float:
    """Multiplications and additions of forward and backward, counted by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(batch.source, batch.target[:, :-1]).sum().backward()
    return counter.get_total_flops()


def fixed_batches(corpus: Corpus, subwords: corpora.Subwords, size: int) -> Iterator[Batch]:
    pairs, generator = subwords.pairs(*corpus.train), torch.Generator().manual_seed(0)
    while True:
        order = torch.randperm(len(pairs), generator=generator).tolist()
        for start in range(0, len(order) - size, size):
            yield make_batch([pairs[i] for i in order[start : start + size]], subwords.vocabulary, subwords.vocabulary)


def on_the_corpus(count: int = 8) -> None:
    corpus = corpora.multi30k()
    subwords = corpora.Subwords.learn([*corpus.train[0], *corpus.train[1]], VOCABULARY)
    vocabulary = subwords.vocabulary
    size = len(vocabulary)
    ours = stepper(Transformer(size, size, **SIZES, dropout=0.1, tied="all"), fused=True)
    theirs = stepper(Tutorial(size, 0.1), None)
    by_tokens = iter(TokenBatches(subwords.pairs(*corpus.train), vocabulary, vocabulary, 2_048))
    by_number = fixed_batches(corpus, subwords, 128)
    ratios = []
    for _ in range(count):
        speeds = []
        for step, batches in ((ours, by_tokens), (theirs, by_number)):
            batch = next(batches)
            speeds.append((batch.target[:, 1:] != PAD).sum().item() / seconds(partial(step, batch)))
        ratios.append(speeds[0] / speeds[1])
        print(f"real target tokens a second: ours {speeds[0]:,.0f}, tutorial {speeds[1]:,.0f}")
    print(f"median of {count} paired ratios: {statistics.median(ratios):.2f}×")


def main() -> None:
    torch.set_num_threads(1)
    print(f"matmul peak of one thread: {matmul_peak():.0f} gigaflops a second")
    for dropout in (0.0, 0.1):
        one_step(dropout)
    if "--corpus" in sys.argv[1:]:
        on_the_corpus()


if __name__ == "__main__":
    main()
