"""The real pynvml against a machine without a GPU, and a stand-in."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.unit.machine.nvml import MIB, OTHER, OWN, Nvml
from unifiednn_core.machine import gpu as samplers_gpu
from unifiednn_core.machine.gpu import GpuReading, GpuSampler, gpu_count

NOBODY = 2**22 + 17  # above the greatest number that Linux gives to a process


def read(nvml: Nvml, index: int = 0, **named: Any) -> GpuReading:
    return GpuSampler(index, nvml=nvml, **named).read([OWN])


def test_everything_that_nvml_tells_is_told() -> None:
    assert read(Nvml()) == GpuReading(
        process_bytes=500 * MIB,
        device_bytes=900 * MIB,
        others_bytes=300 * MIB,
        utilisation=0.37,
        power_w=123.4,
        notes=(samplers_gpu.SHARED,),
        total_bytes=2000 * MIB,
        energy_j=5.0,
    ), "who computes and draws counts once, and the bus is no space"


def test_processes_of_ours_are_summed() -> None:
    nvml = Nvml(processes=[(OWN, 500 * MIB), (OTHER, 300 * MIB)])
    reading = GpuSampler(0, nvml=nvml).read([OWN, OTHER])
    assert (reading.process_bytes, reading.others_bytes, reading.notes) == (800 * MIB, 0, ())


def test_an_older_driver_counts_what_it_reserves() -> None:
    nvml = Nvml()
    nvml.knows_v2 = False
    assert read(nvml).device_bytes == 1000 * MIB


@pytest.mark.parametrize(
    "error",
    [
        pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
        pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
        OSError("libnvidia-ml.so.1: cannot open shared object file"),
    ],
)
def test_without_nvml_there_is_nothing_but_a_note(error: Exception) -> None:
    reading = read(Nvml("nvmlInit", error=error))
    assert reading == GpuReading(notes=(samplers_gpu.ABSENT.format(error=error),))
    assert gpu_count(Nvml("nvmlInit", error=error)) == 0


def test_numbers_of_the_host_are_found_out(tmp_path: Path) -> None:
    reading = read(Nvml(processes=[(NOBODY, 500 * MIB)]))
    assert (reading.process_bytes, reading.others_bytes) == (None, None)
    assert reading.notes == (samplers_gpu.HOST_PIDS,)
    assert reading.device_bytes == 900 * MIB


def test_a_container_that_hides_all_processes_is_found_out_once_memory_has_grown() -> None:
    nvml = Nvml(processes=[])
    sampler = GpuSampler(0, nvml=nvml)
    before = sampler.read([OWN])
    assert (before.process_bytes, before.others_bytes, before.notes) == (None, 0, ()), "nobody is there yet"
    nvml.used += 400 * MIB
    after = sampler.read([OWN])
    assert (after.process_bytes, after.others_bytes, after.notes) == (None, None, (samplers_gpu.NO_PROCESSES,))


def test_a_driver_that_keeps_sizes_to_itself_is_named() -> None:
    reading = read(Nvml(processes=[(OWN, None), (OTHER, None)]))
    assert (reading.process_bytes, reading.others_bytes) == (None, None)
    assert reading.notes == (samplers_gpu.NO_SIZES, samplers_gpu.SHARED)


def test_sizes_of_others_that_are_kept_are_not_taken_for_nothing() -> None:
    reading = read(Nvml(processes=[(OWN, 500 * MIB), (OTHER, None)]))
    assert (reading.process_bytes, reading.others_bytes) == (500 * MIB, None)


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetMemoryInfo", "device_bytes"),
        ("nvmlDeviceGetComputeRunningProcesses", "process_bytes"),
        ("nvmlDeviceGetUtilizationRates", "utilisation"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
    ],
)
@pytest.mark.parametrize(
    "error",
    [pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION), ValueError()],
)
def test_a_question_that_fails_costs_its_own_figure_alone(function: str, field: str, error: Exception) -> None:
    whole, reading = read(Nvml()), read(Nvml(function, error=error))
    assert getattr(reading, field) is None
    assert sum("NVML cannot tell" in note for note in reading.notes) == 1
    others = {"device_bytes", "process_bytes", "utilisation", "power_w", "energy_j"} - {field}
    assert {name: getattr(reading, name) for name in others} == {name: getattr(whole, name) for name in others}


@pytest.mark.parametrize("size", [2**64 - 1_843_956, 2001 * MIB])
def test_a_process_has_no_more_than_the_card(size: int) -> None:
    own, other = read(Nvml(processes=[(OWN, size)])), read(Nvml(processes=[(OWN, 500 * MIB), (OTHER, size)]))
    note = samplers_gpu.IMPOSSIBLE.format(what="memory by process")
    assert (own.process_bytes, own.device_bytes, own.notes) == (None, 900 * MIB, (samplers_gpu.NO_SIZES, note))
    assert (other.process_bytes, other.others_bytes) == (500 * MIB, None) and note in other.notes
    assert GpuSampler(0, nvml=Nvml(processes=[(OWN, size)])).processes() == {OWN: None}
    several = GpuSampler(0, nvml=Nvml(processes=[(OWN, 1500 * MIB), (OTHER, 1500 * MIB)])).read([OWN, OTHER])
    assert (several.process_bytes, several.notes) == (None, (note,)), "nor do several together"


@pytest.mark.parametrize(
    ("function", "answer", "field", "what"),
    [
        (
            "nvmlDeviceGetMemoryInfo",
            SimpleNamespace(used=2**64 - 2**20, total=2000 * MIB),
            "device_bytes",
            "memory in use",
        ),
        ("nvmlDeviceGetMemoryInfo", SimpleNamespace(used=9, total=2**64 - 1), "total_bytes", "memory"),
        ("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=0xFFFFFFFF), "utilisation", "utilisation"),
        ("nvmlDeviceGetPowerUsage", 0xFFFFFFFF, "power_w", "power"),
        ("nvmlDeviceGetTotalEnergyConsumption", 2**64 - 1, "energy_j", "energy"),
    ],
)
def test_a_figure_that_cannot_be_is_not_available(function: str, answer: object, field: str, what: str) -> None:
    nvml = Nvml(processes=[(OWN, 500 * MIB)])
    setattr(nvml, function, lambda *_, **__: answer)
    reading = read(nvml)
    assert (getattr(reading, field), reading.process_bytes) == (None, 500 * MIB)
    assert reading.notes == (samplers_gpu.IMPOSSIBLE.format(what=what),)


def test_a_temperature_that_cannot_be_is_not_available() -> None:
    nvml = Nvml()
    nvml.nvmlDeviceGetTemperature = lambda *_: 0xFFFFFFFF  # type: ignore[method-assign]
    assert (GpuSampler(0, nvml=nvml).temperature_c(), GpuSampler(0, nvml=Nvml()).temperature_c()) == (None, 61.0)


@pytest.mark.parametrize(
    ("visible", "index", "asked"),
    [("", 1, 1), ("1", 0, 1), ("1,0", 1, 0), ("GPU-4b7c", 0, "GPU-4b7c"), ("0, MIG-11", 1, "MIG-11")],
)
def test_the_card_is_the_one_that_cuda_is_shown(
    monkeypatch: pytest.MonkeyPatch, visible: str, index: int, asked: int | str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = Nvml()
    read(nvml, index)
    assert nvml.asked == [asked]
