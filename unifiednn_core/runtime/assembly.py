"""From specs and files to sub-models that are ready to train: definition, data, progress, hybrid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_store import CheckpointStore
from unifiednn_core.engine.device import preserved
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.job import Job
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.start import initial_state
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.registry import sniff
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.store.telemetry import SHOWN_FIGURES


@dataclass(frozen=True, slots=True)
class Ingredients:
    """Everything read from files for one sub-model. Reading it touches neither the hybrid nor any RNG."""

    spec: SubModelSpec
    seed: int
    definition: Definition
    data: Mapping[str, Dataset]
    """By content hash."""
    progress: Checkpoint | None
    """Where it resumes: its own last checkpoint, or the one that it starts from."""
    weights: Mapping[str, torch.Tensor] | None
    """Weights that it starts from."""
    checkpoint: Path | None = None
    """Its own newest checkpoint."""

    @property
    def checkpoint_step(self) -> int:
        """Step of its own newest checkpoint; 0 without one."""
        return 0 if self.checkpoint is None or self.progress is None else self.progress.step

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the sub-model's row at the point where it resumes."""
        if self.progress is None:
            return {"steps_done": 0, "epochs_done": 0, **dict.fromkeys(SHOWN_FIGURES)}
        figures = self.progress.state["metrics"]["figures"]
        last = {name: figures[-1][name] for name in SHOWN_FIGURES} if figures else dict.fromkeys(SHOWN_FIGURES)
        columns = {"steps_done": self.progress.step, "epochs_done": self.progress.epoch, **last}
        if self.checkpoint is not None:  # a worker that was killed after the rename has not recorded it
            size_bytes = self.checkpoint.stat().st_size
            columns |= {"checkpoint": self.checkpoint.name, "checkpoint_step": self.progress.step,
                        "checkpoint_bytes": size_bytes}  # fmt: skip
        return columns


@dataclass(slots=True)
class Workbench:
    """The hybrid of one run with everything that its sub-models share."""

    home: Home
    run_id: str
    device: torch.device
    hybrid: HybridModel = field(default_factory=HybridModel)
    definitions: dict[str, Definition] = field(default_factory=dict)
    data: ResidentData = field(init=False)

    def __post_init__(self) -> None:
        self.data = ResidentData(self.device)

    def checkpoints(self, name: str) -> CheckpointStore:
        """The checkpoints of a sub-model."""
        return CheckpointStore(self.home.checkpoints(self.run_id, name))

    def read(
        self, spec: RunSpec, name: str, filenames: Mapping[str, str], warn: Callable[[Sequence[str]], object]
    ) -> Ingredients:
        """Read the files of a sub-model by content. Safe in any thread. Raises `BadInput` or `BadCheckpoint`.

        `warn` takes sentences about damaged checkpoints.
        """
        [submodel] = [part for part in spec.submodels if part.name == name]
        definition = _definition(self.home, submodel, filenames)
        files = [file for file in (submodel.train_data, submodel.test_data) if file is not None]
        data = {file: self.data.peek(file) or read_dataset(stored(self.home, file)) for file in dict.fromkeys(files)}
        store = self.checkpoints(name)
        own, _ = store.latest(warn)
        progress, weights = own, None
        if own is None and submodel.start_from is not None:
            begun = initial_state(stored(self.home, submodel.start_from.file), submodel.start_from.take)
            progress, weights = (begun, None) if isinstance(begun, Checkpoint) else (None, begun)
        newest = None if own is None else store.newest_path()
        return Ingredients(submodel, spec.seed_of(submodel), definition, data, progress, weights, newest)

    def add(self, read: Ingredients) -> SubModel:
        """Merge a sub-model into the hybrid and restore its progress; after an error nothing of it stays.

        Draws from the default generators: call it inside `preserved`. Raises `BadCheckpoint`.
        """
        train, *test = [
            self.data.hold(sha256, partial(read.data.__getitem__, sha256))
            for sha256 in (read.spec.train_data, read.spec.test_data)
            if sha256 is not None
        ]
        submodel = SubModel(
            read.spec, read.definition, seed=read.seed, train=train, test=test[0] if test else None, device=self.device
        )
        try:
            if read.weights is not None:
                submodel.module.load_state_dict(read.weights)
            if read.progress is not None:
                submodel.restore(read.progress)
            self.hybrid.add(submodel)
        except Exception:  # undo the merge, whatever went wrong
            submodel.release()
            raise
        self.definitions[read.spec.name] = read.definition
        return submodel

    def job(self, row: SubModelRow, read: Ingredients, in_line_since: int) -> Job:
        """A sub-model, merged, and where it stands according to its row. Raises `BadCheckpoint`."""
        with preserved(self.device):
            submodel = self.add(read)
        state = State.PAUSED if row.state == State.PAUSED.value else State.QUEUED
        return Job(submodel, in_line_since=in_line_since, state=state, service_s=row.service_s, paused_s=row.paused_s,
                   captured_step=read.checkpoint_step)  # fmt: skip


def stored(home: Home, reference: str) -> Path:
    """Path of a file that a spec names by content."""
    return home.file(reference.removeprefix("sha256:"))


def _definition(home: Home, submodel: SubModelSpec, filenames: Mapping[str, str]) -> Definition:
    """Read the model file of a sub-model again, with all checks of the import. Raises `BadInput`."""
    path = stored(home, submodel.model)
    model_format = sniff(path)
    if model_format is None:
        raise BadInput.of(
            "Model file gone",
            field=f"submodels.{submodel.name}.model",
            message="The stored model file cannot be recognised any more.",
            remedy="Submit the model again.",
        )
    definition = model_format.read(path, submodel.architecture)
    return replace(definition, filename=filenames.get(submodel.model, ""))
