"""The quick plans of many devices are those of `decide`, whatever happens to the fleet."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.scheduling.placement_kit import POLICIES, device, entry, entry_of, jobs_of, view_of
from unifiednn_core.scheduling import quick
from unifiednn_core.scheduling.fleet import run_fleet
from unifiednn_core.scheduling.fleet_events import Change, FleetFailure, FleetTrace
from unifiednn_core.scheduling.line import FleetView, Plan
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.spec.pooling import PoolMode


def fleets(first: int, last: int) -> Iterator[tuple[random.Random, FleetView]]:
    """Random fleets of either mode; some entries claim two devices."""
    for seed in range(first, last):
        chance = random.Random(seed)
        modes: list[PoolMode] = ["pooled", "private"]
        view = view_of(chance, known=chance.random() < 0.5, mode=chance.choice(modes), most=12)
        claims = [2 if one.private and len(one.keys) == 1 and chance.random() < 0.5 else 1 for one in view.waiting]
        waiting = tuple(replace(one, claims=most) for one, most in zip(view.waiting, claims, strict=True))
        yield chance, replace(view, waiting=waiting)


def differences(chance: random.Random, view: FleetView) -> tuple[int, int]:
    """Plans of a fleet with much going on, and those that are not what `decide` says. Both ways end alike."""
    late = [replace(entry_of(chance, 50 + at, view.devices, known=False), submitted_at_s=30.0 + chance.randint(0, 200))
            for at in range(chance.randint(0, 6))]  # fmt: skip
    jobs = jobs_of(chance, [*view.waiting, *late], view.hybrids)
    name, at_s = chance.choice(view.devices).name, 30.0 + chance.randint(0, 100)
    changes = [Change(at_s=at_s, device=name, state=chance.choice(["draining", "away"])),
               Change(at_s=at_s + 50.0, device=name, state="ready")] if chance.random() < 0.5 else []  # fmt: skip
    dead = [FleetFailure(at_s=60.0 + 40 * at, devices=(chance.choice(view.devices).name,), back_s=70.0 + 40 * at)
            for at in range(chance.randint(0, 3))]  # fmt: skip
    policy, seen = chance.choice(POLICIES), list[bool]()

    def compare(now: FleetView, plan: Plan) -> None:
        asked = decide(now)
        seen.append((asked.placements, asked.moves) == (plan.placements, plan.moves))

    def run(*, quickly: bool) -> FleetTrace:
        watch = {"watch": compare} if quickly else {}
        return run_fleet(view, policy, jobs=jobs, coming=late, changes=changes, failures=dead, checkpoint_s=20.0,
                         most_looks=300, quick=quickly, **watch)  # type: ignore[arg-type]  # fmt: skip

    plain, fast = run(quickly=False), run(quickly=True)
    alike = (plain.ends_s, plain.placements, plain.moved, plain.lost_s) == (
        fast.ends_s, fast.placements, fast.moved, fast.lost_s)  # fmt: skip
    return len(seen), seen.count(False) + (not alike)


def test_quick_plans_are_those_of_placement() -> None:
    found = [differences(chance, view) for chance, view in fleets(0, 70)]
    assert sum(plans for plans, _ in found) > 1000 and sum(wrong for _, wrong in found) == 0


@pytest.mark.long
def test_quick_plans_are_those_of_placement_in_many_cases() -> None:
    assert sum(differences(chance, view)[1] for chance, view in fleets(1000, 6000)) == 0


@pytest.mark.parametrize("name", ["_keep", "_place", "_takers"])
def test_a_mistake_would_be_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    wrong = {
        "_keep": lambda found, entry, sites, alone: None,
        "_place": lambda found, entry, sites, alone: False,
        "_takers": lambda found, joins: found.draft.empty,
    }
    monkeypatch.setattr(quick._Filled, name, wrong[name])
    with pytest.raises((AssertionError, RuntimeError)):
        assert not any(differences(chance, view)[1] for chance, view in fleets(0, 60))


def test_moves_of_a_large_fleet_are_found_without_looking_at_all() -> None:
    """Everybody trains on one device when others come back."""
    devices = [device(f"cuda:{at}", state="away" if at else "ready") for at in range(6)]
    entries = [entry(place, devices, left_s=500.0) for place in range(8)]
    back = [Change(at_s=20.0, device=one.name, state="ready") for one in devices[1:]]
    view = FleetView(now_s=0.0, devices=tuple(devices), waiting=tuple(entries), move_cost_s=1.0)
    plain, fast = (run_fleet(view, POLICIES[1], changes=back, quick=quickly) for quickly in (False, True))
    assert fast.moved == plain.moved and len(fast.moved) >= 5
    assert fast.ends_s == plain.ends_s
