"""Writes the spec and files of a case into a folder, as a user would have them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_models.paper_networks import NETWORKS, Scale
from tools.bench import data
from tools.bench.scenarios import Case, Scenario, Task
from tools.machine import ToolFailed
from unifiednn_core.spec.run import ArchitectureSpec, PolicySpec, RunSpec, SubModelSpec

PATIENCE_S = 600
_HYPERPARAMETERS = ("epochs", "batch_size", "optimizer", "learning_rate", "seed")
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case whose files are written."""

    case: Case
    spec: RunSpec
    """As the first hybrid."""
    base: Path
    notes: tuple[str, ...]
    """On the data."""

    def trained_as(self, place: int) -> RunSpec:
        """The spec of one of the case's hybrids."""
        hybrid = self.case.hybrids[place]
        lanes = {"lanes": hybrid.lanes} if hybrid.lanes else {}
        return self.spec.model_copy(update={"policy": PolicySpec.model_validate(dict(hybrid.policy)), **lanes})


def prepare(scenario: Scenario, case: Case, folder: Path, base: Path) -> Prepared:
    """Write data from `folder`, weights and `spec-NAME.json` into `base`.

    Raises `BadInput` for missing or damaged data, `ToolFailed` if the weights cannot be written.
    """
    data.require(folder, (task.data for task in case.tasks))
    _write_weights([(task, base / _weights_of(task)) for task in case.tasks], scenario.scale)
    parts, notes = [], dict.fromkeys(NETWORKS[task.network].reading for task in case.tasks)
    for task in case.tasks:
        vocabulary = int(NETWORKS[task.network].args(scenario.scale).get("vocabulary", 0))
        train, test, note = data.write(task.data, folder, base, train=task.train, test=task.test, vocabulary=vocabulary)
        notes[note] = None
        parts.append(_submodel(task, scenario.scale, train, test))
    spec = RunSpec(
        name=f"{scenario.name}, {case.name}",
        device=scenario.device,
        threads=scenario.threads,
        policy=PolicySpec.model_validate(dict(case.hybrids[0].policy)),
        submodels=tuple(parts),
    )
    (base / f"spec-{case.name}.json").write_text(spec.to_json() + "\n", encoding="utf-8")
    return Prepared(case, spec, base, tuple(notes))


def _submodel(task: Task, scale: Scale, train: str, test: str) -> SubModelSpec:
    network = NETWORKS[task.network]
    hyper: dict[str, Any] = {name: getattr(task, name) for name in _HYPERPARAMETERS}
    hyper["techniques"] = list(task.techniques)
    if task.lr_decay is not None:
        hyper["lr_scheduler"] = {"name": "exponential", "args": {"gamma": task.lr_decay}}
    built = network.suffix == ".safetensors"
    architecture = ArchitectureSpec(name=network.architecture, args=network.args(scale)) if built else None
    asked: dict[str, Any] = {
        "name": task.name,
        "model": _weights_of(task),
        "architecture": architecture,
        "priority": task.priority,
    }
    asked |= {"train_data": train, "test_data": test, "hyperparameters": hyper, **data.SOURCES[task.data].scaling}
    return SubModelSpec.model_validate(asked)


def _weights_of(task: Task) -> str:
    return f"{task.network}_{task.seed}{NETWORKS[task.network].suffix}"


def _write_weights(wanted: Sequence[tuple[Task, Path]], scale: Scale) -> None:
    """Write the untrained weights in another process, so that this one needs no torch."""
    asked = [
        {
            "path": str(path),
            "architecture": network.architecture,
            "args": network.args(scale),
            "seed": task.seed,
            "sample": network.sample[scale],
            "dtype": network.dtype,
        }
        for task, path in wanted
        if not path.exists()
        for network in (NETWORKS[task.network],)
    ]
    command = [sys.executable, "-m", "sample_models.weights"]
    given: dict[str, Any] = {"input": json.dumps(asked), "text": True, "capture_output": True, "cwd": _REPOSITORY}
    try:
        subprocess.run(command, check=True, timeout=PATIENCE_S, **given)
    except (OSError, subprocess.SubprocessError) as error:
        log = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise ToolFailed(f"The networks could not be written: {log[-1] if log else error}.") from error
