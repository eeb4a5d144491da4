"""Files of data as people have them: what `docs/DATA.md` tries. Tables and text have their own rows."""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import TensorDataset

from tests.unit.data import data_files as made
from unifiednn_core.data.values import AS_STORED, ImportOptions

X, Y = made.pixels(6), np.arange(6) % 3
x, y = torch.from_numpy(X), torch.from_numpy(Y)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: how people name it, and what writes it at a path."""

    title: str
    filename: str
    write: Callable[[Path], object]
    options: ImportOptions = AS_STORED


def folders(*places: str, sides: tuple[int, ...] = (8,)) -> Callable[[Path], object]:
    def write(path: Path) -> object:
        sized = (sides[at % len(sides)] for at in range(len(places)))
        files = {place: made.picture(made.pixels(1, 3, side)[0]) for place, side in zip(places, sized, strict=True)}
        return made.packed(path, files)

    return write


def masks(path: Path) -> object:
    mask = Image.fromarray((np.arange(64).reshape(8, 8) % 3).astype(np.uint8))
    mask.putpalette([n % 256 for n in range(768)])
    content = io.BytesIO()
    mask.save(content, "PNG")
    files = {f"images/{n}.jpg": made.picture(X[n], "JPEG") for n in range(2)}
    return made.zipped(path, files | {f"masks/{n}.png": content.getvalue() for n in range(2)})


def savez(**arrays: "np.ndarray") -> Callable[[Path], object]:
    return lambda path: np.savez_compressed(path, **arrays)


def saved(content: object) -> Callable[[Path], object]:
    return lambda path: torch.save(content, path)


LAST = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
KERAS = {"x_train": LAST, "y_train": Y[:, None], "x_test": LAST[:3], "y_test": Y[:3, None]}
CLASSES = ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png")
BOTH = [f"{part}/{name}" for part in ("train", "val") for name in CLASSES]
RAGGED = {"inputs": [torch.ones(3), torch.ones(5)], "targets": torch.zeros(2)}
COCO = {"images/1.png": made.picture(X[0]), "annotations/instances.json": b'{"annotations": [{"bbox": [0, 0, 1, 1]}]}'}

MNIST, CIFAR = made.mnist(), made.cifar()


def zipped(files: "dict[str, bytes]") -> Callable[[Path], object]:
    return lambda path: made.packed(path, files)


def alone(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def tensors(path: Path) -> object:
    return save_file({"inputs": x, "targets": y}, path)


BINARY = (
    DataFile("CIFAR-10 as downloaded", "cifar-10-python.tar.gz", zipped(CIFAR)),
    DataFile("one batch of CIFAR-10", "data_batch_1", alone(CIFAR["cifar-10-batches-py/data_batch_1"])),
    DataFile("the four files of MNIST in one zip", "mnist.zip", zipped(MNIST)),
    DataFile("one file of MNIST", "train-images-idx3-ubyte.gz", alone(MNIST["train-images-idx3-ubyte.gz"])),
    DataFile("`x.npy` and `y.npy` in one zip", "arrays.zip", zipped({"x.npy": made.npy(X), "y.npy": made.npy(Y)})),
    DataFile("`.npy` alone", "x.npy", alone(made.npy(X))),
    DataFile("`.npz` with `inputs` and `targets`", "data.npz", savez(inputs=X, targets=Y)),
    DataFile("`.npz` of Keras, channels last", "keras.npz", savez(**KERAS)),
    DataFile("the same", "keras.npz", savez(**KERAS), ImportOptions(channels_last=True)),
    DataFile("`.safetensors` with `inputs` and `targets`", "data.safetensors", tensors),
    DataFile('`torch.save({"x": x, "y": y})`', "data.pt", saved({"x": x, "y": y})),
    DataFile("`torch.save((x, y))`", "pair.pt", saved((x, y))),
    DataFile("`torch.save(TensorDataset(x, y))`", "dataset.pt", saved(TensorDataset(x, y))),
    DataFile("a dict of several inputs", "two.pt", saved({"inputs": {"left": x, "right": x}, "targets": y})),
    DataFile("a list of tensors of one shape", "list.pt", saved({"inputs": list(x), "targets": y})),
    DataFile("a list of tensors of several shapes", "ragged.pt", saved(RAGGED)),
    DataFile("a folder of images for each class", "pets.zip", folders(*CLASSES)),
    DataFile("images of several sizes", "photos.zip", folders(*CLASSES, sides=(40, 30))),
    DataFile("the same", "photos.zip", folders(*CLASSES, sides=(40, 30)), ImportOptions(size=24)),
    DataFile("`train/` and `val/` in one zip", "pets.zip", folders(*BOTH)),
    DataFile("WebDataset", "shard.tar", zipped(made.webdataset())),
    DataFile("WebDataset, gzipped", "shard.tar.gz", zipped(made.webdataset())),
    DataFile("images and masks for segmentation", "masks.zip", masks),
    DataFile("boxes for detection (COCO)", "coco.zip", zipped(COCO)),
    DataFile("a pickle of one's own objects", "samples.pkl", alone(pickle.dumps([TensorDataset]))),
)
