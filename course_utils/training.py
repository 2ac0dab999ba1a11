"""One training loop for every lesson, and the two choices a machine asks for: the device and the threads."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from tqdm.auto import tqdm

from course_utils.text import PAD, Batch

SMALL_MODEL = 2_000_000  # parameters


def seed_everything(seed: int = 0) -> torch.Generator:
    """Seed Python, NumPy and torch; returns a generator of its own for batches."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def choose_device() -> torch.device:
    """CUDA, then Apple's MPS, then the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def choose_threads(parameters: int) -> int:
    """How many CPU threads to use: one for a small model.

    A second thread gains a small model little on an idle machine, and costs it several times over on a busy one.
    """
    return 1 if parameters < SMALL_MODEL else os.cpu_count() or 1


def parameter_count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def sequence_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats over real tokens: logits (B, T, V), labels (B, T) with ``PAD`` left out."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)


def warmup_then_decay(step: int, steps: int, warmup: int) -> float:
    """A factor for the peak rate: straight up to 1 over ``warmup`` steps, then straight down to 0 at ``steps``."""
    return min((step + 1) / max(1, warmup), max(0.0, (steps - step) / max(1, steps - warmup)))


@dataclass
class History:
    """What happened in training, one entry a step."""

    losses: list[float] = field(default_factory=list)


def fit(
    model: nn.Module,
    batches: Iterator[Batch],
    steps: int,
    *,
    rate: float = 3e-3,
    warmup: int = 50,
    clip: float = 1.0,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = sequence_loss,
    label: str = "training",
) -> History:
    """Train ``model`` in place with teacher forcing, Adam, warm-up and gradient clipping.

    Args:
        model: called as ``model(source, decoder_inputs)``, gives logits (B, T, V).
        batches: gives a ``Batch`` a step.
        steps: how many updates. The kernel's stop button ends training early and keeps what was learned.
        rate: the highest learning rate.
        clip: gradients longer than this are scaled down to it (Sutskever et al. 2014, section 3.4).
        label: what the progress bar is called.
    """
    torch.set_num_threads(choose_threads(parameter_count(model)))
    device = next(model.parameters()).device
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: warmup_then_decay(step, steps, warmup))
    history = History()
    model.train()
    with tqdm(total=steps, desc=label, leave=False) as bar:
        try:
            for _ in range(steps):
                batch = next(batches).to(device)
                value = loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:])
                optimiser.zero_grad()
                value.backward()
                nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimiser.step()
                schedule.step()
                history.losses.append(value.item())
                bar.update()
                bar.set_postfix(loss=f"{history.losses[-1]:.3f}", refresh=False)
        except KeyboardInterrupt:
            print(f"Stopped after {len(history.losses)} of {steps} steps; the model keeps what it has learned.")
    model.eval()
    return history
