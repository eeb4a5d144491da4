import os

import pytest
import torch

from unifiednn_core.engine import meters
from unifiednn_core.engine.meters import TurnMeter
from unifiednn_core.machine.breakdown import Footprint

MIB = 2**20
CPU = torch.device("cpu")
NOTHING = Footprint(0)


def test_memory_that_was_taken_for_a_while_is_not_missed() -> None:
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline(NOTHING)
    torch.ones(64 * MIB, dtype=torch.uint8)
    now_bytes = meter.transient_bytes("a", NOTHING)
    cost = meter.end(NOTHING)
    assert cost.transient_bytes is not None
    assert cost.peak_bytes is not None
    assert now_bytes == cost.transient_bytes
    assert 0.9 * 64 * MIB < cost.transient_bytes < 1.3 * 64 * MIB
    assert cost.peak_bytes > cost.transient_bytes
    meter.begin("a", 1.0)
    meter.record_baseline(NOTHING)
    assert (meter.end(NOTHING).transient_bytes or 0) < 8 * MIB, "each turn is measured anew"
    assert meter.transient_bytes("a", NOTHING) == cost.transient_bytes, "the most of all turns is remembered"
    assert meter.transient_bytes("b", NOTHING) is None


def test_gradients_and_what_came_to_stay_are_no_transient() -> None:
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline(Footprint(0, gradients_bytes=16 * MIB))
    state = torch.ones(32 * MIB, dtype=torch.uint8)
    torch.ones(48 * MIB, dtype=torch.uint8)
    cost = meter.end(Footprint(0, 0, optimizer_bytes=state.nbytes))
    assert cost.transient_bytes is not None
    assert abs(cost.transient_bytes - 32 * MIB) < 8 * MIB


def test_of_short_turns_each_sub_model_has_some_measured() -> None:
    meter, measured = TurnMeter(CPU), {"a": 0, "b": 0}
    for place in range(2000):
        name = "ab"[place % 2]
        meter.begin(name, 0.001 * place)
        meter.record_baseline(NOTHING)
        measured[name] += meter.end(NOTHING).peak_bytes is not None
    assert measured == {"a": 8, "b": 8}


def test_cpu_time_of_a_turn_is_counted_whether_or_not_its_memory_is() -> None:
    meter = TurnMeter(CPU)
    for _ in range(2):
        meter.begin("a", 0.0)
        sum(range(300_000))
        assert meter.end(NOTHING).cpu_s > 0


def test_where_the_system_tells_no_peak_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_proc_files", lambda pid: None)
    meter = TurnMeter(CPU)
    meter.begin("a", 0.0)
    meter.record_baseline(NOTHING)
    assert meter.transient_bytes("a", NOTHING) is None
    cost = meter.end(NOTHING)
    assert (cost.peak_bytes, cost.transient_bytes) == (None, None)


def test_a_process_that_may_not_reset_its_peak_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError

    meters._proc_files.cache_clear()
    monkeypatch.setattr(os, "open", refuse)
    assert meters._proc_files(os.getpid()) is None
    meters._proc_files.cache_clear()
