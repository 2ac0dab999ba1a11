"""The loop: batch, loss, gradient, step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from course_utils.text import PAD, Batch
from course_utils.training.checkpoints import Checkpoints
from course_utils.training.devices import choose_threads, full_precision, half_precision, parameter_count
from course_utils.training.losses import sequence_loss
from course_utils.training.processes import Processes
from course_utils.training.schedules import warmup_then_decay

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class History:
    """What happened in training, one entry a step; ``seconds`` counts this call only."""

    losses: list[float] = field(default_factory=list)
    tokens: int = 0  # real target tokens
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class OutOfMemory(RuntimeError):
    """The device has no room for the batch; the text says which knob to turn."""

    def _render_traceback_(self) -> list[str]:
        return [f"OutOfMemory: {self}"]


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    steps: int,
    *,
    rate: float = 3e-3,
    warmup: int = 50,
    schedule: Callable[[int, int, int], float] = warmup_then_decay,
    betas: tuple[float, float] = (0.9, 0.999),
    clip: float = 1.0,
    loss: Loss = sequence_loss,
    checkpoints: Checkpoints | None = None,
    processes: Processes | None = None,
    fast: bool = False,
    threads: int | None = None,
    label: str = "training",
) -> History:
    """Train ``model`` in place with teacher forcing, Adam, a schedule and gradient clipping.

    Args:
        model: called as ``model(source, decoder_inputs)``, gives logits (B, T, V).
        batches: gives a ``Batch`` a step; with ``processes``, this process's share of it.
        steps: how many updates in all. The stop button ends training early and keeps what was learned.
        rate: the highest learning rate.
        warmup, schedule: the rate at a step is ``rate * schedule(step, steps, warmup)``.
        betas: Adam's; the paper uses (0.9, 0.98).
        clip: gradients longer than this are scaled down to it (Sutskever et al. 2014, section 3.4).
        loss: mean over the real tokens of (logits, labels).
        checkpoints: where to save the state, and to go on from when there is one. Going on gives the same weights as
            never having stopped, for batches that depend on a seed alone.
        processes: from ``Processes.join`` under torchrun.
        fast: bfloat16 and ``torch.compile``, on a GPU that has them.
        threads: of the CPU; None leaves it to ``choose_threads``.
        label: what the progress bar is called.

    Raises:
        OutOfMemory: the batch does not fit.
    """
    torch.set_num_threads(threads or choose_threads(parameter_count(model)))
    trainer = _Trainer(model, steps, rate, warmup, schedule, betas, clip, loss, processes or Processes(), fast)
    if checkpoints is not None:
        trainer.resume(checkpoints)
    return trainer.run(_after(batches, trainer.done), steps, checkpoints, label)


def _after(batches: Iterable[Batch], done: int) -> Iterator[Batch]:
    """The batches from the step ``done`` on; a source that can ``skip`` need not make the ones before."""
    if done and hasattr(batches, "skip"):
        return batches.skip(done)
    return islice(batches, done, None)


class _Trainer:
    """One training: the model, its optimiser, and how far they are."""

    def __init__(
        self,
        model: nn.Module,
        steps: int,
        rate: float,
        warmup: int,
        schedule: Callable[[int, int, int], float],
        betas: tuple[float, float],
        clip: float,
        loss: Loss,
        processes: Processes,
        fast: bool,
    ) -> None:
        self.model, self.clip, self.loss, self.processes = model, clip, loss, processes
        self.device = next(model.parameters()).device
        fused = self.device.type in ("cpu", "cuda")  # one pass over all weights in place of one a tensor
        self.optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=betas, eps=1e-9, fused=fused)
        self.rate_at = lambda step: rate * schedule(step, steps, warmup)
        self.precision = (lambda: half_precision(self.device)) if fast else full_precision
        self.forward = processes.wrap(model)
        if fast and self.device.type == "cuda":
            self.forward = torch.compile(self.forward, dynamic=True)
        self.done = 0
        self.history = History()

    def resume(self, checkpoints: Checkpoints) -> None:
        state = checkpoints.latest()
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        _set_random_state(state["random"])
        self.done, self.history.losses = state["step"], list(state["losses"])

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": _random_state(),
            "losses": self.history.losses,
        }

    def run(self, batches: Iterator[Batch], steps: int, checkpoints: Checkpoints | None, label: str) -> History:
        self.model.train()
        begun = time.monotonic()
        show = self.processes.first
        with tqdm(total=steps, initial=self.done, desc=label, leave=False, disable=not show) as bar:
            try:
                while self.done < steps:
                    self._step(next(batches))
                    self.history.seconds = time.monotonic() - begun
                    bar.update()
                    speed = f"{self.history.tokens_per_second:,.0f}"
                    bar.set_postfix({"loss": f"{self.history.losses[-1]:.3f}", "tokens/s": speed}, refresh=False)
                    if checkpoints is not None and (self.done % checkpoints.every == 0 or self.done == steps):
                        self._save(checkpoints)
            except KeyboardInterrupt:
                kept = "the model keeps what it has learned."
                if checkpoints is not None and checkpoints.files:
                    kept += f" Run it again to go on from {checkpoints.files[-1].name}."
                print(f"Stopped after {self.done} of {steps} steps; {kept}")
        self.model.eval()
        return self.history

    def _step(self, batch: Batch) -> None:
        try:
            self._update(batch.to(self.device))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            (rows, S), T = batch.source.shape, batch.target.shape[1]
            raise OutOfMemory(
                f"{self.device} has no room for a batch of {rows} sentences of up to {max(S, T)} tokens. Use smaller "
                "batches (a smaller token budget), then a smaller d_model or fewer layers. On a GPU, also restart "
                "other notebooks that hold its memory."
            ) from None

    def _update(self, batch: Batch) -> None:
        labels = batch.target[:, 1:]
        mine = (labels != PAD).sum()
        everyone = self.processes.total(mine)
        with self.precision():
            logits = self.forward(batch.source, batch.target[:, :-1])
            mean = self.loss(logits, labels) if mine else logits.sum() * 0  # a share may be empty
        # Processes average their gradients, and a share with more tokens has to count for more.
        value = mean * (mine * self.processes.world / everyone)
        self.optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate_at(self.done)
        self.optimiser.step()
        self.history.losses.append((self.processes.total(value.detach()) / self.processes.world).item())
        self.history.tokens += int(everyone)
        self.done += 1

    def _save(self, checkpoints: Checkpoints) -> None:
        if self.processes.first:
            recent = self.history.losses[-checkpoints.every :]
            entry = {
                "loss": round(sum(recent) / len(recent), 4),
                "rate": self.rate_at(self.done - 1),
                "tokens_per_second": round(self.history.tokens_per_second),
            }
            self.model.eval()
            random = _random_state()
            state = self.state()
            with torch.no_grad():
                checkpoints.save(self.done, state, entry)
            _set_random_state(random)  # measuring must not change what comes next
            self.model.train()
        self.processes.wait()


def _random_state() -> dict[str, Any]:
    """Of torch on the CPU and on every GPU: dropout draws from them."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
