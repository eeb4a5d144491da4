"""Memory of processes on the host, each figure with its source, and how often it may be read."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from unifiednn_core.base.clock import Clock

PROCESS_PSS = "process PSS"
PROCESS_RSS = "process RSS"
_LOADED_BYTES = 4 * 1024**2  # more than that many new pages of files are a library, which others may share
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes in use, and their source."""

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

    Where the PSS of a living one cannot be read, all count with their resident set size.
    Safe in any thread.
    """
    found = {pid: rollup(pid) for pid in pids}
    resident = {pid: _rss_bytes(pid) for pid, sums in found.items() if sums is None}
    if not any(resident.values()):  # no PSS and nothing resident: it has ended
        return MemorySample(PROCESS_PSS, sum(sums.pss_bytes for sums in found.values() if sums is not None))
    return MemorySample(PROCESS_RSS, sum(resident[pid] if pid in resident else _rss_bytes(pid) for pid in found))


def rollup(pid: int) -> Rollup | None:
    """Memory of a process; None if it has ended, or the system has no such figure.

    The kernel walks every page: 3 ms for a process with torch loaded (268 MB resident), 11 ms for one of 1 GB,
    measured on Linux 6.18; `SamplingBudget` keeps that below 1 % of a core.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended, there is no such file on this system, or we may not read it
        return None
    fields = {name: value for name, _, value in (line.partition(":") for line in lines[1:])}
    sizes = [int(fields.get(name, "0 kB").split()[0]) * 1024 for name in ("Pss", "Pss_File", "Rss")]
    return Rollup(*sizes) if "Pss" in fields else None


def _rss_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


class SamplingBudget:
    """Says when the next sample is due: at most so often, for at most this share of one core.

    A sample that took long pushes the next one back, so memory that is expensive to read is read less often.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        most_hz: float = 5.0,
        most_share: float = 0.01,
        cpu_s: Callable[[], float] = time.thread_time,
    ):
        """`cpu_s` reads the CPU seconds of the calling thread."""
        self._clock, self._period_s, self._most_share, self._cpu_s = clock, 1.0 / most_hz, most_share, cpu_s
        self._due_at_s = clock.monotonic_s()

    def due(self) -> bool:
        """Whether it is time for a sample; the first one is due at once."""
        return self._clock.monotonic_s() >= self._due_at_s

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Take a sample inside: its CPU time says when the next one is due."""
        began_s, cpu_began_s = self._clock.monotonic_s(), self._cpu_s()
        try:
            yield
        finally:
            cost_s = self._cpu_s() - cpu_began_s
            self._due_at_s = began_s + max(self._period_s, cost_s / self._most_share)


class HostSampler:
    """Proportional set sizes of processes at one instant. Not thread-safe.

    The kernel walks all pages to sum a PSS up, which the budget allows now and then. In between, a process is taken to
    share as much as it did then: reading the resident size takes microseconds, and a training step changes private
    pages alone. While libraries load, or when a process has ended, all are summed up again at once.
    """

    def __init__(self, budget: SamplingBudget):
        self._budget = budget
        self._shared_bytes: dict[int, int] = {}
        """Resident bytes of each process that do not count, because others share them."""
        self._file_bytes: dict[int, int] = {}
        """Pages of files, mostly code, when the sum was made."""

    def read(self, pids: Iterable[int]) -> dict[int, MemorySample]:
        """Memory of each process; one that has ended counts 0. Where one has no PSS, all count as resident."""
        wanted = list(pids)
        if self._budget.due() or set(wanted) != set(self._file_bytes) or any(map(self._has_loaded, wanted)):
            with self._budget.spending():
                return self._summed_up(wanted)
        found = {pid: self.unshared(pid, resident_bytes(pid)) for pid in wanted}
        return {pid: MemorySample(PROCESS_PSS, size_bytes) for pid, size_bytes in found.items()}

    def unshared(self, pid: int, resident: int) -> int:
        """What counts of so many resident bytes of a process, by its last sum."""
        return max(0, resident - self._shared_bytes.get(pid, 0))

    def _summed_up(self, pids: list[int]) -> dict[int, MemorySample]:
        sums = {pid: rollup(pid) for pid in pids}
        without_pss = {pid: process_memory(pid) for pid, of_it in sums.items() if of_it is None}
        if any(sample.source == PROCESS_RSS for sample in without_pss.values()):
            return {pid: MemorySample(PROCESS_RSS, processes_memory([pid]).size_bytes) for pid in pids}
        with_pss = {pid: of_it for pid, of_it in sums.items() if of_it is not None}
        self._file_bytes = {pid: _statm(pid)[1] for pid in with_pss}
        self._shared_bytes |= {pid: max(0, of_it.rss_bytes - of_it.pss_bytes) for pid, of_it in with_pss.items()}
        return without_pss | {pid: MemorySample(PROCESS_PSS, of_it.pss_bytes) for pid, of_it in with_pss.items()}

    def _has_loaded(self, pid: int) -> bool:
        return abs(_statm(pid)[1] - self._file_bytes[pid]) > _LOADED_BYTES


def resident_bytes(pid: int) -> int:
    """Resident set size of a process; 0 if it has ended."""
    return _statm(pid)[0]


def _statm(pid: int) -> tuple[int, int]:
    """Resident size, and what of it are pages of files; 0 if the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * _PAGE_BYTES, int(fields[2]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0, 0
