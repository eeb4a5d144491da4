"""From specs and files to sub-models that are ready to train: definition, data, progress, hybrid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import DataSource, read_dataset
from unifiednn_core.data.streamed import Streamed
from unifiednn_core.engine.binding import part_of, stored_outputs
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_file import CheckpointStore
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.placed import placed
from unifiednn_core.engine.resident_data import Lease, ResidentData
from unifiednn_core.engine.start import initial_state, load_weights
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.cut import joined
from unifiednn_core.formats.registry import sniff
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.spec.split import waits_for
from unifiednn_core.store.hybrids import address
from unifiednn_core.store.telemetry import SHOWN_FIGURES


@dataclass(frozen=True, slots=True)
class Ingredients:
    """Everything read from the files of one sub-model. Reading touches neither the hybrid nor any RNG."""

    key: str
    """Its name in the hybrid."""
    spec: SubModelSpec
    seed: int
    definition: Definition
    data: Mapping[str, DataSource]
    """By content hash."""
    data_names: Mapping[str, str]
    """Original file names, by content hash."""
    progress: Checkpoint | None
    """Where it resumes: its own last checkpoint, or the one that it starts from."""
    weights: Mapping[str, torch.Tensor] | None
    """Weights that it starts from."""
    checkpoint: Path | None = None
    """Its own newest checkpoint."""
    moves: Literal["same", "any"] = "any"
    """Kinds of device on which it may go on from its own checkpoint."""
    trained: tuple[Mapping[str, torch.Tensor], ...] = ()
    """Weights of the parts of its network that it waited for, in order."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the sub-model's row at the point where it resumes."""
        columns: dict[str, Any] = {"steps_done": 0, "epochs_done": 0, **dict.fromkeys(SHOWN_FIGURES)}
        progress, path = self.progress, self.checkpoint
        if progress is not None:
            last = progress.state["metrics"]["last"] or columns
            columns |= {"steps_done": progress.step, "epochs_done": progress.epoch}
            columns |= {name: last[name] for name in SHOWN_FIGURES}
            if path is not None:  # a worker that was killed after the rename has not recorded it
                size_bytes = path.stat().st_size
                columns |= {"checkpoint": path.name, "checkpoint_step": progress.step, "checkpoint_bytes": size_bytes}
        return columns


@dataclass(slots=True)
class Workbench:
    """The hybrid of one worker with everything that its sub-models share. Sub-models are named by their keys."""

    home: Home
    hybrid_id: str
    device: torch.device
    fast: bool = False
    """Whether its profile is `fast`."""
    also: tuple[torch.device, ...] = ()
    """Further devices of this run."""
    hybrid: HybridModel = field(default_factory=HybridModel)
    definitions: dict[str, Definition] = field(default_factory=dict)
    """By key."""
    data: ResidentData = field(init=False)

    def __post_init__(self) -> None:
        self.data = ResidentData(self.device)

    def checkpoints(self, key: str) -> CheckpointStore:
        """The checkpoints of a sub-model."""
        return CheckpointStore(self.home.checkpoints(*address(self.hybrid_id, key)))

    def read(
        self, key: str, spec: RunSpec, filenames: Mapping[str, str], warn: Callable[[Sequence[str]], object]
    ) -> Ingredients:
        """Read the files of a sub-model by content. Safe in any thread. Raises `BadInput` or `BadCheckpoint`.

        `warn` takes sentences about damaged checkpoints.
        """
        name = address(self.hybrid_id, key)[1]
        [submodel] = [part for part in spec.submodels if part.name == name]
        path = stored(self.home, submodel.model)
        model_format = sniff(path)
        if model_format is None:
            message = "The stored model file cannot be recognised any more."
            raise BadInput.of("Model file gone", f"submodels.{name}.model", message, "Submit the model again.")
        definition = model_format.read(path, submodel.architecture)
        definition = replace(definition, filename=filenames.get(submodel.model, ""))
        files = [file for file in (submodel.train_data, submodel.test_data) if file is not None]
        streamed = submodel.loading == "streamed"
        data = {file: self.data.peek(file) or self._dataset(file, streamed=streamed) for file in dict.fromkeys(files)}
        store = self.checkpoints(key)
        own, _ = store.latest(warn)
        progress, weights = own, None
        if own is None and submodel.start_from is not None:
            start = submodel.start_from
            begun = initial_state(stored(self.home, start.file), start.take, start.entry)
            progress, weights = (begun, None) if isinstance(begun, Checkpoint) else (None, begun)
        newest = None if own is None else store.newest_path()
        seed = spec.seed_of(submodel)
        models = self.home.run(address(self.hybrid_id, key)[0]) / "models"
        trained = tuple(load_file(models / f"{part}.safetensors") for part in waits_for(submodel))
        return Ingredients(
            key,
            submodel,
            seed,
            definition,
            data,
            filenames,
            progress,
            weights,
            newest,
            moves=spec.moves,
            trained=trained,
        )

    def _dataset(self, file: str, *, streamed: bool) -> DataSource:
        """Open a data set, or read it with its checksum, here, where no training waits and no network has seen it."""
        path = stored(self.home, file)
        found = Streamed.of_file(path, self.device) if streamed else None
        return read_dataset(path).checksummed() if found is None else found

    def add(self, read: Ingredients) -> SubModel:
        """Merge a sub-model into the hybrid and restore its progress; after an error nothing of it stays.

        Draws from the default generators: call it inside `preserved`. Raises `BadCheckpoint`, and `OtherKind` where its
        own checkpoint may not go on.
        """
        train, *test = [
            self.data.hold(sha256, partial(read.data.__getitem__, sha256), read.data_names.get(sha256))
            for sha256 in (read.spec.train_data, read.spec.test_data)
            if sha256 is not None
        ]
        try:
            definition = part_of(read.spec, read.definition, train.held)
            if (found := placed(read.spec, definition, train.held)) is not None:
                definition = found.of(definition, (self.device, *self.also) if found.claims else None)
            if read.trained and definition.part is not None:  # its inputs are what the parts before it put out
                stored = [self._stored(read, lease) for lease in (train, *test)]
                for lease in (train, *test):
                    lease.release()
                train, *test = stored
        except Exception:
            for lease in (train, *test):
                lease.release()
            raise
        submodel = SubModel(
            read.spec,
            definition,
            name=read.key,
            seed=read.seed,
            train=train,
            test=test[0] if test else None,
            device=self.device,
            fast=self.fast,
        )
        try:
            if read.trained and definition.part is None and read.progress is None:
                load_weights(submodel.module, joined(read.trained, submodel.module.state_dict()))
            if read.weights is not None:
                start = read.spec.start_from
                load_weights(submodel.module, read.weights, None if start is None else start.names)
            if read.progress is not None:
                submodel.restore(read.progress, moves=read.moves if read.checkpoint is not None else "any")
            self.hybrid.add(submodel)
        except Exception:  # undo the merge, whatever went wrong
            submodel.release()
            raise
        self.definitions[read.key] = definition
        return submodel

    def _stored(self, read: Ingredients, data: Lease) -> Lease:
        """A data set of what the trained parts before a part put out for the samples of another one."""

        def made() -> DataSource:
            return stored_outputs(read.spec, read.definition, read.trained, data.use(), self.device)

        return self.data.hold(f"{data.sha256}:{read.key}", made, f"outputs for {data.name}")


def stored(home: Home, reference: str) -> Path:
    """Path of a file that a spec names by content."""
    return home.file(reference.removeprefix("sha256:"))
