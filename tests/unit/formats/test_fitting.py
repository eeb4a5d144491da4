"""Weights as people have them: in a dict, with prefixes, under other names."""

import argparse
import builtins
import os
import pathlib
import runpy
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from unifiednn_core.base.errors import BadCheckpoint, BadInput, Finding
from unifiednn_core.base.paths import Home
from unifiednn_core.engine.start import initial_state, load_weights
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.state_dict import SAFETENSORS, STATE_DICT
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.spec.run import ArchitectureSpec, parse_run

SMALL: dict[str, Any] = {"width": 4, "blocks": [1, 1, 1, 1]}
MLP = ArchitectureSpec(name="mlp", args={"inputs": 4, "hidden": [6], "classes": 3})


def weights(seed: int = 1) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return dict(registry.build(MLP.name, MLP.args).state_dict())


def saved(content: object, folder: Path) -> Path:
    torch.save(content, folder / "m.ckpt")
    return folder / "m.ckpt"


def begins_with(definition: Definition, expected: dict[str, Tensor]) -> bool:
    found = definition.build().state_dict()
    return found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in found)


def findings_of(content: object, folder: Path, architecture: ArchitectureSpec = MLP) -> tuple[Finding, ...]:
    with pytest.raises(BadInput) as caught:
        STATE_DICT.read(saved(content, folder), architecture)
    return caught.value.findings


def asking(architecture: ArchitectureSpec, **more: str) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate(architecture.model_dump() | more)


# One level of a dict


@pytest.mark.parametrize("entry", ["state_dict", "model_state_dict", "model", "net", "network", "weights", "my_net"])
def test_a_state_dict_is_found_in_the_dict_of_a_training_script(entry: str, tmp_path: Path) -> None:
    content = {"epoch": 3, "acc": 81.5, entry: weights(), "optimizer": {"state": {0: {"step": torch.ones(())}}}}
    definition = STATE_DICT.read(saved(content, tmp_path), MLP)
    assert begins_with(definition, weights()) and definition.doubts == ()
    assert inspect_file(tmp_path / "m.ckpt", "m.ckpt").facts["entry"] == entry


def test_of_several_the_usual_one_is_taken_and_said(tmp_path: Path) -> None:
    path = saved({"ema": weights(2), "model": weights(1)}, tmp_path)
    definition = STATE_DICT.read(path, MLP)
    assert begins_with(definition, weights(1))
    (finding,) = definition.doubts
    assert (finding.severity, finding.field) == ("warning", "architecture")
    assert "'model', 'ema'" in finding.message and '"entry": "ema"' in finding.remedy
    other = STATE_DICT.read(path, asking(MLP, entry="ema"))
    assert begins_with(other, weights(2)) and other.doubts == ()


def test_where_none_is_usual_the_person_is_asked(tmp_path: Path) -> None:
    content = {"first": weights(1), "second": weights(2)}
    (finding,) = findings_of(content, tmp_path)
    assert finding.severity == "error" and '"entry": "second"' in finding.remedy
    assert inspect_file(tmp_path / "m.ckpt", "m.ckpt").kind == "weights"  # the library takes it all the same
    (finding,) = findings_of(content, tmp_path, asking(MLP, entry="third"))
    assert finding.field == "architecture.entry" and "'first', 'second'" in finding.remedy


def test_what_has_no_state_dict_is_said_with_what_it_has(tmp_path: Path) -> None:
    for content, said in (
        ({"net": {"a": 3}, "epoch": 1}, "under 'net' a dict"),
        ({"deep": {"net": weights()}}, "dict"),
    ):
        (finding,) = findings_of(content, tmp_path)
        assert finding.title == "Not a state dict" and said in finding.message


class Call:
    """Pickled as a call of any function."""

    def __init__(self, function: Callable[..., Any], *args: Any):
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


class AttributeDict(dict[str, Any]):
    """As Lightning's: a class that the file only names."""


class Callback:
    """With state of its own."""

    def __init__(self) -> None:
        self.best = torch.ones(2)
        self.seen = [nn.CrossEntropyLoss(weight=torch.ones(3))]


def lightning(state_dict: dict[str, Tensor], *more: object) -> dict[str, object]:
    return {
        "epoch": 2,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": OrderedDict((f"model.{key}", value) for key, value in state_dict.items()),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 3}}}},
        "callbacks": {"ModelCheckpoint{'monitor': 'loss'}": {"best_model_score": torch.ones(()), "own": Callback()}},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}],
        "hparams_name": "kwargs",
        "hyper_parameters": AttributeDict(
            lr=np.float64(0.1), folder=pathlib.PurePosixPath("runs/1"), args=argparse.Namespace(width=4), act=nn.ReLU()
        ),
        "more": more,
    }


