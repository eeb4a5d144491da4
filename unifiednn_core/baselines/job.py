"""What one plain script trains, as plain values: reading it needs nothing but the standard library."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sub-model with everything that its training follows from. Classes are named as torch names them."""

    name: str
    device: str
    """`auto`, `cpu` or `cuda:N`."""
    threads: int
    seed: int
    epochs: int
    batch_size: int
    batch_split: int
    drop_last: bool
    model: str
    """File with the network or its weights."""
    model_format: str
    architecture_source: str | None
    """File with the function `build`, where `model` holds weights alone."""
    architecture_args: dict[str, Any]
    train_data: str
    test_data: str | None
    scale: float | None
    mean: float | None
    std: float | None
    optimizer: str
    optimizer_args: dict[str, Any]
    criterion: str
    criterion_args: dict[str, Any]
    scores_classes: bool
    """Whether targets are class numbers, so that an accuracy exists."""
    ignored_label: int | None = None
    """Class number that the criterion leaves out."""
    lr_scheduler: str | None
    lr_scheduler_args: dict[str, Any]
    lr_per_step: bool
    lr_by_loss: bool = False
    """Whether the LR scheduler is given the loss of the epoch: of the test data, without them of the training."""
    accumulation_steps: int = 1
    """Batches that make one step."""
    clip_norm: float | None = None
    clip_value: float | None = None
    warm_up_steps: int = 0
    """Steps over which the learning rate grows to what it is; 0 for none."""
    early_stopping: dict[str, Any] | None = None
    """Metric, patience and min_delta of `spec.EarlyStopping`."""
    start_from: str | None
    """Checkpoint or weights to begin with."""
    take: str
    """What of `start_from`: `everything` or `weights`."""
    report_every_steps: int
    """Steps whose mean is one row of the curve."""
    weights: str
    """File to write at the end (safetensors)."""
    parent_pid: int | None
    """Process without which this one is to end; None for a script started by hand."""

    def write(self, path: Path) -> None:
        """Write the job as JSON; raises `OSError`."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Job":
        """Read what `write` wrote; raises `OSError`, `ValueError` or `TypeError`."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
