"""Memory of the worker at one instant, each figure with its source. A figure that cannot be had is left out."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pynvml

PROCESS_PSS = "process PSS"
PROCESS_RSS = "process RSS"
NVML_PROCESS = "NVML process"
NVML_DEVICE = "NVML device"


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes in use, and who says so."""

    source: str
    size_bytes: int


def process_memory(pid: int) -> MemorySample:
    """Proportional set size of a process: a page shared by n counts 1/n. Resident set size where there is none."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return MemorySample(PROCESS_PSS, int(line.split()[1]) * 1024)
    except OSError:
        pass  # no such file on this system, or the kernel keeps it from us
    return MemorySample(PROCESS_RSS, psutil.Process(pid).memory_info().rss)


class GpuSampler:
    """Memory of one GPU by NVML; `samples` is empty where NVML cannot be had."""

    def __init__(self, index: int):
        self._handle = None
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError:
            return

    def samples(self, pid: int) -> list[MemorySample]:
        """Bytes that the process, and that everybody, has in use on the card."""
        if self._handle is None:
            return []
        found = []
        with suppress(pynvml.NVMLError):  # in some containers a card tells its own figure alone
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
            own = [process.usedGpuMemory for process in processes if process.pid == pid]
            found += [MemorySample(NVML_PROCESS, int(used)) for used in own if used is not None]
        with suppress(pynvml.NVMLError):
            found.append(MemorySample(NVML_DEVICE, int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)))
        return found


def gpu_count() -> int:
    """Number of GPUs that NVML sees, without loading torch; 0 where there is no NVML."""
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
