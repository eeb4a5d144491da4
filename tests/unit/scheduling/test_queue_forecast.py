"""When each entry of the queue starts and ends, if nobody else comes."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from tests.unit.scheduling.placement_kit import EVERYONE, GIB, device, entry, need
from tools.simulate_cluster import Fleet
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.line import DeviceView, FleetView, HybridView, Placed, Waiting
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.scheduling.queue_forecast import forecast_queue
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate

ONE, TWO = device("cuda:0"), device("cuda:1")
FCFS, TURNS = FirstComeFirstServed(), RoundRobin(unit="seconds", amount=1)


def forecast(view: FleetView, policy: Policy = FCFS) -> dict[str, tuple[float, float]]:
    """Start and end of each that waits; what the view expects is true."""
    lefts_s = {key: (one.left_s or 0.0) / len(one.keys) for one in view.waiting for key in one.keys}
    lefts_s |= {member.key: member.left_s or 0.0 for hybrid in view.hybrids for member in hybrid.members}
    jobs = {key: SimulatedJob(name=key, seconds_per_step=left_s / 100, epochs=100) for key, left_s in lefts_s.items()}
    starts_s, ends_s = forecast_queue(view, decide(view).placements, jobs, lambda run_id, own: simulate(own, policy))
    waiting = [key for one in view.waiting for key in one.keys]
    return {key: (starts_s[key], ends_s[key]) for key in waiting if key in ends_s}


def fleet(devices: Sequence[DeviceView], *waiting: Waiting, **given: object) -> FleetView:
    plain = {"now_s": 1000.0, "devices": tuple(devices), "waiting": waiting, "rule": EVERYONE, "mode": "pooled"}
    return FleetView(**{**plain, **given})  # type: ignore[arg-type]


def hybrid(*lefts_s: float, private: bool = False) -> HybridView:
    members = tuple(
        Placed(key=f"h{at}/n", run_id="h", devices=frozenset(["cuda:0"]), need=need(3000, 100), left_s=left_s)
        for at, left_s in enumerate(lefts_s)
    )
    return HybridView(
        id="h", device="cuda:0", private=private, threads=1, profile="exact", peak_bytes=GIB, members=members
    )


def about(values: Iterable[tuple[float, float]]) -> list[object]:
    return [pytest.approx(value) for value in values]


def test_entries_start_one_after_the_other_where_a_device_is_free_first() -> None:
    waiting = [entry(place, [ONE, TWO], private=True, left_s=30.0) for place in range(3)]
    both = forecast(fleet([ONE, TWO], *waiting, hybrids=(hybrid(50.0, private=True),)))
    assert list(both.values()) == about([(0, 30), (30, 60), (50, 80)])
    away = replace(TWO, state="away")
    assert list(forecast(fleet([ONE, away], *waiting)).values()) == about([(0, 30), (30, 60), (60, 90)])


def test_a_shared_entry_joins_when_the_first_member_ends() -> None:
    busy = hybrid(20.0, 60.0)
    large = entry(0, [ONE], need=need(3000, 100), left_s=30.0)
    assert list(forecast(fleet([replace(ONE, free_bytes=0)], large, hybrids=(busy,)), TURNS)) == ["s0zz/netzz"]
    [(starts_s, ends_s)] = forecast(fleet([replace(ONE, free_bytes=0)], large, hybrids=(busy,)), TURNS).values()
    assert 39 <= starts_s <= 45 and 100 <= ends_s <= 110, "two take turns until one ends after 40 s"


def test_an_entry_that_fits_no_device_is_not_foreseen() -> None:
    waiting = entry(0, [ONE], claims=2, private=True, left_s=5.0), entry(1, [TWO], private=True, left_s=5.0)
    assert list(forecast(fleet([ONE], *waiting))) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_forecast_of_private_runs_comes_true(seed: int) -> None:
    chance = random.Random(seed)
    waiting = [
        entry(place, [ONE, TWO], private=True, left_s=float(chance.randint(1, 500)), submitted_at_s=float(place))
        for place in range(chance.randint(1, 6))
    ]
    view = fleet([ONE, TWO], *waiting, mode="private")
    trace = Fleet(view, FCFS).run()
    assert forecast(view) == {
        key: (pytest.approx(trace.placed_s[key] - 1000), pytest.approx(trace.ends_s[key] - 1000))
        for key in trace.ends_s
    }
