"""Measures what the worker's process takes: memory by strata, the GPU, CPU seconds. Used by one thread alone."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from unifiednn_core.clock import Clock
from unifiednn_core.memory import strata
from unifiednn_core.memory.pace import Pace
from unifiednn_core.memory.samplers import (
    NVML_DEVICE,
    NVML_PROCESS,
    PROCESS_PSS,
    GpuReading,
    GpuSampler,
    MemorySample,
    process_memory,
    rollup,
)
from unifiednn_core.memory.strata import Footprint
from unifiednn_core.training import device as devices

_LONGEST_STRETCH_S = 5.0  # between two samples; over more than that nobody knows what the GPU did
TORCH_ALLOCATED, TORCH_RESERVED, PEAK_RESIDENT = "torch allocated", "torch reserved", "process peak RSS"


class Trainer(Protocol):
    """What the gauge asks of whoever trains, from another thread."""

    @property
    def holder(self) -> str | None:
        """Sub-model that holds the device."""
        ...

    def footprints(self) -> Mapping[str, Footprint]:
        """What each sub-model keeps in memory now."""
        ...

    def transient_bytes(self, submodel: str) -> int | None:
        """Most that the one at work took for a while in its turn so far."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that was measured at one instant."""

    at_s: float
    """Seconds since the start of the run."""
    samples: tuple[MemorySample, ...]
    source: str
    """Of the figure that stands for the run: the process on the GPU, else what the GPU grew by, else the host."""
    strata: dict[str, Any] | None
    """Columns of a row, but for the moment."""
    shared_bytes: int | None
    """What is resident on the host and yet not counted, because other processes share it; None on a GPU."""


