"""The cheap look at memory against the kernel's own sum."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.clock import SimulatedClock
from unifiednn_core.base.units import MIB
from unifiednn_core.machine.host import PROCESS_PSS, HostSampler, SamplingBudget, process_memory, resident_bytes

HOLD = (
    "import sys\nheld = bytearray(int(sys.argv[1]))\nprint('ready', flush=True)\n"
    "for line in sys.stdin:\n    held += b'x' * int(line)\n    print('more', flush=True)\n"
)


@pytest.fixture
def child() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLD, str(20 * MIB)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def grow(process: "subprocess.Popen[str]", size_bytes: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{size_bytes}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "more\n"


def test_a_look_between_two_sums_sees_what_a_process_took_since(child: "subprocess.Popen[str]") -> None:
    clock = SimulatedClock()
    sampler = HostSampler(SamplingBudget(clock))
    first = sampler.read([child.pid])[child.pid]
    assert first.size_bytes == pytest.approx(process_memory(child.pid).size_bytes, rel=0.03)
    grow(child, 30 * MIB)
    second = sampler.read([child.pid])[child.pid]  # by the simulated clock no new sum is due
    truth = process_memory(child.pid)
    assert second.source == truth.source == PROCESS_PSS
    assert second.size_bytes > first.size_bytes + 25 * MIB
    assert abs(second.size_bytes - truth.size_bytes) <= 0.03 * truth.size_bytes


def test_a_process_that_was_not_seen_before_is_summed_up_at_once(child: "subprocess.Popen[str]") -> None:
    sampler = HostSampler(SamplingBudget(SimulatedClock()))
    sampler.read([os.getpid()])
    both = sampler.read([os.getpid(), child.pid])
    assert both[child.pid].size_bytes == pytest.approx(process_memory(child.pid).size_bytes, rel=0.03)


def test_one_that_has_ended_counts_nothing(child: "subprocess.Popen[str]") -> None:
    sampler = HostSampler(SamplingBudget(SimulatedClock()))
    sampler.read([child.pid])
    child.kill()
    child.wait()
    assert sampler.read([child.pid])[child.pid].size_bytes == 0
    assert resident_bytes(child.pid) == 0


def test_a_peak_counts_without_what_is_shared(child: "subprocess.Popen[str]") -> None:
    sampler = HostSampler(SamplingBudget(SimulatedClock()))
    own = sampler.read([child.pid])[child.pid].size_bytes
    shared = resident_bytes(child.pid) - own
    assert shared > 0
    # Meanwhile other processes came to share its pages, or ceased to.
    assert sampler.unshared(child.pid, 100 * MIB) == pytest.approx(100 * MIB - shared, abs=shared / 4)
    assert sampler.unshared(2**22 + 1, 5) == 5
