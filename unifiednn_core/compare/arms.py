"""The arms of a comparison: rows of a baseline, its thread budget, its files and the jobs of its scripts. No torch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.base.paths import Home
from unifiednn_core.compare.fingerprint import asked_sha256
from unifiednn_core.compare.job import ScriptJob
from unifiednn_core.formats.architectures import registry
from unifiednn_core.spec.choices import CLASSIFICATION, CRITERIA, LR_SCHEDULES, OPTIMIZERS, SEQUENCE
from unifiednn_core.spec.hyperparameters import LRSchedulerSpec, ParameterGroup
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import MEANING, Mode, RunSpec, SubModelSpec
from unifiednn_core.spec.split import in_one_piece, parts_of, split_in
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import curve_stride

_SAME_TRAINING = ("name", "fingerprint", "spec", "threads", "prediction")
_SAME_FACTS = ("files", "asked_sha256", "measured_on")
_SAME_SUBMODEL = ("name", "arrival", "priority", "model_format", "parameters", "memory_key")
_LENGTH = ("epochs", "steps_total")
_OF_WEIGHTS = {"names", "entry"}
_SAME_HYPERPARAMETERS = (
    "epochs",
    "batch_size",
    "batch_split",
    "drop_last",
    "criterion_args",
    "accumulation_steps",
    "gradient_clipping",
    "warm_up",
    "precision",
    "ema",
    "class_weights",
    "sampler",
    "early_stopping",
)
_SPOILED = {State.STOPPING, *ENDED - {State.COMPLETED}}


def is_whole(run: RunRow, rows: Sequence[SubModelRow]) -> bool:
    """Whether all sub-models of a baseline are done, running or queued."""
    states = {State(run.state), *(State(row.state) for row in rows)}
    return states == {State.COMPLETED} or not states & _SPOILED


def share_threads(mode: str, budget: int, names: Sequence[str]) -> dict[str, int]:
    """Share the threads among processes: an arm has `budget` threads at any time, a process at least one."""
    if mode != "concurrent":
        return dict.fromkeys(names, budget)
    each, left = divmod(budget, len(names))
    return {name: max(1, each + (place < left)) for place, name in enumerate(names)}


def as_baseline(
    run: RunRow, rows: Sequence[SubModelRow], mode: Mode, *, run_id: str, now_s: float
) -> tuple[RunRow, list[SubModelRow]]:
    """Make the rows of the baseline of a run, queued at `now_s`. Split networks train in one piece."""
    same = {column: getattr(run, column) for column in _SAME_TRAINING}
    same["device"] = run.device if run.hybrid is None else run.hybrid.device or run.device
    facts = {key: run.environment[key] for key in _SAME_FACTS}
    last_of = dict[str, str]()
    if split_in(run.spec):
        spec = RunSpec.model_validate(run.spec)
        last_of = {one.name: parts_of(one.name, one.split)[-1] for one in spec.submodels if one.split and one.joins}
        spec = spec.model_copy(update={"submodels": in_one_piece(spec.submodels)})
        same["spec"], facts["asked_sha256"] = spec.model_dump(mode="json", exclude_none=True), asked_sha256(spec)
    baseline = RunRow(**same, id=run_id, state=State.QUEUED.value, mode=mode, created_at_s=now_s, environment=facts)
    trained, known = {part["name"] for part in same["spec"]["submodels"]}, {row.name: row for row in rows}
    copies = [
        {column: getattr(row, column) for column in _SAME_SUBMODEL}
        | {column: getattr(known[last_of.get(row.name, row.name)], column) for column in _LENGTH}
        for row in rows
        if row.name in trained
    ]
    return baseline, [SubModelRow(**columns, run_id=run_id, state=State.QUEUED.value) for columns in copies]


@dataclass(frozen=True, slots=True)
class BaselineFiles:
    """Paths of the files of a baseline."""

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
        """Stderr of one script."""
        return self.folder / f"{name}.log"

    def weights(self, name: str) -> Path:
        """Trained weights of one sub-model."""
        return self.home.run(self.run_id) / "models" / f"{name}.safetensors"

    def stored(self, reference: str) -> str:
        """Stored file that a spec names by its hash."""
        return str(self.home.file(reference.removeprefix("sha256:")))

    def create(self) -> None:
        """Create the folders. Raises `OSError`."""
        for folder in (self.folder, self.weights("").parent):
            folder.mkdir(parents=True, exist_ok=True)


def job_of(
    files: BaselineFiles, spec: RunSpec, part: SubModelSpec, row: SubModelRow, *, threads: int, peers: int
) -> ScriptJob:
    """Make the job of one sub-model, one of `peers` in the run."""
    asked, architecture, start = part.hyperparameters, part.architecture, part.start_from
    schedule, document = asked.lr_scheduler, asked.model_dump(mode="json")
    by_loss = schedule is not None and LR_SCHEDULES[schedule.name].measured
    return ScriptJob(
        **{column: document[column] for column in _SAME_HYPERPARAMETERS},
        name=part.name,
        meaning=part.model_dump(mode="json", include=MEANING),
        device=spec.device,
        fast=spec.profile == "fast",
        threads=threads,
        seed=spec.seed_of(part),
        model=files.stored(part.model),
        model_format=row.model_format,
        architecture_source=None if architecture is None else str(registry.source_file(architecture.name)),
        architecture_args={} if architecture is None else registry.arguments(architecture.name, architecture.args),
        train_data=files.stored(part.train_data),
        test_data=None if part.test_data is None else files.stored(part.test_data),
        optimizer=OPTIMIZERS[asked.optimizer].torch_class,
        optimizer_args={"lr": asked.learning_rate, **asked.optimizer_args},
        parameter_groups=[_group_of(group) for group in asked.parameter_groups],
        criterion=CRITERIA[asked.criterion].torch_class,
        scores_classes=asked.criterion in CLASSIFICATION,
        ignored_label=asked.ignored_label,
        lr_scheduler=None if schedule is None else LR_SCHEDULES[schedule.name].torch_class,
        lr_scheduler_args={} if schedule is None else _lr_scheduler_args(schedule),
        lr_steps_by="loss" if by_loss else "epoch" if schedule is None else schedule.per,
        start_from=None if start is None else files.stored(start.file),
        take="weights" if start is None else start.take,
        start_weights=None if start is None else start.model_dump(include=_OF_WEIGHTS),
        model_weights=None if architecture is None else architecture.model_dump(include=_OF_WEIGHTS),
        report_every_steps=curve_stride(row.steps_total, peers),
        weights=str(files.weights(part.name)),
        parent_pid=os.getpid(),
    )


def _group_of(asked: ParameterGroup) -> dict[str, object]:
    rate = {} if asked.learning_rate is None else {"lr": asked.learning_rate}
    return {"names": asked.names, "frozen": asked.frozen, "args": rate | asked.optimizer_args}


def _lr_scheduler_args(asked: LRSchedulerSpec) -> dict[str, object]:
    if asked.name != SEQUENCE:
        return asked.args
    each = [[LR_SCHEDULES[stage.name].torch_class, stage.args] for stage in asked.of]
    return {"schedulers": each, "milestones": asked.milestones}
