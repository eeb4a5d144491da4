import os

from unifiednn_core.compare.gauge import ScriptGauge
from unifiednn_core.machine.gpu import NVML_DEVICE, NVML_PROCESS, GpuReading, GpuSampler
from unifiednn_core.machine.host import PROCESS_PSS
from unifiednn_core.store.telemetry import TelemetryRows


class Card(GpuSampler):
    """A GPU that tells what it was told to tell."""

    def __init__(self, *readings: GpuReading):
        self._readings = list(readings)

    def read(self, pids: object) -> GpuReading:
        return self._readings.pop(0)


def test_memory_on_the_host_is_summed_and_kept_by_script() -> None:
    gauge, batch = ScriptGauge(None), TelemetryRows()
    gauge.sample(1.5, {"a": os.getpid(), "b": os.getpid()}, batch)
    [row] = batch.memory
    assert (row["at_s"], row["source"], row["size_bytes"]) == (1.5, PROCESS_PSS, sum(gauge.peak_bytes.values()))
    assert min(gauge.peak_bytes.values()) > 1_000_000
    assert batch.hybrid == {"memory_source": PROCESS_PSS, "peak_memory_bytes": row["size_bytes"]}
    assert batch.strata == []


def test_scripts_that_have_ended_count_nothing_and_the_peak_stays() -> None:
    gauge, batch = ScriptGauge(None), TelemetryRows()
    gauge.sample(0.0, {"a": os.getpid()}, batch)
    peak_bytes = batch.hybrid["peak_memory_bytes"]
    gauge.sample(1.0, {"a": 2**22 + 1}, batch)  # above the highest process id
    assert batch.hybrid["peak_memory_bytes"] == peak_bytes == gauge.peak_bytes["a"]


def test_a_gpu_counts_what_the_scripts_hold_and_adds_up_what_they_use() -> None:
    gauge = ScriptGauge(
        Card(
            GpuReading(device_bytes=100, energy_j=50.0),
            GpuReading(
                process_bytes=30, device_bytes=140, others_bytes=110, utilisation=0.5, power_w=9.0, energy_j=51.0
            ),
            GpuReading(process_bytes=20, device_bytes=130, utilisation=1.0, energy_j=53.5, notes=("shared",)),
            GpuReading(device_bytes=120),  # the scripts have just left it
        )
    )
    batch = TelemetryRows()
    gauge.sample(1.0, {"a": os.getpid()}, batch)
    gauge.sample(3.0, {"a": os.getpid()}, batch)
    gauge.sample(4.0, {"a": os.getpid()}, batch)
    assert [(row["source"], row["size_bytes"]) for row in batch.memory if row["source"] != PROCESS_PSS] == [
        (NVML_DEVICE, 40),
        (NVML_PROCESS, 30),
        (NVML_DEVICE, 30),
        (NVML_PROCESS, 20),
        (NVML_DEVICE, 20),
    ]
    assert [row["strata"] for row in batch.strata] == [
        {"others": 110, "utilisation": 0.5, "power_w": 9.0},
        {"utilisation": 1.0},
        {"others": 100},
    ]
    assert [(row["at_s"], row["total_bytes"]) for row in batch.strata] == [(1.0, 140), (3.0, 130), (4.0, 120)]
    assert batch.hybrid == {
        "memory_source": NVML_PROCESS,
        "peak_memory_bytes": 30,
        "gpu_s": 1.5,
        "energy_j": 3.5,
        "memory_notes": ["shared"],
    }
