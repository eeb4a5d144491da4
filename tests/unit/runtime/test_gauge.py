from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.clock import SimulatedClock
from unifiednn_core.engine.device import RngState
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.machine.gpu import NVML_DEVICE, NVML_PROCESS, GpuReading
from unifiednn_core.machine.host import PROCESS_PSS, PROCESS_RSS
from unifiednn_core.runtime import gauge as gauges
from unifiednn_core.runtime.gauge import TORCH_ALLOCATED, TORCH_RESERVED, Reading, WorkerGauge

MIB = 2**20
CPU = torch.device("cpu")


class Training:
    """Somebody who trains one sub-model that takes 5 MiB for a while."""

    def footprints(self) -> dict[str, Footprint]:
        return {"a": Footprint(3 * MIB, 3 * MIB, 6 * MIB, placed=True), "b": Footprint(2 * MIB)}

    def own_bytes(self) -> dict[str, int]:
        return {}

    def transients(self) -> dict[str, int | None]:
        return {"a": 5 * MIB}


def read(gauge: WorkerGauge, at_s: float, data_bytes: int = MIB) -> Reading:
    reading = gauge.read(at_s, Training(), data_bytes)
    assert reading is not None
    return reading


def test_what_was_there_before_the_first_model_is_context_and_what_came_is_named() -> None:
    clock = SimulatedClock()
    gauge = WorkerGauge(CPU, clock)
    held = torch.ones(512 * MIB, dtype=torch.uint8)
    reading = read(gauge, 7.0)
    assert reading.breakdown is not None
    strata, total = reading.breakdown["strata"], reading.breakdown["total_bytes"]
    assert (reading.at_s, reading.source, reading.breakdown["source"]) == (7.0, PROCESS_PSS, PROCESS_PSS)
    assert [sample.size_bytes for sample in reading.samples] == [total]
    assert gauge.context_bytes is not None
    assert abs(strata["context"] - gauge.context_bytes) < 160 * MIB, "others come and go who share pages of torch"
    assert strata["weights"] == {"a": 3 * MIB, "b": 2 * MIB}
    assert (strata["optimizer"], strata["data"]) == ({"a": 6 * MIB}, MIB)
    assert total >= strata["context"] + held.nbytes - 8 * MIB
    assert (reading.shared_bytes or 0) >= 0


def test_samples_come_no_faster_than_their_pace() -> None:
    clock = SimulatedClock()
    gauge = WorkerGauge(CPU, clock)
    read(gauge, 0.0)
    assert gauge.read(0.1, Training(), 0) is None
    clock.advance(60.0)
    read(gauge, 60.0)


def test_looking_changes_no_random_number_to_come() -> None:
    torch.manual_seed(3)
    before = RngState.current(CPU)
    gauge = WorkerGauge(CPU, SimulatedClock())
    read(gauge, 0.0)
    assert torch.equal(RngState.current(CPU).cpu, before.cpu)


def test_cpu_seconds_are_those_of_the_whole_process_and_of_earlier_attempts() -> None:
    gauge = WorkerGauge(CPU, SimulatedClock(), earlier={"cpu_s": 1000.0, "gpu_s": None, "energy_j": None})
    first = gauge.columns()["cpu_s"]
    sum(range(2_000_000))
    columns = gauge.columns()
    assert 1000.0 < first < columns["cpu_s"]
    assert columns.keys() == {"cpu_s"}, "what a machine without a GPU cannot tell is not there"


def test_a_system_without_proportional_sizes_is_shown_with_resident_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "rollup", lambda pid: None)
    monkeypatch.setattr("unifiednn_core.machine.host.rollup", lambda pid: None)
    reading = read(WorkerGauge(CPU, SimulatedClock()), 0.0)
    assert (reading.source, reading.shared_bytes) == (PROCESS_RSS, None)
    assert reading.breakdown is not None
    assert reading.breakdown["strata"]["context"] > 0


WHOLE = GpuReading(
    process_bytes=700 * MIB,
    device_bytes=1000 * MIB,
    others_bytes=290 * MIB,
    utilisation=0.5,
    power_w=80.0,
    notes=("Others are here.",),
    total_bytes=2000 * MIB,
    energy_j=100.0,
)


class Card:
    """A GPU that answers with what it is given, one reading after another."""

    def __init__(self, *readings: GpuReading):
        self.readings = list(readings)

    def read(self, pids: Any) -> GpuReading:
        return self.readings.pop(0)


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*readings: GpuReading, clock: SimulatedClock) -> WorkerGauge:
        monkeypatch.setattr(gauges, "GpuSampler", lambda index: Card(*readings))
        figures = {"memory_reserved": lambda device: 200 * MIB, "memory_allocated": lambda device: 150 * MIB}
        monkeypatch.setattr(gauges.torch, "cuda", SimpleNamespace(**figures))
        return WorkerGauge(torch.device("cuda", 0), clock)

    return make


def test_a_gpu_is_read_by_nvml_and_by_torch(on_card: Any) -> None:
    before = GpuReading(device_bytes=290 * MIB, energy_j=60.0)
    gauge = on_card(before, WHOLE, clock=SimulatedClock())
    reading = read(gauge, 1.0)
    sizes = {sample.source: sample.size_bytes for sample in reading.samples}
    assert reading.source == NVML_PROCESS
    assert sizes.pop(PROCESS_PSS) > 0
    assert sizes == {
        NVML_PROCESS: 700 * MIB,
        NVML_DEVICE: 710 * MIB,
        TORCH_RESERVED: 200 * MIB,
        TORCH_ALLOCATED: 150 * MIB,
    }
    assert reading.breakdown == {
        "source": NVML_DEVICE,
        "total_bytes": 1000 * MIB,
        "strata": {
            "context": 500 * MIB,
            "slack": 50 * MIB,
            "data": MIB,
            "weights": {"a": 3 * MIB},
            "gradients": {"a": 3 * MIB},
            "optimizer": {"a": 6 * MIB},
            "transient": {"a": 137 * MIB},
            "others": 290 * MIB,
            "utilisation": 0.5,
            "power_w": 80.0,
        },
    }
    assert gauge.context_bytes == 500 * MIB
    columns = gauge.columns()
    assert (columns["gpu_s"], columns["energy_j"], columns["memory_notes"]) == (0.0, 40.0, ["Others are here."])


def test_seconds_of_the_gpu_are_its_utilisation_over_time_without_gaps(on_card: Any) -> None:
    clock = SimulatedClock()
    readings = [replace(WHOLE, utilisation=share) for share in (0.0, 0.5, 1.0, 1.0, 0.0)]
    gauge = on_card(*readings, clock=clock)
    for at_s in (0.0, 2.0, 100.0, 102.0):
        clock.advance(500.0)
        read(gauge, at_s)
    assert gauge.columns()["gpu_s"] == 2 * 0.75 + 2 * 0.5, "nobody knows what it did while nobody looked"


def test_a_card_without_figures_leaves_the_host_and_says_why(on_card: Any) -> None:
    blind = GpuReading(notes=("NVML is not here.",))
    gauge = on_card(blind, blind, clock=SimulatedClock())
    reading = read(gauge, 0.0)
    assert (reading.source, reading.breakdown) == (PROCESS_PSS, None)
    assert gauge.columns()["memory_notes"] == ["NVML is not here."]
    assert not {"gpu_s", "energy_j"} & gauge.columns().keys(), "not 0: not available"
