"""Checkpoints of a small network, and specs that begin at a file."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.unit.formats import kit
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.resident_data import HOST, ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import RunSpec, SubModelSpec, parse_run

SAMPLES = 25
HYPER = {"epochs": 5, "batch_size": 8, "optimizer": "adam", "lr_scheduler": {"name": "step", "args": {"step_size": 2}}}
FILE, TAKE = "submodels.one.start_from.file", "submodels.one.start_from.take"


def trained(network: nn.Module | None = None, *, inside: bool = True, **recipe: Any) -> Checkpoint:
    """What a run has after two epochs of four steps and, `inside` the third, one batch."""
    network = network or kit.network("cnn", seed=5)
    part = submodel(lambda: copy.deepcopy(network))
    with part.world():
        for _ in range(9 if inside else 8):
            part.step()
            if part.at_epoch_end:
                part.end_epoch()
    written = part.capture()
    return replace(written, recipe={**written.recipe, **recipe})


def submodel(build: Callable[[], nn.Module], hyper: dict[str, Any] | None = None) -> SubModel:
    """A sub-model on small images."""
    asked = {"name": "lenet", "model": "m", "train_data": "d", "hyperparameters": hyper or HYPER}
    inputs = torch.randn(SAMPLES, *kit.IMAGES, generator=torch.Generator().manual_seed(2))
    held = ResidentData(HOST).hold("train", lambda: Dataset.of(inputs=inputs, targets=torch.arange(SAMPLES) % 3))
    spec = SubModelSpec.model_validate(asked)
    return SubModel(spec, definition_of(build), seed=0, train=held, test=None, device=HOST)


def definition_of(build: Callable[[], nn.Module]) -> Definition:
    return Definition(format="kit", path=Path("kit"), build=build, parameters=1, weights_bytes=4)


def changed(checkpoint: Checkpoint, part: str, **entries: Any) -> Checkpoint:
    return replace(checkpoint, state={**checkpoint.state, part: {**checkpoint.state[part], **entries}})


def flipped(source: Path, target: Path, tensor: str) -> Path:
    """A copy in which one bit of one tensor is another."""
    content = bytearray(source.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    content[begin + json.loads(content[8:begin])[tensor]["data_offsets"][0]] ^= 1
    target.write_bytes(content)
    return target


def spec(start: dict[str, Any] | None, **changes: Any) -> RunSpec:
    hyper = HYPER | changes.pop("hyperparameters", {})
    entry = {"name": "one", "model": "cnn.pt2", "train_data": "train.pt", "test_data": "train.pt"} | changes
    return parse_run({"submodels": [entry | {"hyperparameters": hyper} | ({"start_from": start} if start else {})]})


def checked(folder: Path, home: Home, start: dict[str, Any], **changes: Any) -> CheckReport:
    return check(spec(start, **changes), folder, home)
