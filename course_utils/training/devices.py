"""What depends on the machine: device, threads, precision, seeds."""

from __future__ import annotations

import contextlib
import os
import random

import numpy as np
import torch
from torch import nn

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
    """Trainable numbers; a table that two layers share counts once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def full_precision() -> contextlib.AbstractContextManager[None]:
    """float32 throughout."""
    return contextlib.nullcontext()


def half_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """bfloat16 for matrix products where the GPU has it, else float32.

    bfloat16 has float32's range with fewer digits, so losses need no scaling.
    """
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return full_precision()
