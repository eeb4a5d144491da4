"""Rows of the store become the values that pages draw."""

from collections import namedtuple
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.views.test_times import LAUNCHED_S, STARTED_S, part_row, run_row
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.schema import EventRow, RunRow, StrataRow, SubModelRow
from unifiednn_core.store.telemetry import History, SlicePoint
from unifiednn_core.views import run_rows
from unifiednn_core.views.runs import RunView, Series, Slice

NOW_S = STARTED_S + 100.0


def history(*slices: SlicePoint) -> History:
    return History(steps={}, lost_steps={}, epochs={}, slices=slices, memory=[], strata=[], events=[], marks=[])


def turn(number: int, name: str, start_s: float, end_s: float, steps: int, from_step: int = 0) -> SlicePoint:
    return SlicePoint(number, name, 1, start_s, end_s, steps, from_step, "in turn", 1)


def light(row: RunRow | SubModelRow, **added: Any) -> Any:
    """A row as lists read it: a tuple of named columns."""
    rows = [row.hybrid, row] if isinstance(row, RunRow) else [row]
    values = {name: getattr(one, name) for one in rows for name in one.__table__.columns.keys() if name != "spec"}  # noqa: SIM118
    values |= added
    return namedtuple("Light", values)(**values)


def live(mode: str = "hybrid", **columns: object) -> RunRow:
    return run_row(mode, state="running", ended_at_s=None, heartbeat_at_s=NOW_S, **columns)


def training(name: str, steps_done: int, **columns: object) -> SubModelRow:
    return part_row(name, state="running", ended_at_s=None, steps_done=steps_done, steps_total=100, **columns)


def running(run: RunRow, rows: list[SubModelRow], *slices: SlicePoint) -> list[Slice]:
    view = run_rows.run_view(run, rows, NOW_S, history=history(*slices))
    assert [s for s in view.schedule if not s.running] == list(view.schedule[: len(slices)])
    return [s for s in view.schedule if s.running]


def test_the_turn_that_goes_on_lasts_until_now_and_has_the_steps_since_the_last_one() -> None:
    both = [
        training("a", 25, lane=1, turn_since_s=60.0, turn_reason="a came first."),
        training("b", 8, lane=2, turn_since_s=70.0, turn_reason="There is room for b beside a."),
    ]
    found = running(live(), both, turn(1, "a", 0, 30, 10), turn(2, "b", 30, 60, 5))
    assert found == [
        Slice("a", 60.0, 100.0, 15, "a came first.", 1, running=True),
        Slice("b", 70.0, 100.0, 3, "There is room for b beside a.", 2, running=True),
    ]


def test_every_process_of_a_concurrent_baseline_is_drawn_from_its_first_step() -> None:
    rows = [training("a", 7), part_row("b", state="queued", ended_at_s=None, steps_done=0)]
    [found] = running(live("concurrent"), rows, turn(1, "a", 0.0, 8.0, 0))
    assert (found.start_s, found.end_s, found.steps) == (8.0, NOW_S - LAUNCHED_S, 7)


def test_a_run_without_a_worker_has_no_turn_that_goes_on() -> None:
    assert running(run_row(state="paused", ended_at_s=None), [training("a", 3)], turn(1, "a", 0, 30, 3)) == []


@pytest.mark.parametrize("mode", ["hybrid", "sequential"])
def test_the_document_lists_turns_that_ended_and_no_start_of_a_process(mode: str) -> None:
    view = run_rows.run_view(
        run_row(mode), [part_row()], NOW_S, history=history(turn(1, "a", 0, 4, 0), turn(2, "a", 4, 9, 5))
    )
    listed = run_rows.document(view, {})["schedule"]
    assert [s["steps"] for s in listed] == ([0, 5] if mode == "hybrid" else [5])  # type: ignore[attr-defined]


def test_figures_of_the_gpu_are_curves_of_their_own() -> None:
    used: tuple[dict[str, float], ...] = ({}, {"utilisation": 0.25, "power_w": 70.5}, {"utilisation": 1.0})
    samples = [StrataRow(at_s=0.5 * place, total_bytes=1, strata=figures) for place, figures in enumerate(used)]
    view = run_rows.run_view(live(), [], NOW_S, history=replace(history(), strata=samples))
    assert (view.utilisation, view.power_w) == (Series((0.5, 1.0), (0.25, 1.0)), Series((0.5,), (70.5,)))


