"""Who else uses the cores and the memory of this machine: the processes that are none of ours."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

MOST_PROCESSES = 16
"""Processes of others in a sample, those that use most first."""
LOOK_S = 10.0
"""All processes are looked at no more often: each costs some 0.1 ms."""
LEAST_CORES, LEAST_SHARE = 0.05, 0.01
"""Cores, or share of the memory, from which a process counts; hundreds of others only wait."""


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """A process on a device that none of our workers started."""

    pid: int
    user: str | None
    """None if this machine does not say, as in a container with process numbers of its own."""
    name: str | None
    size_bytes: int | None
    """On a GPU what it allocated there; else what it has in memory, with what it shares with other processes."""
    busy_cores: float | None = None
    """Cores that it kept busy since the look before; None on a GPU, and at the first look."""


@dataclass(frozen=True, slots=True)
class _Seen:
    pid: int
    parent: int
    begun_s: float
    busy_s: float
    size_bytes: int

    @property
    def identity(self) -> tuple[int, float]:
        """Differs for two processes that have the same number one after another."""
        return self.pid, self.begun_s


class ProcessSampler:
    """Looks at the processes of this machine; never raises."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic):
        self._monotonic = monotonic
        self._looked_s: float | None = None
        self._busy_s: Mapping[tuple[int, float], float] = {}
        self._others: tuple[OtherProcess, ...] = ()

    def others(self, workers: Collection[int], total_bytes: int) -> tuple[OtherProcess, ...]:
        """Processes that this one and `workers` did not start and that use this machine, at most `LOOK_S` old."""
        now_s = self._monotonic()
        if self._looked_s is None or now_s - self._looked_s >= LOOK_S:
            passed_s = None if self._looked_s is None else now_s - self._looked_s
            seen = list(_all())
            self._others = self._told(seen, ours(seen, {*workers, os.getpid()}), total_bytes, passed_s)
            self._busy_s = {one.identity: one.busy_s for one in seen}
            self._looked_s = now_s
        return self._others

    def _told(
        self, seen: Collection[_Seen], own: Collection[int], total_bytes: int, passed_s: float | None
    ) -> tuple[OtherProcess, ...]:
        found: list[tuple[float, _Seen, float | None]] = []
        for one in seen:
            if one.pid in own:
                continue
            # All that a process did that was not there before, it did since then.
            cores = None if not passed_s else (one.busy_s - self._busy_s.get(one.identity, 0.0)) / passed_s
            share = one.size_bytes / total_bytes
            if share >= LEAST_SHARE or (cores or 0.0) >= LEAST_CORES:
                found.append((max(share, (cores or 0.0) / (os.cpu_count() or 1)), one, cores))
        found.sort(key=lambda entry: (-entry[0], entry[1].pid))
        return tuple(described(one.pid, one.size_bytes, cores) for _, one, cores in found[:MOST_PROCESSES])


def ours(seen: Iterable[_Seen], roots: Collection[int]) -> set[int]:
    """Numbers of `roots` and of all processes that they started, and those these started."""
    children: dict[int, list[int]] = {}
    for one in seen:
        children.setdefault(one.parent, []).append(one.pid)
    found, left = set(roots), list(roots)
    while left:
        new = [pid for pid in children.get(left.pop(), ()) if pid not in found]
        found.update(new)
        left.extend(new)
    return found


def is_ours(pid: int, workers: Collection[int]) -> bool:
    """Whether a worker is this process, or one of those that started it."""
    if pid in workers:
        return True
    with suppress(psutil.Error):  # it has ended, or its number is one of another container
        return any(parent.pid in workers for parent in psutil.Process(pid).parents())
    return False


def described(pid: int, size_bytes: int | None, busy_cores: float | None = None) -> OtherProcess:
    """A process with its user and name, as far as this machine says."""
    user = name = None
    with suppress(Exception):  # it has ended, its number is another container's, or its user is unknown
        process = psutil.Process(pid)
        name = process.name()
        user = process.username()
    return OtherProcess(pid, user, name, size_bytes, busy_cores)


def _all() -> Iterable[_Seen]:
    with suppress(psutil.Error):
        for process in psutil.process_iter():
            with suppress(psutil.Error), process.oneshot():  # it has ended, or may not be looked at
                times, size_bytes = process.cpu_times(), process.memory_info().rss
                if size_bytes:  # a thread of the kernel has none
                    yield _Seen(
                        process.pid, process.ppid(), process.create_time(), times.user + times.system, size_bytes
                    )
