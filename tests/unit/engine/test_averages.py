"""Averages of the weights: of every kind of network, in its memory, and what is delivered."""

from functools import partial
from pathlib import Path

import pytest
import torch

from tests.unit.engine.start_kit import submodel
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine.events import Ended
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.spec.lifecycle import Event

HYPER = {"epochs": 9, "batch_size": 8}
AVERAGED = {**HYPER, "ema": {"decay": 0.5}}


def stepped(part: SubModel, steps: int = 3) -> SubModel:
    with part.world():
        for _ in range(steps):
            part.step()
    return part


@pytest.mark.parametrize("name", kit.NETWORKS)
def test_the_averaged_network_computes_what_the_submitted_one_does_with_those_weights(
    name: str, tmp_path: Path
) -> None:
    """It is a copy of the graph of a file, also where that draws from a generator of its own."""
    definition = ExportedFormat().read(kit.exported(tmp_path, name), None)
    part = submodel(definition.build, AVERAGED)
    assert part.averaged is not None
    with torch.no_grad():
        for place, weight in enumerate(part.averaged.module.parameters()):
            weight.add_(0.01 * place)
    same, inputs = definition.build(), kit.batch(name, 5)
    same.load_state_dict(part.averaged.module.state_dict())
    torch.manual_seed(1)
    ours = part.averaged.module(inputs)
    torch.manual_seed(1)
    assert torch.equal(ours, same.eval()(inputs))


def test_averages_are_weights_in_memory_and_the_model_that_is_delivered() -> None:
    build = partial(kit.network, "cnn", 5)
    plain, part = stepped(submodel(build, HYPER)), stepped(submodel(build, AVERAGED))
    assert part.footprint.weights_bytes == 2 * plain.footprint.weights_bytes
    assert part.footprint.gradients_bytes == plain.footprint.gradients_bytes
    taken = part.capture()
    given, raw = Ended("x", Event.COMPLETE, taken).state_dict, taken.state["model"]
    assert given is taken.state["ema"] and given is not None
    assert all(torch.equal(raw[key], plain.capture().state["model"][key]) for key in raw)
    assert not any(torch.equal(raw[key], given[key]) for key in raw)
    part.release(empty=True)
    assert part.averaged is not None and not any(weight.numel() for weight in part.averaged.parameters())


def test_a_checkpoint_without_averages_or_with_others_is_refused() -> None:
    build = partial(kit.network, "cnn", 5)
    plain, averaged = (stepped(submodel(build, hyper)).capture() for hyper in (HYPER, AVERAGED))
    with pytest.raises(BadCheckpoint, match=r"lacks state\.ema"):
        submodel(build, AVERAGED).restore(plain)
    with pytest.raises(BadCheckpoint, match="'ema' in state"):
        submodel(build, HYPER).restore(averaged)
