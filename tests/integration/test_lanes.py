"""Several sub-models step at once in lanes, with the bits of each one alone."""

import threading
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clock import SimulatedClock
from tests.integration.kit import NETWORKS, ROOM, Networks, Session, submodel_spec, vanilla
from tests.integration.three import POLICIES, THREE, alone, at_step
from unifiednn_core.engine import engine
from unifiednn_core.engine.events import Answered, Captured, Granted, Released, Report, Stepped
from unifiednn_core.engine.orders import Adjust, AnyOrder, Order, SetPolicy
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.company import MemoryRoom, Rates
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.registry import POLICIES as REGISTERED
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import CheckpointSpec


def session(policy: Policy, on_report: Callable[[Session, Report], None] | None = None, **how: Any) -> Session:
    return Session(THREE, policy, on_report, **{"lanes": 2, **ROOM} | how)


LONG: Networks = [
    ("lstm", submodel_spec("first", priority=2, epochs=20)),
    ("mlp", submodel_spec("second", priority=1, epochs=20)),
    ("cnn", submodel_spec("third", priority=1, epochs=30, batch_size=16)),
]
"""Trainings that outlast whatever a busy machine does to one of their lanes."""


@cache
def long_alone() -> dict[str, str]:
    return {spec.name: vanilla(network, spec)[0] for network, spec in LONG}


def turns(found: Session) -> list[Released]:
    return [report for report in found.reports if isinstance(report, Released)]


def overlaps(one: Released, other: Released) -> bool:
    return max(one.start_s, other.start_s) < min(one.end_s, other.end_s)


@settings(max_examples=12)
@given(
    pair=st.tuples(st.sampled_from(sorted(NETWORKS)), st.sampled_from(sorted(NETWORKS))),
    policy=st.sampled_from([*POLICIES, *(policy() for policy in REGISTERED)]),
    lanes=st.integers(2, 3),
)
def test_two_in_lanes_have_the_bits_of_one_lane_and_of_the_plain_loop(
    pair: tuple[str, str], policy: Policy, lanes: int
) -> None:
    networks = [
        (network, submodel_spec(name, seed=seed)) for name, seed, network in zip("xy", (3, 4), pair, strict=True)
    ]
    together = Session(networks, policy, lanes=lanes, **ROOM).run()
    assert together.hashes() == Session(networks, policy).run().hashes()
    for network, spec in networks:
        assert (together.hashes()[spec.name], together.losses(spec.name)) == vanilla(network, spec)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_any_policy_trains_three_in_lanes_to_the_same_bits(policy: Policy) -> None:
    found = session(policy).run()
    assert found.hashes() == alone()
    for turn in turns(found):
        assert turn.lane in (1, 2)
    by_lane = {lane: [turn for turn in turns(found) if turn.lane == lane] for lane in (1, 2)}
    assert not any(overlaps(one, other) for lane in by_lane.values() for one, other in combinations(lane, 2))
    for name in alone():  # also of those that never trained alone
        assert (max(turn.cost.own_bytes or 0 for turn in turns(found) if turn.submodel == name)) > 0, name
    assert sum(turn.steps for turn in turns(found)) == found.steps


def test_the_policy_has_its_way_in_the_first_lane() -> None:
    """Whom it names goes on there at once, even if it was company until then."""
    in_company, on_top = threading.Event(), threading.Event()

    def on_report(session: Session, report: Report) -> None:
        match report:
            case Stepped(submodel="second", step=1):
                in_company.wait(60)
            case Stepped(submodel="third", step=1):
                session.engine.post(Adjust("third", "priority", -1))  # carried out before its next step
                in_company.set()
            case Stepped(submodel="third", step=2):
                on_top.wait(60)
            case Granted(submodel="third", lane=1):
                on_top.set()

    found = session(Priority(), on_report).run()
    granted = [(report.submodel, report.lane) for report in found.reports if isinstance(report, Granted)]
    assert granted[:3] == [("second", 1), ("third", 2), ("third", 1)]
    assert on_top.is_set()
    assert found.hashes() == alone()


def test_those_who_would_need_too_much_memory_together_take_turns() -> None:
    room = MemoryRoom(working_bytes={"first": 50, "second": 80, "third": 10}, company_bytes=0)
    found = session(FirstComeFirstServed(), memory=lambda: room)
    found.run()
    grouped = {
        frozenset({one.submodel, other.submodel})
        for one, other in combinations(turns(found), 2)
        if overlaps(one, other)
    }
    assert frozenset({"first", "second"}) not in grouped
    assert found.hashes() == alone()


def test_of_whom_the_memory_is_not_known_trains_alone() -> None:
    found = session(FirstComeFirstServed(), memory=MemoryRoom).run()
    assert {turn.lane for turn in turns(found)} == {1}


def test_one_that_is_suspected_of_a_crash_has_no_company_until_it_is_past_it() -> None:
    found = session(RoundRobin(unit="steps", amount=2), alone_until={"second": 4}).run()
    seen = [turn for turn in turns(found) if turn.submodel == "second"]
    suspected = [turn for turn in seen if turn.start_s < seen[1].end_s][:2]
    others = [turn for turn in turns(found) if turn.submodel != "second"]
    assert not any(overlaps(one, other) for one in suspected for other in others)
    assert found.hashes() == alone()


ORDERS: list[tuple[AnyOrder, ...]] = [
    (Order(Event.SAVE, None, 1),),
    (Order(Event.SAVE, "third", 1), Order(Event.SAVE, "first", 2)),
    (Order(Event.PAUSE, "third", 1),),
    (Order(Event.PAUSE, "first", 1),),
    (SetPolicy(RoundRobin(unit="steps", amount=1), 1), Adjust("first", "priority", -3, 2)),
]


