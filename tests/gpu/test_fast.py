"""The profile `fast` on a GPU: every kind of network learns in every precision, and goes on from a checkpoint."""

import math

import pytest
import torch

from tests.gpu.kit import KINDS, SAMPLES, dataset, definition, spec_of
from tests.unit.engine.test_computing import CALLS
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats import guard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def trained(device: torch.device, name: str, steps: int, precision: str, start: Checkpoint | None = None) -> SubModel:
    kind = KINDS[name]
    spec = spec_of(name, kind, precision=precision, optimizer="adamw", ema={"decay": 0.5}, epochs=9)
    held = ResidentData(device).hold("train", lambda: dataset(kind, SAMPLES, 0))
    part = SubModel(spec, definition(kind), seed=3, train=held, test=held, device=device, fast=True)
    if start is not None:
        part.restore(start)
    with exact_profile(device, 1, fast=True), part.world():
        for _ in range(steps):
            assert math.isfinite(part.step().loss.item())
            if part.at_epoch_end:
                part.end_epoch()
    return part


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_network_goes_on_in_every_precision(cuda: torch.device, name: str, precision: str) -> None:
    half = trained(cuda, name, 3, precision)
    assert half.optimizer.param_groups[0]["fused"] is True
    for entries in half.optimizer.state.values():
        assert all(value.is_cuda for value in entries.values())
    taken = half.capture()
    again = trained(cuda, name, 2, precision, taken)
    assert (again.steps_done, again.capture().recipe["profile"]) == (5, "fast")
    half.park()
    with exact_profile(cuda, 1, fast=True), half.world():
        half.step()


def test_autocast_lowers_what_the_guard_lowers(cuda: torch.device) -> None:
    with torch.autocast("cuda", torch.bfloat16):
        for packet in guard.LOWERED:
            arguments = [one.to(cuda) for one in CALLS[packet.__name__]]
            assert packet(*arguments).dtype is torch.bfloat16, packet.__name__


def test_products_use_tf32_only_under_this_profile(cuda: torch.device) -> None:
    for fast in (False, True):
        with exact_profile(cuda, 1, fast=fast):
            assert torch.backends.cuda.matmul.allow_tf32 is fast
            assert torch.backends.cudnn.allow_tf32 is fast
