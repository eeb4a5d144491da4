"""Pickled networks that try something: nothing runs, and each is refused with a reason."""

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import rebuild
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.preflight.inspection import inspect_file

FORMAT = PickledModule()
REFUSED = (BadInput, HostileFile)
LINEAR = b"ctorch.nn.modules.linear\nLinear\n"


class Reduced:
    """Pickled as a call."""

    def __init__(self, *parts: Any):
        self.parts = parts

    def __reduce__(self) -> Any:
        return self.parts


def linear(**changes: Any) -> nn.Module:
    module = nn.Linear(2, 3)
    module.__dict__.update(changes)
    return nn.Sequential(module)


def with_parameter(value: Any, name: str = "weight") -> nn.Module:
    module = nn.Linear(2, 3)
    module._parameters[name] = value
    return nn.Sequential(module)


def hooked(function: Callable[..., Any]) -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 3))
    module.register_forward_hook(function)
    return module


def deep(levels: int) -> nn.Module:
    module: nn.Module = nn.Linear(2, 2)
    for _ in range(levels):
        module = nn.Sequential(module)
    return module


def doubled(levels: int) -> nn.Module:
    module: nn.Module = nn.Linear(2, 2)
    for _ in range(levels):
        module = nn.Sequential(module, module)
    return module


def circular() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2))
    module._modules["1"] = module
    return module


def sharing() -> nn.Module:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight.data = first.weight.data
    return nn.Sequential(first, second)


def other_layer_in_encoder() -> nn.Module:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
    encoder.layers[1].self_attn.num_heads = 4
    return encoder


def without_persistent() -> nn.Module:
    module = nn.BatchNorm1d(2)
    module._non_persistent_buffers_set.add("running_mean")
    return module


def misnumbered() -> nn.Module:
    modules = nn.ModuleList([nn.ReLU()])
    modules._modules["forward"] = nn.ReLU()
    return nn.Sequential(modules)


OBJECTS: dict[str, tuple[Callable[[], Any], str]] = {
    "system call": (lambda: Reduced(os.system, ("touch canary",)), "system"),
    "call inside": (lambda: linear(note=Reduced(os.mkdir, ("canary",))), "mkdir"),
    "eval": (lambda: linear(note=Reduced(eval, ("open('canary', 'w')",))), r"builtins\.eval"),
    "constructor": (lambda: Reduced(nn.Linear, (8000, 8000)), "contains something"),
    "constructor inside": (lambda: linear(note=Reduced(nn.Linear, (8000, 8000))), "contains something"),
    "any callable": (
        lambda: linear(note=Reduced(torch._tensor._rebuild_from_type_v2, (nn.ReLU, torch.Tensor, (), {}))),
        "not a plain dense tensor|not supported in a pickled",
    ),
    "function": (lambda: linear(note=Reduced(nn.functional.relu, (torch.ones(1),))), "contains something"),
    "bytes": (lambda: linear(note=b"x" * 10), "_codecs"),
    "forward replaced": (lambda: linear(forward=nn.ReLU), "replaces the method 'forward'"),
    "method replaced": (lambda: linear(extra_repr=1), "replaces the method 'extra_repr'"),
    "call replaced": (lambda: linear(_call_impl=nn.functional.relu), "replaces the method '_call_impl'"),
    "train replaced": (lambda: linear(train=None), "replaces the method 'train'"),
    "class replaced": (lambda: linear(__class__=nn.ReLU), "__class__"),
    "hook of python": (lambda: hooked(print), "print"),
    "hook of torch": (lambda: hooked(nn.functional.relu), "has hooks"),
    "no tensor": (lambda: with_parameter("weight"), "is not a tensor"),
    "weight missing": (lambda: with_parameter(None), "parameters"),
    "weight too many": (lambda: with_parameter(nn.Parameter(torch.ones(1)), "more"), "parameters"),
    "other shape": (lambda: with_parameter(nn.Parameter(torch.ones(2, 3))), "shape"),
    "whole numbers": (lambda: with_parameter(torch.ones(3, 2, dtype=torch.int64)), "shape or type"),
    "several types": (lambda: with_parameter(nn.Parameter(torch.ones(3, 2).half())), "several types"),
    "complex": (lambda: with_parameter(nn.Parameter(torch.ones(3, 2) * 1j)), "Complex"),
    "sparse": (lambda: with_parameter(nn.Parameter(torch.ones(3, 2).to_sparse())), "sparse"),
    "without memory": (lambda: with_parameter(nn.Parameter(torch.ones(3, 2, device="meta"))), "meta"),
    "expanded": (lambda: nn.Sequential(_giant()), "fewer bytes"),
    "giant": (lambda: linear(out_features=10**9), "shape"),
    "more than giant": (lambda: linear(out_features=10**18), "does not take"),
    "negative": (lambda: linear(in_features=-1), "negative"),
    "word for a number": (lambda: linear(in_features="2"), "does not take"),
    "flag for a number": (lambda: linear(in_features=True), "does not take"),
    "many layers of LSTM": (lambda: _changed(nn.LSTM(2, 2), num_layers=10**6), "num_layers"),
    "other attribute": (
        lambda: _changed(nn.Conv2d(1, 1, 3, padding=1), _reversed_padding_repeated_twice=[9] * 4),
        "differs in",
    ),
    "other mode": (lambda: _changed(nn.LSTM(2, 2), mode="GRU"), "differs in"),
    "other layer inside": (other_layer_in_encoder, "differs in"),
    "unknown activation": (lambda: nn.TransformerEncoderLayer(8, 2, 16, activation=nn.ReLU()), "activation"),
    "hidden buffer": (without_persistent, "state dict"),
    "list with a name": (misnumbered, "numbered"),
    "deep": (lambda: deep(rebuild.MAX_DEPTH + 1), "nested deeper"),
    "doubled": (lambda: doubled(30), "layers"),
    "circle": (circular, "nested deeper"),
    "shared memory": (sharing, "shares memory"),
    "no forward": (lambda: nn.ModuleList([nn.Linear(2, 2)]), "computes nothing"),
    "parts that are no parts": (lambda: linear(_modules=[1]), "have no names"),
    "name of a child": (lambda: linear(_modules={"a": 3}), "layer"),
}


