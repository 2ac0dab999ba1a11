"""Training, the same loop for every lesson: from a minute on one CPU core to several GPUs under torchrun."""

from course_utils.training.checkpoints import Checkpoints, average, write_atomically
from course_utils.training.devices import (
    choose_device,
    choose_threads,
    full_precision,
    half_precision,
    parameter_count,
    seed_everything,
)
from course_utils.training.loop import History, OutOfMemory, fit
from course_utils.training.losses import label_smoothed_loss, sequence_loss
from course_utils.training.processes import Processes
from course_utils.training.schedules import inverse_root, noam_rate, warmup_then_decay

__all__ = [
    "Checkpoints",
    "History",
    "OutOfMemory",
    "Processes",
    "average",
    "choose_device",
    "choose_threads",
    "fit",
    "full_precision",
    "half_precision",
    "inverse_root",
    "label_smoothed_loss",
    "noam_rate",
    "parameter_count",
    "seed_everything",
    "sequence_loss",
    "warmup_then_decay",
    "write_atomically",
]
