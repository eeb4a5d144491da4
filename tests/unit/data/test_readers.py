"""Files as people have them become the same data that their own tools read."""

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.unit.data import data_files as made
from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data import arrays
from unifiednn_core.data.containers import open_data
from unifiednn_core.data.conversion import convert, is_needed
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.data.parts import Opened
from unifiednn_core.data.values import AS_STORED, ImportOptions
from unifiednn_core.formats import zips

X, Y = made.pixels(6), np.arange(6) % 3
x, y = torch.from_numpy(X), torch.from_numpy(Y)


def taken(path: Path, options: ImportOptions = AS_STORED) -> dict[str, Opened]:
    """What an import keeps of a file, by part."""
    if not is_needed(path, options):
        return {"": open_data(path)}
    parts = convert(path, path.with_name("converted"), options)
    return {name: open_data(part) for name, part in parts.items()}


def check(found: Opened, inputs: Any, targets: Any) -> None:
    assert torch.equal(found.entries["inputs"], torch.as_tensor(inputs))
    assert torch.equal(found.entries["targets"].long(), torch.as_tensor(targets).long())


@pytest.mark.parametrize("filename", ["mnist.zip", "mnist.tar", "mnist.tar.gz"])
def test_the_four_files_of_mnist_become_two_data_sets(filename: str, tmp_path: Path) -> None:
    found = taken(made.packed(tmp_path / filename, made.mnist()))
    assert list(found) == ["train", "test"]
    check(found["train"], made.pixels(6, 1), range(6))
    check(found["test"], made.pixels(3, 1), range(3))
    assert found["train"].notes.origin == "idx" and found["train"].notes.part == "train"


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_numbers_of_idx_are_read_in_every_type(kind: str, tmp_path: Path) -> None:
    array = (np.arange(12) - 3).astype(kind).reshape(6, 2)
    files = {"a-images.idx2": made.idx(array), "a-labels.idx1": made.idx(Y.astype("u1"))}
    check(taken(made.zipped(tmp_path / "a.zip", files))[""], array, Y)


@pytest.mark.parametrize("packing", [bytes, gzip.compress])
def test_one_idx_file_alone_is_told_to_come_with_the_other(packing: Callable[[bytes], bytes], tmp_path: Path) -> None:
    for content, held, missing in (
        (made.idx(X[:, 0]), "images", "labels"),
        (made.idx(Y.astype("u1")), "labels", "images"),
    ):
        (tmp_path / "f").write_bytes(packing(content))
        assert is_needed(tmp_path / "f")
        with pytest.raises(BadInput, match=f"holds {held} alone; the {missing} are in another.*into one zip"):
            convert(tmp_path / "f", tmp_path / "t")


@pytest.mark.parametrize("filename", ["cifar-10-python.tar.gz", "cifar.zip"])
def test_cifar_becomes_two_data_sets_and_no_pickle_runs(filename: str, tmp_path: Path) -> None:
    found = taken(made.packed(tmp_path / filename, made.cifar()))
    train = np.concatenate([made.pixels(4, 3, 32), made.pixels(5, 3, 32)])
    check(found["train"], train, [0, 1, 2, 3, 0, 1, 2, 3, 0])
    check(found["test"], made.pixels(6, 3, 32), [0, 1, 2, 3, 0, 1])
    assert found["test"].notes.class_names == ("plane", "car", "bird", "cat")


