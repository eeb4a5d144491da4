"""A streamed data set gives the samples of the resident one, and holds no more than the batches that were asked for."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.data.streamed import MOST_AHEAD, Streamed
from unifiednn_core.engine.resident_data import ResidentData

SAMPLES = 50
HOST = torch.device("cpu")


def entries() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 255, (SAMPLES, 3, 5, 7), dtype=torch.uint8, generator=draw)
    ids = torch.randint(0, 9, (SAMPLES, 4), generator=draw)
    return {"inputs.ids": ids, "inputs.pixels": pixels, "targets": torch.randint(0, 3, (SAMPLES,), dtype=torch.int32)}


def saved(folder: Path, container: str) -> Path:
    path = folder / f"data.{container}"
    if container == "npz":
        np.savez(path, **{name: one.numpy() for name, one in entries().items()})
    elif container == "safetensors":
        save_file(entries(), path)
    else:
        inputs = {name.removeprefix("inputs."): one for name, one in entries().items() if name != "targets"}
        torch.save({"inputs": inputs, "targets": entries()["targets"]}, path)
    return path


@pytest.fixture(params=["pt", "safetensors", "npz"], scope="module")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("data"), request.param)


@pytest.fixture(scope="module")
def streamed(path: Path) -> Streamed:
    found = Streamed.of_file(path, HOST)
    assert found is not None
    return found


def test_it_describes_itself_as_the_resident_one_does(path: Path, streamed: Streamed) -> None:
    resident = read_dataset(path)
    assert (streamed.samples, list(streamed.inputs)) == (resident.samples, list(resident.inputs))
    assert streamed.resident_bytes == 0 and resident.resident_bytes > SAMPLES * 3 * 5 * 7


@given(
    places=st.one_of(
        st.lists(st.integers(0, SAMPLES - 1), min_size=1, max_size=70).map(torch.tensor),
        st.tuples(st.integers(0, SAMPLES - 1), st.integers(1, 2 * SAMPLES)).map(lambda pair: slice(pair[0], sum(pair))),
    ),
    ahead=st.booleans(),
)
def test_batches_have_the_bits_of_the_resident_ones(
    path: Path, streamed: Streamed, places: Tensor | slice, *, ahead: bool
) -> None:
    if ahead:
        streamed.expect([places])
    found, expected = streamed.batch(places), read_dataset(path).batch(places)
    assert list(found.inputs) == list(expected.inputs)
    pairs = zip(found.inputs.values(), expected.inputs.values(), strict=True)
    for one, other in (*pairs, (found.targets, expected.targets)):
        assert torch.equal(one, other) and one.dtype is other.dtype and one.is_contiguous()


def test_batches_that_are_never_fetched_are_dropped(streamed: Streamed) -> None:
    for place in range(SAMPLES):
        streamed.expect([torch.tensor([place])])
    assert len(streamed._ahead) == MOST_AHEAD
    assert torch.equal(streamed.batch(torch.tensor([0])).inputs["ids"], entries()["inputs.ids"][:1])


def test_an_entry_that_does_not_lie_in_rows_is_not_streamed(tmp_path: Path) -> None:
    torch.save({"inputs": torch.rand(4, 6).t(), "targets": torch.arange(6)}, tmp_path / "d.pt")
    assert Streamed.of_file(tmp_path / "d.pt", HOST) is None
    np.savez_compressed(tmp_path / "d.npz", inputs=np.ones((6, 4)), targets=np.arange(6))
    assert Streamed.of_file(tmp_path / "d.npz", HOST) is None


def test_a_set_stays_open_until_its_last_reference_is_gone(path: Path) -> None:
    """A newcomer reads it while the last lease ends; the last reference closes it."""
    data = ResidentData(HOST)
    opened = Streamed.of_file(path, HOST)
    assert opened is not None
    file = opened._file
    lease = data.hold("d", lambda held=opened: held)
    peeked = data.peek("d")
    del opened
    lease.release()
    assert peeked is not None
    again = data.hold("d", lambda held=peeked: held)
    again.use().expect([slice(0, 3)])
    assert torch.equal(again.use().batch(slice(0, 3)).inputs["ids"], entries()["inputs.ids"][:3])
    again.release()
    del peeked, again, lease
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_more_parts_than_are_read_ahead_keep_the_first(path: Path) -> None:
    streamed = Streamed.of_file(path, HOST)
    assert streamed is not None
    streamed.expect([torch.tensor([49])])
    streamed.expect(torch.tensor([place]) for place in range(MOST_AHEAD + 5))
    assert [int.from_bytes(key, "little") for key in streamed._ahead] == list(range(MOST_AHEAD))
