"""Who trains, who is next, who waits for what."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui.fake_views import mid_flight, run, submodel
from unifiednn_core.scheduling.registry import describe
from unifiednn_core.service.filtering import share_of
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.views import wording
from unifiednn_core.views.runs import LinePlace
from unifiednn_core.views.standing import line_of

POLICIES = sorted({card.name for card in describe()})


def row(place: int, **changes: object) -> SimpleNamespace:
    who = {"name": f"net{place}", "arrival": place, "owner": "", "priority": 0, "parameters": 100 - place}
    done = {"epochs": 9, "epochs_done": 2, "steps_total": 90, "steps_done": 20, "service_s": 4.0 + place}
    values: dict[str, object] = {**who, **done, "state": "running", "lane": None, "joined_at_s": None}
    values["deadline_s"] = None
    return SimpleNamespace(**values | changes)


RUN = SimpleNamespace(id="r", mode=HYBRID, shared=False, state="running", created_at_s=0.0)


@given(st.sampled_from(POLICIES), st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=14))
def test_each_that_waits_has_a_place_after_those_at_work(policy: str, parts: list[tuple[int, bool]]) -> None:
    rows = [row(place, priority=priority, lane=1 if works else None) for place, (priority, works) in enumerate(parts)]
    found = line_of(RUN, rows, {"name": policy}, 10.0)
    waiting = {one.name for one in rows if one.lane is None}
    at_work = len(rows) - len(waiting)
    assert set(found) == waiting
    assert sorted(place.place for place in found.values()) == list(range(at_work + 1, len(rows) + 1))
    assert [place.is_next for place in found.values()] == [True, *[False] * (len(waiting) - 1)][: len(waiting)]
    assert all(place.of == len(rows) and place.reason for place in found.values())


def test_the_line_is_that_of_the_policy() -> None:
    rows = [row(0, lane=1), row(1, priority=2), row(2, priority=1), row(3, priority=3)]
    assert list(line_of(RUN, rows, {"name": "priority"}, 10.0)) == ["net2", "net1", "net3"]
    assert list(line_of(RUN, rows, {"name": "fcfs"}, 10.0)) == ["net1", "net2", "net3"]
    assert list(line_of(RUN, rows, {"name": "sjf"}, 10.0)) == ["net3", "net2", "net1"]
    ends_s = {"net0": 9.0, "net1": 8.0, "net2": 7.0}
    assert list(line_of(RUN, rows, {"name": "round_robin"}, 10.0, ends_s)) == ["net3", "net2", "net1"]


@pytest.mark.parametrize("changes", [{"state": "paused"}, {"shared": True}, {"mode": "concurrent"}])
def test_other_runs_have_no_line(changes: dict[str, object]) -> None:
    assert line_of(SimpleNamespace(**vars(RUN) | changes), [row(0)], {}, 1.0) == {}


def test_who_is_paused_or_has_ended_is_not_in_line_and_a_lost_policy_has_none() -> None:
    rows = [row(0), row(1, state="paused"), row(2, state="completed")]
    assert list(line_of(RUN, rows, {}, 1.0)) == ["net0"]
    assert line_of(RUN, rows, {"name": "gone"}, 1.0) == {}


@pytest.mark.parametrize(
    ("state", "part_state", "holds", "line", "waits_for", "label"),
    [
        ("running", "running", True, None, None, "Trains now"),
        ("running", "running", False, LinePlace(2, 14, True, "why"), None, "Next"),
        ("running", "queued", False, LinePlace(3, 14, False, "why"), None, "Waits: turn 3 of 14"),
        ("running", "running", False, None, None, "Waits for its turn"),
        ("queued", "queued", False, None, "3.1 GiB on any H200", "Waits for 3.1 GiB on any H200"),
        ("queued", "queued", False, None, None, "Waits: place 2 in queue"),
        ("paused", "queued", False, None, None, "Paused"),
        ("running", "failed", False, None, None, "Failed"),
        ("starting", "queued", False, None, None, "Queued"),
    ],
)
def test_the_state_of_a_sub_model_says_what_it_waits_for(
    state: str, part_state: str, holds: bool, line: LinePlace | None, waits_for: str | None, label: str
) -> None:
    part = replace(submodel(0, "lenet", 2, State(part_state)), holds_device=holds, line=line)
    view = run("r", State(state), (part,), waits_for=waits_for, queue_position=2, now_reason="It is its turn.")
    assert wording.standing_words(view, part).label == label


def test_the_place_among_the_work_of_others_is_withheld() -> None:
    view = mid_flight()
    parts = tuple(replace(part, line=LinePlace(2, 3, True, "lenet waits less.")) for part in view.submodels)
    [mine] = share_of(replace(view, submodels=parts), frozenset({"transformer"}), frozenset()).submodels
    assert mine.line is None
    assert wording.standing_words(view, mine).label == "Waits for its turn"
