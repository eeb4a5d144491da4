from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.data.batch import Batch
from unifiednn_core.engine import probes
from unifiednn_core.engine.probes import MOST_BYTES, MOST_SAMPLES, Probes, outputs_of, outputs_sha256, take
from unifiednn_core.engine.step import Step
from unifiednn_core.formats.weights import state_sha256

KIND = {"type": "cpu", "torch": torch.__version__, "threads": 1}


def taken(network: nn.Module, inputs: Tensor, samples: int = 20) -> Probes:
    def batch_of(count: int) -> Batch:
        return Batch({"inputs": inputs[:count].clone()}, torch.zeros(count))

    return take(network, Step(), batch_of, samples, data="test", kind=KIND)


class Scribbles(nn.Module):
    """Writes into its input, as a network may."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        inputs += 1
        return inputs * 2, None


class Noise(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.rand_like(inputs)


def test_probes_are_what_the_network_got_and_gave_in_evaluation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten()).to(
        memory_format=torch.channels_last
    )
    before = state_sha256(network.state_dict())
    found = taken(network, torch.randn(20, 3, 6, 6))
    assert len(found.inputs[0]) == MOST_SAMPLES and not found.missing and network.training
    assert state_sha256(network.state_dict()) == before and all(one.is_contiguous() for one in network.parameters())
    assert outputs_sha256(outputs_of(network.eval(), found.inputs)) == found.outputs_sha256
    with torch.no_grad():
        network[0].weight[0, 0, 0, 0] += 1e-6
    assert outputs_sha256(outputs_of(network, found.inputs)) != found.outputs_sha256, "the control"
    found.write(tmp_path / "probes", "of its weights")
    read = Probes.read(tmp_path / "probes")
    assert (read.outputs_sha256, read.kind, read.data, read.state_sha256) == (
        found.outputs_sha256,
        KIND,
        "test",
        "of its weights",
    )
    assert all(
        torch.equal(a, b) for a, b in zip((*read.inputs, *read.outputs), (*found.inputs, *found.outputs), strict=True)
    )


def test_the_inputs_are_those_before_the_network_wrote_into_them() -> None:
    found = taken(Scribbles(), torch.ones(4, 2))
    assert torch.equal(found.inputs[0], torch.ones(4, 2)[: len(found.inputs[0])])
    assert len(found.outputs) == 1 and torch.equal(found.outputs[0], torch.full((4, 2), 4.0)), "None is left out"


def test_what_cannot_be_compared_says_why() -> None:
    assert "other values each time" in taken(Noise(), torch.ones(4, 2)).missing
    assert "MiB" in taken(nn.Identity(), torch.ones(4, 2 * MOST_BYTES)).missing
    large = taken(nn.Linear(1, MOST_BYTES), torch.ones(4, 1))
    assert large.outputs == () and large.outputs_sha256, "large outputs are hashed, not kept"
    few = taken(nn.Identity(), torch.ones(8, MOST_BYTES // 8))
    assert len(few.inputs[0]) < 8, "of large samples fewer are taken"


@pytest.mark.parametrize("name", ["outside", "input.x", "input.0.1"])
def test_a_file_with_other_tensors_is_refused(tmp_path: Path, name: str) -> None:
    from safetensors.torch import save_file

    save_file({name: torch.zeros(1)}, tmp_path / "probes", {probes._ENTRY: "{}"})
    with pytest.raises((ValueError, KeyError)):
        Probes.read(tmp_path / "probes")
