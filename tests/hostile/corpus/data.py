"""Data sets that unpack without end, point outside, or hold no numbers."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.hostile.marks import payload

Maker = Callable[[Path], Path]
MANY = 200_000
SYMLINK = 0o120777 << 16


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
                file.write(_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (402653184,), }"))
                for _ in range(384):
                    file.write(bytes(1024**2))
    return folder / "data.npz"


def _dataset(inputs: Any, targets: Any) -> Maker:
    def make(folder: Path) -> Path:
        torch.save({"inputs": inputs(), "targets": targets()}, folder / "data.pt")
        return folder / "data.pt"

    return make


def png(width: int, height: int, rows: bytes) -> bytes:
    """A grey PNG of any claimed size around any rows."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


SMALL = png(4, 4, bytes(5) * 4)


def _images(*members: tuple[str, bytes], mode: int | None = None) -> Maker:
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members:
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                if mode is not None:
                    info.external_attr = mode
                archive.writestr(info, content)
        return folder / "images.zip"

    return make


def _encrypted(folder: Path) -> Path:
    path = _images(("cat/1.png", SMALL), ("dog/1.png", SMALL))(folder)
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(mark)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(mark, at + 4)
    path.write_bytes(content)
    return path


def _nested(folder: Path) -> Path:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("cat/1.png", SMALL)
    return _images(("cat/1.zip", inner.getvalue()))(folder)


def _text(name: str, content: bytes) -> Maker:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


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
    "image bomb": _images(("cat/1.png", png(30_000, 30_000, bytes(30_001) * 30_000)), ("dog/1.png", SMALL)),
    "image that lies": _images(("cat/1.png", png(2**31 - 1, 2**31 - 1, b"x")), ("dog/1.png", SMALL)),
    "image outside": _images(("../../cat/1.png", SMALL), ("dog/1.png", SMALL)),
    "image by absolute path": _images(("/etc/cat/1.png", SMALL), ("dog/1.png", SMALL)),
    "symbolic link": _images(("cat/1.png", b"/etc/passwd"), ("dog/1.png", b"/etc/passwd"), mode=SYMLINK),
    "encrypted": _encrypted,
    "archive in archive": _nested,
    "no image": _images(("cat/1.png", b"text"), ("dog/1.png", SMALL)),
    "many members": _images(*((f"cat/{n}.png", b"") for n in range(60_000))),
    "table of garbage": _text("data.parquet", b"PAR1" + b"\xff" * 512 + b"PAR1"),
    "table without rows": _text("data.csv", b"a,b,target\n"),
    "table of text": _text("data.csv", b"a,target\n" + b"x,1\ny,0\n" * 3),
    "table with many columns": _text("data.csv", b",".join(b"c%d" % n for n in range(MANY)) + b"\n" + b"1," * MANY),
    "table with NUL": _text("data.csv", b"a,target\n\0\0\0,1\n"),
}  # fmt: skip
