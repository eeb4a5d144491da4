"""Memory of processes on the host, each figure with its source, and how often it may be read."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import psutil

from unifiednn_core.base.clock import Clock

PROCESS_PSS = "process PSS"
PROCESS_RSS = "process RSS"
_LOADED_BYTES = 4 * 1024**2  # more than that many new pages of files are a library, which others may share


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes in use and their source."""

    source: str
    size_bytes: int
    file_bytes: int = 0
    """Of them, pages of files: code and libraries, mostly. The others are anonymous: nobody shares those."""


def pages_of(samples: Iterable[MemorySample]) -> dict[str, int]:
    """Anonymous and file pages of processes together."""
    known = list(samples)
    file_bytes = sum(sample.file_bytes for sample in known)
    return {"anonymous_bytes": sum(sample.size_bytes for sample in known) - file_bytes, "file_bytes": file_bytes}


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
    """Proportional set size of a process, or the resident size if the system has no PSS; 0 once it has ended."""
    sums, (resident, file_bytes) = rollup(pid), _resident(pid)
    if sums is not None:
        return MemorySample(PROCESS_PSS, sums.pss_bytes, sums.file_bytes)
    return MemorySample(PROCESS_RSS if resident else PROCESS_PSS, resident, file_bytes)


def resident_bytes(pid: int) -> int:
    """Resident set size of a process; 0 if it has ended."""
    return _resident(pid)[0]


def _resident(pid: int) -> tuple[int, int]:
    """Resident bytes, and how many of them are pages of files; 0 if the process has ended."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0, 0
    return memory.rss, getattr(memory, "shared", 0)


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


class SamplingBudget:
    """Says when the next sample is due: at most `most_hz` times per second, for at most `most_share` of one core.

    A slow sample pushes the next one back.
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

    The kernel walks all pages to sum up a PSS, which the budget allows now and then. In between, a process is assumed
    to share as much as it did then: reading the resident size takes microseconds, and a training step changes private
    pages alone. While libraries load, or when a process has ended, all are summed up again at once.
    """

    def __init__(self, budget: SamplingBudget):
        self._budget = budget
        self._shared_bytes: dict[int, int] = {}
        """Resident bytes of each process that do not count, because others share them."""
        self._file_bytes: dict[int, int] = {}
        """Pages of files, mostly code, when the sum was made; each in full."""
        self._counted_file_bytes: dict[int, int] = {}
        """The same, each page as the sum counts it."""

    def read(self, pids: Iterable[int]) -> dict[int, MemorySample]:
        """Memory of each process; one that has ended counts 0. If one has no PSS, all count as resident."""
        wanted = list(pids)
        if self._budget.due() or set(wanted) != set(self._file_bytes) or any(map(self._has_loaded, wanted)):
            with self._budget.spending():
                return self._summed_up(wanted)
        return {pid: self._sample(pid, self.unshared(pid, resident_bytes(pid))) for pid in wanted}

    def unshared(self, pid: int, resident: int) -> int:
        """Resident bytes of a process without those that it shared at its last sum."""
        return max(0, resident - self._shared_bytes.get(pid, 0))

    def at_peak(self, pid: int, peak_resident_bytes: int) -> MemorySample:
        """Memory of a process that has ended, at the peak that the kernel saw, with the sharing of its last sum."""
        return self._sample(pid, self.unshared(pid, peak_resident_bytes))

    def _summed_up(self, pids: list[int]) -> dict[int, MemorySample]:
        sums = {pid: found for pid in pids if (found := rollup(pid)) is not None}
        if any(resident_bytes(pid) for pid in pids if pid not in sums):
            return {pid: MemorySample(PROCESS_RSS, *_resident(pid)) for pid in pids}
        self._file_bytes = {pid: _resident(pid)[1] for pid in sums}
        self._counted_file_bytes |= {pid: found.file_bytes for pid, found in sums.items()}
        self._shared_bytes |= {pid: max(0, found.rss_bytes - found.pss_bytes) for pid, found in sums.items()}
        return {pid: self._sample(pid, sums[pid].pss_bytes if pid in sums else 0) for pid in pids}

    def _sample(self, pid: int, size_bytes: int) -> MemorySample:
        return MemorySample(PROCESS_PSS, size_bytes, min(size_bytes, self._counted_file_bytes.get(pid, 0)))

    def _has_loaded(self, pid: int) -> bool:
        return abs(_resident(pid)[1] - self._file_bytes[pid]) > _LOADED_BYTES


_CGROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def host_memory() -> tuple[int, int]:
    """Bytes in all and bytes that are free, of the machine or of the container if that has less."""
    memory = psutil.virtual_memory()
    total_bytes, free_bytes = int(memory.total), int(memory.available)
    for folder, limit, used in _own_cgroups():
        limit_bytes, used_bytes = _number(folder / limit), _number(folder / used)
        if limit_bytes is not None and used_bytes is not None and limit_bytes < total_bytes:
            total_bytes = limit_bytes
            cached = [line.split()[1] for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
            reclaimable_bytes = sum(map(int, cached))  # files that the kernel drops when memory runs short
            free_bytes = min(free_bytes, max(0, limit_bytes - used_bytes + reclaimable_bytes))
    return total_bytes, free_bytes


def _own_cgroups() -> list[tuple[Path, str, str]]:
    """Control groups of this process up to the visible root, each with the names of its limit and usage files."""
    found = []
    for line in _lines(_OWN_GROUPS):
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            root, names = _CGROUPS, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = root / path.strip("/")
        found += [(folder, *names) for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return found


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


_IDLE = frozenset({"idle", "iowait", "guest", "guest_nice"})


class LoadRecord(TypedDict):
    """Processor time over a stretch of a run, in seconds."""

    seconds: float
    """Length of the stretch."""
    busy_s: float
    """Of all processes on all processors."""
    own_s: float
    """Of the processes of the run."""
    processors: int


class LoadMeter:
    """Counts processor time from its making on."""

    def __init__(self, own_s: Callable[[], float]):
        """`own_s` reads the processor seconds of the run's processes so far."""
        self._own_s = own_s
        self._began = time.monotonic(), _busy_s(), own_s()

    def read(self) -> LoadRecord:
        """The stretch up to now."""
        began_s, busy_s, own_s = self._began
        return {
            "seconds": time.monotonic() - began_s,
            "busy_s": max(0.0, _busy_s() - busy_s),
            "own_s": max(0.0, self._own_s() - own_s),
            "processors": psutil.cpu_count() or 1,
        }


def others_share(records: Sequence[LoadRecord]) -> float | None:
    """Share of all processors that other work used, 0 to 1, over these stretches; None without any."""
    possible_s = sum(record["seconds"] * record["processors"] for record in records)
    others_s = sum(max(0.0, record["busy_s"] - record["own_s"]) for record in records)
    return min(1.0, others_s / possible_s) if possible_s > 0 else None


def _busy_s() -> float:
    """Processor seconds of the machine without idling and waiting; guests count in `user` already."""
    times = psutil.cpu_times()._asdict()
    return float(sum(seconds for name, seconds in times.items() if name not in _IDLE))
