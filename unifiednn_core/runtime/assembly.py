"""From a spec to an engine that is ready to run: definitions, hybrid model, resident data, policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from unifiednn_core.errors import BadInput
from unifiednn_core.home import Home
from unifiednn_core.hybrid.unifier import HybridModel, Submission, unify
from unifiednn_core.intake.base import Definition
from unifiednn_core.intake.datasets import read_dataset
from unifiednn_core.intake.registry import sniff
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec import RunSpec, SubModelSpec
from unifiednn_core.training.data import ResidentData
from unifiednn_core.training.device import resolve
from unifiednn_core.training.engine import Engine
from unifiednn_core.training.events import Report
from unifiednn_core.training.submodel import SubModel


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything that trains one run."""

    engine: Engine
    hybrid: HybridModel
    definitions: Mapping[str, Definition]
    device: torch.device
    steps: Mapping[str, tuple[int, int]]
    """Steps per epoch and in total, by sub-model."""


def assemble(
    home: Home, spec: RunSpec, filenames: Mapping[str, str], threads: int, report: Callable[[Report], object]
) -> Assembly:
    """Put a run together; its files are named by content (`sha256:...`). Raises `BadInput`.

    `filenames` holds the names under which they were handed in.
    """
    torch.set_num_threads(threads)
    device = resolve(spec.device)
    definitions = {submodel.name: read_definition(home, submodel, filenames) for submodel in spec.submodels}
    hybrid = unify(
        Submission(submodel.name, definitions[submodel.name], submodel.hyperparameters) for submodel in spec.submodels
    )
    data = ResidentData(device)
    submodels = [_submodel(home, spec, submodel, hybrid, data, device) for submodel in spec.submodels]
    policy = policy_named(spec.policy.name, spec.policy.parameters)
    engine = Engine(hybrid, submodels, policy, device=device, threads=threads, report=report)
    steps = {submodel.name: (submodel.steps_per_epoch, submodel.steps_total) for submodel in submodels}
    return Assembly(engine, hybrid, definitions, device, steps)


def read_definition(home: Home, submodel: SubModelSpec, filenames: Mapping[str, str]) -> Definition:
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


def stored(home: Home, reference: str) -> Path:
    """Place of a file that a spec names by content."""
    return home.file(reference.removeprefix("sha256:"))


def _submodel(
    home: Home, spec: RunSpec, submodel: SubModelSpec, hybrid: HybridModel, data: ResidentData, device: torch.device
) -> SubModel:
    names = [name for name in (submodel.train_data, submodel.test_data) if name is not None]
    sets = [data.hold(name, partial(read_dataset, stored(home, name))) for name in names]

    def release() -> None:
        for name in names:
            data.release(name)

    return SubModel(
        hybrid.part(submodel.name),
        submodel,
        seed=spec.seed_of(submodel),
        train=sets[0],
        test=sets[1] if len(sets) > 1 else None,
        device=device,
        release=release,
    )
