import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data import parts as reading
from unifiednn_core.data.containers import container_of
from unifiednn_core.data.datasets import in_blocks, read_dataset
from unifiednn_core.engine.step import Scaling
from unifiednn_core.formats.weights import state_sha256


def save_npz(data: dict[str, Tensor], path: Path) -> None:
    np.savez(path, **{name: tensor.numpy() for name, tensor in data.items()})


def save_small_npz(data: dict[str, Tensor], path: Path) -> None:
    np.savez_compressed(path, **{name: tensor.numpy() for name, tensor in data.items()})


SAVE: dict[str, Callable[[Any, Path], object]] = {
    "d.pt": torch.save,
    "d.safetensors": save_file,
    "d.npz": save_npz,
    "small.npz": save_small_npz,
}


def images(samples: int = 6) -> dict[str, Tensor]:
    return {
        "inputs": torch.arange(samples * 4, dtype=torch.uint8).view(samples, 1, 2, 2),
        "targets": torch.arange(samples, dtype=torch.int32) % 3,
    }


@pytest.mark.parametrize("filename", SAVE)
def test_every_container_gives_the_same_data(filename: str, tmp_path: Path) -> None:
    SAVE[filename](images(), tmp_path / filename)
    dataset = read_dataset(tmp_path / filename)
    assert torch.equal(dataset.first, images()["inputs"])
    assert dataset.first.dtype is torch.uint8
    assert torch.equal(dataset.rows("targets", slice(None)), images()["targets"].long())
    assert dataset.facts == {
        "samples": 6,
        "input_shape": [1, 2, 2],
        "input_dtype": "uint8",
        "target_shape": [],
        "target_dtype": "int64",
        "classes": 3,
    }


def with_value(value: float, name: str = "inputs") -> dict[str, Tensor]:
    data = {"inputs": torch.ones(6, 4), "targets": torch.ones(6)}
    data[name].view(-1)[5] = value
    return data


X, Y = torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"inputs": X, "targets": Y[:5]}, "6 inputs but 5 targets"),
        ({"inputs": X[:0], "targets": Y[:0]}, "has no samples"),
        ({"a": X, "targets": Y}, "exactly 'inputs' and 'targets'"),
        ({"inputs": X, "targets": Y, "extra": Y}, "extra"),
        ({"inputs": {"a": X, "b": X[:5]}, "targets": Y}, "6 inputs.a but 5 inputs.b"),
        ({"inputs": {}, "targets": Y}, "exactly 'inputs' and 'targets'"),
        ({"inputs": [1, 2], "targets": Y}, "is a list"),
        ([X, [Y]], "holds a list"),
        ({"inputs": X > 0, "targets": Y}, "is bool"),
        ({"inputs": X * 1j, "targets": Y}, "is complex64"),
        ({"inputs": X, "targets": torch.tensor(3)}, "single number"),
        (with_value(float("nan")), r"a value that is NaN or infinite, the first at \[1, 1\]"),
        (with_value(float("inf")), "NaN or infinite"),
        (with_value(float("nan"), "targets"), r"'targets' has a value .* the first at \[5\]"),
    ],
)
def test_what_cannot_be_trained_on_is_a_finding(content: Any, words: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "d.pt")
    with pytest.raises(BadInput, match=words):
        read_dataset(tmp_path / "d.pt")


@pytest.mark.parametrize("container", ["pt", "safetensors", "npz"])
def test_several_inputs_and_missing_targets_are_read(container: str, tmp_path: Path) -> None:
    path, flat = tmp_path / "d", {"inputs.a": X, "inputs.b": Y}
    if container == "pt":
        torch.save({"inputs": {"a": X, "b": Y}}, path)
    elif container == "safetensors":
        save_file(flat, path)
    else:
        with path.open("wb") as file:
            np.savez(file, **{name: one.numpy() for name, one in flat.items()})
    dataset = read_dataset(path)
    assert (list(dataset.inputs), dataset.targets, dataset.samples) == (["a", "b"], None, 6)
    assert torch.equal(dataset.inputs["a"], X) and torch.equal(dataset.inputs["b"], Y)
    assert dataset.facts["inputs"] == {"a": "float32 [4]", "b": "int64 []"}
    assert state_sha256(dataset.entries) == state_sha256(flat) == dataset.sha256()


