"""Runs that need several devices at once."""

import random
from dataclasses import replace

import pytest

from tests.unit.scheduling.placement_kit import EVERYONE, GIB, check_plan, device, entry, view_of
from unifiednn_core.scheduling.line import DeviceView, FleetView, HybridView, Placed, Waiting
from unifiednn_core.scheduling.placement import decide

GPUS = tuple(device(f"cuda:{at}") for at in range(3))


def run(place: int, there: tuple[DeviceView, ...] = GPUS, claims: int = 2, **given: object) -> Waiting:
    return entry(place, there, private=True, peak_bytes=GIB, claims=claims, **given)


def fleet(devices: tuple[DeviceView, ...], *waiting: Waiting, hybrids: tuple[HybridView, ...] = ()) -> FleetView:
    return FleetView(now_s=0.0, devices=devices, hybrids=hybrids, waiting=waiting, rule=EVERYONE)


def holding(*names: str, left_s: float = 10.0) -> HybridView:
    member = Placed(key=f"{names[0]}/x", run_id=names[0], devices=frozenset(names), left_s=left_s)
    return HybridView(
        id=f"h{names[0]}",
        device=names[0],
        also=names[1:],
        private=True,
        threads=1,
        profile="exact",
        members=(member,),
        peak_bytes=GIB,
    )


def test_a_run_takes_as_many_devices_as_it_claims_and_no_other_starts_there() -> None:
    plan = decide(fleet(GPUS, run(0), run(1, claims=1), run(2, claims=1)))
    assert [(one.device, one.also) for one in plan.placements] == [("cuda:0", ("cuda:1",)), ("cuda:2", ())]
    assert list(plan.waits) == ["s2zz/netzz"]
    held = holding("cuda:0", "cuda:1")
    plan = decide(fleet(GPUS, run(0, claims=1), run(1, claims=1), hybrids=(held,)))
    assert [one.device for one in plan.placements] == ["cuda:2"], "a device that a hybrid holds beside its first"


def test_devices_are_of_one_kind() -> None:
    mixed = (GPUS[0], device("cuda:1", kind="A100"), device("cuda:2", kind="A100"))
    [placed] = decide(fleet(mixed, run(0, mixed))).placements
    assert (placed.device, placed.also) == ("cuda:1", ("cuda:2",))
    plan = decide(fleet(mixed, run(0, mixed, claims=3)))
    assert plan.waits == {"s0zz/netzz": "3 devices of one kind at once; 2 of those that it asks for are ready"}
    assert not decide(fleet(mixed, run(0, mixed, claims=3), run(1, mixed, claims=1))).waits.keys() & {"s1zz/netzz"}


def test_a_run_that_waits_for_two_devices_keeps_them() -> None:
    """Else small runs, which need one, would start there for ever."""
    busy = tuple(holding(f"cuda:{at}", left_s=10.0 + at) for at in range(2))
    later = run(1, claims=1, left_s=1000.0)
    plan = decide(fleet(GPUS, run(0), later, hybrids=busy))
    assert plan.waits["s0zz/netzz"] == "2 devices of one kind to be free at once; 1 is now"
    assert not plan.placements, "the free one is kept, with the one that is free first"
    alone = decide(fleet(GPUS, later, hybrids=busy))
    assert [one.device for one in alone.placements] == ["cuda:2"]  # control
    [placed] = decide(fleet(GPUS, run(0), later, hybrids=busy[1:])).placements
    assert {placed.device, *placed.also} == {"cuda:0", "cuda:2"}


def test_logical_devices_of_one_host_share_its_memory() -> None:
    cpus = tuple(device(name, type="cpu", pool="host", free_bytes=3 * GIB // 2) for name in ("cpu:0", "cpu:1"))
    [placed] = decide(fleet(cpus, run(0, cpus))).placements
    assert placed.also == ("cpu:1",)  # 1 GiB in all, not for each
    own = tuple(replace(one, pool="", total_bytes=GIB // 2) for one in cpus)
    assert not decide(fleet(own, run(0, own))).placements


def test_a_hybrid_leaves_when_any_of_its_devices_is_drained() -> None:
    drained = (GPUS[0], replace(GPUS[1], state="draining"))
    [move] = decide(fleet(drained, hybrids=(holding("cuda:0", "cuda:1"),))).moves
    assert move.reason == "cuda:1 is drained."


@pytest.mark.parametrize("seed", range(60))
def test_no_device_is_given_twice(seed: int) -> None:
    chance = random.Random(seed)
    view = view_of(chance)
    claiming = [
        replace(one, private=True, claims=chance.choice([1, 2, 3]), peak_bytes=GIB, need=None)
        if chance.random() < 0.5
        else one
        for one in view.waiting
    ]
    view = replace(view, waiting=tuple(claiming))
    plan = decide(view)
    check_plan(view, plan)
    claims = {key: one.claims for one in view.waiting for key in one.keys}
    kinds = {one.name: one.kind for one in view.devices}
    given = [name for placement in plan.placements for name in (placement.device, *placement.also)]
    assert len(set(given)) == len(given)
    held = {hybrid.device for hybrid in view.hybrids}
    for placement in plan.placements:
        assert len(placement.also) == max(claims[key] for key in placement.keys) - 1
        assert len({kinds[name] for name in (placement.device, *placement.also)}) == 1
        assert not set(placement.also) & held
