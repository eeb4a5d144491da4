import os
import threading
import time

import pytest
import torch

from unifiednn_core.engine import meters
from unifiednn_core.engine.meters import CpuShares, TurnMeter
from unifiednn_core.machine.breakdown import Footprint

MIB = 2**20
CPU = torch.device("cpu")
NOTHING = Footprint(0)


def test_memory_that_was_taken_for_a_while_is_not_missed() -> None:
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline("a", NOTHING)
    torch.ones(64 * MIB, dtype=torch.uint8)
    now_bytes = meter.transient_bytes("a", NOTHING)
    cost = meter.end("a", NOTHING)
    assert cost.transient_bytes is not None
    assert cost.peak_bytes is not None
    assert now_bytes == cost.transient_bytes
    assert 0.9 * 64 * MIB < cost.transient_bytes < 1.3 * 64 * MIB
    assert cost.peak_bytes > cost.transient_bytes
    meter.begin("a", 1.0)
    meter.record_baseline("a", NOTHING)
    assert (meter.end("a", NOTHING).transient_bytes or 0) < 8 * MIB, "each turn is measured anew"
    assert meter.transient_bytes("a", NOTHING) == cost.transient_bytes, "the most of all turns is remembered"
    assert meter.transient_bytes("b", NOTHING) is None


def test_gradients_and_what_came_to_stay_are_no_transient() -> None:
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline("a", Footprint(0, gradients_bytes=16 * MIB))
    state = torch.ones(64 * MIB, dtype=torch.uint8)  # so large that no heap has kept that much
    torch.ones(96 * MIB, dtype=torch.uint8)
    cost = meter.end("a", Footprint(0, 0, optimizer_bytes=state.nbytes))
    assert cost.transient_bytes is not None
    assert abs(cost.transient_bytes - 80 * MIB) < 8 * MIB


def test_of_short_turns_each_sub_model_has_some_measured() -> None:
    meter, measured = TurnMeter(CPU), {"a": 0, "b": 0}
    for place in range(2000):
        name = "ab"[place % 2]
        meter.begin(name, 0.001 * place)
        meter.record_baseline(name, NOTHING)
        measured[name] += meter.end(name, NOTHING).peak_bytes is not None
    assert measured == {"a": 8, "b": 8}


def test_cpu_time_of_a_turn_is_counted_whether_or_not_its_memory_is() -> None:
    meter = TurnMeter(CPU)
    for _ in range(2):
        meter.begin("a", 0.0)
        sum(range(300_000))
        assert meter.end("a", NOTHING).cpu_s > 0


def test_what_is_used_in_company_belongs_to_nobody() -> None:
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline("a", NOTHING)
    torch.ones(64 * MIB, dtype=torch.uint8)  # so large that no heap has kept that much
    meter.company_comes(NOTHING)
    meter.begin("b", 0.1, alone=False)
    meter.record_baseline("b", NOTHING)
    torch.ones(256 * MIB, dtype=torch.uint8)
    assert meter.end("b", NOTHING).transient_bytes is None
    assert meter.end("a", NOTHING).transient_bytes is None
    assert 0.9 * 64 * MIB < (meter.transient_bytes("a", NOTHING) or 0) < 96 * MIB


def test_the_cpu_time_of_a_process_is_divided_as_its_threads_used_it() -> None:
    shares, began_s = CpuShares(), time.process_time()
    both = threading.Barrier(2, timeout=60)

    def compute(name: str, rounds: int) -> None:
        shares.enter(name)
        both.wait()
        for _ in range(rounds):
            sum(range(100_000))
        both.wait()
        both.wait()  # a thread that has ended has no clock

    thread = threading.Thread(target=compute, args=("long", 40))
    thread.start()
    shares.enter("short")
    both.wait()
    sum(range(400_000))
    both.wait()
    used = {name: shares.leave(name) for name in ("long", "short")}
    both.wait()
    thread.join()
    assert used["long"] > 3 * used["short"] > 0
    assert abs(sum(used.values()) - (time.process_time() - began_s)) < 0.05


def test_where_the_system_tells_no_peak_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_proc_files", lambda pid: None)
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline("a", NOTHING)
    assert meter.transient_bytes("a", NOTHING) is None
    cost = meter.end("a", NOTHING)
    assert (cost.peak_bytes, cost.transient_bytes) == (None, None)


def test_a_process_that_may_not_reset_its_peak_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError

    meters._proc_files.cache_clear()
    monkeypatch.setattr(os, "open", refuse)
    assert meters._proc_files(os.getpid()) is None
    meters._proc_files.cache_clear()
