"""Gangs on a GPU: exact ones give the bits of each member alone, fast ones train as well."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch

from tests.gpu.kit import KINDS, definition
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import gang, graphs
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.events import Stepped
from unifiednn_core.engine.graphs import CudaRecorder
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import SubModelSpec

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
MEMBERS, SAMPLES, STEPS = 5, 72, 22  # batches of 16: each fifth one is smaller


@pytest.fixture(autouse=True)
def _every_recording_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(graphs, "_FAILED", [])


def submodels(cuda: torch.device, name: str) -> list[SubModel]:
    """Equal networks with learning rates, seeds and weights of their own."""
    kind, generator = KINDS[name], torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, *kind.shape, generator=generator)
    data = Dataset.of(inputs=inputs, targets=torch.randint(0, 10, (SAMPLES,), generator=generator))
    resident = ResidentData(cuda)
    found = []
    for place in range(MEMBERS):
        asked: dict[str, Any] = {"epochs": 9, "batch_size": 16, "seed": place, "learning_rate": 0.002 * (place + 1)}
        asked |= {"optimizer": "adam"} if place == 1 else {"optimizer_args": {"momentum": 0.9}}
        document = {"name": f"n{place}", "model": "m", "train_data": "d", "hyperparameters": asked}
        spec = SubModelSpec.model_validate(document)
        train = resident.hold("train", lambda: data)
        built = definition(kind, seed=place)
        found.append(SubModel(spec, built, seed=place, train=train, test=None, device=cuda))
    return found


@contextmanager
def at_work(cuda: torch.device, *groups: Sequence[SubModel]) -> Iterator[None]:
    with exact_profile(cuda, 1), ExitStack() as stack:
        for member in (one for group in groups for one in group):
            stack.enter_context(member.world())
        yield


def train(members: Sequence[SubModel], steps: int, together: gang.Gang | None, recorder: CudaRecorder) -> None:
    for _ in range(steps):
        if together is not None and together.prepare_recording(recorder):
            together.record_step(recorder)
        done = {one.name: one.step() for one in members} if together is None else together.step()
        assert all(isinstance(one, Stepped) for one in done.values()), done
        for one in members:
            if one.at_epoch_end:
                one.end_epoch()


def hashes(members: Sequence[SubModel]) -> list[str]:
    return [state_sha256(one.module.state_dict()) for one in members]


@pytest.mark.parametrize("name", ["lenet", "resnet"])
def test_an_exact_gang_gives_each_member_the_bits_of_its_own_steps(cuda: torch.device, name: str) -> None:
    together, alone = submodels(cuda, name), submodels(cuda, name)
    recorder = CudaRecorder(cuda)
    with at_work(cuda, together, alone):
        formed = gang.Gang.of(together, fast=False)
        assert isinstance(formed, gang.Gang), formed
        train(together, STEPS, formed, recorder)
        train(alone, STEPS, None, recorder)
        assert formed.dissolved is None and formed.gain is not None
        assert hashes(together) == hashes(alone)
        formed.drop("n2")
        left, others = [one for one in together if one.name != "n2"], [one for one in alone if one.name != "n2"]
        train(left, STEPS, formed, recorder)
        train(others, STEPS, None, recorder)
        assert formed.dissolved is None
    assert hashes(left) == hashes(others)


@pytest.mark.parametrize("name", ["lenet", "resnet"])
@pytest.mark.parametrize("records", [False, True])
def test_a_fast_gang_trains_as_well(cuda: torch.device, name: str, records: bool) -> None:
    together, alone = submodels(cuda, name), submodels(cuda, name)
    recorder = CudaRecorder(cuda)
    with at_work(cuda, together, alone):
        formed = gang.Gang.of(together, fast=True)
        assert isinstance(formed, gang.Gang), formed
        if not records:
            formed.prepare_recording = lambda recorder: False  # type: ignore[method-assign]
        train(together, STEPS, formed, recorder)
        train(alone, STEPS, None, recorder)
        assert formed.dissolved is None and formed.gain is not None  # the trial of fused steps measured it
        assert (formed._recorded.gain is not None) == records
    for one, other in zip(together, alone, strict=True):
        assert one.last is not None and other.last is not None
        assert one.last.train_loss == pytest.approx(other.last.train_loss, rel=0.1)
