"""Pickled networks of torch's own layers that say more than a network, or something else than torch makes."""

import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.hostile.corpus.pickles import network, raw, saved
from tests.hostile.marks import Call, payload

Maker = Callable[[Path], Path]
RELU = nn.functional.relu  # a function that a network may name
_LINEAR = b"ctorch.nn.modules.linear\nLinear\n"
_SEQUENTIAL = b"ctorch.nn.modules.container\nSequential\n"
HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
SHADOWED = ("__class__", "_call_impl", "state_dict", "train", "_apply", "__setattr__")


def _layer(make: Callable[[], nn.Module], **attributes: Any) -> Maker:
    """A layer some of whose attributes are replaced."""

    def content(folder: Path) -> nn.Module:
        module = make()
        module.__dict__.update(attributes)
        return nn.Sequential(module)

    return saved(content)


def _linear() -> nn.Linear:
    return nn.Linear(4, 2)


def _parameter(name: str, value: Any) -> Maker:
    return _layer(_linear, _parameters={**_linear()._parameters, name: value})


def _text(word: str) -> bytes:
    return b"X" + len(word).to_bytes(4, "little") + word.encode()


def _record(kind: bytes, state: bytes) -> bytes:
    return b"\x80\x02" + kind + b")\x81" + state + b"."


def _in_modules(entries: bytes) -> bytes:
    return _record(_SEQUENTIAL, b"}" + _text("_modules") + b"}(" + entries + b"us" + b"b")


def _many(folder: Path) -> bytes:
    """A hundred thousand layers, one of them written down."""
    first = _text("0") + b"ctorch.nn.modules.linear\nIdentity\n)\x81q\x00}b"
    return _in_modules(first + b"".join(_text(str(number)) + b"h\x00" for number in range(1, 100_000)))


def _wide(folder: Path) -> bytes:
    """A layer of very many notes, held very many times over: each look at it is long."""
    notes = b"}(" + b"".join(_text(f"n{number}") + b"N" for number in range(200_000)) + b"u"
    first = _text("0") + b"ctorch.nn.modules.linear\nIdentity\n)\x81q\x00" + notes + b"b"
    return _in_modules(first + b"".join(_text(str(number)) + b"h\x00" for number in range(1, 19_000)))


def _each_other(folder: Path) -> nn.Module:
    one, other = nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU())
    one._modules["0"], other._modules["0"] = other, one
    return one


def _overlapping(folder: Path) -> nn.Module:
    module, memory = network(), torch.zeros(64)
    for part, start in ((module[0], 0), (module[2], 8)):
        part.weight = nn.Parameter(memory[start : start + part.weight.numel()].view_as(part.weight))  # type: ignore
    return module


def _crumbs(folder: Path) -> nn.Module:
    """Very many weights in one piece of memory, each beside the one before."""
    memory = torch.zeros(2_000)
    layers = [nn.PReLU() for _ in range(1_000)]
    for number, layer in enumerate(layers):
        layer.weight = nn.Parameter(memory[2 * number : 2 * number + 1])
    return nn.Sequential(*layers, nn.Hardtanh(-1, 1), _with(nn.ReLU(), "forward", RELU))


def _with(module: nn.Module, name: str, value: Any) -> nn.Module:
    module.__dict__[name] = value
    return module


def _misnumbered(folder: Path) -> nn.Module:
    modules = nn.ModuleList([nn.ReLU()])
    modules._modules["forward"] = nn.ReLU()
    return nn.Sequential(modules)


def _other_layer_in_encoder(folder: Path) -> nn.Module:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
    encoder.layers[1].self_attn.num_heads = 4  # type: ignore[union-attr, assignment]
    return encoder


def _resized(size: Callable[[int], int]) -> Maker:
    """The storages of a network in another length than its pickle says."""

    def make(folder: Path) -> Path:
        torch.save(network(), folder / "whole.pt")
        with zipfile.ZipFile(folder / "whole.pt") as source, zipfile.ZipFile(folder / "net.pt", "w") as target:
            for info in source.infolist():
                data = source.read(info)
                target.writestr(info.filename, bytes(size(len(data))) if "data/" in info.filename else data)
        return folder / "net.pt"

    return make


def _hooked(folder: Path) -> Any:
    """A tensor whose hook runs in the backward pass."""
    storage = torch.zeros(8).untyped_storage()
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
    hooks = OrderedDict({0: payload(folder)})
    return Call(torch._utils._rebuild_tensor_v2, typed, 0, (2, 4), (4, 1), True, hooks)  # type: ignore[no-untyped-call]


def _turned(folder: Path) -> nn.Module:
    module = network()
    module[0]._parameters["weight"] = torch.zeros(8, 4, dtype=torch.complex64).conj().imag  # type: ignore[assignment]
    return module


def _quantized(folder: Path) -> nn.Module:
    module = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to give such tensors up
        weight = torch.quantize_per_tensor(torch.zeros(8, 4), 0.1, 0, torch.qint8)
    module[0]._parameters["weight"] = weight  # type: ignore[assignment]
    return module


def _normed(folder: Path) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has a newer one, which cannot be pickled at all
        return nn.Sequential(torch.nn.utils.weight_norm(_linear()))


def _parametrized(folder: Path) -> nn.Module:
    module = network()
    module[0].add_module("parametrizations", nn.ModuleDict({"weight": nn.Sequential(nn.Identity())}))
    return module


