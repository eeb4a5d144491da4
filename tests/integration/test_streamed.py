"""Trainings on a streamed data set have the bits of those on the resident one."""

from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.integration.kit import CPU, dataset, definition, submodel_spec
from unifiednn_core.data.datasets import DataSource, read_dataset
from unifiednn_core.data.streamed import Streamed
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256

STEPS = ({}, {"batch_split": 3}, {"accumulation_steps": 2, "drop_last": True})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, samples, seed in (("train", 37, 0), ("test", 20, 1)):
        save_file(dataset(samples, seed).entries, tmp_path / name)
    return tmp_path


def opened(path: Path, *, streamed: bool) -> DataSource:
    found = Streamed.of_file(path, CPU) if streamed else read_dataset(path)
    assert found is not None
    return found


def made(folder: Path, asked: dict[str, object], *, streamed: bool) -> tuple[SubModel, ResidentData]:
    data = ResidentData(CPU)
    train, test = (data.hold(name, partial(opened, folder / name, streamed=streamed)) for name in ("train", "test"))
    return SubModel(
        submodel_spec("one", **asked), definition("noisy"), seed=3, train=train, test=test, device=CPU
    ), data


def trained(submodel: SubModel, epochs: int) -> list[tuple[object, ...]]:
    seen: list[tuple[object, ...]] = []
    while submodel.epochs_done < epochs:
        with submodel.world():
            seen.append((submodel.step().loss.item(),))
            if submodel.at_epoch_end:
                seen.append((submodel.end_epoch(),))
    return seen


@pytest.mark.parametrize("asked", STEPS)
def test_streamed_and_resident_trainings_have_the_same_bits(folder: Path, asked: dict[str, object]) -> None:
    (one, data), (other, _) = (made(folder, asked, streamed=streamed) for streamed in (True, False))
    assert trained(one, 2) == trained(other, 2)
    assert state_sha256(one.module.state_dict()) == state_sha256(other.module.state_dict())
    assert data.placed_bytes == 0
    one.release()
    assert not data.sets, "the file is closed with the last lease"


def test_a_checkpoint_of_either_resumes_as_the_other(folder: Path) -> None:
    (one, _), (other, _), (whole, _) = (made(folder, {}, streamed=streamed) for streamed in (True, False, False))
    trained(whole, 2)
    with one.world():
        for _ in range(3):
            one.step()
    other.restore(one.capture())
    trained(other, 2)
    assert state_sha256(other.module.state_dict()) == state_sha256(whole.module.state_dict())
