"""Through the whole product: a data set of twice the limit of memory trains, within the limit, with the same bits."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.waiting import wait_until
from unifiednn_core.data.conversion import write_rows
from unifiednn_core.data.values import DataNotes
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import parse_run
from unifiednn_core.views.runs import RunView

MIB = 1024**2
LIMIT_BYTES = 450 * MIB
NUMBERS, CLASSES = 1024, 4
SAMPLES = 2 * LIMIT_BYTES // (4 * NUMBERS)


def written(path: Path, samples: int) -> str:
    """A data set of random numbers, written block by block."""
    like = {"inputs": torch.empty(1, NUMBERS), "targets": torch.empty(1, dtype=torch.int64)}

    def rows(name: str, start: int, end: int) -> torch.Tensor:
        if name == "targets":
            return torch.arange(start, end) % CLASSES
        return torch.randn(end - start, NUMBERS, generator=torch.Generator().manual_seed(start))

    write_rows(path, like, samples, rows, DataNotes())
    return str(path)


@pytest.mark.long
def test_a_data_set_of_twice_the_limit_has_the_bits_of_the_resident_one(service: Service, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(NUMBERS, 16), nn.ReLU(), nn.Linear(16, CLASSES)), tmp_path / "net.pt")
    part = {
        "name": "one",
        "model": str(tmp_path / "net.pt"),
        "train_data": written(tmp_path / "train", SAMPLES),
        "test_data": written(tmp_path / "test", 500),
        "hyperparameters": {"batch_size": 4096},
    }
    assert (tmp_path / "train").stat().st_size >= 2 * LIMIT_BYTES

    def trained(limit_bytes: int | None, loading: str) -> RunView:
        document = {"submodels": [{**part, "loading": loading}], "memory_limit_bytes": limit_bytes, "lanes": 1}
        run_id = service.runs.submit(parse_run({name: said for name, said in document.items() if said is not None}))
        wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None, patience_s=300)
        return service.runs.observe(run_id)

    streamed, resident = trained(LIMIT_BYTES, "auto"), trained(None, "resident")
    assert [view.state.value for view in (streamed, resident)] == ["completed"] * 2
    assert streamed.prediction is not None and streamed.peak_memory_bytes is not None
    assert streamed.prediction.peak_bytes <= LIMIT_BYTES
    assert streamed.peak_memory_bytes <= LIMIT_BYTES, streamed.peak_memory_bytes / MIB
    assert resident.peak_memory_bytes is not None and resident.peak_memory_bytes > LIMIT_BYTES, "the limit is one"
    assert streamed.submodels[0].state_sha256 is not None
    assert streamed.submodels[0].state_sha256 == resident.submodels[0].state_sha256