def test_a_batch_that_would_run_code_runs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").write_bytes(made.cifar_batch(X[:1], [0])[:-2] + b"U\x01xcos\nmkdir\n(U\x06canarytRu.")
    with pytest.raises(HostileFile, match=r"names 'os\.mkdir'"):
        convert(tmp_path / "b", tmp_path / "t")
    assert not (tmp_path / "canary").exists()
    monkeypatch.chdir(tmp_path)
    pickle.loads((tmp_path / "b").read_bytes(), encoding="bytes")  # the control: a plain reader runs it
    assert (tmp_path / "canary").is_dir()


def test_what_unpacks_to_far_more_than_it_is_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blank = np.zeros((6, 32, 32), np.uint8)
    files = {"images.idx3": gzip.compress(made.idx(blank)), "labels.idx1": gzip.compress(made.idx(Y.astype("u1")))}
    path = made.zipped(tmp_path / "d.zip", files, zipfile.ZIP_STORED)
    check(taken(path)[""], blank[:, None], Y)  # the control: within the limits
    monkeypatch.setattr(zips, "FREE_UNPACKED_BYTES", 100)
    monkeypatch.setattr(zips, "MAX_UNPACKED_RATIO", 1)
    with pytest.raises(HostileFile, match="would unpack to over"):
        taken(path)


@pytest.mark.parametrize("key", ["labels", "fine_labels"])
def test_a_batch_of_cifar_alone_is_a_data_set(key: str, tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(made.cifar_batch(made.pixels(300, 3, 32), [n % 7 for n in range(300)], key))
    check(taken(tmp_path / "data_batch_1")[""], made.pixels(300, 3, 32), [n % 7 for n in range(300)])


SAVED: dict[str, Callable[[Path], object]] = {
    "x-y.npz": lambda path: np.savez(path, x=X, y=Y),
    "unnamed.npz": lambda path: np.savez(path, X, Y),
    "compressed.npz": lambda path: np.savez_compressed(path, images=X, labels=Y),
    "fortran.npz": lambda path: np.savez_compressed(path, features=np.asfortranarray(X), targets=Y[:, None]),
    "big-endian.npz": lambda path: np.savez(path, x=X.astype(X.dtype.newbyteorder(">")), y=Y.astype(">i8")),
    "pair.zip": lambda path: made.zipped(path, {"data/X.npy": made.npy(X), "data/Y.npy": made.npy(Y)}),
    "pair.tar.gz": lambda path: made.tarred(path, {"images.npy": made.npy(X), "labels.npy": made.npy(Y)}),
    "dict.pt": lambda path: torch.save({"X": x, "y": y}, path),
    "pair.pt": lambda path: torch.save((x, y), path),
    "list.pt": lambda path: torch.save([x, y], path),
    "tensor-dataset.pt": lambda path: torch.save(TensorDataset(x, y), path),
    "lists.pt": lambda path: torch.save({"inputs": list(x), "targets": list(y.view(6, 1))}, path),
    "column.pt": lambda path: torch.save({"data": x, "labels": y.view(6, 1)}, path),
}


@pytest.mark.parametrize("filename", SAVED)
def test_inputs_and_targets_are_found_by_the_names_that_people_give_them(filename: str, tmp_path: Path) -> None:
    SAVED[filename](tmp_path / filename)
    check(taken(tmp_path / filename)[""], X, Y)


NAMES = {
    "x_train y_train x_test y_test": ["train", "test"],
    "X_train Y_train X_val Y_val": ["train", "val"],
    "train_images train_labels val_images val_labels test_images test_labels": ["train", "val", "test"],
    "xtrain ytrain xtest ytest": ["train", "test"],
    "test-data test-targets train-data train-targets": ["train", "test"],
}


@pytest.mark.parametrize("kind", ["stored.npz", "small.npz", "d.pt"])
@pytest.mark.parametrize("names", NAMES)
def test_parts_in_one_file_become_data_sets(names: str, kind: str, tmp_path: Path) -> None:
    arrays = {
        name: np.full((4, 2), at, np.float32) if at % 2 == 0 else np.full((4, 1), at)
        for at, name in enumerate(names.split())
    }
    path = tmp_path / kind
    if kind == "d.pt":
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    else:
        (np.savez if kind == "stored.npz" else np.savez_compressed)(path, **arrays)
    found = taken(path)
    assert list(found) == NAMES[names]
    for part, opened in found.items():
        at = next(at for at, name in enumerate(arrays) if part[:3] in name.lower() and at % 2 == 0)
        check(opened, arrays[names.split()[at]], [at + 1] * 4)
    with pytest.raises(BadInput, match=r"data sets: .*library"):
        open_data(path)


def test_several_tensors_of_a_tensor_dataset_are_inputs_and_the_last_are_targets(tmp_path: Path) -> None:
    torch.save(TensorDataset(x, x + 1, y), tmp_path / "d.pt")
    entries = open_data(tmp_path / "d.pt").entries
    assert list(entries) == ["inputs.0", "inputs.1", "targets"] and torch.equal(entries["inputs.1"], x + 1)


def test_ragged_samples_are_refused_in_words_of_data(tmp_path: Path) -> None:
    torch.save({"inputs": [torch.ones(3), torch.ones(4)], "targets": [y[0], y[1]]}, tmp_path / "d.pt")
    with pytest.raises(BadInput, match=r"list of samples of several shapes: \[3\], but \[4\] at 1.*Pad or cut"):
        convert(tmp_path / "d.pt", tmp_path / "t")


@pytest.mark.parametrize("filename", ["shard.tar", "shard.tar.gz"])
def test_webdataset_becomes_a_data_set(filename: str, tmp_path: Path) -> None:
    found = taken(made.tarred(tmp_path / filename, made.webdataset()))[""]
    images = [np.array(Image.open(io.BytesIO(made.picture(one, "JPEG")))).transpose(2, 0, 1) for one in made.pixels(4)]
    check(found, np.stack(images), [0, 1, 0, 1])


def test_webdataset_takes_names_from_json_and_misses_no_label(tmp_path: Path) -> None:
    png = made.picture(X[0])
    files = {"a/1.png": png, "a/1.json": b'{"label": "dog"}', "b/1.png": png, "b/1.json": b'{"label": "cat"}'}
    found = taken(made.tarred(tmp_path / "d.tar", files))[""]
    check(found, X[[0, 0]], [1, 0])
    assert found.notes.class_names == ("cat", "dog")
    with pytest.raises(BadInput, match="'b/1' has no class"):
        taken(made.tarred(tmp_path / "d.tar", {**files, "b/1.json": b'{"caption": "cat"}'}))


@pytest.mark.parametrize("root", ["", "photos/"])
def test_folders_for_training_and_validation_become_two_data_sets(root: str, tmp_path: Path) -> None:
    places = ("train/cat/1.png", "train/dog/1.png", "train/elk/1.png", "Valid/dog/2.png", "Valid/elk/2.png")
    found = taken(made.zipped(tmp_path / "d.zip", {root + p: made.picture(X[at]) for at, p in enumerate(places)}))
    check(found["train"], X[:3], [0, 1, 2])
    check(found["val"], X[3:5], [1, 2])
    assert found["val"].notes.class_names == ("cat", "dog", "elk")
    assert found["val"].notes.remarks == ("This part has no sample of 'cat'.",)


def sized(folder: Path) -> Path:
    images = {"c/1.png": made.pixels(1, 3, 40)[0], "c/2.png": made.pixels(1, 3, 40)[0][:, :20], "d/1.png": X[0]}
    return made.zipped(folder / "d.zip", {name: made.picture(image) for name, image in images.items()})


def test_images_of_several_sizes_are_resized_only_on_request(tmp_path: Path) -> None:
    path = sized(tmp_path)
    with pytest.raises(BadInput, match=r"but 'c/2.png' \(20x40\).* from 8 to 40 pixels.*--size 224"):
        taken(path)
    found = taken(path, ImportOptions(size=16))[""]
    assert found.entries["inputs"].shape == (3, 3, 16, 16)
    assert "resized to 16x16 (Pillow, bilinear)" in found.notes.remarks[0]
    whole = Image.open(io.BytesIO(made.picture(made.pixels(1, 3, 40)[0][:, :20])))
    expected = np.array(whole.resize((32, 16), Image.Resampling.BILINEAR).crop((8, 0, 24, 16))).transpose(2, 0, 1)
    assert torch.equal(found.entries["inputs"][1], torch.from_numpy(expected))
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    with pytest.raises(BadInput, match="only PNG and JPEG images are resized"):
        taken(tmp_path / "d.npz", ImportOptions(size=16))


def masks(folder: Path, values: Tensor, mode: str = "L", side: int = made.SIDE) -> Path:
    content = io.BytesIO()
    mask = Image.fromarray(values.numpy().astype(np.uint8))
    if mode == "P":
        mask.putpalette([n % 256 for n in range(768)])
    mask.convert(mode if mode != "P" else mask.mode).save(content, "PNG")
    files = {"d/images/a.jpg": made.picture(made.pixels(1, 3, side)[0], "JPEG"), "d/masks/a.png": content.getvalue()}
    return made.zipped(folder / "d.zip", files)


CHESS = (torch.arange(64).view(8, 8) % 3).to(torch.uint8)


@pytest.mark.parametrize(
    ("values", "mode", "expected", "dtype"),
    [
        (CHESS, "L", CHESS, torch.uint8),
        (CHESS, "P", CHESS, torch.uint8),
        ((CHESS > 0) * 255, "L", CHESS > 0, torch.uint8),
        ((CHESS > 0) * 255, "1", CHESS > 0, torch.uint8),
        (torch.where(CHESS == 2, 255, CHESS), "P", torch.where(CHESS == 2, -100, CHESS.long()), torch.int16),
    ],
)
def test_masks_are_class_numbers(
    values: Tensor, mode: str, expected: Tensor, dtype: torch.dtype, tmp_path: Path
) -> None:
    found = taken(masks(tmp_path, values, mode))[""]
    assert found.entries["targets"].dtype is dtype
    assert torch.equal(found.entries["targets"].long(), expected.long()[None])
    assert found.entries["inputs"].shape == (1, 3, 8, 8)


def test_masks_are_resized_without_new_classes_and_must_fit_their_images(tmp_path: Path) -> None:
    found = taken(masks(tmp_path, CHESS), ImportOptions(size=13))[""]
    assert found.entries["targets"].shape == (1, 13, 13) and set(found.entries["targets"].unique().tolist()) == {
        0,
        1,
        2,
    }
    for options in (AS_STORED, ImportOptions(size=13)):
        with pytest.raises(BadInput, match=r"'d/masks/a\.png' is 8x8, but its image has another size"):
            taken(masks(tmp_path, CHESS, side=9), options)
    with pytest.raises(BadInput, match="has colours"):
        taken(masks(tmp_path, CHESS, "RGB"))
    files = {
        "images/a.png": made.picture(X[0]),
        "images/b.png": made.picture(X[0]),
        "masks/a.png": made.picture(X[0, 0]),
    }
    with pytest.raises(BadInput, match="The image 'b' has no mask"):
        taken(made.zipped(tmp_path / "d.zip", files))


@pytest.mark.parametrize("kind", ["d.pt", "d.npz", "small.npz"])
def test_channels_are_moved_on_request(kind: str, tmp_path: Path) -> None:
    last = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    if kind == "d.pt":
        torch.save({"inputs": torch.from_numpy(last), "targets": y}, tmp_path / kind)
    else:
        (np.savez if kind == "d.npz" else np.savez_compressed)(tmp_path / kind, x=last, y=Y)
    found = taken(tmp_path / kind, ImportOptions(channels_last=True))[""]
    check(found, X, Y)
    assert "Channels were moved" in found.notes.remarks[0]
    np.savez(tmp_path / "flat.npz", x=X.reshape(6, -1), y=Y)
    with pytest.raises(BadInput, match="no channels to move"):
        taken(tmp_path / "flat.npz", ImportOptions(channels_last=True))


def test_samples_that_lie_in_no_rows_are_converted_and_so_is_much_that_would_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = np.ascontiguousarray(X.T).T
    np.savez(tmp_path / "turned.npz", inputs=turned, targets=Y)
    torch.save({"inputs": torch.from_numpy(turned), "targets": torch.from_numpy(Y)}, tmp_path / "turned.pt")
    np.savez(tmp_path / "plain.npz", inputs=X.astype(np.float64), targets=Y)
    assert is_needed(tmp_path / "turned.npz") and is_needed(tmp_path / "turned.pt")
    assert not is_needed(tmp_path / "plain.npz")
    monkeypatch.setattr(arrays, "MOST_COPIED_BYTES", 0)
    assert is_needed(tmp_path / "plain.npz")
    for name in ("turned.npz", "plain.npz"):
        convert(tmp_path / name, tmp_path / "converted")
        assert not is_needed(tmp_path / "converted")
        assert torch.equal(read_dataset(tmp_path / "converted").first.float(), torch.from_numpy(X).float())