def test_a_checkpoint_of_lightning_is_read_with_its_settings_as_inert_things(tmp_path: Path) -> None:
    path = saved(lightning(weights()), tmp_path)
    assert begins_with(STATE_DICT.read(path, MLP), weights())
    loaded: Any = STATE_DICT.load(path)
    inert = loaded["hyper_parameters"]
    assert type(inert) is dict and all(isinstance(value, tensor_files.Nothing) for value in inert.values())
    with pytest.raises(BadInput, match="Python objects"):
        tensor_files.load_torch_file(path)  # data sets stay as strict as they were
    assert inspect_file(path, "m.ckpt").kind == "weights"


def test_no_code_in_a_checkpoint_runs(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    attacks = [Call(builtins.eval, f"open({str(canary)!r}, 'w').close()"), Call(pathlib.PosixPath.touch, canary)]
    for attack in attacks:
        path = saved(lightning(weights(), attack), tmp_path)
        if attack is attacks[0]:
            assert begins_with(STATE_DICT.read(path, MLP), weights())
        else:  # a method is looked up by a call, and the result of a call is never called
            assert findings_of(lightning(weights(), attack), tmp_path)[0].title == "More than tensors"
        assert not canary.exists()
        torch.load(path, weights_only=False)
        assert canary.exists()  # the control: the attack does what it says where its code runs
        canary.unlink()


def test_what_torch_never_reads_is_a_finding(tmp_path: Path) -> None:
    (finding,) = findings_of(lightning(weights(), Call(os.mkdir, str(tmp_path / "canary"))), tmp_path)
    assert finding.title == "More than tensors" and not (tmp_path / "canary").exists()


def test_an_object_among_the_weights_is_no_state_dict(tmp_path: Path) -> None:
    (finding,) = findings_of({"state_dict": {**weights(), "more": argparse.Namespace()}}, tmp_path)
    assert finding.title == "Not a state dict"


# Prefixes


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "net.", "backbone.", "model.module._orig_mod."])
@pytest.mark.parametrize("entry", [None, "state_dict"])
def test_prefixes_are_taken_off(prefix: str, entry: str | None, tmp_path: Path) -> None:
    renamed = {f"{prefix}{key}": value for key, value in weights().items()}
    definition = STATE_DICT.read(saved({entry: renamed} if entry else renamed, tmp_path), MLP)
    assert begins_with(definition, weights()) and definition.doubts == ()
    save_file(renamed, tmp_path / "m.safetensors")
    assert begins_with(SAFETENSORS.read(tmp_path / "m.safetensors", MLP), weights())


def test_a_wrapper_of_a_part_is_taken_off(tmp_path: Path) -> None:
    network = registry.build("vgg", {"width": 2, "classes": 3})
    expected = dict(network.state_dict())
    network.features = nn.DataParallel(network.get_submodule("features"))
    assert "features.module.0.weight" in network.state_dict()
    spec = ArchitectureSpec(name="vgg", args={"width": 2, "classes": 3})
    assert begins_with(STATE_DICT.read(saved(network.state_dict(), tmp_path), spec), expected)


def test_prefixes_stay_where_taking_them_off_does_not_make_all_names_fit(tmp_path: Path) -> None:
    renamed = {f"module.{key}": value for key, value in weights().items()}
    surplus = {**renamed, "module.more": torch.ones(1)}
    partly = {key if place else f"module.{key}": value for place, (key, value) in enumerate(weights().items())}
    for content in (surplus, {**partly, "more": torch.ones(1)}):
        titles = {finding.title for finding in findings_of(content, tmp_path)}
        assert "Weights unknown" in titles


def test_files_without_counters_of_batches_begin_with_zero(tmp_path: Path) -> None:
    spec = ArchitectureSpec(name="resnet", args=SMALL)
    with torch.random.fork_rng(devices=[]):
        given = registry.build("resnet", SMALL).state_dict()
    older = {key: value for key, value in given.items() if not key.endswith("num_batches_tracked")}
    assert len(older) < len(given)
    assert begins_with(STATE_DICT.read(saved(older, tmp_path), spec), dict(given))
    del older["bn1.running_mean"]
    assert {finding.title for finding in findings_of(older, tmp_path, spec)} == {"Weights missing"}


