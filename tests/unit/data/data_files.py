"""Data files as people have them, each written as its own tools write it."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 8


def pixels(samples: int = 6, channels: int = 3, side: int = SIDE) -> "np.ndarray":
    """Different uint8 images [samples, channels, side, side]."""
    return np.random.default_rng(samples).integers(0, 256, (samples, channels, side, side), np.uint8)


def picture(image: "np.ndarray", form: str = "PNG") -> bytes:
    """An image [channels, height, width] or [height, width] as a file."""
    content = io.BytesIO()
    plane = image if image.ndim == 2 else image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    Image.fromarray(plane).save(content, form)
    return content.getvalue()


def zipped(path: Path, files: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w", format=kind) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def packed(path: Path, files: Mapping[str, bytes]) -> Path:
    return zipped(path, files) if path.suffix == ".zip" else tarred(path, files)


def npy(array: "np.ndarray") -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def idx(array: "np.ndarray") -> bytes:
    """An array as the files of MNIST hold it."""
    code = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}[array.dtype.str[1:]]
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, code, array.ndim)) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def mnist(samples: int = 6) -> dict[str, bytes]:
    """The four files, gzipped as they are downloaded."""
    files = {}
    for part, name in (("train", "train"), ("test", "t10k")):
        count = samples if part == "train" else samples // 2
        files[f"{name}-images-idx3-ubyte.gz"] = gzip.compress(idx(pixels(count, 1)[:, 0]), mtime=0)
        files[f"{name}-labels-idx1-ubyte.gz"] = gzip.compress(idx(np.arange(count, dtype=np.uint8)), mtime=0)
    return files


def cifar_batch(images: "np.ndarray", labels: list[int], key: str = "labels") -> bytes:
    """A batch with the operations that Python 2 wrote: texts and pixels as byte strings, protocol 2."""

    def text(words: bytes) -> bytes:
        return (
            b"U" + bytes([len(words)]) + words if len(words) < 256 else b"T" + len(words).to_bytes(4, "little") + words
        )

    def number(value: int) -> bytes:
        return b"K" + bytes([value]) if value < 256 else b"M" + value.to_bytes(2, "little")

    flat = images.reshape(len(images), -1)
    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\0K\x01\x87R"
        + b"(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R"
    shape = number(len(flat)) + b"M" + flat.shape[1].to_bytes(2, "little") + b"\x86"
    data = array + b"(K\x01" + shape + dtype + b"\x89" + text(flat.tobytes()) + b"tb"
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    names = b"](" + b"".join(text(b"%d.png" % at) for at in range(len(labels))) + b"e"
    entries = (
        (b"batch_label", text(b"training batch")),
        (key.encode(), listed),
        (b"data", data),
        (b"filenames", names),
    )
    return b"\x80\x02}q\x01(" + b"".join(text(name) + value for name, value in entries) + b"u."


def cifar(samples: int = 4) -> dict[str, bytes]:
    """A download of CIFAR-10 with two batches for training and one for the test."""
    root, names = "cifar-10-batches-py", [b"plane", b"car", b"bird", b"cat"]
    files = {
        f"{root}/{name}": cifar_batch(pixels(samples + at, 3, 32), [n % 4 for n in range(samples + at)])
        for at, name in enumerate(("data_batch_1", "data_batch_2", "test_batch"))
    }
    meta = pickle.dumps({b"label_names": names, b"num_vis": 3072}, protocol=3)
    return {f"{root}/batches.meta": meta, f"{root}/readme.html": b"<html>", **files}


def webdataset(samples: int = 4) -> dict[str, bytes]:
    files = {}
    for at, image in enumerate(pixels(samples)):
        files[f"{at:03}.jpg"] = picture(image, "JPEG")
        files[f"{at:03}.cls"] = str(at % 2).encode()
        if at % 2:
            files[f"{at:03}.json"] = json.dumps({"caption": "x"}).encode()
    return files
