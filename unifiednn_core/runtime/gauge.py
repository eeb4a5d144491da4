"""Measures the worker's process: its memory and what uses it, the GPU, CPU seconds. For one thread.

Pages that a forked worker shares with its template count once, and so do those that the template alone holds.
"""

import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.engine import Engine
from unifiednn_core.machine import breakdown
from unifiednn_core.machine.gpu import NVML_DEVICE, NVML_PROCESS, GpuReading, GpuSampler, GpuUse
from unifiednn_core.machine.host import (
    PROCESS_PSS,
    LoadMeter,
    LoadRecord,
    MemorySample,
    SamplingBudget,
    pages_of,
    process_memory,
    rollup,
)
from unifiednn_core.machine.template import held_bytes

TORCH_ALLOCATED, TORCH_RESERVED = "torch allocated", "torch reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Figures of one instant."""

    at_s: float
    """Seconds since the start of the run."""
    samples: tuple[MemorySample, ...]
    source: str
    """Source of the run's main figure: process on the GPU, else growth of the GPU, else the host."""
    breakdown: dict[str, Any] | None
    """Columns of a breakdown row except the moment; None if the GPU gives no figures."""
    shared_bytes: int | None
    """Resident host memory that does not count, because other processes share it; None on a GPU."""
    own_bytes: Mapping[str, int] = field(default_factory=dict)
    """Most memory of its own so far of each sub-model at work, where a step was measured."""


class WorkerGauge:
    """The instruments of one worker."""

    def __init__(
        self,
        device: torch.device,
        clock: Clock,
        *,
        earlier: Mapping[str, float | None] | None = None,
        earlier_load: Sequence[LoadRecord] = (),
    ):
        """`earlier` holds `cpu_s`, `gpu_s` and `energy_j` of the earlier attempts of the run."""
        self._device = device
        self._pid = os.getpid()
        self._budget = SamplingBudget(clock)
        self._gpu = GpuSampler(device.index or 0) if device.type == "cuda" else None
        self._before = GpuReading() if self._gpu is None else self._gpu.read((self._pid,))
        self._notes = dict.fromkeys(self._before.notes)
        self._earlier = {name: value or 0.0 for name, value in (earlier or {}).items()}
        self._use = GpuUse(self._before)
        self._load, self._earlier_load = LoadMeter(_own_cpu_s), earlier_load
        devices.warm_up(device)
        host, sums = self._host_memory(), rollup(self._pid)
        self.context_bytes: int | None = host.size_bytes if self._gpu is None else None
        """Memory of the process without tensors; on the host measured when this gauge was made."""
        self.alone_bytes = None if sums is None or self._gpu is not None else max(sums.rss_bytes, host.size_bytes)
        """Context of a process that shares no pages, for predictions; None if `context_bytes` is that."""
        self._heap_bytes = None if sums is None else sums.pss_bytes - sums.file_bytes
        """Part of the context that is not file pages."""
        self._host, self._pages = host, pages_of([host])

    def read(self, at_s: float, engine: Engine, data_bytes: int) -> Reading | None:
        """Take a sample `at_s` seconds after the start of the run, if one is due."""
        if not self._budget.due():
            return None
        with self._budget.spending():
            if self._gpu is None:
                return self._on_host(at_s, engine, data_bytes)
            return self._on_gpu(at_s, self._gpu.read((self._pid,)), engine, data_bytes)

    def columns(self) -> dict[str, Any]:
        """Columns of the run's row as of now: CPU and GPU seconds and energy of all attempts."""
        found: dict[str, Any] = {"cpu_s": self._earlier.get("cpu_s", 0.0) + _own_cpu_s()}
        found |= {name: self._earlier.get(name, 0.0) + value for name, value in self._use.columns().items()}
        if self._notes:
            found["memory_notes"] = list(self._notes)
        return found

    def load(self) -> list[LoadRecord]:
        """Processor time of the machine and of this process, for each attempt that ended in order."""
        return [*self._earlier_load, self._load.read()]

    def pages(self, peak_bytes: int | None) -> dict[str, int]:
        """Peaks of anonymous and of file pages; `peak_bytes` is the peak on the host, between two samples as well."""
        self._raise_pages(replace(self._host, size_bytes=max(peak_bytes or 0, self._host.file_bytes)))
        return self._pages

    # -- inside

    def _raise_pages(self, host: MemorySample) -> None:
        self._pages = {kind: max(size, self._pages[kind]) for kind, size in pages_of([host]).items()}
        self._host = host

    def _host_memory(self) -> MemorySample:
        own = process_memory(self._pid)
        return MemorySample(own.source, own.size_bytes + held_bytes(), own.file_bytes)

    def _on_host(self, at_s: float, engine: Engine, data_bytes: int) -> Reading:
        """Code loaded on first use counts as context, and so do pages that other processes stop sharing."""
        sums, context_bytes = rollup(self._pid), self.context_bytes
        if sums is None:
            host = self._host_memory()
        else:
            held = held_bytes()
            host = MemorySample(PROCESS_PSS, sums.pss_bytes + held, sums.file_bytes)
            context_bytes = (self._heap_bytes or 0) + sums.file_bytes + held
        self._raise_pages(host)
        found = breakdown.on_host(
            host.size_bytes,
            context_bytes=context_bytes,
            data_bytes=data_bytes,
            footprints=engine.footprints(),
            at_work=engine.transients(),
        )
        row = {"source": host.source, "total_bytes": host.size_bytes, "strata": found}
        shared_bytes = None if sums is None else max(0, sums.rss_bytes - sums.pss_bytes)
        return Reading(
            at_s=at_s,
            samples=(host,),
            source=host.source,
            breakdown=row,
            shared_bytes=shared_bytes,
            own_bytes=engine.own_bytes(),
        )

    def _on_gpu(self, at_s: float, seen: GpuReading, engine: Engine, data_bytes: int) -> Reading:
        host = self._host_memory()
        self._raise_pages(host)
        self._notes |= dict.fromkeys(seen.notes)
        self._use.add(at_s, seen)
        reserved, allocated = torch.cuda.memory_reserved(self._device), torch.cuda.memory_allocated(self._device)
        total, found = breakdown.on_gpu(
            seen,
            before_bytes=self._before.device_bytes,
            reserved_bytes=reserved,
            allocated_bytes=allocated,
            data_bytes=data_bytes,
            footprints=engine.footprints(),
            at_work=engine.transients(),
        )
        self.context_bytes = found.get("context", self.context_bytes)
        found |= {name: value for name in ("utilisation", "power_w") if (value := getattr(seen, name)) is not None}
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
        return Reading(
            at_s=at_s,
            samples=tuple(samples),
            source=main,
            breakdown=row,
            shared_bytes=None,
            own_bytes=engine.own_bytes(),
        )


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
