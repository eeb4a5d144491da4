"""Checkpoints of a small network, and specs that begin at a file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.unit.formats import kit
from unifiednn_core.base.paths import Home
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import RunSpec, parse_run

SAMPLES = 25
HYPER = {"epochs": 5, "batch_size": 8, "optimizer": "adam", "lr_scheduler": {"name": "step", "args": {"step_size": 2}}}
FILE, TAKE = "submodels.one.start_from.file", "submodels.one.start_from.take"


def trained(network: nn.Module | None = None, *, inside: bool = True, **recipe: Any) -> Checkpoint:
    """What a run has after two epochs and, `inside` the third, one batch."""
    network = network or kit.network("cnn", seed=5)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 0.1)
    optimizer.step()
    lr_scheduler.step()
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1))
    state = {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": lr_scheduler.state_dict(),
        "rng": {"cpu": torch.get_rng_state(), "cuda": None},
        "data": {
            "generator": torch.Generator().manual_seed(1).get_state(),
            "order": order if inside else None,
            "cursor": 8 if inside else 0,
        },
        "metrics": {"figures": [], "tally": {}},
    }
    facts = {
        "optimizer": "adam",
        "optimizer_args": {},
        "criterion": "cross_entropy",
        "criterion_args": {},
        "lr_scheduler": {"name": "step", "args": {"step_size": 2}, "per": "epoch"},
        "batch_size": 8,
        "drop_last": False,
        "batch_split": 1,
        "learning_rate": 0.01,
        "seed": 0,
        "samples": SAMPLES,
        "device_type": "cpu",
        "torch": torch.__version__,
    }
    return Checkpoint(submodel="lenet", step=9, epoch=2, state=state, score=0.5, recipe=facts | recipe)


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