def test_the_former_names_of_a_vit_fit(tmp_path: Path) -> None:
    args: dict[str, Any] = {"image_size": 8, "layers": 2, "model_size": 8, "hidden": 8}
    with torch.random.fork_rng(devices=[]):
        given = dict(registry.build("vit", args).state_dict())
    former = {k.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): v for k, v in given.items()}
    assert former.keys() != given.keys()
    assert begins_with(STATE_DICT.read(saved(former, tmp_path), ArchitectureSpec(name="vit", args=args)), given)


# Equal shapes under other names


class CifarBlock(nn.Module):
    """A block as scripts for CIFAR write it."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class CifarResNet(nn.Module):
    """Independent of the registry's, with the names `shortcut` and `linear`."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = nn.Sequential(CifarBlock(width, width, 1))
        self.layer2 = nn.Sequential(CifarBlock(width, 2 * width, 2))
        self.layer3 = nn.Sequential(CifarBlock(2 * width, 4 * width, 2))
        self.layer4 = nn.Sequential(CifarBlock(4 * width, 8 * width, 2))
        self.linear = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = functional.adaptive_avg_pool2d(x, 1)  # avg_pool2d(x, 4) of some scripts adds up in another order
        scores: Tensor = self.linear(x.flatten(1))
        return scores


@pytest.fixture
def cifar() -> Iterator[CifarResNet]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield CifarResNet()


RESNET = ArchitectureSpec(name="resnet", args=SMALL)


def test_other_names_are_shown_confirmed_and_give_the_outputs_of_the_network(
    cifar: CifarResNet, tmp_path: Path
) -> None:
    content = {"net": {f"module.{key}": value for key, value in cifar.state_dict().items()}, "acc": 90.0, "epoch": 7}
    (finding,) = findings_of(content, tmp_path, RESNET)
    assert (finding.title, finding.severity) == ("Other names of weights", "error")
    assert "'layer2.0.downsample.0.weight' = 'module.layer2.0.shortcut.0.weight'" in finding.message
    assert '"names": "by_shape"' in finding.remedy
    definition = STATE_DICT.read(saved(content, tmp_path), asking(RESNET, names="by_shape"))
    (warning,) = definition.doubts
    assert (warning.severity, warning.message) == ("warning", finding.message)
    network, images = definition.build(), torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for mode in (True, False):
        assert torch.equal(network.train(mode)(images), cifar.train(mode)(images))


def test_a_file_with_the_names_of_the_network_needs_no_confirmation_and_ignores_it(tmp_path: Path) -> None:
    definition = STATE_DICT.read(saved(weights(), tmp_path), asking(MLP, names="by_shape"))
    assert begins_with(definition, weights()) and definition.doubts == ()


def test_equal_shapes_that_order_alone_tells_apart_are_named(tmp_path: Path) -> None:
    spec = ArchitectureSpec(name="mlp", args={"inputs": 4, "hidden": [4, 4], "classes": 3})
    with torch.random.fork_rng(devices=[]):
        given = registry.build(spec.name, spec.args).state_dict()
    kinds = ("weight", "bias")
    own = {f"dense{place // 2}.{kinds[place % 2]}": value for place, value in enumerate(given.values())}
    (finding,) = findings_of(own, tmp_path, spec)
    doubtful = finding.message.partition("Order alone tells these apart")[2]
    assert all(f"'dense{place}.{kind}'" in doubtful for place in (0, 1) for kind in kinds)
    assert "dense2" not in doubtful  # the only layer of its shape


@pytest.mark.parametrize("names", [None, "by_shape"])
def test_shapes_in_another_order_or_with_other_roles_do_not_fit(names: str | None, tmp_path: Path) -> None:
    spec = asking(MLP, names=names) if names else MLP
    given = {f"own.{key}": value for key, value in weights().items()}
    turned = dict(reversed(given.items()))
    roles = {"weight": "bias", "bias": "weight"}
    square = ArchitectureSpec(name="transformer", args={"layers": 1})
    with torch.random.fork_rng(devices=[]):
        others = registry.build(square.name, square.args).state_dict()
    crossed = {f"own.{key.rpartition('.')[0]}.{roles.get(key.rpartition('.')[2], 'x')}": v for key, v in others.items()}
    for content, wanted in ((turned, spec), (crossed, asking(square, names=names) if names else square)):
        assert "Weights unknown" in {finding.title for finding in findings_of(content, tmp_path, wanted)}


# Through the product


