"""What the check predicts of offload and of checkpointing, against steps that are counted; budgets that do not hold."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit.preflight.test_need import definition
from tests.unit.techniques.test_offload import resnet18
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.preflight import measure as measuring
from unifiednn_core.preflight.budget_findings import budget_findings
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial, Tried
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.live_bytes import LiveBytes

MIB = 1024**2
SAMPLES = 32
BLOCK = measuring.BLOCK_BYTES["cuda"]
DATA = Dataset.of(torch.randn(SAMPLES, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 10)


@pytest.fixture(autouse=True)
def _from_two_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole batch is never run, so that its need is predicted."""
    monkeypatch.setattr(measuring, "WHOLE_BATCH_BYTES", 0)


def tried(*techniques: object, **hyper: object) -> tuple[Trial, Tried]:
    given = {"batch_size": SAMPLES, "techniques": list(techniques)} | hyper
    document = {"name": "one", "model": "m", "train_data": "d", "hyperparameters": given}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = resnet18()
    whole = replace(definition(network), build=lambda: copy.deepcopy(network))
    trial = Trial(SubModelSpec.model_validate(document), whole, DATA, None)
    return trial, dry_run(trial)


def need(*techniques: object, device: str = "cuda", **hyper: object) -> MemoryNeed:
    return measuring.measure(*tried(*techniques, **hyper), device, ["d"])


def counted(*techniques: object, parts: int = 1) -> int:
    """Transient bytes of a step, once the techniques know the network."""
    _, one = tried(*techniques)
    module, peak, live = one.module, 0, LiveBytes(BLOCK)
    gradients = LiveBytes(BLOCK).track(list(module.parameters()))
    at_rest = live.track([*module.parameters(), *module.buffers()])
    for _ in range(3):
        module.zero_grad(set_to_none=True)
        live.timeline = []
        for part in torch.arange(SAMPLES).chunk(parts):
            learn(one, live, part)
        peak = max(live.timeline) - at_rest - gradients
    return peak


def learn(one: Tried, live: LiveBytes, part: Tensor) -> None:
    with live:
        batch = one.step.prepare(DATA.batch(part), training=True)
        with one.techniques.part(one.module, batch.tensors):
            loss = one.step.loss(one.criterion, one.step.forward(one.module, batch), batch)
            loss.backward()  # type: ignore[no-untyped-call]


def test_what_is_predicted_is_what_is_counted() -> None:
    plain = counted()
    assert need().transient_bytes == pytest.approx(plain, rel=0.05)
    for asked in (
        {"name": "checkpointing"}, {"name": "offload"}, {"name": "offload", "budget_mib": 0.4 * plain / MIB},
        {"name": "offload", "budget_mib": 0.7 * plain / MIB}, {"name": "offload", "budget_mib": 2 * plain / MIB},
    ):  # fmt: skip
        predicted, real = need(asked).transient_bytes, counted(asked)
        assert predicted == pytest.approx(real, rel=0.15), asked
        assert predicted > 0.9 * plain or real < 0.8 * plain


def test_on_a_cpu_everything_counts() -> None:
    assert need({"name": "offload"}, device="cpu") == need(device="cpu")


def test_a_budget_that_no_step_keeps_is_refused_with_the_fewest_parts() -> None:
    asked = {"name": "offload", "budget_mib": 5.0}
    trial, one = tried(asked)
    wanted = measuring.measure(trial, one, "cuda", ["d"])
    [found] = budget_findings(trial, wanted, "cuda")
    assert found.severity == "error"
    assert found.field == "submodels.one.hyperparameters.batch_split"
    assert found.fix is not None
    parts = int(found.fix.value)
    assert counted(asked, parts=parts) <= 5.1 * MIB
    assert counted(asked, parts=parts - 1) > 4.5 * MIB
    with_parts, one = tried(asked, batch_split=parts)
    assert budget_findings(with_parts, measuring.measure(with_parts, one, "cuda", ["d"]), "cuda") == []
    assert budget_findings(trial, wanted, "cpu") == []


def test_a_budget_without_hope_says_so() -> None:
    trial, one = tried({"name": "offload", "budget_mib": 0.01})
    [found] = budget_findings(trial, measuring.measure(trial, one, "cuda", ["d"]), "cuda")
    assert (found.fix, found.remedy) == (None, "Give a larger budget, or smaller batches.")
