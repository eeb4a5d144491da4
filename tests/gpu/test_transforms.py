"""On CUDA every transform gives what a loop gives, and a recording of it draws anew with the bits of a plain call."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.data.transforms import reference
from tests.unit.data.transforms.kit import CASES, IDS, made
from unifiednn_core.data.batch import Batch, Transform
from unifiednn_core.engine.graphs import CudaRecorder

pytestmark = pytest.mark.gpu
ROUNDED = 1e-4
SEED = 7


def placed(batch: Batch, device: torch.device) -> Batch:
    targets = None if batch.targets is None else batch.targets.to(device)
    return Batch({name: one.to(device) for name, one in batch.inputs.items()}, targets)


def tensors(batch: Batch) -> list[Tensor]:
    mix = [] if batch.mix is None else [batch.mix.targets, batch.mix.share]
    return [*batch.inputs.values(), *([] if batch.targets is None else [batch.targets]), *mix]


def called(transform: Transform, batch: Batch) -> list[Tensor]:
    torch.cuda.manual_seed(SEED)
    return [one.clone() for _ in range(2) for one in tensors(transform(batch, None))]


@pytest.mark.parametrize(("name", "arguments", "batch"), CASES, ids=IDS)
def test_a_recording_draws_what_plain_calls_draw(
    name: str, arguments: dict[str, Any], batch: Batch, cuda: torch.device
) -> None:
    transform, there = made(name, **arguments), placed(batch, cuda)
    if transform.reads_values:
        pytest.skip("it reads values, so it is not recorded")
    expected = called(transform, there)
    recorder, results = CudaRecorder(cuda), list[Batch]()
    with recorder.aside():
        transform(there, None)
        recording = recorder.record(lambda: results.append(transform(there, None)), draws=transform.draws)
        torch.cuda.manual_seed(SEED)
        found = []
        for _ in range(2):
            recording.replay()
            found += [one.clone() for one in tensors(results[0])]
    recording.free()
    assert [one.device for one in found] == [one.device for one in expected]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(("name", "arguments", "batch"), CASES, ids=IDS)
def test_it_gives_what_a_loop_gives_from_the_draws_of_the_device(
    name: str, arguments: dict[str, Any], batch: Batch, cuda: torch.device
) -> None:
    torch.cuda.manual_seed(SEED)
    transform = made(name, **arguments)
    result = transform(placed(batch, cuda), None)
    torch.cuda.manual_seed(SEED)
    expected = reference.transformed(name, arguments, batch, torch.cuda.default_generators[cuda.index])
    for one, other in zip(tensors(result), tensors(expected), strict=True):
        assert one.device == cuda and one.dtype == other.dtype
        assert (one.cpu().double() - other.cpu().double()).abs().max() <= (ROUNDED if one.is_floating_point() else 0)
