import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.clock import SimulatedClock
from unifiednn_core.machine.host import (
    PROCESS_PSS,
    PROCESS_RSS,
    HostSampler,
    MemorySample,
    SamplingBudget,
    process_memory,
    rollup,
)

MIB = 2**20
CHILD = """
import sys
held = bytearray({size})
held[::4096] = b"x" * len(held[::4096])
print("ready", flush=True)
sys.stdin.read()
"""


def child(size_bytes: int) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(size=size_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def children() -> Iterator[list["subprocess.Popen[str]"]]:
    started = [child(30 * MIB), child(60 * MIB)]
    yield started
    for process in started:
        process.communicate()


def test_the_sum_over_processes_is_what_the_system_says_of_them(children: list["subprocess.Popen[str]"]) -> None:
    pids = [process.pid for process in children]
    samples = [process_memory(pid) for pid in pids]
    told = sum(psutil.Process(pid).memory_full_info().pss for pid in pids)
    assert {sample.source for sample in samples} == {PROCESS_PSS}
    assert abs(sum(sample.size_bytes for sample in samples) - told) <= 0.03 * told
    assert sum(sample.size_bytes for sample in samples) >= 90 * MIB


def test_who_has_ended_counts_nothing(children: list["subprocess.Popen[str]"]) -> None:
    first, _ = children
    first.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # a zombie now: its number still stands for it
    assert process_memory(first.pid) == MemorySample(PROCESS_PSS, 0)
    first.wait()
    assert process_memory(first.pid) == MemorySample(PROCESS_PSS, 0)
    assert rollup(first.pid) is None


def test_where_one_keeps_its_pss_to_itself_all_count_with_what_is_resident(
    children: list["subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = children
    real = Path.read_text

    def read_text(path: Path, *args: object, **named: object) -> str:
        if str(path) == f"/proc/{first.pid}/smaps_rollup":
            raise PermissionError
        return real(path, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)
    samples = HostSampler(SamplingBudget(SimulatedClock())).read([first.pid, second.pid]).values()
    told = sum(psutil.Process(process.pid).memory_info().rss for process in children)
    assert {sample.source for sample in samples} == {PROCESS_RSS}
    assert abs(sum(sample.size_bytes for sample in samples) - told) <= 0.03 * told


def test_the_parts_of_a_rollup_are_those_of_the_kernel() -> None:
    sums = rollup(os.getpid())
    assert sums is not None
    assert 0 < sums.file_bytes < sums.pss_bytes <= sums.rss_bytes
