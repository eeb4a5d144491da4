"""Processor time of a run and of everything else on the machine."""

import time

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.machine import host
from unifiednn_core.machine.host import LoadMeter, LoadRecord, others_share

SECONDS = st.floats(0.01, 1e6)


def record(seconds: float, busy_s: float, own_s: float, processors: int = 2) -> LoadRecord:
    return {"seconds": seconds, "busy_s": busy_s, "own_s": own_s, "processors": processors}


def test_without_a_stretch_nothing_is_known():
    assert others_share([]) is None


def test_a_machine_of_two_processors_half_used_by_others():
    assert others_share([record(10, 15, 5)]) == 0.5


@given(st.lists(st.builds(record, SECONDS, SECONDS, SECONDS, st.integers(1, 256)), min_size=1))
def test_a_share_is_a_share(records: list[LoadRecord]):
    share = others_share(records)
    assert share is not None and 0 <= share <= 1


@given(SECONDS, SECONDS, st.lists(SECONDS, min_size=1, max_size=5))
def test_stretches_count_by_their_length(busy_s: float, own_s: float, lengths_s: list[float]):
    cut = [record(length, length * 0.75, length * 0.25) for length in lengths_s]
    whole = record(sum(lengths_s), sum(lengths_s) * 0.75, sum(lengths_s) * 0.25)
    one, two = others_share(cut), others_share([whole])
    assert one is not None and two is not None and abs(one - two) < 1e-9


def test_own_work_is_no_other_work():
    meter = LoadMeter(time.process_time)
    until_s = time.process_time() + 0.05
    while time.process_time() < until_s:
        pass
    read = meter.read()
    assert read["own_s"] >= 0.05 and read["seconds"] >= 0.05 and read["processors"] >= 1


def test_a_clock_of_the_kernel_that_goes_back_is_no_work(monkeypatch):
    busy_s = iter([10.0, 9.0])
    monkeypatch.setattr(host, "_busy_s", lambda: next(busy_s))
    assert LoadMeter(lambda: 0.0).read()["busy_s"] == 0.0
