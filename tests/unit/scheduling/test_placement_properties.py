"""Placement against an oracle, against what happens without those who overtake, and against brute force."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from tests.unit.scheduling.placement_kit import (
    EVERYONE,
    POLICIES,
    check_plan,
    device,
    entry,
    entry_of,
    jobs_of,
    need,
    view_of,
)
from tools.simulate_cluster import Change, Fleet
from unifiednn_core.scheduling import placement
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.line import FleetView, Plan, PoolMode, Waiting, in_order
from unifiednn_core.scheduling.placement import decide

HOPELESS = ("permission", "does not have", "none is there now", " in all. ", "is drained", "is away")


def fleets(first: int, last: int) -> Iterator[tuple[random.Random, FleetView]]:
    for seed in range(first, last):
        chance = random.Random(seed)
        yield chance, view_of(chance, known=chance.random() < 0.5)


def check_fleet(chance: random.Random, view: FleetView) -> None:
    """Simulate with more who come; every plan is checked, and without other programs nobody starves.

    Seconds that placement expects are wrong by up to a factor of 4, and some it does not know.
    """
    late = [
        replace(entry_of(chance, 50 + at, view.devices, known=False), submitted_at_s=30.0 + chance.randint(0, 200))
        for at in range(chance.randint(0, 3))
    ]
    jobs = jobs_of(chance, [*view.waiting, *late], view.hybrids)
    alone = replace(view, devices=tuple(replace(one, free_bytes=None, pool="") for one in view.devices))
    name, at_s = chance.choice(view.devices).name, 30.0 + chance.randint(0, 100)
    changes = (
        [
            Change(at_s=at_s, device=name, state=chance.choice(["draining", "away"])),
            Change(at_s=at_s + 50.0, device=name, state="ready"),
        ]
        if chance.random() < 0.5
        else []
    )
    policy = chance.choice(POLICIES)
    trace = Fleet(alone, policy, jobs=jobs, coming=late, changes=changes, watch=check_plan).run()
    Fleet(view, policy, jobs=jobs, watch=check_plan).run(5)
    helped = {key for one in (*view.waiting, *late) for key in one.keys} - trace.waits.keys()
    assert helped <= trace.ends_s.keys()
    assert all(any(words in text for words in HOPELESS) for text in trace.waits.values()), trace.waits


@pytest.mark.parametrize("block", range(4))
def test_no_plan_breaks_a_rule_and_nobody_starves(block: int) -> None:
    for chance, view in fleets(250 * block, 250 * (block + 1)):
        check_fleet(chance, view)


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_no_plan_breaks_a_rule_and_nobody_starves_in_ten_thousand_cases(block: int) -> None:
    for chance, view in fleets(1000 * (block + 1), 1000 * (block + 2)):
        check_fleet(chance, view)


# --- the first in line ------------------------------------------------------------------------------------------------


def plans_of(view: FleetView, policy: Policy, coming: Sequence[Waiting]) -> list[tuple[FleetView, Plan]]:
    seen: list[tuple[FleetView, Plan]] = []
    Fleet(view, policy, coming=coming, watch=lambda view, plan: seen.append((view, plan))).run()
    return seen


def delayed(seeds: range) -> tuple[int, int, int]:
    """Moments with somebody first in line, those at which others overtake it, and those where that delays it.

    Predicted seconds are right, nobody moves, and one steps at a time.
    """
    moments = overtaken = late = 0
    for seed in seeds:
        chance = random.Random(seed)
        mode: PoolMode = chance.choice(["pooled", "private"])
        view = view_of(chance, mode=mode, move_cost_s=1e9, lanes=1)
        policy = chance.choice(POLICIES)
        coming = [
            replace(entry_of(chance, 50 + at, view.devices), submitted_at_s=30.0 + chance.randint(0, 100))
            for at in range(4)
        ]
        for now, plan in plans_of(view, policy, coming)[:3]:
            line = [
                one
                for one in in_order(now.waiting)
                if not any(words in plan.waits.get(one.keys[0], "") for words in HOPELESS)
            ]
            if not line or line[0].keys[0] not in plan.waits:
                continue
            first, behind = line[0].keys[0], [one for one in coming if one.submitted_at_s > now.now_s]
            starts_s = Fleet(now, policy, coming=behind).run().placed_s
            alone_s = Fleet(replace(now, waiting=line[:1]), policy).run().placed_s
            moments += 1
            begins_s = starts_s.get(first, 1e18)
            overtaken += any(starts_s.get(one.keys[0], 1e18) < begins_s for one in (*line[1:], *behind))
            late += begins_s > alone_s.get(first, 1e18) + 1e-6
    return moments, overtaken, late


def test_without_those_who_overtake_the_first_in_line_starts_no_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, overtaken, late = delayed(range(120))
    assert moments > 150 and overtaken > 20 and late == 0
    monkeypatch.setattr(placement._Fleet, "keep", lambda fleet, entry, sites: None)
    assert delayed(range(50))[2] > 5


@pytest.mark.long
def test_without_those_who_overtake_the_first_in_line_starts_no_earlier_in_many_cases() -> None:
    assert delayed(range(200, 2000))[2] == 0


# --- brute force ------------------------------------------------------------------------------------------------------


def small(chance: random.Random, *, kept_mib: int, picky: bool, mode: PoolMode) -> FleetView:
    """Up to eight who wait for up to three equal devices."""
    devices = tuple(device(f"cuda:{at}") for at in range(chance.randint(1, 3)))
    names = [one.name for one in devices]
    waiting = tuple(
        entry(
            place,
            devices,
            left_s=float(chance.randint(1, 1000)),
            need=need(kept_mib, 200),
            devices=frozenset([chance.choice(names)] if picky and chance.random() < 0.3 else names),
        )
        for place in range(chance.randint(1, 8))
    )
    return FleetView(now_s=0.0, devices=devices, waiting=waiting, rule=EVERYONE, mode=mode, move_cost_s=1.0)


def best_s(view: FleetView, *, in_line: bool) -> float:
    """Least makespan of any choice of devices; with `in_line`, nobody starts before somebody ahead."""
    entries = in_order(view.waiting) if in_line else sorted(view.waiting, key=lambda one: -(one.left_s or 0))
    best = [1e18]

    def choose(left: list[Waiting], free_s: dict[str, float], last_s: float) -> None:
        if max(free_s.values()) >= best[0]:
            return
        if not left:
            best[0] = max(free_s.values())
            return
        for name in left[0].devices:
            start_s = max(free_s[name], last_s if in_line else 0.0)
            choose(left[1:], {**free_s, name: start_s + (left[0].left_s or 0)}, start_s)

    choose(entries, {one.name: 0.0 for one in view.devices}, 0.0)
    return best[0]


def ratios(*, kept_mib: int, picky: bool, mode: PoolMode, in_line: bool, cases: int = 150) -> list[float]:
    found = []
    for seed in range(cases):
        chance = random.Random(seed)
        view = small(chance, kept_mib=kept_mib, picky=picky, mode=mode)
        trace = Fleet(view, chance.choice(POLICIES)).run()
        found.append(max(trace.ends_s.values()) / best_s(view, in_line=in_line))
    return sorted(found)


@pytest.mark.parametrize("picky", [False, True])
def test_with_memory_for_all_the_makespan_is_within_a_tenth_of_the_best(picky: bool) -> None:
    """The makespan, because it follows from placement alone: the order on a device is that of the policy."""
    found = ratios(kept_mib=100, picky=picky, mode="pooled", in_line=False)
    assert found[int(0.99 * len(found))] <= 1.1 and found[-1] <= 1.2


def test_one_hybrid_each_is_as_good_as_any_that_keeps_to_the_line() -> None:
    assert ratios(kept_mib=100, picky=False, mode="private", in_line=True)[-1] <= 1 + 1e-9


@pytest.mark.parametrize(
    ("mode", "picky", "mean", "worst"),
    [("private", True, 1.02, 2.0), ("pooled", False, 1.02, 1.5), ("pooled", True, 1.02, 1.5)],
)
def test_where_it_keeps_to_the_line_it_is_near_the_best_that_does(
    mode: PoolMode, picky: bool, mean: float, worst: float
) -> None:
    """Memory for three on a device, or one. The first in line takes a free device although it could have waited for
    another one, which would have helped somebody behind it; and who has joined a hybrid leaves it only if that pays.
    """
    found = ratios(kept_mib=1000, picky=picky, mode=mode, in_line=True)
    assert fmean(found) <= mean and found[-1] <= worst
    assert found[int(0.9 * len(found))] <= 1.1


def test_order_and_figures_alone_decide() -> None:
    for _, view in fleets(0, 50):
        assert decide(view) == decide(replace(view, waiting=view.waiting[::-1]))
