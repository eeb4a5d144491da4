"""Limits of company: memory, priorities, cores, speeds that are not known yet."""

import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from tests.integration.kit import ROOM, Session, submodel_spec
from tests.integration.test_lanes import overlaps, turns
from tests.integration.three import at_step
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import Diverged
from unifiednn_core.engine.events import Report, Stepped
from unifiednn_core.engine.job import Turn
from unifiednn_core.engine.meters import StepTimer
from unifiednn_core.engine.orders import Order
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision
from unifiednn_core.scheduling.company import Member, MemoryRoom, Rates, Took
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps compute elsewhere for 1 ms, so that company doubles the progress."""
    whole = SubModel.step

    def step(self: SubModel) -> Stepped:
        time.sleep(0.001)
        return whole(self)

    monkeypatch.setattr(SubModel, "step", step)


def on_a_gpu(*networks: Any, on_report: Callable[[Session, Report], None] | None = None) -> Session:
    """An engine that, as on a GPU, has to measure each sub-model alone."""
    found = Session(networks, FirstComeFirstServed(), on_report, lanes=2, **ROOM)
    found.engine._rates.cpu_tells = False
    return found


def steps_of(found: Session) -> list[tuple[str, int]]:
    return [(report.submodel, report.step) for report in found.reports if isinstance(report, Stepped)]


def test_who_rests_for_a_probe_goes_on_after_it(elsewhere: None) -> None:
    networks = [("plain", submodel_spec("a", epochs=100)), ("cnn", submodel_spec("b", epochs=40))]
    found = on_a_gpu(*networks, on_report=at_step("a", 11, Order(Event.SAVE, None, 1))).run()
    assert not [turn.reason for turn in turns(found) if "b part: together they make only 1.00" in turn.reason]
    steps = steps_of(found)
    begun, ended = (max(place for place, step in enumerate(steps) if step == ("b", number)) for number in (30, 190))
    assert any(name == "a" for name, _ in steps[begun:ended]), "the policy's choice trains beside the other one"


def test_on_a_gpu_company_comes_once_the_first_one_is_measured(elsewhere: None) -> None:
    found = on_a_gpu(("plain", submodel_spec("a", epochs=100)), ("cnn", submodel_spec("b", epochs=4))).run()
    assert {turn.lane for turn in turns(found)} == {1, 2}


def test_a_turn_that_has_failed_is_not_promoted() -> None:
    found = Session([("plain", submodel_spec("a"))], FirstComeFirstServed(), lanes=2, **ROOM)
    engine = found.engine
    turn = Turn(engine._roster.jobs["a"], Decision("a", TO_COMPLETION, ""), lane=2)
    engine._enter(turn)
    turn.fail(Diverged("a", 1, float("nan")))  # as a due capture of another lane finds out
    engine._next_turn()  # of the lane that captured: its own turn is over, and the policy chooses this one
    assert not turn.stays, "it would train on to the end of its quantum"


def test_a_gang_keeps_to_the_memory_that_company_may_add() -> None:
    networks = [("plain", submodel_spec(name, seed=seed)) for seed, name in enumerate("ab")]
    room = MemoryRoom(working_bytes=dict.fromkeys("ab", 2**20), company_bytes=0, spare_bytes=2**20)
    limits: dict[str, Any] = {"memory": lambda: room}
    for fast in (False, True):
        found = Session(networks, RoundRobin(), lanes=2, fast=fast, **limits).run()
        assert not any(overlaps(one, other) for one, other in combinations(turns(found), 2)), f"fast={fast}"


def member(name: str, priority: int) -> Member:
    return Member(name=name, priority=priority, working_bytes=1, shares_randomness=False)


def test_a_lower_priority_leaves_as_soon_as_it_is_seen_to_delay_the_higher_one() -> None:
    rates, group = Rates(), frozenset({"high", "low"})
    rates.add("high", frozenset({"high"}), Took(1.0, 1.0, 0.0, 100))
    rates.add("high", group, Took(20.0, 10.0, 0.0, 1000))  # twice as slow for 20 s
    rates.add("low", group, Took(20.0, 10.0, 0.0, 2))  # two long steps
    assert rates.objection(group, member("high", 0), member("low", 1)) is not None


def test_after_one_has_delayed_a_higher_priority_the_others_like_it_are_not_tried() -> None:
    networks = [("plain", submodel_spec(name, priority=place)) for place, name in enumerate(("high", "low", "lower"))]
    engine = Session(networks, FirstComeFirstServed(), lanes=2, **ROOM).engine
    jobs, both = engine._roster.jobs, frozenset({"high", "low"})
    turns = [Turn(jobs[name], Decision(name, TO_COMPLETION, ""), lane) for lane, name in enumerate(("high", "low"), 1)]
    for turn in turns:
        engine._roster.enter(turn)
    engine._roster.holder = "high"
    engine._rates.add("high", both, Took(20.0, 10.0, 0.0, 1000))
    jobs["high"].timer._news = True
    engine._company.judge(turns[0], 0.0)
    assert "takes 2.00 times as long" in (turns[1].leaves or "")
    assert engine._rates.rests(frozenset({"high", "lower"}), 1.0)
    assert not engine._rates.rests(frozenset({"low", "lower"}), 1.0)


class Ticking(Clock):
    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_a_step_of_a_gang_counts_its_share_for_each_member() -> None:
    clock, rates = Ticking(), Rates()
    timer, alone = StepTimer(clock, "a", rates), frozenset({"a"})
    timer.warm = True
    timer.start(alone, 1 / 4)
    clock.now_s = 4.0
    timer.count(alone)
    timer.stop()
    assert timer.seconds_per_step == timer.usual_step_s == pytest.approx(1.0)


@pytest.mark.parametrize(("cpu_tells", "usual_s"), [(True, 1.0), (False, 3.5)])
def test_a_stall_of_the_machine_does_not_count_for_the_usual_step_on_a_cpu(cpu_tells: bool, usual_s: float) -> None:
    clock, rates = Ticking(), Rates(cpu_tells=cpu_tells)
    timer, alone = StepTimer(clock, "a", rates), frozenset({"a"})
    timer.warm = True
    timer.start(alone)
    for seconds in (1.0, 1.0, 11.0, 1.0):
        clock.now_s += seconds
        timer.count(alone)
    timer.stop()
    assert timer.usual_step_s == pytest.approx(usual_s)
    assert timer.seconds_per_step == pytest.approx(3.5)


def test_company_keeps_to_the_memory_that_was_predicted() -> None:
    """What the first step of a newcomer brings for good counts, and what is held already."""
    adam: dict[str, Any] = {"optimizer": "adam", "epochs": 12}
    networks = [("plain", submodel_spec(name, seed=seed, **adam)) for seed, name in enumerate("ab")]
    held_bytes = Session(networks, FirstComeFirstServed()).hybrid.submodel("a").footprint.weights_bytes
    optimizer_bytes = 2 * held_bytes + 32  # moments, and a counter for each parameter
    enough_bytes = 2 * (held_bytes + optimizer_bytes) + 2
    for tensors_bytes, together in ((enough_bytes, True), (enough_bytes - held_bytes, False)):
        room = MemoryRoom(
            working_bytes=dict.fromkeys("ab", 1),
            optimizer_bytes=dict.fromkeys("ab", optimizer_bytes),
            company_bytes=10**9,
            tensors_bytes=tensors_bytes,
        )
        found = Session(networks, FirstComeFirstServed(), lanes=2, memory=lambda room=room: room).run()
        assert any(overlaps(one, other) for one, other in combinations(turns(found), 2)) is together
