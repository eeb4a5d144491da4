"""A fleet on simulated time: what it does is what its hybrids do, and what placement says."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.scheduling.placement_kit import EVERYONE, GIB, POLICIES, check_plan, device, entry
from tools.simulate_cluster import Change, Fleet, FleetTrace
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.line import DeviceView, FleetView, Waiting
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate

ONE, TWO = device("cuda:0"), device("cuda:1")
FCFS, TURNS = FirstComeFirstServed(), RoundRobin(unit="seconds", amount=1)


def fleet(devices: Sequence[DeviceView], *waiting: Waiting, **given: object) -> FleetView:
    plain = {"now_s": 0.0, "devices": tuple(devices), "waiting": waiting, "rule": EVERYONE, "move_cost_s": 2.0}
    return FleetView(**{**plain, **given})  # type: ignore[arg-type]


def keys(*entries: Waiting) -> list[str]:
    return [key for one in entries for key in one.keys]


@pytest.mark.parametrize("seed", range(20))
def test_one_device_with_room_for_all_is_one_hybrid_of_the_simulator(seed: int) -> None:
    chance = random.Random(seed)
    policy = chance.choice(POLICIES)
    jobs = [
        SimulatedJob(
            name=f"s{place}zz/netzz",
            arrival_s=place and chance.randrange(40) / 8,
            epochs=chance.randint(1, 3),
            steps_per_epoch=chance.randint(1, 4),
            seconds_per_step=chance.randint(8, 16) / 8,
        )
        for place in range(chance.randint(1, 5))
    ]
    jobs[0] = replace(jobs[0], epochs=20)  # the hybrid lasts until all have come
    entries = [entry(place, [ONE], submitted_at_s=job.arrival_s) for place, job in enumerate(jobs)]
    trace = Fleet(fleet([ONE]), policy, jobs={job.name: job for job in jobs}, coming=entries, watch=check_plan).run()
    turns = simulate(jobs, policy)
    assert trace.ends_s == {job.name: max(one.end_s for one in turns if one.submodel == job.name) for job in jobs}
    assert trace.placed_s == {job.name: job.arrival_s for job in jobs}


def test_two_devices_take_half_the_time_of_one() -> None:
    entries = [entry(place, [ONE, TWO], left_s=10.0) for place in range(6)]
    assert max(Fleet(fleet([ONE, TWO], *entries), TURNS).run().ends_s.values()) == pytest.approx(30)
    alone = [replace(one, devices=frozenset(["cuda:0"])) for one in entries]
    assert max(Fleet(fleet([ONE, TWO], *alone), TURNS).run().ends_s.values()) == pytest.approx(60)


def moved(trace: FleetTrace, entries: Sequence[Waiting]) -> set[str]:
    assert trace.ends_s.keys() == set(keys(*entries))
    return set(trace.moved)


def test_a_drained_device_is_left_and_nothing_is_lost() -> None:
    entries = [entry(place, [ONE, TWO], left_s=100.0) for place in range(4)]
    drained = [Change(at_s=30.0, device="cuda:0", state="draining")]
    trace = Fleet(fleet([ONE, TWO], *entries), TURNS, changes=drained, watch=check_plan).run()
    assert len(moved(trace, entries)) == 2
    assert {one.device for at_s, one in trace.placements if at_s >= 30} == {"cuda:1"}
    assert max(trace.ends_s.values()) == pytest.approx(400 - 30, abs=1)  # what was done before the move counts


def test_a_private_hybrid_is_drained_as_one() -> None:
    both = entry(0, [ONE, TWO], keys=("r/a", "r/b"), private=True, need=None, peak_bytes=GIB, left_s=100.0)
    drained = [Change(at_s=30.0, device="cuda:0", state="draining")]
    trace = Fleet(fleet([ONE, TWO], both), TURNS, changes=drained, watch=check_plan).run()
    assert [(at_s >= 30, one.device, one.keys) for at_s, one in trace.placements] == [
        (False, "cuda:0", ("r/a", "r/b")),
        (True, "cuda:1", ("r/a", "r/b")),
    ]
    assert max(trace.ends_s.values()) == pytest.approx(102, abs=5.1)  # and a step that was begun, one of 5 s


def test_who_is_on_its_way_to_a_device_that_is_drained_turns_back() -> None:
    entries = [entry(0, [ONE, TWO], left_s=100.0)]
    changes = [
        Change(at_s=at_s, device=name, state=state)
        for at_s, name, state in ((30.0, "cuda:0", "draining"), (40.5, "cuda:1", "draining"), (41.0, "cuda:0", "ready"))
    ]
    trace = Fleet(fleet([ONE, TWO], *entries, move_cost_s=20.0), TURNS, changes=changes, watch=check_plan).run()
    assert [one.device for _, one in trace.placements] == ["cuda:0", "cuda:1", "cuda:0"]
    assert moved(trace, entries) == set(keys(*entries))


def test_a_device_that_becomes_free_takes_from_a_hybrid_of_several_but_not_twice() -> None:
    entries = [entry(place, [ONE, TWO], left_s=left_s) for place, left_s in enumerate((100.0, 100.0, 100.0, 100.0))]
    late = [Change(at_s=20.0, device="cuda:1", state="ready")]
    away = replace(TWO, state="away")
    trace = Fleet(fleet([ONE, away], *entries), TURNS, changes=late, watch=check_plan).run()
    assert len(moved(trace, entries)) == len(trace.moved) == 2
    assert max(trace.ends_s.values()) < 230


def test_those_who_gather_start_when_their_time_is_up() -> None:
    entries = [entry(place, [ONE], left_s=10.0, submitted_at_s=float(place)) for place in range(2)]
    late = entry(5, [ONE], left_s=10.0, submitted_at_s=12.0)
    view = fleet([ONE], mode="gathered", gather_s=10.0, gather_n=3)
    trace = Fleet(view, FCFS, coming=[*entries, late], watch=check_plan).run()
    assert trace.placed_s == {"s0zz/netzz": 10.0, "s1zz/netzz": 10.0, "s5zz/netzz": 30.0}