def test_a_spec_confirms_and_its_check_shows_the_pairs(cifar: CifarResNet, tmp_path: Path, home: Home) -> None:
    saved({"net": cifar.state_dict(), "ema": cifar.state_dict()}, tmp_path)
    torch.save({"inputs": torch.rand(6, 3, 16, 16), "targets": torch.arange(6)}, tmp_path / "d.pt")
    part = {"name": "one", "model": "m.ckpt", "train_data": "d.pt", "hyperparameters": {"batch_size": 3}}
    asked = {"name": "resnet", "args": SMALL}

    def checked(**changes: Any) -> tuple[Finding, ...]:
        spec = parse_run({"submodels": [part | changes]})
        assert parse_run(spec.model_dump(mode="json", exclude_none=True)) == spec
        return tuple(one for one in check(spec, tmp_path, home).findings if one.title != "No test data")

    (refused,) = checked(architecture=asked)
    assert (refused.severity, refused.field) == ("error", "submodels.one.architecture")
    taken = checked(architecture=asked | {"names": "by_shape"})
    assert [(one.severity, one.title) for one in taken] == [
        ("warning", "Several state dicts"),
        ("warning", "Other names of weights"),
    ]
    assert {one.field for one in taken} == {"submodels.one.architecture"}
    start = {"file": "m.ckpt", "take": "weights", "entry": "ema"}
    plain = tmp_path / "plain.pt"
    torch.save(registry.build("resnet", SMALL).state_dict(), plain)
    (refused,) = checked(architecture=asked, model="plain.pt", start_from=start)
    assert refused.severity == "error" and '"names": "by_shape" to start_from' in refused.remedy
    (warning,) = checked(architecture=asked, model="plain.pt", start_from=start | {"names": "by_shape"})
    assert (warning.severity, warning.title) == ("warning", "Other names of weights")


def test_a_delivery_maps_its_names_to_those_of_the_submitted_file(
    cifar: CifarResNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = STATE_DICT.read(saved({"net": cifar.state_dict()}, tmp_path), asking(RESNET, names="by_shape"))
    trained = {key: value + 1 for key, value in definition.build().state_dict().items()}
    folder = tmp_path / "out"
    folder.mkdir()
    delivery = STATE_DICT.write(definition, trained, folder, "trained")
    assert [path.name for path in delivery.files] == ["trained.ckpt", "architecture.py", "names.json"]
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    lines = delivery.load_script.splitlines()
    Path("load.py").write_text("\n".join(line.removeprefix("# ") for line in lines if "submitted" not in line))
    runpy.run_path("load.py")
    monkeypatch.delitem(sys.modules, "architecture")
    found = torch.load("own_names.pt")
    assert found.keys() == cifar.state_dict().keys()
    assert all(torch.equal(found[key], value + 1) for key, value in cifar.state_dict().items())


class Versioned(nn.Module):
    """As MNASNet: loads no state dict without the version of its class."""

    _version = 2

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        if metadata.get("version") != 2:
            raise ValueError("version should be 2")


def test_a_delivered_state_dict_keeps_the_versions_of_layers(tmp_path: Path) -> None:
    definition = STATE_DICT.read(saved(weights(), tmp_path), MLP)
    (tmp_path / "out").mkdir()
    delivery = STATE_DICT.write(definition, weights(2), tmp_path / "out", "trained")
    found = torch.load(delivery.files[0])
    assert found._metadata == registry.build(MLP.name, MLP.args).state_dict()._metadata  # type: ignore[attr-defined]
    network = nn.Sequential(Versioned())
    with pytest.raises(ValueError, match="version"):
        network.load_state_dict({})
    state = network.state_dict()
    state.update({})  # as load.py says
    network.load_state_dict(state)


def test_a_worker_loads_what_the_check_has_confirmed_and_nothing_else(cifar: CifarResNet, tmp_path: Path) -> None:
    path = saved({"net": weights(), "ema": cifar.state_dict()}, tmp_path)
    found = initial_state(path, "weights", "ema")
    assert isinstance(found, dict)
    with torch.random.fork_rng(devices=[]):
        network = registry.build("resnet", SMALL)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with pytest.raises(BadCheckpoint, match="do not fit"):
        load_weights(network, found)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    load_weights(network, found, "by_shape")
    pairs = zip(network.state_dict().values(), cifar.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("part", [{"architecture": {"name": "mlp"}}, {"start_from": {"file": "f", "take": "weights"}}])
def test_an_unknown_way_to_meet_names_is_a_finding_at_its_place(part: dict[str, dict[str, str]]) -> None:
    ((where, said),) = part.items()
    document = {"name": "one", "model": "m", "train_data": "d", where: said | {"names": "by_size"}}
    with pytest.raises(BadInput) as caught:
        parse_run({"submodels": [document]})
    (finding,) = caught.value.findings
    assert finding.field == f"submodels.one.{where}.names" and "'by_shape'" in finding.remedy
