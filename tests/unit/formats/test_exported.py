import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.base import Delivery, Input
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import ArchitectureSpec

NAMES = sorted(kit.NETWORKS)
FORMAT = ExportedFormat()


def train(module: nn.Module, name: str) -> list[Tensor]:
    """Outputs of a few steps on batches of several sizes, one of them a single sample."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    outputs = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for step, size in enumerate((6, 3, 1, 6)):
            optimizer.zero_grad()
            output = module(kit.batch(name, size, seed=step))
            output.square().mean().backward()
            optimizer.step()
            outputs.append(output.detach())
    return outputs


def equal(first: nn.Module, second: nn.Module) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", NAMES)
def test_training_and_evaluation_equal_the_eager_network_bit_for_bit(name: str, tmp_path: Path) -> None:
    eager = kit.network(name)
    built = nn.Sequential(FORMAT.read(kit.exported(tmp_path, name), None).build())
    for _ in range(2):  # the second round shows that evaluation leaves nothing behind
        expected, found = train(eager.train(), name), train(built.train(), name)
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        assert equal(eager, built[0])
        with torch.no_grad():
            assert torch.equal(eager.eval()(kit.batch(name, 4)), built.eval()(kit.batch(name, 4)))
        assert equal(eager, built[0])


class NormTwice(nn.Module):
    """One normalisation on two branches, as in a Siamese network: its counter is raised twice a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm(self.norm(inputs) * 2)


def test_a_normalisation_that_is_used_twice_counts_in_training_alone(tmp_path: Path) -> None:
    eager, batch = NormTwice(), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    path = kit.export(tmp_path / "m.pt2", NormTwice().train(), batch)
    definition = FORMAT.read(path, None)
    built = definition.build()
    for module in (eager, built):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            module.train()
            optimizer.zero_grad()
            module(batch).square().mean().backward()
            optimizer.step()
            trained = state_sha256(module.state_dict())
            module.eval()
            module(batch)
            assert state_sha256(module.state_dict()) == trained
    assert state_sha256(built.state_dict()) == state_sha256(eager.state_dict())
    assert int(built.get_buffer("norm.num_batches_tracked")) == 6
    assert definition.operators == ("batch_norm", "mul", "batch_norm")
    delivery = FORMAT.write(definition, built.state_dict(), tmp_path, "trained")
    evaluation = torch.export.load(delivery.files[1]).module()
    evaluation(batch)
    assert int(evaluation.state_dict()["norm.num_batches_tracked"]) == 6


