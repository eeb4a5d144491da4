"""What one plain script trains, as plain values. Reading it needs only the standard library."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """Everything that the training of one sub-model follows from. Classes have the names that torch gives them."""

    name: str
    device: str  # `auto`, `cpu` or `cuda:N`
    threads: int
    seed: int
    epochs: int
    batch_size: int
    batch_split: int
    drop_last: bool
    model: str  # file with the network or its weights
    model_format: str
    architecture_source: str | None  # file with the function `build`, if `model` holds only weights
    architecture_args: dict[str, Any]
    train_data: str
    test_data: str | None
    meaning: dict[str, Any]  # entries of the sub-model's spec that say what a step means, such as `scale`
    optimizer: str
    optimizer_args: dict[str, Any]
    parameter_groups: list[dict[str, Any]] = field(
        default_factory=list
    )  # each with `names` (patterns), `frozen`, and `args` of its own
    criterion: str  # empty if the output of the network is the loss
    criterion_args: dict[str, Any]
    fast: bool = False  # whether the profile of the run is `fast`
    precision: str = "float32"  # of layers, by autocast; only where `fast`
    class_weights: str | None = None  # this and the next one: entries of the spec of the same name
    sampler: dict[str, Any] | None = None
    scores_classes: bool  # whether targets are class numbers, so that an accuracy exists
    ignored_label: int | None = None  # class number that the criterion ignores
    lr_scheduler: str | None  # a class of torch, or a function of transformers
    lr_scheduler_args: dict[str, Any]  # of SequentialLR: `schedulers`, pairs of name and arguments, and `milestones`
    lr_steps_by: str = "epoch"  # `epoch`, `step`, or `loss`: the epoch's test loss, without test data its training loss
    accumulation_steps: int = 1  # batches per step
    gradient_clipping: dict[str, Any] | None = None  # this and the next three: entries of the spec of the same name
    warm_up: dict[str, Any] | None = None
    ema: dict[str, Any] | None = None
    early_stopping: dict[str, Any] | None = None
    start_from: str | None  # checkpoint or weights to start from
    take: str  # what to take of `start_from`: `everything` or `weights`
    start_weights: dict[str, str | None] | None = None  # this and the next: `names` and `entry` of `start_from`, and
    model_weights: dict[str, str | None] | None = None  # of `architecture`: how a file's weights meet the network
    report_every_steps: int  # steps averaged in one row of the curve
    weights: str  # output file (safetensors)
    parent_pid: int | None  # the script ends with this process; None for a script started by hand

    def write(self, path: Path) -> None:
        """Write the job as JSON. Raises `OSError`."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "ScriptJob":
        """Read a job that `write` wrote. Raises `OSError`, `ValueError` or `TypeError`."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