def test_arrays_of_objects_are_a_finding(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", inputs=np.array([{}, {}]), targets=np.zeros(2))
    with pytest.raises(BadInput, match="Python objects"):
        read_dataset(tmp_path / "d.npz")


@given(st.data())
@pytest.mark.parametrize("filename", SAVE)
def test_a_file_that_is_cut_short_is_refused(
    filename: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / filename
    SAVE[filename](images(), path)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises((BadInput, HostileFile)):
        read_dataset(path)


def test_an_expanded_tensor_is_refused(tmp_path: Path) -> None:
    torch.save({"inputs": torch.ones(1).expand(10**9, 10**6), "targets": Y}, tmp_path / "d.pt")
    with pytest.raises(HostileFile, match="fewer bytes"):
        read_dataset(tmp_path / "d.pt")


def test_an_array_whose_header_claims_more_than_its_entry_holds_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)})
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("inputs.npy", header.getvalue() + b"1234")
    with pytest.raises(HostileFile, match="claims the shape"):
        read_dataset(tmp_path / "d.npz")


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        for _ in range(300):
            file.write(bytes(1024**2))
    with pytest.raises(HostileFile, match="unpack"):
        read_dataset(tmp_path / "d.npz")


def test_foreign_bytes_are_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "d.pt").write_bytes(b"hello")
    assert container_of(tmp_path / "d.pt") is None
    with pytest.raises(BadInput, match="describes no network and is not a table"):
        read_dataset(tmp_path / "d.pt")


numbers = st.one_of(st.none(), st.floats(0.125, 10, width=32))


@given(scale=numbers, mean=numbers, std=numbers)
def test_the_transform_is_float32_times_scale_minus_mean_over_std(
    scale: float | None, mean: float | None, std: float | None
) -> None:
    batch = torch.arange(256, dtype=torch.uint8)
    found = Scaling(scale, mean, std)(batch)
    if (scale, mean, std) == (None, None, None):
        assert found is batch
        return
    expected = (batch.float() * (1 if scale is None else scale) - (0 if mean is None else mean)) / (std or 1)
    assert found.dtype is torch.float32
    assert torch.equal(found, expected)


def test_stored_arrays_are_mapped_wherever_they_lie(tmp_path: Path) -> None:
    """A name of any length moves what follows by single bytes."""
    inputs = torch.arange(12, dtype=torch.int64).view(4, 3)
    for shift in range(9):
        with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
            for name, tensor in (("inputs", inputs), ("targets", torch.arange(4))):
                content = io.BytesIO()
                np.save(content, np.asfortranarray(tensor.numpy()))
                info = zipfile.ZipInfo(f"{name}.npy")
                info.extra = b"\0\0" + shift.to_bytes(2, "little") + bytes(shift)
                archive.writestr(info, content.getvalue())
        dataset = read_dataset(tmp_path / "d.npz")
        assert torch.equal(dataset.first, inputs) and torch.equal(dataset.targets, torch.arange(4))
        assert dataset.first.data_ptr() % 8 == dataset.targets.data_ptr() % 8 == 0


def test_tokens_stay_integers_and_real_targets_become_float32(tmp_path: Path) -> None:
    torch.save(
        {"inputs": torch.arange(6, dtype=torch.int32).view(3, 2), "targets": torch.rand(3).double()}, tmp_path / "d.pt"
    )
    dataset = read_dataset(tmp_path / "d.pt")
    targets = dataset.batch(slice(0, 2)).targets
    assert targets is not None and (dataset.first.dtype, targets.dtype) == (torch.int32, torch.float32)


def test_values_are_found_in_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK_ELEMENTS", 8)
    data = {"inputs": torch.ones(30, 4), "targets": torch.arange(30)}
    data["inputs"][17, 2] = data["inputs"][29, 3] = float("nan")
    for filename, save in SAVE.items():
        save(data, tmp_path / filename)
        with pytest.raises(BadInput, match=r"has 2 values .* the first at \[17, 2\]"):
            read_dataset(tmp_path / filename)


def test_small_class_numbers_take_no_more_memory_than_their_file_and_become_int64_in_batches(tmp_path: Path) -> None:
    masks = torch.arange(30 * 16, dtype=torch.int32).view(30, 4, 4).to(torch.uint8) % 5
    save_file({"inputs": torch.ones(30, 1), "targets": masks}, tmp_path / "d")
    dataset = read_dataset(tmp_path / "d")
    assert dataset.resident_bytes == 30 * 4 + masks.nbytes
    for found in (dataset.batch(slice(3, 9)).targets, dataset.batch(torch.arange(3, 9)).targets):
        assert found is not None and found.dtype is torch.int64 and torch.equal(found, masks[3:9].long())
    assert next(in_blocks(dataset, "targets")).dtype is torch.int64
    assert dataset.classes == 5 and dataset.facts["target_dtype"] == "int64"