@pytest.mark.parametrize("orders", ORDERS, ids=str)
def test_orders_reach_every_lane(orders: tuple[AnyOrder, ...]) -> None:
    at_third_step = at_step("first", 3, *orders)

    def on_report(session: Session, report: Report) -> None:
        at_third_step(session, report)
        if isinstance(report, Answered) and report.id == 1:  # resumes what is paused
            for name in ("first", "third"):
                session.engine.post(Order(Event.RESUME, name))

    found = Session(LONG, RoundRobin(), on_report, lanes=2, **ROOM).run()
    assert found.hashes() == long_alone()
    assert sorted(r.id for r in found.reports if isinstance(r, Answered)) == [order.id for order in orders]


def test_from_captures_of_a_run_in_lanes_training_goes_on_with_the_same_bits() -> None:
    found = session(FirstComeFirstServed(), checkpoint=CheckpointSpec(every_steps=3)).run()
    captured = [report.checkpoint for report in found.reports if isinstance(report, Captured)]
    assert len(captured) > 6
    for checkpoint in captured:
        [network] = [(network, spec) for network, spec in THREE if spec.name == checkpoint.submodel]
        again = Session([network], FirstComeFirstServed(), restored={checkpoint.submodel: checkpoint}).run()
        assert again.hashes() == alone(checkpoint.submodel)


def test_a_run_in_lanes_that_is_paused_is_left_whole() -> None:
    before = session(FirstComeFirstServed(), at_step("first", 4, Order(Event.PAUSE, None, 5))).run()
    assert "first" not in before.ended
    assert before.engine.at_work == {}
    left = [(network, spec) for network, spec in THREE if spec.name not in before.ended]
    after = Session(left, FirstComeFirstServed(), lanes=2, restored=before.checkpoints, **ROOM).run()
    assert before.hashes() | after.hashes() == alone()


def test_an_error_in_one_lane_ends_that_sub_model_alone(capfd: pytest.CaptureFixture[str]) -> None:
    found = session(FirstComeFirstServed())
    calls = iter(range(100))

    def break_at_third(*_: object) -> None:
        if next(calls) == 2:
            raise RuntimeError("shapes cannot be multiplied")

    found.hybrid.submodel("third").module.register_forward_pre_hook(break_at_third)
    found.run()
    assert {name: ended.event for name, ended in found.ended.items()} == {
        "first": Event.COMPLETE,
        "second": Event.COMPLETE,
        "third": Event.FAIL,
    }
    trained = found.hashes()
    assert {name: trained[name] for name in ("first", "second")} == alone("first", "second")
    assert "shapes cannot be multiplied" in capfd.readouterr().err


def test_the_threads_of_the_lanes_end_with_the_run() -> None:
    before = threading.active_count()
    session(RoundRobin()).run()
    assert threading.active_count() == before


def test_a_defect_of_the_engine_in_another_lane_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    found = session(FirstComeFirstServed())
    taken = found.engine._take

    def broken(turn: Any) -> None:
        if turn.lane == 2:
            raise AssertionError("a defect")
        taken(turn)

    monkeypatch.setattr(found.engine, "_take", broken)
    with pytest.raises(AssertionError, match="a defect"):
        found.run()


def test_the_speed_alone_is_measured_while_the_others_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the CPU time of a step tells nothing. They go on as soon as the speed is known."""
    monkeypatch.setattr(engine, "Rates", lambda **_: Rates(cpu_tells=False))
    steps: list[tuple[str, bool]] = []
    seen_at_work: set[str] = set()

    def on_report(session: Session, report: Report) -> None:
        if isinstance(report, Stepped):
            steps.append((report.submodel, timer.seconds_per_step is not None))
            if report.submodel == "second" and not steps[-1][1] and timer.warm:
                seen_at_work.update(session.engine.at_work)

    networks = [("mlp", submodel_spec(name, epochs=16)) for name in ("first", "second")]
    found = Session(networks, FirstComeFirstServed(), on_report, clock=SimulatedClock(), lanes=2, **ROOM)
    timer = found.engine._roster.jobs["second"].timer
    found.run()
    names = [name for name, _ in steps]
    begin, end = names.index("second"), len(names) - names[::-1].index("second")
    assert [name for name, known in steps[begin:end] if not known].count("first") <= 1, "its step was under way"
    assert ("first", True) in steps[begin:end]
    assert seen_at_work == {"second"}, "the watchdog waits for one that rests"
    assert found.hashes() == {spec.name: vanilla(network, spec)[0] for network, spec in networks}


@pytest.mark.parametrize("slower", [False, True])
def test_company_that_does_not_pay_is_parted_within_a_second(monkeypatch: pytest.MonkeyPatch, slower: bool) -> None:
    """Two that share one core: each step takes twice as long while the other one computes, too."""
    clock, whole, both = SimulatedClock(), SubModel.step, threading.Barrier(2)

    def step(self: SubModel) -> Stepped:
        clock.advance(0.05 if slower else 0.0)
        if len(found.engine.at_work) == 2:
            try:
                both.wait(0.5)
            except threading.BrokenBarrierError:  # the other one has ended
                both.reset()
        return whole(self)

    monkeypatch.setattr(SubModel, "step", step)
    networks = [(network, submodel_spec(network, epochs=8)) for network in ("mlp", "cnn")]
    found = Session(networks, FirstComeFirstServed(), clock=clock, lanes=2, **ROOM)
    found.run()
    parted = [turn for turn in turns(found) if "part:" in turn.reason]
    assert [turn.submodel for turn in parted] == (["cnn"] if slower else []), "it is not tried again right away"
    assert all(turn.lane == 2 and turn.end_s - turn.start_s <= 1.0 for turn in parted)
    assert found.hashes() == {spec.name: vanilla(network, spec)[0] for network, spec in networks}
