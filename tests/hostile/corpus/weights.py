"""Weights that are none: numbers that are no numbers, shapes beyond their bytes, headers that lie."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Maker = Callable[[Path], Path]


def _saved(content: Callable[[], Any]) -> Maker:
    def make(folder: Path) -> Path:
        torch.save(content(), folder / "net.pt")
        return folder / "net.pt"

    return make


def _header(header: Any, data: bytes = b"\0" * 16, length: int | None = None) -> Maker:
    """A safetensors file with any header."""

    def make(folder: Path) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        (folder / "net.safetensors").write_bytes(struct.pack("<Q", length or len(text)) + text + data)
        return folder / "net.safetensors"

    return make


def _entry(**changes: Any) -> dict[str, Any]:
    return {"weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16], **changes}}


def _short_storage(folder: Path) -> Path:
    """A shape that reaches far beyond its storage."""
    torch.save({"weight": torch.zeros(4)}, folder / "whole.pt")
    with zipfile.ZipFile(folder / "whole.pt") as source, zipfile.ZipFile(folder / "net.pt", "w") as target:
        for info in source.infolist():
            data = source.read(info)
            target.writestr(info.filename, data[:4] if info.filename.endswith("data/0") else data)
    return folder / "net.pt"


def _claims_more(folder: Path) -> Path:
    torch.save({"weight": torch.zeros(4)}, folder / "net.pt")
    content = bytearray((folder / "net.pt").read_bytes())
    record = content.find(b"PK\x01\x02")
    struct.pack_into("<II", content, record + 20, 2**31, 2**31)
    (folder / "net.pt").write_bytes(content)
    return folder / "net.pt"


MAKERS: dict[str, Maker] = {
    "expanded": _saved(lambda: {"weight": torch.zeros(1).expand(10**6, 10**6)}),
    "complex": _saved(lambda: {"weight": torch.zeros(4, dtype=torch.complex64)}),
    "sparse": _saved(lambda: {"weight": torch.eye(4).to_sparse()}),
    "on meta": _saved(lambda: {"weight": torch.zeros(10**9, device="meta")}),
    "keys of numbers": _saved(lambda: {1: torch.zeros(4)}),
    "list": _saved(lambda: [torch.zeros(4)]),
    "text": _saved(lambda: {"weight": "text"}),
    "empty": _saved(dict),
    "short storage": _short_storage,
    "claims more than the file": _claims_more,
    "header longer than the file": _header(_entry(), length=2**40),
    "header without end": _header(b'{"a":' * 100_000),
    "header no JSON": _header(b"{weight}"),
    "shape beyond its bytes": _header(_entry(shape=[10**9])),
    "shape that overflows": _header(_entry(shape=[2**62, 8])),
    "negative shape": _header(_entry(shape=[-4])),
    "offsets beyond the file": _header(_entry(data_offsets=[0, 10**9])),
    "offsets reversed": _header(_entry(data_offsets=[16, 0])),
    "overlapping": _header({**_entry(), "bias": _entry()["weight"]}),
    "unknown type": _header(_entry(dtype="F1024")),
}