class Gauge:
    """The instruments of one worker."""

    def __init__(self, device: torch.device, clock: Clock, *, earlier: Mapping[str, float | None] | None = None):
        """`earlier` are `cpu_s`, `gpu_s` and `energy_j` of the run's attempts before this one."""
        self._device, self._pid = device, os.getpid()
        self._pace = Pace(clock)
        self._gpu = GpuSampler(device.index or 0) if device.type == "cuda" else None
        self._before = GpuReading() if self._gpu is None else self._gpu.read((self._pid,))
        self._notes = dict.fromkeys(self._before.notes)
        self._earlier = {name: value or 0.0 for name, value in (earlier or {}).items()}
        self._gpu_s: float | None = None
        self._last: tuple[float, float] | None = None
        """Moment and utilisation of the last reading of the GPU."""
        self._energy_j: float | None = None
        devices.warm_up(device)
        host, sums = process_memory(self._pid), rollup(self._pid)
        self.context_bytes: int | None = host.size_bytes if self._gpu is None else None
        """Memory of the process beside all tensors; on the host measured when this gauge was made."""
        self.context_source = host.source
        self.alone_bytes = None if sums is None or self._gpu is not None else sums.rss_bytes
        """Context of a process whose pages nobody shares, to predict from; None where `context_bytes` is that."""
        self._heap_bytes = None if sums is None else sums.pss_bytes - sums.file_bytes
        """Of the context, what is no page of a file."""

    def read(self, at_s: float, trainer: Trainer, data_bytes: int) -> Reading | None:
        """Take a sample where one is due, `at_s` after the start of the run."""
        if not self._pace.due():
            return None
        with self._pace.spending():
            if self._gpu is None:
                return self._on_host(at_s, trainer, data_bytes)
            host = process_memory(self._pid)
            return self._on_gpu(at_s, host, self._gpu.read((self._pid,)), trainer, data_bytes)

    def columns(self) -> dict[str, Any]:
        """Columns of the run's row as of now: CPU seconds of this process since it was started, and the GPU's."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        found: dict[str, Any] = {"cpu_s": self._earlier.get("cpu_s", 0.0) + used.ru_utime + used.ru_stime}
        for name, value in (("gpu_s", self._gpu_s), ("energy_j", self._energy_j)):
            if value is not None:
                found[name] = self._earlier.get(name, 0.0) + value
        if self._notes:
            found["memory_notes"] = list(self._notes)
        return found

    # -- inside

    @property
    def peak_source(self) -> str:
        """Where the peaks of turns come from."""
        return PEAK_RESIDENT if self._gpu is None else TORCH_ALLOCATED

    def _on_host(self, at_s: float, trainer: Trainer, data_bytes: int) -> Reading:
        """Code that is loaded as it is first called is context, and so is what other processes cease to share."""
        sums, holder, context_bytes = rollup(self._pid), trainer.holder, self.context_bytes
        if sums is None:
            host = process_memory(self._pid)
        else:
            host = MemorySample(PROCESS_PSS, sums.pss_bytes)
            context_bytes = (self._heap_bytes or 0) + sums.file_bytes
        found = strata.on_host(
            host.size_bytes,
            context_bytes=context_bytes,
            data_bytes=data_bytes,
            footprints=trainer.footprints(),
            holder=holder,
            transient_bytes=None if holder is None else trainer.transient_bytes(holder),
        )
        row = {"source": host.source, "total_bytes": host.size_bytes, "strata": found}
        shared_bytes = None if sums is None else max(0, sums.rss_bytes - sums.pss_bytes)
        return Reading(at_s=at_s, samples=(host,), source=host.source, strata=row, shared_bytes=shared_bytes)

    def _on_gpu(self, at_s: float, host: MemorySample, seen: GpuReading, trainer: Trainer, data_bytes: int) -> Reading:
        self._notes |= dict.fromkeys(seen.notes)
        self._count(at_s, seen)
        reserved, allocated = torch.cuda.memory_reserved(self._device), torch.cuda.memory_allocated(self._device)
        figures = strata.GpuFigures(
            process_bytes=seen.process_bytes,
            device_bytes=seen.device_bytes,
            others_bytes=seen.others_bytes,
            device_before_bytes=self._before.device_bytes,
            reserved_bytes=reserved,
            allocated_bytes=allocated,
        )
        total, found = strata.on_gpu(
            figures, data_bytes=data_bytes, footprints=trainer.footprints(), holder=trainer.holder
        )
        self.context_bytes, self.context_source = found.get("context", self.context_bytes), NVML_PROCESS
        of_card = {"utilisation": seen.utilisation, "power_w": seen.power_w}
        found |= {name: value for name, value in of_card.items() if value is not None}
        samples = [host, MemorySample(TORCH_RESERVED, reserved), MemorySample(TORCH_ALLOCATED, allocated)]
        main = host.source
        if seen.device_bytes is not None:
            main, grown = NVML_DEVICE, max(0, seen.device_bytes - (self._before.device_bytes or 0))
            samples.append(MemorySample(NVML_DEVICE, grown))
        if seen.process_bytes is not None:
            main = NVML_PROCESS
            samples.append(MemorySample(NVML_PROCESS, seen.process_bytes))
        source = NVML_DEVICE if seen.device_bytes is not None else NVML_PROCESS
        row = None if total is None else {"source": source, "total_bytes": total, "strata": found}
        return Reading(at_s=at_s, samples=tuple(samples), source=main, strata=row, shared_bytes=None)

    def _count(self, at_s: float, seen: GpuReading) -> None:
        """Add up seconds and energy of the GPU; a gap in sampling counts for neither."""
        if seen.utilisation is not None:
            last_s, utilisation = self._last or (at_s, seen.utilisation)
            self._gpu_s = self._gpu_s or 0.0
            if at_s - last_s <= _LONGEST_STRETCH_S:
                self._gpu_s += (at_s - last_s) * (utilisation + seen.utilisation) / 2
            self._last = at_s, seen.utilisation
        if seen.energy_j is not None and self._before.energy_j is not None:
            self._energy_j = seen.energy_j - self._before.energy_j
