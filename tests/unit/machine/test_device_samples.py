"""Samples of devices: a stand-in for NVML that fails in every way, and the real processor of this machine."""

import subprocess
import sys

import psutil
import pynvml

from tests.unit.machine.nvml import MIB, OTHER, OWN, Nvml
from unifiednn_core.machine.device_samples import DeviceSample, DeviceSampler
from unifiednn_core.machine.processes import MOST_PROCESSES
from unifiednn_core.spec.devices import Device

CARD = Device(name="cuda:0", type="cuda", host="h", index=0, kind="H200", total_bytes=2000 * MIB, threads=1)
NOBODY = 2**22 + 17  # above the greatest number that Linux gives to a process


def cpu(name: str = "cpu", **given: object) -> Device:
    plain = {"name": name, "type": "cpu", "host": "h", "index": 0, "kind": "EPYC", "total_bytes": None, "threads": 1}
    return Device(**{**plain, **given})  # type: ignore[arg-type]


def sample(nvml: Nvml, workers: tuple[int, ...] = (OWN,), own_bytes: int = 7 * MIB) -> DeviceSample:
    [found] = DeviceSampler(nvml=nvml).sample([CARD], workers, {"cuda:0": own_bytes})
    return found


def test_a_gpu_is_told_with_whose_processes_are_on_it() -> None:
    seen = sample(Nvml())
    assert (seen.total_bytes, seen.own_bytes, seen.free_bytes) == (2000 * MIB, 500 * MIB, 1100 * MIB)
    assert (seen.utilisation, seen.temperature_c, seen.power_w, seen.load) == (0.37, 61.0, 123.4, None)
    [other] = seen.others
    assert (other.pid, other.size_bytes) == (OTHER, 300 * MIB)
    assert (other.user, other.name) == (psutil.Process(OTHER).username(), psutil.Process(OTHER).name())


def test_what_a_worker_started_is_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        nvml = Nvml(processes=[(child.pid, 100 * MIB), (OTHER, 300 * MIB)])
        ours = sample(nvml)
        assert (ours.own_bytes, [one.pid for one in ours.others]) == (100 * MIB, [OTHER])
        assert [one.pid for one in sample(nvml, workers=()).others] == [OTHER, child.pid], "largest first"
    finally:
        child.communicate(b"\n")


def test_where_nvml_cannot_tell_whose_memory_it_is_the_workers_own_figure_counts() -> None:
    nvml = Nvml(processes=[(NOBODY, 700 * MIB), (NOBODY + 1, None)])
    seen = sample(nvml)
    assert seen.own_bytes == 7 * MIB
    assert [(one.user, one.name, one.size_bytes) for one in seen.others] == [
        (None, None, 700 * MIB),
        (None, None, None),
    ]
    many = Nvml(processes=[(NOBODY + at, at * MIB) for at in range(2 * MOST_PROCESSES)])
    assert len(sample(many).others) == MOST_PROCESSES


def test_a_card_that_was_lost_is_found_again() -> None:
    nvml = Nvml("nvmlInit", error=pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    sampler = DeviceSampler(nvml=nvml)
    assert sampler.sample([CARD], [OWN], {})[0].total_bytes is None
    nvml.failing = set()
    assert sampler.sample([CARD], [OWN], {})[0].total_bytes == 2000 * MIB


def test_a_processor_is_told_since_the_last_call() -> None:
    sampler, device = DeviceSampler(nvml=Nvml()), cpu()
    first, second = (sampler.sample([device], [], {"cpu": 5 * MIB})[0] for _ in range(2))
    assert first.utilisation is None and second.utilisation is not None and 0 <= second.utilisation <= 1
    assert first.total_bytes is not None and first.free_bytes is not None and first.own_bytes == 5 * MIB
    assert 0 < first.free_bytes < first.total_bytes
    assert first.load is not None and first.power_w is None
