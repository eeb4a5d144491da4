"""Whatever a run writes, at any step and with anything that can be asked for, passes the check of checkpoints."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.integration.kit import CPU, dataset, submodel, submodel_spec
from tests.integration.networks import CLASSES, ZOO, hyperparameters
from tests.integration.test_hyperparameters import ARGS
from tests.unit.engine.checkpoint_kit import bits
from tests.unit.engine.start_kit import definition_of
from unifiednn_core.engine.checkpoint import Checkpoint, flatten, unflatten
from unifiednn_core.engine.checkpoint_check import check, recipe_of
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.spec.choices import OPTIMIZERS

SAMPLES = 37


def as_read(checkpoint: Checkpoint) -> Checkpoint:
    """What comes back from the file of a checkpoint."""
    parts = {}
    for part, tree in (("state", checkpoint.state), ("recipe", checkpoint.recipe)):
        node, tensors = flatten(dict(tree))
        parts[part] = unflatten(json.loads(json.dumps(node)), tensors)
    return replace(checkpoint, **parts)


def accepted_throughout(make: Callable[[], SubModel], most_steps: int) -> set[bool]:
    """Check and restore what a training captures after each step; whether it was inside an epoch."""
    part, other, seen = make(), make(), set()
    with part.world():
        for step in range(most_steps + 1):
            taken = as_read(part.capture())
            check(taken, other.module, other.spec.hyperparameters, SAMPLES)
            assert recipe_of(taken).hyperparameters.optimizer == part.spec.hyperparameters.optimizer
            seen.add(taken.state["data"]["order"] is not None)
            if part.finished or step == most_steps:
                break
            part.step()
            if part.at_epoch_end:
                part.end_epoch()
    other.restore(taken)
    assert bits(other.capture().state) == bits(part.capture().state)
    return seen


@given(data=st.data())
def test_anything_that_can_be_asked_for(data: st.DataObject) -> None:
    spec = submodel_spec("x", **data.draw(hyperparameters(SAMPLES)))
    accepted_throughout(partial(submodel, data.draw(st.sampled_from(sorted(ZOO))), spec), 5)


class Odd(nn.Module):
    """Parameters of every kind: a scalar, tied, frozen and unused ones, and of half precision; buffers likewise."""

    places: Tensor

    def __init__(self, *, only_matrices: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 6, bias=False), nn.Linear(6, CLASSES, bias=False)
        self.same, self.frozen = self.last, nn.Linear(3, 2, bias=False).requires_grad_(False)
        self.unused = nn.Linear(2, 5, bias=False)
        self.register_buffer("places", torch.arange(36), persistent=False)
        self.norm = nn.BatchNorm1d(6, affine=False)
        self.more = nn.ParameterList([] if only_matrices else self._more())

    def _more(self) -> list[Tensor]:
        return [torch.ones(()), torch.ones(1), torch.ones(2, 1, 3), torch.ones(4, dtype=torch.bfloat16)]

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.last(self.norm(self.first(images.flatten(1)[:, self.places])))
        return scores * torch.stack([one.float().mean() for one in [*self.more, torch.ones(1)]]).mean()


SLOW = {"names": "first.*", "learning_rate": 0.5}
ASKED: dict[str, dict[str, Any]] = {name: {"optimizer": name} for name in OPTIMIZERS} | {
    "centered": {"optimizer": "rmsprop", "optimizer_args": {"momentum": 0.5, "centered": True}},
    "amsgrad": {"optimizer": "adam", "optimizer_args": {"amsgrad": True, "betas": [0.5, 0.9]}},
    "nesterov": {"optimizer": "sgd", "optimizer_args": {"momentum": 0.5, "nesterov": True}},
    "groups": {"optimizer": "sgd", "parameter_groups": [{"names": "last*", "frozen": True}, SLOW | {"momentum": 0.5}]},
    "averages": {"optimizer": "adamw", "ema": {"decay": 0.5}, "parameter_groups": [SLOW]},
    "no momentum at first": {
        "optimizer": "sgd",
        "lr_scheduler": {"name": "cyclic", "args": {**ARGS["cyclic"], "max_momentum": 0}, "per": "step"},
    },
}
"""Each optimizer; `test_every_choice.py` does it with each LR scheduler, on plain parameters."""


@pytest.mark.parametrize("case", ASKED)
def test_each_choice_on_odd_parameters(case: str) -> None:
    def make() -> SubModel:
        spec = submodel_spec("x", **{"epochs": 3, "batch_size": 16, "optimizer_args": {}} | ASKED[case])
        build = partial(seeded, partial(Odd, only_matrices=ASKED[case]["optimizer"] == "muon"))
        train = ResidentData(CPU).hold("train", dataset)
        return SubModel(spec, definition_of(build), seed=3, train=train, test=None, device=CPU)

    assert accepted_throughout(make, 7) == {True, False}


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return build()


def test_an_epoch_of_another_batch_size_is_whole() -> None:
    """Between epochs it may change; 5 steps are done, and 8 make an epoch from here on."""
    first = submodel("mlp", submodel_spec("x", batch_size=8))
    with first.world():
        for _ in range(5):
            first.step()
        first.end_epoch()
    later = submodel("mlp", submodel_spec("x", batch_size=5))
    later.restore(first.capture())
    with later.world():
        for _ in range(8):
            assert not later.at_epoch_end
            later.step()
    assert later.at_epoch_end and (first.epochs_done, later.steps_done) == (1, 13)
