"""What real processes take, as it is sampled, recorded and shown."""

import signal
import time
from itertools import pairwise

import torch

from tests.integration.product import EPOCHS, Product
from unifiednn_core.machine.allocator import GLIBC, of_this_process
from unifiednn_core.machine.breakdown import sum_of
from unifiednn_core.machine.host import PROCESS_PSS
from unifiednn_core.preflight.estimate import context_key
from unifiednn_core.views.memory import MemoryBreakdown

MIB = 2**20
STOPPED_S = 2.5


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