def test_a_list_shows_what_the_page_of_a_run_shows() -> None:
    waiting = run_row(state="queued", launched_at_s=None, started_at_s=None, ended_at_s=None)
    row = part_row(epochs=9, epochs_done=5, steps_total=9, steps_done=5)
    [listed] = run_rows.listed_views([(light(waiting, policy={"name": "round_robin"}), [light(row)])], NOW_S)
    whole = run_rows.run_view(waiting, [row], NOW_S)
    [part], [same] = listed.submodels, whole.submodels
    assert (listed.state, listed.queue_position, listed.policy) == (State.QUEUED, 1, "round_robin")
    assert (listed.elapsed_s, listed.actions, listed.created_at_s) == (None, whole.actions, whole.created_at_s)
    assert part == same
    assert part.steps_total == 5, "stopped early"


def test_the_view_of_an_ended_run_is_made_once_for_equal_rows_and_anew_after_a_change() -> None:
    def listed(**changes: Any) -> RunView:
        run = light(run_row(heartbeat_at_s=None), policy={}, **changes)
        return run_rows.listed_views([(run, [light(part_row())])], NOW_S)[0]

    assert listed() is listed()
    assert listed(extra=1) is not listed()


def test_events_keep_code_state_and_fields_by_which_the_service_filters_them() -> None:
    columns = event_columns(5.0, "a", Code.ENTERED, state="failed", name="a", cause="It broke.")
    view = run_rows.run_view(live(), [], NOW_S, history=replace(history(), events=[EventRow(**columns)]))
    [event] = view.events
    assert (event.code, event.state, event.fields) == (Code.ENTERED, State.FAILED, {"name": "a", "cause": "It broke."})
    assert event.message == "a is failed. It broke."


def due(policy: str, run_state: str = "running", **columns: Any) -> tuple[str | None, float | None]:
    """How the deadline of the first of two sub-models stands, and when it is due; each has 10 of 100 steps, in 20 s."""
    spec = {"policy": {"name": policy}, "submodels": [{"name": "a"}, {"name": "b"}]}
    half = {"state": "running", "ended_at_s": None, "steps_done": 10, "steps_total": 100, "service_s": 20.0}
    rows = [part_row("a", **(half | columns)), part_row("b", **half, deadline_s=1000.0)]
    run = run_row(state=run_state, ended_at_s=None, created_at_s=NOW_S - 50, spec=spec)
    [whole, _] = run_rows.run_view(run, rows, NOW_S).submodels
    [listed, _] = run_rows.listed_views([(light(run, policy=spec["policy"]), list(map(light, rows)))], NOW_S)[
        0
    ].submodels
    assert (listed.deadline, listed.due_in_s) == (whole.deadline, whole.due_in_s)
    return whole.deadline, whole.due_in_s


@pytest.mark.parametrize(
    ("policy", "columns", "stands", "in_s"),
    [
        ("deadline", {"deadline_s": 230.0}, "holds", 180.0),
        ("deadline", {"deadline_s": 229.0}, "late", 179.0),
        ("deadline", {"deadline_s": 1001.0}, "holds", 951.0),
        ("deadline", {"deadline_s": 1001.0, "steps_total": 500}, "late", 951.0),
        ("deadline", {"deadline_s": 40.0}, "missed", -10.0),
        ("deadline", {"deadline_s": 99.0, "steps_done": 0}, None, 49.0),
        ("fcfs", {"deadline_s": 230.0}, None, 180.0),
        ("fcfs", {"deadline_s": 229.0}, "late", 179.0),
        ("deadline", {"deadline_s": 60.0, "state": "completed", "ended_at_s": NOW_S}, "met", None),
        ("deadline", {"deadline_s": 49.0, "state": "completed", "ended_at_s": NOW_S}, "missed", None),
        ("deadline", {"deadline_s": 60.0, "state": "failed", "ended_at_s": NOW_S}, "missed", None),
        ("deadline", {"deadline_s": 60.0, "joined_at_s": NOW_S - 10, "steps_done": 99, "service_s": 99.0}, "holds", 50),
        ("deadline", {}, None, None),
    ],
)
def test_a_deadline_is_met_missed_held_or_late_as_far_as_anyone_knows(
    policy: str, columns: dict[str, Any], stands: str | None, in_s: float | None
) -> None:
    assert due(policy, **columns) == (stands, in_s)