MAKERS: dict[str, Maker] = {
    **{f"hook {name}": _layer(_linear, **{name: OrderedDict({0: RELU})}) for name in HOOKS},
    **{f"replaced {name}": _layer(_linear, **{name: RELU}) for name in SHADOWED},
    "state of text": raw(lambda folder: _record(_LINEAR, _text("text") + b"b")),
    "two states": raw(lambda folder: _record(_LINEAR, b"}b}b")),
    "state of numbers": raw(lambda folder: _record(_LINEAR, b"}K\x01K\x02sb")),
    "made with arguments": raw(lambda folder: b"\x80\x02" + _LINEAR + b"J\x00\x00\x00\x7fJ\x00\x00\x00\x7f\x86\x81."),
    "called with arguments": raw(lambda folder: b"\x80\x02" + _LINEAR + b"J\x00\x00\x00\x7fJ\x00\x00\x00\x7f\x86R."),
    "note of itself": raw(lambda folder: _record(_LINEAR, b"q\x00}" + _text("a") + b"h\x00sb")),
    "class for a layer": raw(lambda folder: _in_modules(_text("0") + _LINEAR)),
    "name of a method": raw(lambda folder: b"\x80\x02ctorch.nn.modules.linear\nLinear.reset_parameters\n."),
    "private name": raw(lambda folder: b"\x80\x02ctorch.nn.modules.linear\n__builtins__\n."),
    "parent by a trick": raw(lambda folder: b"\x80\x02ctorch\nnn.modules.linear.Linear.__init__.__globals__\n."),
    "hold each other": saved(_each_other),
    "hundred thousand layers": raw(_many),
    "notes without end": raw(_wide),
    "weights overlap": saved(_overlapping),
    "crumbs of memory": saved(_crumbs),
    "storages too short": _resized(lambda size: size // 2),
    "storages too long": _resized(lambda size: size * 2),
    "hook on a tensor": saved(lambda folder: _layer_of(_hooked(folder))),
    "giant Linear": _layer(_linear, in_features=10**9, out_features=10**9),
    "giant Embedding": _layer(lambda: nn.Embedding(4, 2), num_embeddings=10**12, embedding_dim=10**12),
    "giant LSTM": _layer(lambda: nn.LSTM(4, 4), num_layers=10**6),
    "giant heads": _layer(lambda: nn.MultiheadAttention(4, 2), num_heads=10**9, embed_dim=10**9),
    "giant pool": _layer(lambda: nn.AdaptiveAvgPool2d(1), output_size=(10**12, 10**12)),
    "giant kernel": _layer(lambda: nn.Conv2d(1, 1, 1), kernel_size=(10**9,) * 2),
    "number of 10000 digits": _layer(_linear, in_features=10**10_000),
    "size of text": _layer(_linear, in_features="__import__('os').mkdir('canary')"),
    "size that is true": _layer(_linear, in_features=True),
    "rate that is not a number": _layer(lambda: nn.Dropout(0.1), p=float("nan")),
    "activation by function": _layer(lambda: nn.TransformerEncoderLayer(4, 2), activation=nn.functional.gelu),
    "device": _layer(_linear, in_features=torch.device("cpu")),
    "shape of weights": _parameter("weight", nn.Parameter(torch.zeros(1, 1))),
    "whole numbers": _parameter("weight", torch.zeros(2, 4, dtype=torch.int64)),
    "complex weights": _parameter("weight", torch.zeros(2, 4, dtype=torch.complex64)),
    "sparse weights": _parameter("weight", torch.zeros(2, 4).to_sparse()),
    "quantized weights": saved(_quantized),
    "weights on meta": _parameter("weight", torch.zeros(2, 4, device="meta")),
    "weights turned round": saved(_turned),
    "NaN weights": _parameter("weight", nn.Parameter(torch.full((2, 4), float("nan")))),
    "infinite weights": _parameter("bias", nn.Parameter(torch.full((2,), float("inf")))),
    "no weights": _parameter("weight", None),
    "one weight more": _parameter("more", nn.Parameter(torch.zeros(2))),
    "weight behind a note": _layer(_linear, weight=torch.ones(2, 4)),
    "parametrized": saved(_parametrized),
    "weight norm": saved(_normed),
    "lazy": saved(lambda folder: nn.Sequential(nn.LazyLinear(2))),
    "buffer that is not kept": _layer(lambda: nn.BatchNorm1d(2), _non_persistent_buffers_set={"running_mean"}),
    "buffer of text": _layer(lambda: nn.BatchNorm1d(2), _buffers={"running_mean": "text"}),
    "layers under numbers": _layer(lambda: nn.Sequential(nn.ReLU()), _modules={1: nn.ReLU()}),
    "layer of text": _layer(lambda: nn.Sequential(nn.ReLU()), _modules={"0": "text"}),
    "list alone": saved(lambda folder: nn.ModuleList([nn.ReLU()])),
    "list with a name": saved(_misnumbered),
    "bytes for a note": _layer(_linear, note=b"x" * 10),
    "several types": _parameter("weight", nn.Parameter(torch.zeros(2, 4).half())),
    "negative size": _layer(_linear, in_features=-1),
    "other padding inside": _layer(lambda: nn.Conv2d(1, 1, 3, padding=1), _reversed_padding_repeated_twice=[9] * 4),
    "other mode": _layer(lambda: nn.LSTM(2, 2), mode="GRU"),
    "other layer inside": saved(_other_layer_in_encoder),
    "name from the stack": raw(lambda folder: b"\x80\x04" + _LINEAR + b"0\x8c\x02os\x8c\x06system\x93."),
    "extension": raw(lambda folder: b"\x80\x02" + _LINEAR + b"\x82\x01."),
}


def _layer_of(weight: Any) -> nn.Module:
    module = _linear()
    module._parameters["weight"] = weight
    return nn.Sequential(module)
