from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.machine.test_breakdown import ANY_BREAKDOWN, SIZES
from unifiednn_core.machine.breakdown import fitted
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.schema import EventRow, StrataRow
from unifiednn_core.store.telemetry import SlicePoint
from unifiednn_core.views.memory import KINDS, Mark, MemoryBreakdown, breakdown_of, gaps, marks_of


def row(at_s: float, total: int, **strata: object) -> StrataRow:
    return StrataRow(at_s=at_s, source="process PSS", total_bytes=total, strata=strata)


def turn(name: str, start_s: float) -> SlicePoint:
    return SlicePoint(
        id=1, submodel=name, attempt=1, start_s=start_s, end_s=start_s + 1, steps=1, from_step=0, reason="", lane=1
    )


def event(at_s: float, code: Code, submodel: str | None = "a", **fields: Any) -> EventRow:
    return EventRow(run_id="r", **event_columns(at_s, submodel, code, **fields))


def test_what_nothing_explains_lies_on_top() -> None:
    rows = [
        row(0.0, 100, context=60, data=0, weights={"a": 10, "b": 5}),
        row(0.3, 130, context=60, data=0, weights={"b": 5}, transient={"b": 30}),
    ]
    found = breakdown_of(rows)
    assert (found.at_s, found.total_bytes, found.source) == ((0.0, 0.3), (100.0, 130.0), "process PSS")
    assert [(layer.kind, layer.submodel, layer.size_bytes) for layer in found.layers] == [
        ("context", None, (60.0, 60.0)),
        ("weights", "a", (10.0, 0.0)),
        ("weights", "b", (5.0, 5.0)),
        ("transient", "b", (None, 30.0)),
        ("unexplained", None, (25.0, 35.0)),
    ], "data sets were never there; what nobody could tell is no 0"


@given(rows=st.lists(st.tuples(SIZES, ANY_BREAKDOWN), max_size=6))
def test_layers_together_are_the_total(rows: list[tuple[int, dict[str, object]]]) -> None:
    found = breakdown_of([row(0.3 * at, total, **fitted(total, strata)) for at, (total, strata) in enumerate(rows)])
    assert [KINDS.index(layer.kind) for layer in found.layers] == sorted(
        KINDS.index(layer.kind) for layer in found.layers
    )
    for place, total in enumerate(found.total_bytes):
        sizes = [layer.size_bytes[place] or 0.0 for layer in found.layers]
        assert min(sizes, default=0.0) >= 0
        assert sum(sizes) == total


def test_a_silence_is_a_gap_and_no_straight_line() -> None:
    rows = [row(at_s, 100, context=100) for at_s in (0.0, 0.3, 0.6, 0.9, 9.9, 10.2)]
    found = breakdown_of(rows)
    assert found.at_s == (0.0, 0.3, 0.6, 0.9, 5.4, 9.9, 10.2)
    assert found.total_bytes[4] is None
    assert all(layer.size_bytes[4] is None for layer in found.layers)
    assert breakdown_of([]) == MemoryBreakdown()


@pytest.mark.parametrize(
    ("steps_s", "expected"),
    [
        ([], []),
        ([60.0], []),  # of two samples nobody can say what is usual
        ([0.3, 60.0], [2]),
        ([60.0, 0.3], [1]),
        ([0.3] * 20 + [1.5] + [0.3] * 20, []),  # a slow moment of a busy machine
        ([0.3] * 20 + [3.0] * 20, []),  # memory grew, and with it what a sample costs
        ([20.0] * 20 + [0.3] * 20, []),  # older rows are thinned out
        ([0.3] * 20 + [30.0] + [3.0] * 20, [21]),
        ([0.3] * 10 + [8.0, 0.3, 8.0] + [0.3] * 10, [11, 13]),
    ],
)
def test_what_is_a_gap_follows_from_what_is_usual_around_it(steps_s: list[float], expected: list[int]) -> None:
    moments = [sum(steps_s[:place]) for place in range(len(steps_s) + 1)]
    assert gaps(moments) == expected


def test_marks_say_what_changed_memory_and_when() -> None:
    slices = [turn("a", 0.0), turn("a", 1.0), turn("b", 2.0), turn("a", 3.0)]
    events = [
        event(50.0, Code.ENTERED, state="queued"),
        event(100.0, Code.ENTERED, state="running"),
        event(100.5, Code.WARNED, text="a is large."),
        event(101.5, Code.CHECKPOINT, step=7),
        event(102.5, Code.ENTERED, state="paused"),
        event(103.0, Code.ENTERED, None, state="paused", name="r"),
        event(104.0, Code.SEPARATED, archive="a.zip"),
        event(104.5, Code.ENTERED, state="failed", cause="Out of memory."),
    ]
    assert marks_of(slices, events, started_at_s=100.0) == (
        Mark(0.0, "load", "a", "a is running."),
        Mark(1.5, "checkpoint", "a", "Checkpoint of a at step 7."),
        Mark(2.0, "switch", "b", "b takes over from a."),
        Mark(2.5, "pause", "a", "a is paused."),
        Mark(3.0, "switch", "a", "a takes over from b."),
        Mark(4.0, "separation", "a", "a was separated: a.zip."),
        Mark(4.5, "end", "a", "a is failed. Out of memory."),
    )
    assert marks_of([], events, started_at_s=None) == ()


def test_switches_that_never_end_are_left_to_the_schedule() -> None:
    often = [turn("ab"[place % 2], float(place)) for place in range(500)]
    assert marks_of(often, [], started_at_s=0.0) == ()
