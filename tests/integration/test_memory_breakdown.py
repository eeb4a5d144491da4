"""What real processes take, as it is sampled, recorded and shown."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import psutil
import pytest
import torch

from tests.integration.product import EPOCHS, Product
from unifiednn_core.machine.allocator import GLIBC, of_this_process
from unifiednn_core.machine.breakdown import sum_of
from unifiednn_core.machine.host import PROCESS_PSS, process_memory
from unifiednn_core.preflight.estimate import context_key
from unifiednn_core.views.memory import MemoryBreakdown

MIB = 2**20
STOPPED_S = 2.5
TORCH = """
import sys, torch
held = torch.ones({size})
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def torch_processes() -> Iterator[list[int]]:
    """Two processes with torch loaded, which share its libraries, and 40 and 80 MiB of their own."""
    pipe, started = subprocess.PIPE, []
    for size in (10 * MIB, 20 * MIB):
        command = [sys.executable, "-c", TORCH.format(size=size)]
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=dict(os.environ, OMP_NUM_THREADS="1")))
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    yield [process.pid for process in started]
    for process in started:
        process.communicate()


@pytest.mark.slow
def test_the_sum_over_torch_processes_is_what_the_system_says(torch_processes: list[int]) -> None:
    told_before = sum(psutil.Process(pid).memory_full_info().pss for pid in torch_processes)
    samples = [process_memory(pid) for pid in torch_processes]
    told_after = sum(psutil.Process(pid).memory_full_info().pss for pid in torch_processes)
    size_bytes = sum(sample.size_bytes for sample in samples)
    assert {sample.source for sample in samples} == {PROCESS_PSS}
    assert 0.97 * min(told_before, told_after) <= size_bytes <= 1.03 * max(told_before, told_after)
    resident = sum(psutil.Process(pid).memory_info().rss for pid in torch_processes)
    assert size_bytes < resident, "what both share counts once"


def assert_whole(strata: MemoryBreakdown) -> None:
    """At each instant all layers together are the total."""
    for place, total in enumerate(strata.total_bytes):
        sizes = [layer.size_bytes[place] for layer in strata.layers]
        if total is not None:
            assert sum(size or 0.0 for size in sizes) == total
            assert min(size or 0.0 for size in sizes) >= 0.0
        else:
            assert not any(sizes)


def test_a_run_says_what_its_memory_and_its_time_were_spent_on(product: Product) -> None:
    telemetry = product.service.store.telemetry

    def one_has_ended() -> bool:
        strata = telemetry.history(product.run_id, PROCESS_PSS).strata
        return bool(strata) and len(strata[-1].strata["weights"]) < len(EPOCHS)

    product.start_and_hold("lenet", 60)
    product.until(one_has_ended, "a sample without the weights of one that has ended")
    product.go_on()
    view = product.finish()
    _, rows = product.service.store.runs.get(product.run_id)
    history = telemetry.history(product.run_id, view.memory_source)
    assert history.strata
    assert all(sum_of(row.strata) <= row.total_bytes for row in history.strata)
    first = history.strata[0].strata
    assert first["weights"].keys() == EPOCHS.keys()
    assert first["context"] > 50 * MIB
    assert_whole(view.breakdown)
    assert view.breakdown.source == view.memory_source == PROCESS_PSS
    kinds = {layer.kind for layer in view.breakdown.layers}
    assert {"context", "data", "weights", "unexplained"} <= kinds
    for kind in ("load", "end", "separation"):
        assert {mark.submodel for mark in view.marks if mark.kind == kind} == set(EPOCHS), kind
    assert any(mark.kind == "checkpoint" for mark in view.marks)
    assert "checkpoint" not in {event.kind for event in view.events}, "they would hide what people did"

    peaks = [part.peak_memory_bytes for part in view.submodels if part.peak_memory_bytes is not None]
    assert view.peak_memory_bytes is not None
    assert len(peaks) == len(EPOCHS)
    assert view.peak_memory_bytes >= max(size for _, size in history.memory)
    beside = sum(max(row.strata.get(kind, 0) for row in history.strata) for kind in ("context", "data"))
    assert abs(beside + sum(peaks) - view.peak_memory_bytes) <= 0.1 * view.peak_memory_bytes, (beside, peaks)

    of_turns = [part.cpu_s for part in view.submodels if part.cpu_s is not None]
    assert len(of_turns) == len(EPOCHS)
    assert view.cpu_s is not None
    assert 0 < sum(of_turns) <= view.cpu_s, "the whole life of the process, with its start"
    assert view.launched_at_s is not None
    assert view.started_at_s is not None
    assert view.created_at_s - 1 <= view.launched_at_s <= view.started_at_s

    measured = product.service.store.measured.recall([row.memory_key for row in rows])
    assert measured
    assert all(size > 0 for size in measured.values())
    used = of_this_process() or GLIBC  # that of a worker that was forked from here
    context = product.service.store.measured.recall([context_key("cpu", torch.__version__, used)])
    assert context == {}, "a fork holds fewer pages than a worker that starts cold"


def test_while_a_process_stands_still_nothing_is_made_up(product: Product) -> None:
    def samples() -> int:
        return sum(total is not None for total in product.view.breakdown.total_bytes)

    product.start_and_hold("lenet", 2)
    product.until(lambda: samples() >= 3, "samples before")
    product.signal_worker(signal.SIGSTOP)
    before = samples()
    time.sleep(STOPPED_S)
    product.signal_worker(signal.SIGCONT)
    product.until(lambda: samples() >= before + 3, "samples after")
    breakdown = product.view.breakdown
    at_s = [at_s for at_s, total in zip(breakdown.at_s, breakdown.total_bytes, strict=True) if total is not None]
    assert max(after - before for before, after in pairwise(at_s)) >= STOPPED_S
    assert_whole(breakdown)


def test_a_later_attempt_adds_to_what_the_earlier_ones_used(product: Product) -> None:
    product.start_and_hold("transformer", 12)
    product.until(lambda: (product.view.cpu_s or 0.0) > 0, "CPU seconds")
    launched_at_s, used_s = product.view.launched_at_s, product.view.cpu_s
    product.environment.clear()
    product.signal_worker(signal.SIGKILL)
    view = product.finish()
    assert view.attempt == 2
    assert view.launched_at_s == launched_at_s, "a makespan counts from the first launch"
    assert view.cpu_s is not None
    assert used_s is not None
    assert view.cpu_s > used_s
