"""Processes of others, with real ones: those that this process started, and one that nobody here did."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.machine import processes
from unifiednn_core.machine.processes import LEAST_CORES, OtherProcess, ProcessSampler, _Seen, ours

HUGE = 2**60
"""A memory of which no process has a share."""
LOOK_S, WORKED_S = 1.0, 0.3
COUNTED_S = 0.2
"""What the system tells at least: it counts in ticks of 10 ms, and computing as user and as system one by one."""
WORK = f"""
import sys, time
for line in sys.stdin:
    end_s = time.process_time() + {WORKED_S}
    while time.process_time() < end_s: pass
    print("done", flush=True)
"""


class Worker:
    """A process that computes for some CPU time on command."""

    def __init__(self, process: subprocess.Popen[str], pid: int):
        self.process, self.pid = process, pid

    def work(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


def started(*, orphaned: bool) -> Worker:
    """With `orphaned`, what started it has ended: nobody can tell any more that it was this process."""
    plain = [sys.executable, "-c", WORK]
    shell = ["sh", "-c", 'exec 3<&0; "$@" <&3 & echo $!', "sh", *plain]
    process = subprocess.Popen(shell if orphaned else plain, stdin=-1, stdout=-1, text=True)
    if not orphaned:
        return Worker(process, process.pid)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.wait() == 0
    return Worker(process, pid)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK_S", LOOK_S)


@pytest.fixture
def stranger() -> Iterator[Worker]:
    worker = started(orphaned=True)
    with worker.process:
        yield worker


@pytest.fixture
def child() -> Iterator[Worker]:
    worker = started(orphaned=False)
    with worker.process:
        yield worker


def looked(sampler: ProcessSampler, total_bytes: int = HUGE, workers: tuple[int, ...] = ()) -> dict[int, OtherProcess]:
    return {one.pid: one for one in sampler.others(workers, total_bytes)}


def test_a_stranger_that_works_is_told_and_what_this_process_started_is_not(stranger: Worker, child: Worker) -> None:
    moments = iter((0.0, LOOK_S))
    sampler = ProcessSampler(monotonic=lambda: next(moments))
    assert looked(sampler) == {}, "what a process did before is not known to be of now"
    for worker in (stranger, child):
        worker.work()
    found = looked(sampler)
    assert child.pid not in found and os.getpid() not in found
    one, real = found[stranger.pid], psutil.Process(stranger.pid)
    assert (one.user, one.name) == (real.username(), real.name())
    assert one.busy_cores is not None and one.busy_cores >= COUNTED_S / LOOK_S >= LEAST_CORES


def test_a_worker_of_ours_that_was_orphaned_is_none_of_others(stranger: Worker) -> None:
    moments = iter((0.0, LOOK_S))
    sampler = ProcessSampler(monotonic=lambda: next(moments))
    looked(sampler)
    stranger.work()
    assert stranger.pid not in looked(sampler, workers=(stranger.pid,))


def test_memory_counts_where_nothing_works(stranger: Worker) -> None:
    size_bytes = psutil.Process(stranger.pid).memory_info().rss
    found = ProcessSampler().others((), 4 * size_bytes)
    assert found and all(one.busy_cores is None for one in found)
    sizes = [one.size_bytes or 0 for one in found]
    assert sizes == sorted(sizes, reverse=True) and min(sizes) >= 0.01 * size_bytes


def test_all_processes_are_looked_at_only_now_and_then(stranger: Worker) -> None:
    moments = iter((0.0, LOOK_S / 2, LOOK_S))
    sampler = ProcessSampler(monotonic=lambda: next(moments))
    looked(sampler)
    stranger.work()
    assert looked(sampler) == {} and stranger.pid in looked(sampler)


@given(parents=st.lists(st.integers(0, 30), min_size=1, max_size=30), roots=st.sets(st.integers(1, 30)))
def test_ours_are_the_roots_and_all_below_them(parents: list[int], roots: set[int]) -> None:
    above = {pid: min(parent, pid - 1) for pid, parent in enumerate(parents, start=1)}  # no process is its own parent

    def is_below(pid: int) -> bool:
        return pid in roots or (pid in above and is_below(above[pid]))

    found = ours([_Seen(pid, parent, 0.0, 0.0, 1) for pid, parent in above.items()], roots)
    assert found == roots | {pid for pid in above if is_below(pid)}
