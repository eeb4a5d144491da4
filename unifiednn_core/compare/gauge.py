"""Measures memory and GPU use of all scripts of a baseline together, as rows of the store."""

from collections.abc import Iterable, Mapping
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.machine.gpu import NVML_DEVICE, NVML_PROCESS, GpuReading, GpuSampler, GpuUse
from unifiednn_core.machine.host import PROCESS_PSS, HostSampler, MemorySample, SamplingBudget, pages_of
from unifiednn_core.store.telemetry import TelemetryRows


class ScriptGauge:
    """Samples memory and GPU, and keeps peaks and sums. For one thread."""

    def __init__(self, gpu: GpuSampler | None, clock: Clock | None = None):
        self._gpu = gpu
        self._host = HostSampler(SamplingBudget(clock or Clock()))
        self._source = PROCESS_PSS
        self._before = GpuReading() if gpu is None else gpu.read(())
        self._use = GpuUse(self._before)
        self._notes: dict[str, None] = {}
        self._peaks: dict[str, int] = {}  # peak bytes of all scripts together, by source
        self.peak_bytes: dict[str, int] = {}  # peak host bytes of each script, by name
        self.pages: dict[str, int] = {}  # peaks of anonymous and of file pages of all scripts together

    def sample(self, at_s: float, pids: Mapping[str, int], batch: TelemetryRows) -> None:
        """Sample the scripts (name to process id), `at_s` seconds after the launch."""
        by_pid = self._host.read(pids.values())
        own = {name: by_pid[pid] for name, pid in pids.items()}
        for name, sample in own.items():
            self.peak_bytes[name] = max(sample.size_bytes, self.peak_bytes.get(name, 0))
        self._source = next(iter(own.values())).source
        totals = {self._source: sum(sample.size_bytes for sample in own.values())}
        self._raise_pages(own.values())
        reading = None if self._gpu is None else self._gpu.read(pids.values())
        if reading is not None:
            if reading.device_bytes is not None:  # its growth, for drivers that list no processes
                totals[NVML_DEVICE] = max(0, reading.device_bytes - (self._before.device_bytes or 0))
            if reading.process_bytes is not None:
                totals[NVML_PROCESS] = reading.process_bytes
            self._use.add(at_s, reading)
            batch.hybrid |= self._use.columns()
            if not self._notes.keys() >= set(reading.notes):
                self._notes |= dict.fromkeys(reading.notes)
                batch.hybrid["memory_notes"] = list(self._notes)
        for name, total_bytes in totals.items():
            self._peaks[name] = max(total_bytes, self._peaks.get(name, 0))
        self._record_peak(batch)
        batch.memory += [{"at_s": at_s, "source": name, "size_bytes": total} for name, total in totals.items()]
        if reading is not None and reading.device_bytes is not None:
            batch.strata.append({"at_s": at_s, **self._of_card(reading, reading.device_bytes)})

    def end(self, name: str, pid: int, peak_resident_bytes: int, batch: TelemetryRows) -> None:
        """Record the peak of an ended script as the kernel saw it; the peak of all is at least the peak of each."""
        peak = self._host.at_peak(pid, peak_resident_bytes)
        self._raise_pages([peak])
        self.peak_bytes[name] = max(peak.size_bytes, self.peak_bytes.get(name, 0))
        self._peaks[self._source] = max(peak.size_bytes, self._peaks.get(self._source, 0))
        self._record_peak(batch)

    def _raise_pages(self, samples: Iterable[MemorySample]) -> None:
        self.pages = {kind: max(size, self.pages.get(kind, 0)) for kind, size in pages_of(samples).items()}

    def _record_peak(self, batch: TelemetryRows) -> None:
        """Record the peak from the best source."""
        source = next(name for name in (NVML_PROCESS, NVML_DEVICE, self._source) if name in self._peaks)
        batch.hybrid |= {"memory_source": source, "peak_memory_bytes": self._peaks[source]}

    def _of_card(self, reading: GpuReading, device_bytes: int) -> dict[str, Any]:
        """Columns of a breakdown row with the figures of the driver, such as use by others."""
        unlisted = reading.process_bytes is None and reading.others_bytes is None
        others_bytes = self._before.device_bytes if unlisted else reading.others_bytes
        figures = {"others": others_bytes, "utilisation": reading.utilisation, "power_w": reading.power_w}
        strata = {name: value for name, value in figures.items() if value is not None}
        return {"source": NVML_DEVICE, "total_bytes": device_bytes, "strata": strata}
