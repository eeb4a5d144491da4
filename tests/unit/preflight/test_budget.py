"""What the check predicts of offload and of checkpointing, against steps that are counted; budgets that do not hold."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.reports import report_of
from tests.unit.preflight.test_need import definition
from tests.unit.techniques.test_offload import resnet18
from unifiednn_core.base.errors import Finding
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.preflight import measure as measuring
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.fixed_nodes import budget_findings, fixed
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.preflight.trial import Trial, Tried
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.techniques.live_bytes import LiveBytes

MIB = 1024**2
SAMPLES = 32
BLOCK = measuring.BLOCK_BYTES["cuda"]
DATA = Dataset.of(torch.randn(SAMPLES, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 10)


@pytest.fixture(autouse=True, scope="module")
def _from_two_small_batches() -> Iterator[None]:
    """The whole batch is never run, so that its need is predicted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "WHOLE_BATCH_BYTES", 0)
        yield


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
    at_rest = live.track([*module.parameters(), *module.buffers(), *DATA.entries.values()])
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


@pytest.mark.slow
def test_what_is_predicted_is_what_is_counted() -> None:
    plain = counted()
    assert need().transient_bytes == pytest.approx(plain, rel=0.05)
    for asked in (
        {"name": "checkpointing"},
        {"name": "offload"},
        {"name": "offload", "budget_mib": 0.4 * plain / MIB},
        {"name": "offload", "budget_mib": 0.7 * plain / MIB},
        {"name": "offload", "budget_mib": 2 * plain / MIB},
    ):
        predicted, real = need(asked).transient_bytes, counted(asked)
        assert predicted == pytest.approx(real, rel=0.15), asked
        assert predicted > 0.9 * plain or real < 0.8 * plain


def test_on_a_cpu_everything_counts() -> None:
    assert need({"name": "offload"}, device="cpu") == need(device="cpu")


def findings(trial: Trial, need: MemoryNeed, device: str = "cuda") -> list[Finding]:
    return budget_findings(trial.spec, need, SAMPLES, trial.definition.min_batch, device)


@pytest.fixture(scope="module")
def tight() -> MemoryNeed:
    """The need of a network with a budget that no whole batch keeps."""
    return measuring.measure(*tried({"name": "offload", "budget_mib": 2.5}), "cuda", ["d"])


def test_a_budget_that_no_step_keeps_is_refused_with_the_fewest_parts(tight: MemoryNeed) -> None:
    asked = {"name": "offload", "budget_mib": 2.5}
    trial, _ = tried(asked)
    [found] = findings(trial, tight)
    assert found.severity == "error"
    assert found.field == "submodels.one.hyperparameters.batch_split"
    assert found.fix is not None
    parts = int(found.fix.value)
    assert counted(asked, parts=parts) <= 2.55 * MIB
    assert counted(asked, parts=parts - 1) > 2.25 * MIB
    assert findings(tried(asked, batch_split=parts)[0], tight.changed(batch_split=parts)) == []
    assert findings(trial, tight, "cpu") == []


def test_virtual_nodes_that_fit_themselves_keep_the_budget(tight: MemoryNeed) -> None:
    asked = {"name": "offload", "budget_mib": 2.5}
    trial, _ = tried(asked, "virtual_nodes")
    assert findings(trial, tight) == []
    known = report_of("one", samples=SAMPLES, memory=tight, least_part=1)
    spec = RunSpec.model_validate({"name": "run", "submodels": [trial.spec.model_dump(mode="json")], "device": "cuda"})
    found = fixed(spec, CheckReport(findings=(), submodels={"one": known}, files={}), lambda *_: {"one"})
    nodes = found.submodels["one"].nodes
    assert nodes is not None
    assert counted(asked, parts=nodes.nodes) <= 2.55 * MIB
    assert counted(asked, parts=nodes.nodes // 2) > 2.25 * MIB


def test_a_budget_without_hope_says_so(tight: MemoryNeed) -> None:
    for nodes in ([], ["virtual_nodes"]):
        trial, _ = tried({"name": "offload", "budget_mib": 0.01}, *nodes)
        [found] = findings(trial, tight)
        assert (found.fix, found.remedy) == (None, "Give a larger budget, or smaller batches.")
