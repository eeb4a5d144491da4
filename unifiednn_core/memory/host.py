"""Memory of processes on the host, looked at often and cheaply."""

import os
from collections.abc import Iterable
from pathlib import Path

from unifiednn_core.memory.pace import Pace
from unifiednn_core.memory.samplers import (
    PROCESS_PSS,
    PROCESS_RSS,
    MemorySample,
    process_memory,
    processes_memory,
    rollup,
)

_LOADED_BYTES = 4 * 1024**2  # more than that many new pages of files are a library, which others may share
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HostSampler:
    """Proportional set sizes of processes at one instant. Used by one thread alone.

    The kernel sums a PSS up by walking all pages, which `pace` allows now and then. In between, each process is taken
    to share as much as it did then: what is resident can be asked for in microseconds, and a step of a training changes
    nothing but private pages. While libraries are loaded, or when one has ended, all are summed up again at once.
    """

    def __init__(self, pace: Pace):
        self._pace = pace
        self._shared_bytes: dict[int, int] = {}
        """What of the resident size does not count, because others share it."""
        self._file_bytes: dict[int, int] = {}
        """Pages of files, mostly code, when the sum was made."""

    def read(self, pids: Iterable[int]) -> dict[int, MemorySample]:
        """Memory of each process; those that have ended count 0. Where one has no PSS, all count as resident."""
        wanted = list(pids)
        if self._pace.due() or set(wanted) != set(self._file_bytes) or any(map(self._has_loaded, wanted)):
            with self._pace.spending():
                return self._summed_up(wanted)
        found = {pid: self.unshared(pid, resident_bytes(pid)) for pid in wanted}
        return {pid: MemorySample(PROCESS_PSS, size_bytes) for pid, size_bytes in found.items()}

    def unshared(self, pid: int, resident: int) -> int:
        """What of so many resident bytes of a process counts, as far as it was looked at."""
        return max(0, resident - self._shared_bytes.get(pid, 0))

    def _summed_up(self, pids: list[int]) -> dict[int, MemorySample]:
        sums = {pid: rollup(pid) for pid in pids}
        untold = {pid: process_memory(pid) for pid, of_it in sums.items() if of_it is None}
        if any(sample.source == PROCESS_RSS for sample in untold.values()):
            return {pid: MemorySample(PROCESS_RSS, processes_memory([pid]).size_bytes) for pid in pids}
        told = {pid: of_it for pid, of_it in sums.items() if of_it is not None}
        self._file_bytes = {pid: _statm(pid)[1] for pid in told}
        self._shared_bytes |= {pid: max(0, of_it.rss_bytes - of_it.pss_bytes) for pid, of_it in told.items()}
        return untold | {pid: MemorySample(PROCESS_PSS, of_it.pss_bytes) for pid, of_it in told.items()}

    def _has_loaded(self, pid: int) -> bool:
        return abs(_statm(pid)[1] - self._file_bytes[pid]) > _LOADED_BYTES


def resident_bytes(pid: int) -> int:
    """Resident set size of a process; 0 where it has ended."""
    return _statm(pid)[0]


def _statm(pid: int) -> tuple[int, int]:
    """Resident size, and what of it are pages of files; 0 where the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * _PAGE_BYTES, int(fields[2]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0, 0
