"""From the rows of a baseline to the jobs of its scripts; no torch here."""

import os
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from unifiednn_core.architectures import registry
from unifiednn_core.baselines.job import Job
from unifiednn_core.choices import CLASSIFICATION, CRITERIA, LR_SCHEDULERS, OPTIMIZERS
from unifiednn_core.home import Home
from unifiednn_core.spec import RunSpec, SubModelSpec
from unifiednn_core.store.schema import SubModelRow

# As many points of a curve as a hybrid stores (runtime/recorder.py), so that both are drawn alike.
STEP_ROWS_OF_RUN = 6000
FEWEST_STEP_ROWS = 200


@dataclass(frozen=True, slots=True)
class Places:
    """Where a baseline keeps its files."""

    home: Home
    run_id: str

    @property
    def folder(self) -> Path:
        """Jobs and logs of the scripts."""
        return self.home.run(self.run_id) / "baseline"

    def job(self, name: str) -> Path:
        """Job of one script."""
        return self.folder / f"{name}.json"

    def log(self, name: str) -> Path:
        """What one script printed to stderr."""
        return self.folder / f"{name}.log"

    def weights(self, name: str) -> Path:
        """Trained weights of one sub-model."""
        return self.home.run(self.run_id) / "models" / f"{name}.safetensors"

    def stored(self, reference: str) -> str:
        """File that a spec names by content."""
        return str(self.home.file(reference.removeprefix("sha256:")))

    def create(self) -> None:
        """Make the folders; raises `OSError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.home.run(self.run_id) / "models").mkdir(parents=True, exist_ok=True)


def job_of(places: Places, spec: RunSpec, part: SubModelSpec, row: SubModelRow, *, threads: int, peers: int) -> Job:
    """Job of one sub-model, one of `peers` in the run."""
    asked, architecture, start = part.hyperparameters, part.architecture, part.start_from
    schedule = asked.lr_scheduler
    return Job(
        name=part.name,
        device=spec.device,
        threads=threads,
        seed=spec.seed_of(part),
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        batch_split=asked.batch_split,
        drop_last=asked.drop_last,
        model=places.stored(part.model),
        model_format=row.model_format,
        architecture_source=None if architecture is None else str(registry.source_file(architecture.name)),
        architecture_args={} if architecture is None else architecture.args,
        train_data=places.stored(part.train_data),
        test_data=None if part.test_data is None else places.stored(part.test_data),
        scale=part.scale,
        mean=part.mean,
        std=part.std,
        optimizer=OPTIMIZERS[asked.optimizer].torch_class,
        optimizer_args={"lr": asked.learning_rate, **asked.optimizer_args},
        criterion=CRITERIA[asked.criterion].torch_class,
        criterion_args=asked.criterion_args,
        scores_classes=asked.criterion in CLASSIFICATION,
        ignored_label=asked.ignored_label,
        lr_scheduler=None if schedule is None else LR_SCHEDULERS[schedule.name].torch_class,
        lr_scheduler_args={} if schedule is None else schedule.args,
        lr_per_step=schedule is not None and schedule.per == "step",
        lr_by_loss=schedule is not None and LR_SCHEDULERS[schedule.name].measured,
        accumulation_steps=asked.accumulation_steps,
        clip_norm=None if asked.gradient_clipping is None else asked.gradient_clipping.norm,
        clip_value=None if asked.gradient_clipping is None else asked.gradient_clipping.value,
        warm_up_steps=0 if asked.warm_up is None else asked.warm_up.steps,
        early_stopping=None if asked.early_stopping is None else asked.early_stopping.model_dump(mode="json"),
        start_from=None if start is None else places.stored(start.file),
        take="weights" if start is None else start.take,
        report_every_steps=stride(row.steps_total, peers),
        weights=str(places.weights(part.name)),
        parent_pid=os.getpid(),
    )


def stride(steps_total: int, peers: int) -> int:
    """Steps whose mean is one row of the curve."""
    return max(1, ceil(steps_total / max(FEWEST_STEP_ROWS, STEP_ROWS_OF_RUN // peers)))
