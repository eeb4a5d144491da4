"""Steps replayed from CUDA graphs: the same bits, no wait of the host, memory that is shared and given back."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, Bench, Kind, alone, hash_of, spec_of
from unifiednn_core.engine import graphs, stepping
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.events import StepsRecorded
from unifiednn_core.engine.graphs import CudaRecorder
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256

MIB = 1024**2
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def _every_recording_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use recordings that gain nothing, too, and forget the failures of other tests."""
    monkeypatch.setattr(graphs, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(graphs, "_FAILED", [])


def bench_of(cuda: torch.device, *names: str) -> Bench:
    return Bench(cuda, [(name, KINDS[name], spec_of(name, KINDS[name])) for name in names], IN_TURNS)


def told(bench: Bench) -> dict[str, str | None]:
    return {report.submodel: report.refused for report in bench.reports if isinstance(report, StepsRecorded)}


def step(submodel: SubModel, recorder: CudaRecorder, count: int = 1) -> None:
    """Steps inside `world`, as the engine takes them."""
    for _ in range(count):
        if submodel.prepare_recording(recorder):
            submodel.record_step(recorder)
        submodel.step()
        if submodel.at_epoch_end:
            submodel.end_epoch()


@contextmanager
def at_work(cuda: torch.device, submodel: SubModel) -> Iterator[None]:
    with exact_profile(cuda, 1), submodel.world():
        yield


def test_replayed_steps_of_all_in_turns_give_the_bits_of_eager_ones(cuda: torch.device) -> None:
    bench = bench_of(cuda, *KINDS)
    ended = bench.run()
    assert told(bench) == dict.fromkeys(KINDS)
    assert {name: hash_of(end) for name, end in ended.items()} == {
        name: alone(kind, spec_of(name, kind), cuda) for name, kind in KINDS.items()
    }


@pytest.mark.parametrize(
    "hyper",
    [
        {"accumulation_steps": 2, "batch_split": 2, "gradient_clipping": {"norm": 0.5}},
        {"lr_scheduler": {"name": "step", "args": {"step_size": 1}}, "warm_up": {"steps": 3}},
    ],
)
def test_clipping_and_rates_stay_outside(
    cuda: torch.device, hyper: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for setting in ("on", "off"):
        if setting == "off":
            monkeypatch.setattr(stepping, "recorder_for", lambda device: None)
        spec = spec_of("resnet", KINDS["resnet"], **{"epochs": 4, **hyper})
        bench = Bench(cuda, [("resnet", KINDS["resnet"], spec)], IN_TURNS)
        found.append(hash_of(bench.run()["resnet"]))
        assert told(bench) == ({"resnet": None} if setting == "on" else {})
    assert found[0] == found[1]


def test_a_useful_recording_is_faster(cuda: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LEAST_GAIN", 1.1)
    bench = bench_of(cuda, "lenet")
    bench.run()
    assert told(bench) == {"lenet": None}


def test_parked_and_restored_ones_record_again_and_keep_their_bits(cuda: torch.device) -> None:
    submodel, recorder = bench_of(cuda, "roberta").submodels[0], CudaRecorder(cuda)
    with at_work(cuda, submodel):
        step(submodel, recorder, 4)
        kept = submodel.capture()
        step(submodel, recorder, 2)
    submodel.park()
    submodel.restore(kept)
    for _ in iter(lambda: submodel.finished, True):
        with at_work(cuda, submodel):
            step(submodel, recorder)
    assert state_sha256(submodel.module.state_dict()) == alone(
        KINDS["roberta"], spec_of("roberta", KINDS["roberta"]), cuda
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("replayed", [False, True])
def test_no_step_makes_the_host_wait(cuda: torch.device, name: str, replayed: bool) -> None:
    submodel, recorder = bench_of(cuda, name).submodels[0], CudaRecorder(cuda)
    with at_work(cuda, submodel):
        submodel.step()  # the order of the epoch goes to the device
        if replayed:
            step(submodel, recorder, 2)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            submodel.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_waiting_host_would_be_noticed(cuda: torch.device) -> None:
    submodel = bench_of(cuda, "lenet").submodels[0]
    submodel.module.register_forward_hook(lambda module, given, outputs: outputs * float(outputs.sum() * 0 + 1))
    with at_work(cuda, submodel):
        submodel.step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError, match="synchroniz"):
                submodel.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_other_threads_can_wait_for_the_numbers_of_a_step(cuda: torch.device) -> None:
    submodel, recorder = bench_of(cuda, "resnet").submodels[0], CudaRecorder(cuda)
    with torch.cuda.stream(torch.cuda.Stream(cuda)), at_work(cuda, submodel):
        step(submodel, recorder, 3)
        torch.cuda._sleep(10**9)
        told = submodel.step()
        torch.cuda.current_stream().synchronize()
        expected = told.loss.item()
        torch.cuda._sleep(10**9)
        again = submodel.step()
    assert told.ready is not None and again.ready is not None
    again.ready.synchronize()
    assert torch.stack([told.loss, again.loss]).isfinite().all()
    assert told.loss.item() == expected
    torch.cuda.synchronize()
    with at_work(cuda, submodel):
        submodel.end_epoch()
        assert submodel.step().ready is None


# -- recordings that fail


def test_a_recording_that_fails_harms_nobody(cuda: torch.device) -> None:
    bench = bench_of(cuda, "lenet", "roberta", "resnet")

    def wait(module: nn.Module, given: object) -> None:
        if torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()

    bench.submodels[0].module.register_forward_pre_hook(wait)
    ended = bench.run()
    assert {name: hash_of(end) for name, end in ended.items()} == {
        name: alone(KINDS[name], spec_of(name, KINDS[name]), cuda) for name in ("lenet", "roberta", "resnet")
    }
    reasons = told(bench)
    assert "cannot be recorded" in (reasons["lenet"] or "")
    assert all("an earlier recording in this process failed" in (reasons[name] or "") for name in ("roberta", "resnet"))
    torch.nn.functional.dropout(torch.ones(8, device=cuda)).sum().item()  # the default generator still works


def test_what_the_host_reads_is_told(cuda: torch.device) -> None:
    bench = bench_of(cuda, "lenet")
    for layer in bench.submodels[0].module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    bench.run()
    assert "the host has a part in its steps (aten._local_scalar_dense" in (told(bench)["lenet"] or "")


# -- memory


def reserved_bytes() -> int:
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def test_graphs_of_one_lane_share_their_temporary_memory(cuda: torch.device) -> None:
    kind, recorder, grown = Kind("resnet", {"width": 64}, (3, 32, 32)), CudaRecorder(cuda), []
    networks = [(name, kind, spec_of(name, kind, batch_size=32, epochs=9)) for name in ("one", "two", "three")]
    bench = Bench(cuda, networks, IN_TURNS)
    for submodel in bench.submodels:
        before = reserved_bytes()
        with at_work(cuda, submodel):
            step(submodel, recorder, 6)
        grown.append(reserved_bytes() - before)
        assert submodel.footprint.gradients_bytes > 0
    own = sum(weight.nbytes for weight in bench.submodels[0].module.parameters())
    temporary = grown[0] - 2 * own
    assert temporary > 50 * MIB
    assert max(grown[1:]) - 2 * own < temporary / 2


def test_what_has_ended_holds_nothing(cuda: torch.device) -> None:
    warm = bench_of(cuda, "lenet", "resnet")
    warm.run()
    del warm
    gc.collect()
    before = torch.cuda.memory_allocated()
    bench = bench_of(cuda, "lenet", "resnet")
    bench.run()
    assert told(bench) == {"lenet": None, "resnet": None}
    bench.submodels.clear()
    bench.reports.clear()
    gc.collect()
    assert torch.cuda.memory_allocated() == before