def _giant() -> nn.Module:
    module = nn.Linear(2, 3)
    module.weight = nn.Parameter(torch.zeros(1).expand(3, 2))
    return module


def _changed(module: nn.Module, **changes: Any) -> nn.Module:
    module.__dict__.update(changes)
    return module


@pytest.mark.parametrize("name", OBJECTS)
def test_what_no_network_needs_is_refused_and_nothing_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, words = OBJECTS[name]
    torch.save(make(), tmp_path / "m.pt")
    before = set(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(REFUSED, match=words):
        FORMAT.read(tmp_path / "m.pt", None)
    assert set(tmp_path.iterdir()) == before
    assert inspect_file(tmp_path / "m.pt", "m.pt").findings


def with_pickle(content: bytes, folder: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    """A good file with another pickle in it."""
    torch.save(nn.Linear(2, 3), folder / "good.pt")
    with zipfile.ZipFile(folder / "good.pt") as good, zipfile.ZipFile(folder / "m.pt", "w", compression) as bad:
        for entry in good.namelist():
            bad.writestr(entry, content if entry.endswith("data.pkl") else good.read(entry))
    return folder / "m.pt"


RAW: dict[str, tuple[bytes, str]] = {
    "state is a list": (b"\x80\x02" + LINEAR + b")\x81]b.", "contains something"),
    "state twice": (b"\x80\x02" + LINEAR + b")\x81}b}b.", "contains something"),
    "state has a number": (b"\x80\x02" + LINEAR + b")\x81}K\x01K\x01sb.", "contains something"),
    "object with arguments": (b"\x80\x02" + LINEAR + b"K\x02K\x03\x86\x81.", "contains something"),
    "call": (b"\x80\x02" + LINEAR + b")R.", "contains something"),
    "name from the stack": (b"\x80\x04" + LINEAR + b"0\x8c\x02os\x8c\x06system\x93.", "does not write"),
    "extension": (b"\x80\x02" + LINEAR + b"\x82\x01.", "does not write"),
    "instance": (b"\x80\x02" + LINEAR + b"(ios\nsystem\n.", "does not write"),
    "class itself": (b"\x80\x02" + LINEAR + b".", "does not hold a layer"),
    "empty object": (b"\x80\x02" + LINEAR + b")\x81.", "is missing|missing"),
    "storage by a word": (b"\x80\x02" + LINEAR + b"X\x01\x00\x00\x00aQ.", "damaged|contains"),
    "cut short": (b"\x80\x02" + LINEAR + b")\x81}", "damaged|contains"),
    "no stop": (b"\x80\x02" + LINEAR, "damaged|contains"),
}


@pytest.mark.parametrize("name", RAW)
def test_a_pickle_by_hand_is_refused(name: str, tmp_path: Path) -> None:
    content, words = RAW[name]
    path = with_pickle(content, tmp_path)
    assert FORMAT.sniff(path)
    with pytest.raises(REFUSED, match=words):
        FORMAT.read(path, None)


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    bomb = b"\x80\x02" + LINEAR + b"0" + pickle.dumps(["x" * 10**6], protocol=2)[2:]
    with pytest.raises(HostileFile, match="compressed"):
        FORMAT.read(with_pickle(bomb, tmp_path, zipfile.ZIP_DEFLATED), None)


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 3), tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("m/data.pkl", b"\x80\x02" + LINEAR + b".")
    with pytest.raises(HostileFile, match="two entries"):
        FORMAT.read(tmp_path / "m.pt", None)


@pytest.mark.parametrize("part", range(12))
def test_a_file_that_is_cut_short_or_garbled_is_a_finding(part: int, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 3), nn.LSTM(3, 2)), tmp_path / "m.pt")
    content = bytearray((tmp_path / "m.pt").read_bytes())
    at = len(content) * part // 12
    (tmp_path / "cut.pt").write_bytes(content[:at])
    assert inspect_file(tmp_path / "cut.pt", "cut.pt").findings
    for place in range(at, min(at + 40, len(content))):
        content[place] ^= 0x15
    (tmp_path / "garbled.pt").write_bytes(content)
    inspect_file(tmp_path / "garbled.pt", "garbled.pt")  # what it finds depends on the bytes; it does not raise