class NormUnderTwoNames(nn.Module):
    """One layer that two attributes name, as where branches share a backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.right = nn.Sequential(nn.ReLU(), self.left)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.left(inputs) + self.right(inputs)


def test_a_layer_under_two_names_stays_one_when_it_is_moved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    eager, batch = NormUnderTwoNames(), torch.randn(5, 4)
    built = FORMAT.read(kit.export(tmp_path / "m.pt2", copy.deepcopy(eager).train(), batch), None).build()
    for module in (eager, built):
        module.double()(batch.double())  # a new type parts buffers as a new device does
    assert len(list(built.buffers())) == 3
    assert state_sha256(built.state_dict()) == state_sha256(eager.state_dict())


def test_dropout_acts_in_training_and_not_in_evaluation(tmp_path: Path) -> None:
    built = FORMAT.read(kit.exported(tmp_path, "cnn"), None).build()
    inputs = kit.batch("cnn", 4)
    assert not torch.equal(built(inputs), built(inputs))
    built.eval()
    assert torch.equal(built(inputs), built(inputs))


def test_what_was_frozen_at_export_stays_frozen_in_training(tmp_path: Path) -> None:
    eager = kit.network("residual")
    eager.get_submodule("norm1").eval()
    built = FORMAT.read(kit.export(tmp_path / "m.pt2", eager, kit.batch("residual", 3)), None).build()
    train(built, "residual")
    train(eager, "residual")
    assert equal(eager, built)
    assert int(built.get_buffer("norm1.num_batches_tracked")) == 0


def test_tied_weights_stay_one_parameter(tmp_path: Path) -> None:
    definition = FORMAT.read(kit.exported(tmp_path, "attention"), None)
    built = definition.build()
    assert built.get_parameter("embedding.weight") is built.get_parameter("output.weight")
    eager = kit.network("attention")
    assert definition.parameters == sum(parameter.numel() for parameter in eager.parameters())
    assert [tuple(p.shape) for p in built.parameters()] == [tuple(p.shape) for p in eager.parameters()]


def test_a_copy_trains_on_its_own(tmp_path: Path) -> None:
    built = FORMAT.read(kit.exported(tmp_path, "residual"), None).build()
    other = copy.deepcopy(built)
    train(other, "residual")
    assert equal(built, kit.network("residual"))
    assert not equal(other, built)


def test_devices_in_the_file_follow_the_input(tmp_path: Path) -> None:
    built = FORMAT.read(kit.exported(tmp_path, "lstm"), None).build()  # its first hidden state is made by the graph
    assert built.to("meta")(kit.batch("lstm", 3).to("meta")).device.type == "meta"


def test_a_definition_says_what_goes_in(tmp_path: Path) -> None:
    definition = FORMAT.read(kit.exported(tmp_path, "cnn"), None)
    assert (definition.inputs, definition.min_batch) == ((Input("input", (1, 8, 8), "float32"),), 1)
    assert definition.operators == ("conv2d", "relu", "max_pool2d", "flatten", "dropout", "linear")
    assert definition.weights_bytes == sum(t.nbytes for t in kit.network("cnn").state_dict().values())


def test_a_larger_smallest_batch_is_respected(tmp_path: Path) -> None:
    path = kit.export(tmp_path / "m.pt2", kit.network("cnn"), kit.batch("cnn", 8), least=4)
    assert FORMAT.read(path, None).min_batch == 4


class Exotic(nn.Module):
    def forward(self, a: Tensor) -> Tensor:
        return torch.linalg.svdvals(a)[:, None]


def test_a_network_that_cannot_be_trained_here_is_a_finding(tmp_path: Path) -> None:
    path = kit.export(tmp_path / "m.pt2", Exotic(), torch.eye(2).repeat(3, 1, 1))
    with pytest.raises(BadInput, match="linalg_svdvals"):
        FORMAT.read(path, None)


def test_a_fixed_batch_size_is_a_finding_with_the_way_to_export(tmp_path: Path) -> None:
    path = kit.export(tmp_path / "m.pt2", kit.network("cnn"), kit.batch("cnn", 3), dynamic=False)
    with pytest.raises(BadInput) as caught:
        FORMAT.read(path, None)
    assert "dynamic_shapes" in caught.value.findings[0].remedy


def test_an_architecture_beside_an_exported_file_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        FORMAT.read(kit.exported(tmp_path, "cnn"), ArchitectureSpec(name="lenet"))
    assert caught.value.findings[0].field == "architecture"


def delivered(name: str, folder: Path) -> tuple[nn.Module, Delivery]:
    """A network that was trained a little, and what `write` made of it."""
    definition = FORMAT.read(kit.exported(folder, name), None)
    built = definition.build()
    train(built, name)
    (folder / "out").mkdir()
    return built, FORMAT.write(definition, built.state_dict(), folder / "out", "trained")


@pytest.mark.slow
def test_delivered_files_load_in_plain_torch_with_the_bits_of_the_eager_network(tmp_path: Path) -> None:
    """One process that knows torch alone loads the files of all networks; the script of one runs beside its files."""
    built, scripts = {}, {}
    for name in NAMES:
        folder = tmp_path / name
        folder.mkdir()
        built[name], delivery = delivered(name, folder)
        scripts[name] = delivery.load_script
        inputs = {size: kit.batch(name, size) for size in (1, 4)}
        torch.save({"inputs": inputs, "paths": [str(path) for path in delivery.files]}, folder / "given.pt")
    script = f"""
import os, torch
for name in {NAMES!r}:
    given = torch.load(name + "/given.pt")
    training, evaluation = (torch.export.load(path).module() for path in given["paths"])
    with torch.no_grad():
        scores = {{size: evaluation(x) for size, x in given["inputs"].items()}}
        state = evaluation.state_dict()
        torch.manual_seed(7)
        trained = training(given["inputs"][4])
    torch.save({{"scores": scores, "state": state, "trained": trained}}, name + "/found.pt")
os.chdir("cnn/out")
exec({scripts["cnn"]!r})
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        eager, found = kit.network(name), torch.load(tmp_path / name / "found.pt")
        eager.load_state_dict(built[name].state_dict())
        assert all(torch.equal(found["state"][key], tensor) for key, tensor in built[name].state_dict().items()), name
        with torch.no_grad():
            assert all(torch.equal(found["scores"][n], eager.eval()(kit.batch(name, n))) for n in (1, 4)), name
            torch.manual_seed(7)
            assert torch.equal(found["trained"], eager.train()(kit.batch(name, 4))), name


def test_nothing_of_the_users_machine_stays_in_a_delivered_file(tmp_path: Path) -> None:
    source = kit.exported(tmp_path, "cnn")
    assert b"stack_trace" in source.read_bytes()
    delivery = FORMAT.write(FORMAT.read(source, None), kit.network("cnn").state_dict(), tmp_path, "trained")
    for path in delivery.files:
        assert b"stack_trace" not in path.read_bytes()


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    definition = FORMAT.read(kit.exported(tmp_path, "residual"), None)
    weights = kit.network("residual", seed=9).state_dict()
    first = [path.read_bytes() for path in FORMAT.write(definition, weights, tmp_path, "a").files]
    assert [path.read_bytes() for path in FORMAT.write(definition, weights, tmp_path, "a").files] == first


def test_weights_of_another_shape_are_not_written(tmp_path: Path) -> None:
    definition = FORMAT.read(kit.exported(tmp_path, "cnn"), None)
    weights = dict(kit.network("cnn").state_dict())
    weights["0.bias"] = torch.zeros(5)
    with pytest.raises(ValueError, match=r"0\.bias"):
        FORMAT.write(definition, weights, tmp_path, "a")
