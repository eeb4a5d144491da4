"""How a device is used at one moment: its memory, its load, and whose processes are on it. Never a CUDA context."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml

from unifiednn_core.machine.cores import own_cores
from unifiednn_core.machine.gpu import GpuSampler
from unifiednn_core.machine.host import host_memory
from unifiednn_core.machine.processes import MOST_PROCESSES, OtherProcess, ProcessSampler, described, is_ours
from unifiednn_core.spec.devices import CPU, Device

_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """Figures of one instant; None is not available."""

    device: str
    total_bytes: int | None = None
    own_bytes: int | None = None
    """Of our workers."""
    free_bytes: int | None = None
    utilisation: float | None = None
    """Share of time in which some kernel ran, or of the cores that were busy; 0 to 1."""
    temperature_c: float | None = None
    power_w: float | None = None
    load: float | None = None
    """Of a CPU: processes that want a core, as a mean over the last minute."""
    others: tuple[OtherProcess, ...] = ()


class DeviceSampler:
    """Samples all devices of this machine; never raises. Utilisation of a CPU is that since the last call."""

    def __init__(self, *, nvml: Any = pynvml):
        self._nvml = nvml
        self._gpus: dict[int, GpuSampler] = {}
        self._busy: Mapping[int, tuple[float, float]] = {}
        """Busy and all seconds of each core, at the last call."""
        self._processes = ProcessSampler()

    def sample(
        self, devices: Iterable[Device], workers: Collection[int], own_bytes: Mapping[str, int]
    ) -> tuple[DeviceSample, ...]:
        """One sample of each device. `workers` are the PIDs of ours, `own_bytes` what those on a device report."""
        cores = self._cores_now()
        found = []
        for device in devices:
            own = own_bytes.get(device.name, 0)
            if device.type == CPU:
                found.append(self._of_cpu(device, workers, own, cores))
            else:
                found.append(self._of_gpu(device, frozenset(workers), own))
        return tuple(found)

    def _cores_now(self) -> dict[int, float]:
        """Share of time that each core was busy since the last call; none at the first one."""
        with suppress(Exception):
            now = {core: _seconds(times) for core, times in enumerate(psutil.cpu_times(percpu=True))}
            before, self._busy = self._busy, now
            return {core: _share(before[core], one) for core, one in now.items() if core in before}
        return {}

    def _of_gpu(self, device: Device, workers: frozenset[int], own_bytes: int) -> DeviceSample:
        sampler = self._gpus.get(device.index)
        if sampler is None or sampler.lost:
            sampler = self._gpus[device.index] = GpuSampler(device.index, nvml=self._nvml)
        listed = sampler.processes()
        ours = frozenset(pid for pid in listed if is_ours(pid, workers))
        seen = sampler.read(ours)
        free = None if seen.total_bytes is None or seen.device_bytes is None else seen.total_bytes - seen.device_bytes
        others = sorted(
            (described(pid, size) for pid, size in listed.items() if pid not in ours),
            key=lambda one: (-(one.size_bytes or 0), one.pid),
        )
        return DeviceSample(
            device=device.name,
            total_bytes=seen.total_bytes,
            own_bytes=own_bytes if seen.process_bytes is None else seen.process_bytes,
            free_bytes=free,
            utilisation=seen.utilisation,
            temperature_c=sampler.temperature_c(),
            power_w=seen.power_w,
            others=tuple(others[:MOST_PROCESSES]),
        )

    def _of_cpu(
        self, device: Device, workers: Collection[int], own_bytes: int, cores: Mapping[int, float]
    ) -> DeviceSample:
        total_bytes, free_bytes = host_memory()
        others = self._processes.others(workers, total_bytes)
        if device.total_bytes is not None and device.total_bytes < total_bytes:  # a logical one has its share
            total_bytes = device.total_bytes
            free_bytes = min(free_bytes, max(0, total_bytes - own_bytes))
        mine = [cores[core] for core in device.cpus or own_cores() if core in cores]
        load = temperature = None
        with suppress(Exception):
            load = psutil.getloadavg()[0]
        with suppress(Exception):  # containers and many virtual machines have no sensor
            temperature = _hottest(psutil.sensors_temperatures())
        return DeviceSample(
            device=device.name,
            total_bytes=total_bytes,
            own_bytes=own_bytes,
            free_bytes=free_bytes,
            utilisation=sum(mine) / len(mine) if mine else None,
            temperature_c=temperature,
            load=load,
            others=others,
        )


def _seconds(times: Any) -> tuple[float, float]:
    """Busy seconds of a core, and all of them."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # which `user` has, too
    return total - idle, total


def _share(before: tuple[float, float], now: tuple[float, float]) -> float:
    passed = now[1] - before[1]
    return min(1.0, max(0.0, (now[0] - before[0]) / passed)) if passed > 0 else 0.0


def _hottest(sensors: Mapping[str, Sequence[Any]]) -> float | None:
    return max((one.current for name in _SENSORS for one in sensors.get(name, ())), default=None)
