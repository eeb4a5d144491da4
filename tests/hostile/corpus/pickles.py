"""Files of `torch.save` with more in them than tensors."""

import builtins
import io
import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.hostile.marks import CANARY, Call, payload

Maker = Callable[[Path], Path]


class Custom(nn.Module):
    """A network whose class only its author has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(x)
        return scores


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def saved(content: Callable[[Path], Any], *, zipped: bool = True) -> Maker:
    def make(folder: Path) -> Path:
        torch.save(content(folder), folder / "net.pt", _use_new_zipfile_serialization=zipped)
        return folder / "net.pt"

    return make


def _changed(change: Callable[[nn.Sequential, Path], object]) -> Maker:
    def content(folder: Path) -> nn.Module:
        module = network()
        change(module, folder)
        return module

    return saved(content)


def raw(stream: Callable[[Path], bytes], entries: dict[str, bytes] | None = None) -> Maker:
    """A container of torch with any pickle in it."""

    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "net.pt", "w") as archive:
            archive.writestr("archive/data.pkl", stream(folder))
            for name, data in {"archive/version": b"3\n", "archive/byteorder": b"little", **(entries or {})}.items():
                archive.writestr(name, data)
        return folder / "net.pt"

    return make


def _attribute(name: str, value: Callable[[Path], Any]) -> Callable[[nn.Sequential, Path], None]:
    return lambda module, folder: module[0].__dict__.__setitem__(name, value(folder))


def _hook(module: nn.Sequential, folder: Path) -> None:
    module[0].register_forward_hook(print)


def _pre_hook(module: nn.Sequential, folder: Path) -> None:
    module.register_forward_pre_hook(breakpoint)


def _state_dict_hook(module: nn.Sequential, folder: Path) -> None:
    module._load_state_dict_pre_hooks[0] = payload(folder)  # type: ignore[assignment]


def _expanded(module: nn.Sequential, folder: Path) -> None:
    module[0].weight = nn.Parameter(torch.zeros(1).expand(10**6, 10**6), requires_grad=False)


def _loop(module: nn.Sequential, folder: Path) -> None:
    module._modules["0"] = module  # a network that contains itself


def _doubling(folder: Path) -> nn.Module:
    """2^40 layers, written down in 40."""
    module: nn.Module = nn.ReLU()
    for _ in range(40):
        module = nn.Sequential(module, module)
    return module


def _deep(folder: Path) -> nn.Module:
    module: nn.Module = nn.Linear(2, 2)
    for _ in range(120):
        module = nn.Sequential(module)
    return module


def _constructed(*arguments: int) -> Callable[[Path], Any]:
    return lambda folder: Call(nn.Linear, *arguments)


def _graph_module(folder: Path) -> nn.Module:
    return torch.fx.symbolic_trace(network())


def _script(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it is deprecated
        torch.jit.save(torch.jit.script(network()), folder / "net.pt")
    return folder / "net.pt"


def _opcodes(text: bytes) -> Callable[[Path], bytes]:
    return lambda folder: text.replace(b"CANARY", str(folder / CANARY).encode())


def _compressed(folder: Path) -> Path:
    """A thousandth of what it unpacks to."""
    with zipfile.ZipFile(folder / "net.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", bytes(64 * 1024**2))
    return folder / "net.pt"


def _rebuilt(folder: Path) -> Any:
    """Has torch call any function that it can reach."""
    from torch._tensor import _rebuild_from_type_v2

    return Call(_rebuild_from_type_v2, os.mkdir, torch.Tensor, (str(folder / CANARY),), {})


def _legacy(folder: Path) -> Path:
    with (folder / "net.pt").open("wb") as file:
        pickle.dump(payload(folder), file, protocol=2)
    return folder / "net.pt"


def _two_pickles(folder: Path) -> bytes:
    stream = io.BytesIO()
    pickle.dump({"weight": 1.0}, stream, protocol=2)
    pickle.dump(payload(folder), stream, protocol=2)
    return stream.getvalue()


MAKERS: dict[str, Maker] = {
    "reduce": saved(lambda folder: {"weight": torch.zeros(2), "more": payload(folder)}),
    "reduce at the root": saved(payload),
    "reduce in the old container": saved(payload, zipped=False),
    "bare pickle": _legacy,
    "eval": saved(lambda folder: Call(builtins.eval, f"__import__('os').mkdir({str(folder / CANARY)!r})")),
    "rebuild from type": saved(_rebuilt),
    "giant constructor": saved(_constructed(100_000, 100_000)),
    "module with reduce inside": _changed(_attribute("extra", payload)),
    "forward replaced": _changed(_attribute("forward", lambda folder: print)),
    "call replaced": _changed(_attribute("__call__", lambda folder: print)),
    "parameters of text": _changed(_attribute("_parameters", lambda folder: {"weight": "text"})),
    "size beyond its weights": _changed(_attribute("in_features", lambda folder: 10**9)),
    "forward hook": _changed(_hook),
    "forward pre-hook": _changed(_pre_hook),
    "load hook": _changed(_state_dict_hook),
    "expanded weights": _changed(_expanded),
    "contains itself": _changed(_loop),
    "doubling": saved(_doubling),
    "deep": saved(_deep),
    "unknown class": saved(lambda folder: Custom()),
    "graph module": saved(_graph_module),
    "function": saved(lambda folder: torch.nn.functional.relu),
    "script": _script,
    "global of os": raw(_opcodes(b"cos\nmkdir\n(VCANARY\ntR.")),
    "instruction INST": raw(_opcodes(b"(VCANARY\nios\nmkdir\n.")),
    "build on a class": raw(_opcodes(b"\x80\x02ctorch.nn.modules.linear\nLinear\n}X\x07\x00\x00\x00forward]sb.")),
    "persistent id": raw(_opcodes(b"\x80\x02VCANARY\nQ.")),
    "second pickle": raw(_two_pickles),
    "cut pickle": raw(lambda folder: pickle.dumps({"weight": 1.0})[:-6]),
    "not a pickle": raw(lambda folder: b"\xff" * 64),
    "nested without end": raw(lambda folder: b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."),
    "key of nested tuples": raw(lambda folder: b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."),
    "traversal": raw(lambda folder: pickle.dumps({}), {"archive/../../escaped": b"x"}),
    "compressed": _compressed,
}
