"""Greedy decoding with the key/value cache against computing every step anew; ratios of processor time.

    python benchmarks/decoding.py

One thread, an untrained model (d_model 256, 3 + 3 layers, 8 heads, d_ff 1024), source 32, no sentence ends early. Each
ratio is the median over paired rounds: both ways run one after the other in each round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from course_utils import training
from course_utils.models.transformer import Transformer
from course_utils.text import BOS

VOCABULARY = 10_000


@torch.no_grad()
def cached(model: Transformer, source: torch.Tensor, length: int) -> torch.Tensor:
    target, state = source.new_full((source.shape[0], 1), BOS), model.start(source)
    for _ in range(length):
        logits, state = model.step(target[:, -1], state)
        target = torch.cat([target, logits.argmax(dim=-1)[:, None]], dim=1)
    return target


@torch.no_grad()
def recomputed(model: Transformer, source: torch.Tensor, length: int) -> torch.Tensor:
    """Encoder and decoder over everything, at each step: the simplest code."""
    target = source.new_full((source.shape[0], 1), BOS)
    for _ in range(length):
        logits = model(source, target)[:, -1]
        target = torch.cat([target, logits.argmax(dim=-1)[:, None]], dim=1)
    return target


def seconds(work: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def main() -> None:
    torch.set_num_threads(1)
    training.seed_everything(0)
    model = Transformer(VOCABULARY, VOCABULARY, 256, 8, 1024, 3, tied="all").eval()
    print(f"{training.parameter_count(model):,} parameters, one thread")
    print(f"{'batch':>5}{'tokens':>8}{'cached s':>10}{'anew s':>10}{'ratio':>8}")
    for batch in (1, 8):
        source = torch.randint(4, VOCABULARY, (batch, 32))
        cached(model, source, 8), recomputed(model, source, 8)
        for length in (32, 64, 128, 256):
            rounds = []
            for _ in range(3):
                (fast, one), (slow, other) = (
                    seconds(lambda way=way, source=source, length=length: way(model, source, length))
                    for way in (cached, recomputed)
                )
                rounds.append((slow / fast, fast, slow))
                if not torch.equal(one, other):
                    print("        (rounding chose another token somewhere)")
            ratio, fast, slow = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"{batch:>5}{length:>8}{fast:>10.2f}{slow:>10.2f}{ratio:>7.1f}×")


if __name__ == "__main__":
    main()
