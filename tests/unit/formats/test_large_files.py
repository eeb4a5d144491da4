"""Files larger than the memory: torch's own readers cannot map them where the kernel reserves room for a mapping."""

import json
import os
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import tensor_files

ENTRIES = {
    "inputs": torch.arange(24, dtype=torch.float16).view(2, 3, 4),
    "targets": torch.tensor([3, 1]),
    "flags": torch.tensor([True, False, True]),
    "none": torch.empty(0, 5),
    "one": torch.tensor(7.5),
}
METADATA = {"some": "text", "ä": "ö"}


def no_memory(path: str, *_: object, **__: object) -> None:
    raise RuntimeError(f"unable to mmap 42 bytes from file <{path}>: Cannot allocate memory (12)")


@pytest.fixture
def unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose memory is smaller than every file."""
    monkeypatch.setattr(torch.UntypedStorage, "from_file", no_memory)


def test_a_large_safetensors_file_is_read_as_its_library_reads_a_small_one(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "file"
    save_file(ENTRIES, path, METADATA)
    before, known = path.read_bytes(), load_file(path)
    request.getfixturevalue("unmapped")
    with pytest.raises(RuntimeError):
        load_file(path)
    found = tensor_files.load_safetensors(path)
    assert found.keys() == known.keys()
    assert all(torch.equal(found[name], known[name]) and found[name].dtype == known[name].dtype for name in known)
    assert tensor_files.safetensors_metadata(path) == METADATA
    found["inputs"].zero_()
    assert path.read_bytes() == before, "what is written stays in the process"


def entry(first: int, end: int, *shape: object, dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [first, end]}


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry(0, 9, 9)},
        {"a": entry(0, 4, 4)},
        {"a": entry(4, 8, 4)},
        {"a": entry(0, 8, 8), "b": entry(0, 8, 8)},
        {"a": entry(0, 8, 8), "b": entry(-8, 0, -8)},
        {"a": entry(0, 8, -2, -4)},
        {"a": entry(0, 8, 2, dtype="U8")},
        {"a": entry(0, 8, 8, dtype="X8")},
        {"a": entry(0, 8, 8.0)},
        {"a": entry(0, 8, "8")},
        {"a": [1]},
        {"a": None},
        [],
        {"__metadata__": [1], "a": entry(0, 4, 4)},
    ],
)
@pytest.mark.parametrize("large", [True, False])
def test_a_damaged_file_is_refused_at_any_size(
    header: object, large: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path, text = tmp_path / "file", json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises((SafetensorError, ValueError, RuntimeError)):
        load_file(path)
    if large:
        request.getfixturevalue("unmapped")
    with pytest.raises(BadInput, match="cut short or damaged"):
        tensor_files.load_safetensors(path)


@pytest.mark.usefixtures("unmapped")
def test_of_a_large_pt_file_it_is_said_what_to_do(tmp_path: Path) -> None:
    torch.save(ENTRIES, tmp_path / "file.pt")
    with pytest.raises(BadInput, match="larger than the memory"):
        tensor_files.load_torch_file(tmp_path / "file.pt")


def test_a_file_of_twice_the_memory_is_mapped(tmp_path: Path) -> None:
    """It has no content, so it takes no room on the disk. The library is asked first, and may fail or not."""
    size = 2 * psutil.virtual_memory().total // 1024 * 1024
    header = tensor_files.safetensors_header({"inputs": (torch.uint8, (size // 1024, 1024))}, METADATA, 64)
    path = tmp_path / "large.safetensors"
    path.write_bytes(header)
    os.truncate(path, len(header) + size)
    found = tensor_files.load_safetensors(path)["inputs"]
    assert found.nbytes == size and int(found[-1].sum()) == 0
    assert tensor_files.safetensors_metadata(path) == METADATA
    whole = np.ndarray((size,), np.uint8, tensor_files.mapped_bytes(path), len(header))
    assert whole[-1] == 0
