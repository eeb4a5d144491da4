"""Archives, IDX files, pickles of CIFAR and WebDatasets that claim, hide or run more than data do."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.hostile.marks import CANARY, payload
from tests.unit.data import data_files as made

Maker = Callable[[Path], Path]
X = made.pixels(2, 3, 32)
BATCH = made.cifar_batch(X, [0, 1])
PNG = made.picture(made.pixels(1)[0])
RUN = b"cos\nmkdir\n(U" + bytes([len(CANARY)]) + CANARY.encode() + b"tR"


def _file(name: str, content: bytes | Callable[[], bytes]) -> Maker:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())
        return folder / name

    return make


def _packed(name: str, files: Mapping[str, bytes]) -> Maker:
    return lambda folder: made.packed(folder / name, files)


def _batch(entry: bytes) -> Maker:
    """A batch of CIFAR with one more entry in its dict."""
    return _file("data_batch_1", BATCH[:-2] + b"U\x01x" + entry + b"u.")


def _tar(*infos: tuple[Mapping[str, object], bytes], name: str = "d.tar") -> Maker:
    """A tar with a good sample and these entries."""

    def make(folder: Path) -> Path:
        with tarfile.open(folder / name, "w:gz" if name.endswith("gz") else "w") as archive:
            for attributes, content in (*_GOOD, *infos):
                info = tarfile.TarInfo()
                info.size = len(content)
                for key, value in attributes.items():
                    setattr(info, key, value)
                archive.addfile(info, io.BytesIO(content))
        return folder / name

    return make


_GOOD: tuple[tuple[Mapping[str, object], bytes], ...] = (({"name": "0.png"}, PNG), ({"name": "0.cls"}, b"0"))


def _edited_tar(at: int, written: bytes) -> Maker:
    """A tar with other bytes in its first header, whose sum is right again."""

    def make(folder: Path) -> Path:
        path = _tar()(folder)
        content = bytearray(path.read_bytes())
        content[at : at + len(written)] = written
        content[148:156] = b"        "
        content[148:156] = b"%06o\0 " % sum(content[:512])
        path.write_bytes(content)
        return path

    return make


def _mnist(**changed: bytes) -> Maker:
    files = made.mnist()
    return _packed(
        "mnist.zip", {name: changed.get(name[:7].replace("-", "_"), content) for name, content in files.items()}
    )


def _claims(*sizes: int) -> bytes:
    return gzip.compress(b"\0\0\x08" + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + bytes(64))


def _bomb() -> bytes:
    return gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 320 * 1024**2)) + _zeros(320)


def _tar_bomb() -> bytes:
    info = tarfile.TarInfo("0.png")
    info.size = 300 * 1024**2
    return gzip.compress(info.tobuf()) + _zeros(300)


def _zeros(size_mib: int) -> bytes:
    """Members of a gzip file, all alike."""
    return gzip.compress(bytes(1024**2)) * size_mib


def _dataset_that_runs(folder: Path) -> Path:
    data = TensorDataset(torch.zeros(2, 2), torch.zeros(2))
    data.more = payload(folder)
    torch.save(data, folder / "d.pt")
    return folder / "d.pt"


def _nothing_in_it(folder: Path) -> Path:
    data = TensorDataset(torch.zeros(2, 2), torch.zeros(2))
    data.tensors = {"a": 1}
    torch.save(data, folder / "d.pt")
    return folder / "d.pt"


def _ragged(folder: Path) -> Path:
    torch.save({"inputs": [torch.zeros(2), torch.zeros(3)], "targets": torch.zeros(2)}, folder / "d.pt")
    return folder / "d.pt"


def _columns_that_lie(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "d.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"{'descr': '<f4', 'fortran_order': True, 'shape': (1048576, 1048576), }\n"
        npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
        archive.writestr("x.npy", npy)
        archive.writestr("y.npy", made.npy(np.zeros(4)))
    return folder / "d.zip"


MAKERS: dict[str, Maker] = {
    "batch that runs": _batch(RUN),
    "batch that runs by another operation": _batch(b"(U\x06canaryios\nmkdir\n"),
    "batch that runs by name on the stack": _batch(b"\x8c\x02os\x8c\x05mkdir\x93U\x06canary\x85R"),
    "batch that makes objects": _batch(b"cnumpy\nndarray\n)\x81"),
    "batch that names things outside": _batch(b"U\x01aQ"),
    "batch that changes what it names": _batch(b"cnumpy\ndtype\n}U\x05_makeU\x01xsb"),
    "batch that changes a function": _batch(b"c_codecs\nencode\nN}U\x0c__defaults__)s\x86b"),
    "batch with a memo of 16 GiB": _batch(b"Nr\xff\xff\xff\x7f"),
    "batch with a text of 2 GiB": _batch(b"T\xff\xff\xff\x7fx"),
    "batch with a frame of 1 EiB": _batch(b"\x95\0\0\0\0\0\0\0\x10N"),
    "batch of very many operations": _file("data_batch_1", lambda: BATCH[:-2] + b"U\x01x]" + b"Na" * 2_000_000 + b"u."),
    "batch with a deep key": _file("data_batch_1", lambda: BATCH[:-2] + b")" + b"\x85" * 400_000 + b"Nu."),
    "batch with too few pixels": _file("data_batch_1", made.cifar_batch(X[:1], [0, 1])),
    "batch of objects": _file("data_batch_1", BATCH.replace(b"U\x02u1", b"U\x02O8")),
    "batch in columns": _file("data_batch_1", BATCH.replace(b"tb\x89U", b"tb\x88U").replace(b"tb\x89T", b"tb\x88T")),
    "batch with labels that are none": _file("data_batch_1", BATCH.replace(b"(K\0K\x01e", b"(K\0Ne")),
    "batch cut short": _file("data_batch_1", BATCH[:-4000]),
    "CIFAR with a script": _packed("c.tar.gz", {**made.cifar(), "cifar-10-batches-py/run.sh": b"mkdir canary"}),
    "CIFAR without batches": _packed("c.zip", {"cifar-10-batches-py/batches.meta": pickle.dumps({}, protocol=2)}),
    "IDX of 16 EiB": _mnist(train_i=_claims(2**32 - 1, 2**32 - 1)),
    "IDX of 5 dimensions": _mnist(train_i=_claims(1, 1, 1, 1, 1)),
    "IDX of no samples": _mnist(train_i=_claims(0, 8, 8)),
    "IDX cut in its header": _mnist(train_i=gzip.compress(b"\0\0\x08\x03\0\0")),
    "IDX cut short": _mnist(train_i=gzip.compress(made.idx(np.zeros((9, 8, 8), np.uint8)))[:40]),
    "IDX bomb": lambda folder: _mnist(train_i=_bomb())(folder),
    "tar bomb": _file("d.tar.gz", _tar_bomb),
    "tar with a link": _tar(({"name": "1.png", "type": b"2", "linkname": "/etc/passwd"}, b"")),
    "tar with a hard link": _tar(({"name": "1.png", "type": b"1", "linkname": "0.png"}, b"")),
    "tar with a device": _tar(({"name": "1.png", "type": b"3"}, b"")),
    "tar with a pipe": _tar(({"name": "1.png", "type": b"6"}, b"")),
    "tar that leads outside": _tar(({"name": "../1.png"}, PNG)),
    "tar with an absolute path": _tar(({"name": "/etc/1.png"}, PNG)),
    "tar with two of a name": _tar(({"name": "0.png"}, PNG)),
    "tar with a long name that leads outside": _tar(({"name": "../" + "x" * 200 + ".png"}, PNG)),
    "tar of a file that is not there": _edited_tar(124, b"77777777777\0"),
    "tar of a file of 8 EiB": _edited_tar(124, b"\x80\0\0\0" + b"\x7f" * 8),
    "tar of a file below zero": _edited_tar(124, b"\xff" * 12),
    "tar of a sparse file": _edited_tar(156, b"S"),
    "tar with a name of 64 GiB": _edited_tar(124, b"77777777777\x00                    x"),
    "tar with a damaged header": _edited_tar(124, b"zzzzzzzzzzz\0"),
    "tar cut short": lambda folder: _cut(_tar()(folder), 700),
    "tar.gz cut short": lambda folder: _cut(_tar(name="d.tar.gz")(folder), 100),
    "tar of nothing": _packed("d.tar", {"notes.txt": b"x"}),
    "sample without a class": _tar(({"name": "1.png"}, PNG)),
    "sample of a deep JSON": _tar(({"name": "1.png"}, PNG), ({"name": "1.json"}, b"[" * 500_000)),
    "sample of a class that is no text": _tar(({"name": "1.png"}, PNG), ({"name": "1.cls"}, b"\xff\xfe")),
    "sample of a class beyond counting": _tar(({"name": "1.png"}, PNG), ({"name": "1.json"}, b"1" + b"0" * 4000)),
    "mask in colours": _packed("d.zip", {"images/1.png": PNG, "masks/1.png": PNG}),
    "mask alone": _packed("d.zip", {"images/1.png": PNG, "masks/2.png": PNG}),
    "TensorDataset that runs": _dataset_that_runs,
    "TensorDataset without tensors": _nothing_in_it,
    "ragged list": _ragged,
    "columns that lie": _columns_that_lie,
}


def _cut(path: Path, size_bytes: int) -> Path:
    path.write_bytes(path.read_bytes()[:size_bytes])
    return path


HARMLESS: dict[str, Maker] = {
    "batch of CIFAR": _file("data_batch_1", made.cifar_batch(made.pixels(4, 3, 32), [0, 1, 0, 1])),
    "WebDataset": _packed("d.tar.gz", made.webdataset()),
    "npy in a zip": _packed("d.zip", {"x.npy": made.npy(np.eye(4)), "y.npy": made.npy(np.arange(4) % 2)}),
}
"""The same kinds as they should be."""
