"""Data sets of tensors and arrays that unpack without end, or hold no numbers."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.hostile.marks import payload

Maker = Callable[[Path], Path]


def _npy(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _npz(**members: bytes) -> Maker:
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "data.npz", "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)
        return folder / "data.npz"

    return make


def _array(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _objects(folder: Path) -> Path:
    np.savez(folder / "data.npz", inputs=np.array([payload(folder)], dtype=object), targets=np.zeros(1))
    return folder / "data.npz"


def _bomb(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("inputs", "targets"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                file.write(_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (167772160,), }"))
                for _ in range(160):
                    file.write(bytes(1024**2))
    return folder / "data.npz"


def _dataset(inputs: Any, targets: Any) -> Maker:
    def make(folder: Path) -> Path:
        torch.save({"inputs": inputs(), "targets": targets()}, folder / "data.pt")
        return folder / "data.pt"

    return make


def _entries(content: dict[str, Any]) -> Maker:
    def make(folder: Path) -> Path:
        torch.save(content, folder / "data.pt")
        return folder / "data.pt"

    return make


def _packed(folder: Path) -> Path:
    np.savez_compressed(folder / "data.npz", inputs=np.zeros((300, 2**20), np.uint8), targets=np.zeros(300, np.uint8))
    return folder / "data.npz"


NUMBERS = _array(np.zeros(4, dtype=np.float32))
MAKERS: dict[str, Maker] = {
    "objects": _objects,
    "bomb": _bomb,
    "header with code": _npz(inputs=_npy("__import__('os').mkdir('canary')"), targets=NUMBERS),
    "giant shape": _npz(
        inputs=_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"), targets=NUMBERS
    ),
    "negative shape": _npz(inputs=_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }"), targets=NUMBERS),
    "member outside": _npz(**{"../../inputs": NUMBERS, "targets": NUMBERS}),
    "text as numbers": _npz(inputs=_array(np.array(["a", "b"])), targets=NUMBERS),
    "NaN": _dataset(lambda: torch.full((4, 2), float("nan")), lambda: torch.zeros(4, dtype=torch.int64)),
    "infinite": _dataset(lambda: torch.full((4, 2), float("inf")), lambda: torch.zeros(4, dtype=torch.int64)),
    "expanded": _dataset(lambda: torch.zeros(1).expand(10**6, 10**6), lambda: torch.zeros(10**6)),
    "lengths differ": _dataset(lambda: torch.zeros(4, 2), lambda: torch.zeros(5)),
    "no samples": _dataset(lambda: torch.zeros(0, 2), lambda: torch.zeros(0)),
    "yes and no": _dataset(lambda: torch.zeros(4, 2, dtype=torch.bool), lambda: torch.zeros(4)),
    "complex": _dataset(lambda: torch.zeros(4, 2, dtype=torch.complex64), lambda: torch.zeros(4)),
    "sparse": _dataset(lambda: torch.zeros(4, 2).to_sparse(), lambda: torch.zeros(4)),
    "negative of its bytes": _dataset(
        lambda: torch.zeros(4, 2, dtype=torch.complex64).conj().imag, lambda: torch.zeros(4)
    ),
    "half a character": _entries({"inputs\ud800": torch.zeros(4, 2), "targets": torch.zeros(4)}),
    "packed a thousandfold": _packed,
}
HARMLESS: dict[str, Maker] = {
    "several inputs": _entries({"inputs": {"a": torch.rand(4, 2)}, "targets": torch.zeros(4)}),
    "a class for every two samples": _dataset(lambda: torch.rand(60_000, 1), lambda: torch.arange(60_000) // 2),
    "class numbers beyond counting": _dataset(lambda: torch.rand(4, 2), lambda: torch.tensor([0, 0, 2**62, -(2**62)])),
}
"""Data sets like any other; each class of them costs nothing."""
