"""Several processes that train one model, as torchrun starts them: each gets a share of every batch.

Gradients are averaged by DistributedDataParallel (Li et al. 2020), over gloo on CPUs and nccl on NVIDIA GPUs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Processes:
    """Which process this is, and how many there are. One alone needs no torchrun."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Processes:
        """Join the others if torchrun started this process; alone otherwise. Call ``leave`` at the end."""
        if "WORLD_SIZE" not in os.environ:
            return cls()
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    def leave(self) -> None:
        if self.world > 1:
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this is the one process that writes files and shows progress."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """``model``, with gradients averaged over all processes if there are several."""
        return nn.parallel.DistributedDataParallel(model) if self.world > 1 else model

    def total(self, count: torch.Tensor) -> torch.Tensor:
        """The sum of a number over all processes."""
        if self.world > 1:
            count = count.clone()
            dist.all_reduce(count)
        return count

    def wait(self) -> None:
        """Until all have come here."""
        if self.world > 1:
            dist.barrier()
