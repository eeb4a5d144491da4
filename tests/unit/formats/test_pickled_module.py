import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.hostile.operators.layers import LAYER, layer_seeds
from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.formats.rebuild import LAYERS, construct
from unifiednn_core.formats.registry import sniff
from unifiednn_core.spec.run import ArchitectureSpec

FORMAT = PickledModule()
VARIED: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 4, 2, bias=False, batch_first=True, dropout=0.1, bidirectional=True, proj_size=2),
    "attention_without_bias": lambda: nn.MultiheadAttention(8, 2, bias=False, batch_first=True),
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True), 2, norm=nn.LayerNorm(8)
    ),
    "encoder_norm_first": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, bias=False), 2, enable_nested_tensor=False
    ),
    "conv": lambda: nn.Conv2d(2, 4, 3, padding="same", padding_mode="circular", groups=2, bias=False),
    "norm": lambda: nn.BatchNorm2d(3, eps=1e-3, momentum=None, affine=False),
    "norm_without_statistics": lambda: nn.BatchNorm2d(3, track_running_stats=False),
    "double": lambda: nn.Linear(2, 2).double(),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(2, 2, bias=False)), nn.ModuleDict({"a": nn.ReLU()})),
    "list": lambda: nn.Sequential(nn.Identity(), nn.ModuleList([nn.Linear(2, 2)])),
}


def saved(module: nn.Module, folder: Path, name: str = "m.pt") -> Path:
    torch.save(module, folder / name)
    return folder / name


def equal(first: nn.Module, second: nn.Module) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return list(one) == list(other) and all(
        one[key].dtype == other[key].dtype and torch.equal(one[key], other[key]) for key in one
    )


def described(module: nn.Module) -> list[tuple[str, str, bool]]:
    return [(name, repr(part), part.training) for name, part in module.named_modules()]


def test_every_layer_of_the_list_comes_back_as_it_was(tmp_path: Path) -> None:
    changed = []
    modules = [(name, make()) for name, make in VARIED.items()]
    for name in LAYERS:
        modules += [(name, construct(LAYERS[name], dict(call.kwargs), name)) for call in layer_seeds()[LAYER + name]]
    for place, (name, module) in enumerate(modules):
        path = saved(module, tmp_path, f"{place}.pt")
        built = FORMAT.read(path, None).build()
        if sniff(path) is None or described(built) != described(module) or not equal(built, module):
            changed.append(name)
    assert changed == []


def train(module: nn.Module, inputs: Tensor) -> list[Tensor]:
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    outputs = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for size in (6, 3, 6):
            optimizer.zero_grad()
            outputs.append(module(inputs[:size]))
            outputs[-1].square().mean().backward()
            optimizer.step()
    return [output.detach() for output in outputs]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 3)
    )


def test_training_equals_the_pickled_network_bit_for_bit(tmp_path: Path) -> None:
    eager, inputs = network(), torch.rand(6, 1, 8, 8)
    built = FORMAT.read(saved(eager, tmp_path), None).build()
    assert all(torch.equal(a, b) for a, b in zip(train(eager, inputs), train(built, inputs), strict=True))
    assert equal(built, eager)
    with torch.no_grad():
        assert torch.equal(built.eval()(inputs), eager.eval()(inputs))


def test_a_network_saved_in_evaluation_mode_trains_whole(tmp_path: Path) -> None:
    built = FORMAT.read(saved(network().eval(), tmp_path), None).build()
    assert all(part.training for part in built.modules())


def test_a_layer_that_was_frozen_stays_frozen_and_goes_back_so(tmp_path: Path) -> None:
    eager = network()
    eager[1].eval()
    eager[0].requires_grad_(False)
    definition = FORMAT.read(saved(eager, tmp_path), None)
    built = nn.Sequential(definition.build()).eval().train()[0]
    assert definition.parameters == sum(p.numel() for p in eager.parameters() if p.requires_grad)
    assert [part.training for part in built.modules()] == [part.training for part in eager.modules()]
    train(built, torch.rand(6, 1, 8, 8))
    assert int(built.get_buffer("1.num_batches_tracked")) == 0
    assert torch.equal(built.get_parameter("0.weight"), eager[0].weight)
    (path,) = FORMAT.write(definition, built.state_dict(), tmp_path, "trained").files
    back = torch.load(path, weights_only=False)
    assert [part.training for part in back.modules()] == [part.training for part in eager.modules()]
    assert equal(back, built)


def test_tied_weights_and_shared_layers_stay_shared(tmp_path: Path) -> None:
    shared = nn.Linear(4, 4)
    tied = nn.Linear(4, 4, bias=False)
    tied.weight = shared.weight
    eager = nn.Sequential(shared, nn.ReLU(), shared, tied)
    definition = FORMAT.read(saved(eager, tmp_path), None)
    built = definition.build()
    assert built.get_submodule("0") is built.get_submodule("2")
    assert built.get_parameter("3.weight") is built.get_parameter("0.weight")
    assert definition.parameters == 20
    inputs = torch.rand(6, 4)
    assert all(torch.equal(a, b) for a, b in zip(train(eager, inputs), train(built, inputs), strict=True))
    (path,) = FORMAT.write(definition, built.state_dict(), tmp_path, "trained").files
    assert equal(FORMAT.read(path, None).build(), eager)


def test_a_copy_trains_on_its_own(tmp_path: Path) -> None:
    eager = network()
    eager[1].eval()
    built = FORMAT.read(saved(eager, tmp_path), None).build()
    other = copy.deepcopy(built)
    train(other, torch.rand(6, 1, 8, 8))
    assert equal(built, eager)
    assert not equal(other, built)
    assert not other.train().get_submodule("1").training


@pytest.mark.parametrize("name", ["encoder", "lstm", "conv"])
@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_the_load_script_needs_torch_alone_and_runs_no_foreign_code(
    name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = VARIED[name]()
    definition = FORMAT.read(saved(module, tmp_path, f"m{suffix}"), None)
    delivery = FORMAT.write(definition, definition.build().state_dict(), tmp_path, "trained")
    assert [path.name for path in delivery.files] == [f"trained{suffix}"]
    assert "weights_only=True" in delivery.load_script
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(delivery.load_script, found)  # noqa: S102  (written by the format itself)
    assert equal(found["model"], module)
    assert not found["model"].training


def test_an_architecture_beside_a_pickled_network_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        FORMAT.read(saved(network(), tmp_path), ArchitectureSpec(name="lenet"))
    assert caught.value.findings[0].field == "architecture"


class OfTheUser(nn.Module):
    pass


def test_a_class_of_the_user_is_named_with_the_way_to_bring_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="OfTheUser") as caught:
        FORMAT.read(saved(nn.Sequential(OfTheUser()), tmp_path), None)
    assert "unifiednn pack" in caught.value.findings[0].remedy
