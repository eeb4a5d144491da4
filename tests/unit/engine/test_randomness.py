"""A sub-model's random numbers: whose generator they come from, and that nobody can tell."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.engine.start_kit import submodel
from tests.unit.formats import kit
from unifiednn_core.engine.checkpoint import Checkpoint, flatten
from unifiednn_core.engine.submodel import SubModel

DRAWING = kit.network("cnn", seed=3)
QUIET = nn.Sequential(*(layer for layer in DRAWING if not isinstance(layer, nn.Dropout)))


def made(network: nn.Module) -> SubModel:
    return submodel(lambda: copy.deepcopy(network))


def train(part: SubModel, steps: int = 5) -> Checkpoint:
    """Train in two turns, and capture inside the second."""
    for count in (2, steps - 2):
        with part.world():
            for _ in range(count):
                part.step()
                if part.at_epoch_end:
                    part.end_epoch()
            written = part.capture()
    return written


def bits(checkpoint: Checkpoint) -> Any:
    """Everything in a checkpoint, comparable."""
    tree, tensors = flatten(checkpoint.state)
    return tree, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize("network", [QUIET, DRAWING], ids=["quiet", "drawing"])
def test_a_checkpoint_is_the_same_whether_the_default_generators_are_swapped_or_not(network: nn.Module) -> None:
    part, other = made(network), made(network)
    assert part.shares_randomness == (network is DRAWING)
    other.shares_randomness = True
    assert bits(train(part)) == bits(train(other))


def test_what_draws_nothing_leaves_the_default_generators_alone() -> None:
    part = made(QUIET)
    before = torch.get_rng_state()
    with part.world():
        assert torch.equal(torch.get_rng_state(), before)
        part.step()
        torch.rand(())  # of somebody else, in another lane
        part.capture()
    assert not torch.equal(torch.get_rng_state(), before)
    reference = made(QUIET)
    with reference.world():
        reference.step()
    assert bits(part.capture()) == bits(reference.capture())
