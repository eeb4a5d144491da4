"""From a spec and its files to sub-models that are ready to train: definition, hybrid, resident data, progress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.checkpoints.shelf import Shelf
from unifiednn_core.errors import BadInput
from unifiednn_core.home import Home
from unifiednn_core.hybrid.unifier import HybridModel, Submission
from unifiednn_core.intake.base import Definition
from unifiednn_core.intake.datasets import Dataset, read_dataset
from unifiednn_core.intake.registry import sniff
from unifiednn_core.intake.start import initial_state
from unifiednn_core.spec import RunSpec, SubModelSpec
from unifiednn_core.training.data import ResidentData
from unifiednn_core.training.submodel import SubModel

_SHOWN = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


@dataclass(frozen=True, slots=True)
class Ingredients:
    """Everything that was read for one sub-model, without having touched the hybrid or any RNG."""

    spec: SubModelSpec
    seed: int
    definition: Definition
    data: Mapping[str, Dataset]
    """By content hash."""
    progress: Checkpoint | None
    """Where it goes on: its own last checkpoint, or the one that it starts from."""
    weights: Mapping[str, torch.Tensor] | None
    """Weights that it starts from."""
    kept_step: int = 0
    """Step of its own newest checkpoint."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the sub-model's row that follow from where it goes on."""
        if self.progress is None:
            return {"steps_done": 0, "epochs_done": 0, **dict.fromkeys(_SHOWN)}
        figures = self.progress.state["metrics"]["figures"]
        last = {name: figures[-1][name] for name in _SHOWN} if figures else dict.fromkeys(_SHOWN)
        return {"steps_done": self.progress.step, "epochs_done": self.progress.epoch, **last}


@dataclass(slots=True)
class Workbench:
    """The hybrid of one run with all that its sub-models share."""

    home: Home
    run_id: str
    device: torch.device
    hybrid: HybridModel = field(default_factory=HybridModel)
    definitions: dict[str, Definition] = field(default_factory=dict)
    data: ResidentData = field(init=False)

    def __post_init__(self) -> None:
        self.data = ResidentData(self.device)

    def shelf(self, name: str) -> Shelf:
        """The checkpoints of a sub-model."""
        return Shelf(self.home.checkpoints(self.run_id, name))

    def read(
        self,
        spec: RunSpec,
        submodel: SubModelSpec,
        filenames: Mapping[str, str],
        tell: Callable[[Sequence[str]], object],
    ) -> Ingredients:
        """Read the files of a sub-model, by content; raises `BadInput` or `BadCheckpoint`. Safe in any thread.

        `tell` takes what the operator should know of its checkpoints.
        """
        definition = _definition(self.home, submodel, filenames)
        names = [name for name in (submodel.train_data, submodel.test_data) if name is not None]
        data = {name: self.data.peek(name) or read_dataset(stored(self.home, name)) for name in dict.fromkeys(names)}
        own, _ = self.shelf(submodel.name).latest(tell)
        progress, weights = own, None
        if own is None and submodel.start_from is not None:
            begun = initial_state(stored(self.home, submodel.start_from.file), submodel.start_from.take)
            progress, weights = (begun, None) if isinstance(begun, Checkpoint) else (None, begun)
        seed, kept_step = spec.seed_of(submodel), 0 if own is None else own.step
        return Ingredients(submodel, seed, definition, data, progress, weights, kept_step)

    def add(self, read: Ingredients) -> SubModel:
        """Merge a sub-model into the hybrid and put it where it was; raises `BadCheckpoint`, and then nothing stays.

        Draws from the default generators: call it where their states are kept.
        """
        name = read.spec.name
        part = self.hybrid.add(Submission(name, read.definition, read.spec.hyperparameters))
        train, *test = [
            self.data.hold(sha256, partial(_given, read.data[sha256]))
            for sha256 in (read.spec.train_data, read.spec.test_data)
            if sha256 is not None
        ]
        submodel = SubModel(
            part, read.spec, seed=read.seed, train=train, test=test[0] if test else None, device=self.device
        )
        try:
            if read.weights is not None:
                part.load_state_dict(read.weights)
            if read.progress is not None:
                submodel.restore(read.progress)
        except Exception:
            self.hybrid.remove(name)
            submodel.release()
            raise
        self.definitions[name] = read.definition
        return submodel


def in_line(names: Sequence[str], last_turns: Mapping[str, float]) -> list[str]:
    """Names by the end of their last turn; who never had one, or was cut short in it, goes first."""
    return sorted(names, key=lambda name: last_turns.get(name, -1.0))


def stored(home: Home, reference: str) -> Path:
    """Place of a file that a spec names by content."""
    return home.file(reference.removeprefix("sha256:"))


def _given(dataset: Dataset) -> Dataset:
    return dataset


def _definition(home: Home, submodel: SubModelSpec, filenames: Mapping[str, str]) -> Definition:
    """Read the model file of a sub-model again, with all the checks of intake; raises `BadInput`."""
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
