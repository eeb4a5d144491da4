"""What the check predicts of techniques on saved tensors holds for the steps of the engine."""

from functools import cache

import pytest
import torch
from torch import nn

from sample_models.architectures import build
from tests.unit.preflight.test_need import definition
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.preflight import measure as room
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.measure import BLOCK_BYTES, measure
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.live_bytes import LiveBytes

BATCH, SAMPLES, STEPS = 33, 66, 2
CLASSES = {"resnet": 10, "language model": 200}
ASKED = {
    "nothing": [],
    "compression": ["compression"],
    "dropit": [{"name": "dropit", "keep": 0.1}],
    "both": ["compression", {"name": "dropit", "keep": 0.1}],
}


def network(kind: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "resnet":
            return build("resnet", {"width": 8})
        return build("transformer_lm", {"vocabulary": 200, "length": 20, "model_size": 32, "heads": 2, "hidden": 64})


@cache
def data(kind: str) -> Dataset:
    """Images of which a part is black, or texts with some words more frequent than others."""
    generator = torch.Generator().manual_seed(0)
    if kind == "resnet":
        images = torch.randn(SAMPLES, 3, 32, 32, generator=generator).clamp_min(0)
        return Dataset.of(inputs=images, targets=torch.arange(SAMPLES) % CLASSES[kind])
    words = (torch.rand(SAMPLES, 20, generator=generator) ** 3 * 200).long()
    return Dataset.of(inputs=words, targets=words.roll(-1, 1))


def spec(kind: str, asked: str) -> SubModelSpec:
    hyper = {"batch_size": BATCH, "techniques": ASKED[asked], "learning_rate": 0.05, "epochs": 1}
    document = {"name": "one", "model": "m", "train_data": "d", "hyperparameters": hyper}
    return SubModelSpec.model_validate(document)


def predicted(kind: str, asked: str) -> MemoryNeed:
    trial = Trial(spec(kind, asked), definition(network(kind)), data(kind), None)
    return measure(trial, dry_run(trial), "cpu", ["d"])


def counted(kind: str, asked: str) -> list[int]:
    """Peak of each step of the engine, without what stays between steps."""
    lease = ResidentData(torch.device("cpu")).hold("d", lambda: data(kind))
    with torch.random.fork_rng(devices=[]):
        submodel = SubModel(
            spec(kind, asked), definition(network(kind)), seed=0, train=lease, test=None, device=torch.device("cpu")
        )
        peaks = []
        live = LiveBytes(BLOCK_BYTES["cpu"])
        with submodel.world():
            live.track([*submodel.module.parameters(), *submodel.module.buffers(), *data(kind).entries.values()])
            before = live.current_bytes
            with live:
                for _ in range(STEPS):
                    live.timeline = []
                    submodel.step()
                    peaks.append(max(live.timeline) - before)
    return peaks


@cache
def plain(kind: str) -> tuple[int, int]:
    """Without techniques: bytes as counted by the engine's step, and as predicted."""
    need = predicted(kind, "nothing")
    return max(counted(kind, "nothing")), need.gradients_bytes + need.transient_bytes


@pytest.mark.parametrize("asked", ["compression", "dropit", "both"])
@pytest.mark.parametrize("kind", CLASSES)
def test_two_small_batches_tell_what_a_step_saves(kind, asked, monkeypatch):
    """The issue asks for 15 %."""
    monkeypatch.setattr(room, "WHOLE_BATCH_BYTES", 0)
    need, real = predicted(kind, asked), max(counted(kind, asked))
    told = need.gradients_bytes + need.transient_bytes
    assert need.fitted and told == pytest.approx(real, rel=0.03)
    assert plain(kind)[1] - told == pytest.approx(plain(kind)[0] - real, rel=0.03)
