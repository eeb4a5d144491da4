"""Random fleets, and an oracle of plans that is written without the code of placement."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.line import (
    COMPANY_SHARE,
    DeviceView,
    FleetView,
    HybridView,
    Need,
    Placed,
    Plan,
    PoolMode,
    Waiting,
)
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.scheduling.sjf import ShortestJobFirst
from unifiednn_core.spec.sharing import Sharing, SharingRule

MIB = 1024**2
GIB = 1024**3
PEOPLE = ("ann-zz", "bob-zz", "cat-zz")
EVERYONE = SharingRule(Sharing.EVERYONE)
RULES = (EVERYONE, SharingRule(Sharing.TEAM, {"ann-zz": "red", "bob-zz": "red"}), SharingRule(Sharing.OWN))
MODES: tuple[PoolMode, ...] = ("pooled", "gathered", "private")
POLICIES: tuple[Policy, ...] = (FirstComeFirstServed(), RoundRobin(), ShortestJobFirst(by="epochs"))
KINDS = ("H200", "A100")
DATA = {"x": {"x": 10}, "y": {"y": 200}, "z": {"y": 200, "z": 500}}
"""Data sets of a network, in MiB."""


def device(name: str, **given: object) -> DeviceView:
    plain = {
        "name": name,
        "type": "cuda",
        "kind": "H200",
        "total_bytes": 8 * GIB,
        "free_bytes": 8 * GIB,
        "context_bytes": GIB // 2,
    }
    return DeviceView(**{**plain, **given})  # type: ignore[arg-type]


def need(kept_mib: int, working_mib: int, data: Mapping[str, int] | None = None) -> Need:
    """Half of the working memory is what the allocator keeps; as much as is kept is copied for a checkpoint."""
    return Need(
        kept_bytes=kept_mib * MIB,
        working_bytes=working_mib * MIB,
        copies_bytes=kept_mib * MIB,
        slack_bytes=working_mib * MIB // 2,
        company_bytes=working_mib * MIB,
        data={name: size * MIB for name, size in (data or {}).items()},
    )


def entry(place: int, there: Sequence[DeviceView], **given: object) -> Waiting:
    plain = {
        "keys": (f"s{place}zz/netzz",),
        "run_id": f"s{place}zz",
        "submitted_at_s": 0.0,
        "arrival": place,
        "asked": "auto",
        "devices": frozenset(one.name for one in there),
        "private": False,
        "people": ("ann-zz",),
        "need": need(100, 100),
        "left_s": 10.0,
    }
    return Waiting(**{**plain, **given})  # type: ignore[arg-type]


def devices_of(chance: random.Random, count: int) -> tuple[DeviceView, ...]:
    """Some devices; logical CPUs of one host draw on the same memory."""
    if chance.random() < 0.3:
        total = chance.randint(4, 12) * GIB
        return tuple(
            device(
                f"cpu:{at}" if at else "cpu",
                type="cpu",
                kind="AVX2",
                pool="host",
                total_bytes=total // count,
                free_bytes=int(total * chance.uniform(0.6, 1)),
            )
            for at in range(count)
        )
    totals = [chance.randint(4, 12) * GIB for _ in range(count)]
    return tuple(
        device(
            f"cuda:{at}",
            kind=chance.choice(KINDS),
            total_bytes=totals[at],
            free_bytes=int(totals[at] * chance.choice([1, 1, 1, 0.95])),
        )
        for at in range(count)
    )


def asked_of(chance: random.Random, devices: Sequence[DeviceView]) -> tuple[str, frozenset[str]]:
    """What somebody asks for, and the names that match."""
    words = chance.choice(["auto", "auto", "auto", chance.choice(devices).name, chance.choice(devices).kind])
    return words, frozenset(one.name for one in devices if words in ("auto", one.name, one.kind))


def entry_of(chance: random.Random, place: int, devices: Sequence[DeviceView], *, known: bool = True) -> Waiting:
    """One of any sort; with `known`, its seconds and its memory are."""
    asked, names = asked_of(chance, devices)
    private = chance.random() < 0.2
    keys = tuple(f"s{place}zz/netzz{at}" for at in range(chance.randint(1, 2) if private else 1))
    unknown = not known and chance.random() < 0.2
    own = need(chance.randint(50, 2000), chance.randint(50, 2000), DATA[chance.choice("xyz")])
    return entry(
        place,
        devices,
        keys=keys,
        asked=asked,
        devices=names,
        private=private,
        people=tuple(chance.sample(PEOPLE, 1 if chance.random() < 0.95 else 2)),
        need=None if private or unknown else own,
        peak_bytes=chance.randint(1, 6) * GIB if private and not unknown else None,
        threads=chance.choice([None, None, 1, 2]),
        profile=chance.choice(["exact", "exact", "exact", "fast"]),
        left_s=None if not known and chance.random() < 0.2 else float(chance.randint(1, 100)),
        submitted_at_s=float(chance.choice([0, 0, place, 3 * place])),
    )


def hybrid_of(
    chance: random.Random, on: DeviceView, mode: PoolMode, devices: Sequence[DeviceView]
) -> HybridView | None:
    """A hybrid that fits."""
    person = chance.choice(PEOPLE)
    members = tuple(
        Placed(
            key=f"h{on.name}zz/netzz{at}",
            run_id=f"h{on.name}zz",
            people=(person,),
            need=need(200, 200),
            devices=frozenset(one.name for one in devices if one.kind == on.kind),
            left_s=float(chance.randint(1, 100)),
            moved_at_s=chance.choice([None, 0.0, -1000.0]),
        )
        for at in range(chance.randint(1, 3))
    )
    return HybridView(
        id=f"h{on.name}",
        device=on.name,
        private=False,
        accepts=mode == "pooled",
        profile="exact",
        threads=2 if on.type == "cuda" else 1,  # another number than the device gives: there it parts nobody
        members=members,
        used_bytes=chance.choice([None, 300 * MIB]),
    )


def view_of(chance: random.Random, *, most: int = 8, known: bool = True, **given: object) -> FleetView:
    """A random moment of a random fleet."""
    devices, mode = devices_of(chance, chance.randint(1, 3)), chance.choice(MODES)
    mode = given.get("mode", mode)  # type: ignore[assignment]
    busy = [one for one in devices if chance.random() < 0.4]
    hybrids = tuple(hybrid_of(chance, one, mode, devices) for one in busy)
    if "hybrids" in given:
        hybrids = ()
    held = {found.device: (found.used_bytes or 2 * GIB) for found in hybrids}
    devices = tuple(
        replace(
            one, free_bytes=max(0, (one.free_bytes or 0) - sum(held.values() if one.pool else [held.get(one.name, 0)]))
        )
        for one in devices
    )
    waiting = tuple(entry_of(chance, place, devices, known=known) for place in range(chance.randint(1, most)))
    plain = {
        "now_s": 30.0,
        "devices": devices,
        "hybrids": hybrids,
        "waiting": waiting,
        "rule": chance.choice(RULES),
        "mode": mode,
        "gather_s": float(chance.randint(1, 60)),
        "gather_n": chance.randint(1, 4),
        "lanes": chance.choice([1, 1, 3]),
        "move_cost_s": 1.0,
    }
    return FleetView(**{**plain, **given})  # type: ignore[arg-type]


# --- the oracle -------------------------------------------------------------------------------------------------------


def peak(needs: Sequence[Need], context: int, lanes: int) -> int:
    """When all have started: the worst of the moments at which each of them steps."""
    copies = sum(one.copies_bytes for one in needs)
    steps = max(one.working_bytes + max(0, copies - one.slack_bytes) for one in needs)
    data: dict[str, int] = {}
    for one in needs:
        data |= one.data
    whole = context + sum(one.kept_bytes for one in needs) + steps + sum(data.values())
    company = sorted(one.company_bytes for one in needs)[:-1]
    return whole + (min(sum(company), int(COMPANY_SHARE * whole)) if lanes > 1 else 0)


def check_plan(view: FleetView, plan: Plan) -> None:
    """What every plan must keep to."""
    waiting = {key: one for one in view.waiting for key in one.keys}
    placed = [key for placement in plan.placements for key in placement.keys]
    assert len(set(placed)) == len(placed)
    assert set(placed) | set(plan.waits) == set(waiting) and not set(placed) & set(plan.waits)
    for one in view.waiting:  # together or not at all
        assert len({key in placed for key in one.keys}) == 1
    assert len({placement.device for placement in plan.placements}) == len(plan.placements)
    grown: Counter[str] = Counter()
    for placement in plan.placements:
        [on] = [one for one in view.devices if one.name == placement.device]
        there = [one for one in view.hybrids if one.device == on.name]
        assert on.state == "ready" and not on.resting
        assert [one.id for one in there] == ([] if placement.hybrid_id is None else [placement.hybrid_id])
        members = list({one.run_id + one.keys[0]: one for one in (waiting[key] for key in placement.keys)}.values())
        residents = [member for hybrid in there for member in hybrid.members]
        people = {person for one in (*members, *residents) for person in one.people}
        assert view.rule.may_share(people)
        for one in members:
            assert on.name in one.devices
            assert on.type == "cuda" or (one.threads or on.threads) == placement.threads
            assert one.profile == placement.profile
        for hybrid in there:
            assert hybrid.accepts and view.mode == "pooled"
            assert (hybrid.threads, hybrid.profile) == (placement.threads, placement.profile)
        alone = len(members) == 1 and not residents
        if any(one.private for one in members) or view.mode == "private":
            assert alone
        needs = [one.need for one in (*residents, *members)]
        if all(one is not None for one in needs):
            size = peak([one for one in needs if one is not None], on.context_bytes, 1 if alone else view.lanes)
        else:
            assert alone  # of unknown memory, or private
            size = members[0].peak_bytes or 0
        limit = on.total_bytes if alone else int(0.9 * (on.total_bytes or 0))
        assert limit is None or size <= limit
        before = [one.need for one in residents if one.need is not None]
        was = peak(before, on.context_bytes, view.lanes) if before else 0
        grown[on.pool or on.name] += size - was
    for pool, more in grown.items():
        free = [one.free_bytes for one in view.devices if (one.pool or one.name) == pool]
        assert all(size is None or more <= size for size in free), (pool, more, free)
    members_of = {hybrid.id: {one.key: one for one in hybrid.members} for hybrid in view.hybrids}
    assert len({move.key for move in plan.moves}) == len(plan.moves)
    assert not any(members_of[move.hybrid_id][move.key].leaving for move in plan.moves)
    for text in (*plan.waits.values(), *(move.reason for move in plan.moves), *(one.reason for one in plan.placements)):
        assert_readable(text)


def assert_readable(text: str) -> None:
    """A sentence, or the end of one, with nobody's name, run or network in it."""
    assert 5 < len(text) < 160 and "zz" not in text, text
    assert text == text.strip() and "  " not in text and not re.search(r"None|inf\b|nan|\{|-\d", text), text
    assert text[-1].isalnum() or text[-1] in ".'", text


def jobs_of(
    chance: random.Random, waiting: Sequence[Waiting], hybrids: Sequence[HybridView]
) -> dict[str, SimulatedJob]:
    """What those of a view really need, which is not what placement expects."""
    lefts_s = {key: (one.left_s or 20.0) / len(one.keys) for one in waiting for key in one.keys}
    lefts_s |= {member.key: member.left_s or 20.0 for hybrid in hybrids for member in hybrid.members}
    return {
        key: SimulatedJob(name=key, epochs=2, steps_per_epoch=5, seconds_per_step=left_s * chance.uniform(0.25, 4) / 10)
        for key, left_s in lefts_s.items()
    }
