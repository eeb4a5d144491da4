"""Memory of processes and of a GPU at one instant, each figure with its source. What cannot be had is left out."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from unifiednn_core.memory.samplers_gpu import GpuReading, GpuSampler, gpu_count

__all__ = [
    "NVML_DEVICE",
    "NVML_PROCESS",
    "PROCESS_PSS",
    "PROCESS_RSS",
    "GpuReading",
    "GpuSampler",
    "MemorySample",
    "Rollup",
    "gpu_count",
    "process_memory",
    "processes_memory",
    "rollup",
]

PROCESS_PSS = "process PSS"
PROCESS_RSS = "process RSS"
NVML_PROCESS = "NVML process"
NVML_DEVICE = "NVML device"


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes in use, and who says so."""

    source: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Rollup:
    """Memory of one process as the kernel sums it up."""

    pss_bytes: int
    """Proportional set size: a page shared by n processes counts 1/n."""
    file_bytes: int
    """Of it, pages of files: code and libraries, mostly. It shrinks while others use the same."""
    rss_bytes: int
    """Resident set size: every page counts in full."""


def process_memory(pid: int) -> MemorySample:
    """Memory of one process; see `processes_memory`."""
    return processes_memory([pid])


def processes_memory(pids: Iterable[int]) -> MemorySample:
    """Sum of the proportional set sizes of processes. Those that have ended count 0.

    Where one that lives keeps its PSS from us, or the system knows none, all count with their resident set size.
    Safe in any thread.
    """
    found = {pid: rollup(pid) for pid in pids}
    resident = {pid: _rss_bytes(pid) for pid, sums in found.items() if sums is None}
    if not any(resident.values()):  # no PSS and nothing resident: it has ended
        return MemorySample(PROCESS_PSS, sum(sums.pss_bytes for sums in found.values() if sums is not None))
    return MemorySample(PROCESS_RSS, sum(resident[pid] if pid in resident else _rss_bytes(pid) for pid in found))


def rollup(pid: int) -> Rollup | None:
    """Memory of a process; None where it has ended, or the system does not tell.

    The kernel walks every page: 3.0 ms for a process with torch loaded (268 MB resident), 10.6 ms for one of 1 GB, 8 ms
    for a worker that trains meanwhile (380 MB), measured on Linux 6.18; `memory.pace` keeps that below 1 % of a core.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended, there is no such file on this system, or the kernel keeps it from us
        return None
    fields = {name: value for name, _, value in (line.partition(":") for line in lines[1:])}
    sizes = [int(fields.get(name, "0 kB").split()[0]) * 1024 for name in ("Pss", "Pss_File", "Rss")]
    return Rollup(*sizes) if "Pss" in fields else None


def _rss_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
