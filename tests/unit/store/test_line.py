"""The line: operators move what waits, and nobody else loses more than the place of the moved one."""

import random
from dataclasses import replace

import pytest

from tests.unit.scheduling.placement_kit import EVERYONE, device, entry
from tests.unit.store.test_store import BERTH, add_run
from tools.simulate_cluster import Fleet
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.line import FleetView, Waiting
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.store import Store
from unifiednn_core.store.workers import moved, rising
from unifiednn_core.views.run_rows import listed_views

ONE = device("cuda:0")


def line_of(store: Store) -> list[str]:
    return [run.id for run, _ in store.workers.waiting()]


def keys_of(store: Store) -> list[float]:
    return [run.line_at_s for run, _ in store.workers.waiting()]


def places(store: Store) -> dict[str, int | None]:
    return {view.run_id: view.queue_position for view in listed_views(store.runs.listed(), 0.0)}


@pytest.mark.parametrize("seed", range(10))
def test_any_moves_permute_the_line_and_every_other_one_shifts_by_at_most_one(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    for place in range(6):
        add_run(store, f"r{place}", created_at_s=float(chance.choice([0, place, 3])), shared=chance.random() < 0.5)
    everyone, before = sorted(line_of(store)), keys_of(store)
    for _ in range(25):
        line = line_of(store)
        run_id, place = chance.choice(line), chance.randint(1, 8)
        old, new = store.workers.move(run_id, place)
        after = line_of(store)
        assert (line[old - 1], after[new - 1], new) == (run_id, run_id, min(place, 6))
        assert sorted(after) == everyone
        assert [one for one in after if one != run_id] == [one for one in line if one != run_id]
        assert all(abs(after.index(one) - line.index(one)) <= 1 for one in line if one != run_id)
        assert keys_of(store) == sorted(set(keys_of(store))), "no two are equal"
        assert [places(store)[one] for one in after] == list(range(1, 7))
    assert keys_of(store) == pytest.approx(before, abs=1e-3), "the keys are exchanged, so a thousand moves need no more"


def test_who_is_moved_to_the_front_starts_first(store: Store) -> None:
    for place in range(3):
        add_run(store, f"r{place}", created_at_s=float(place))
    store.workers.move("r2", 1)
    assert line_of(store) == ["r2", "r0", "r1"] and store.runs.queued_before(store.runs.get("r0")[0]) == 1
    assert store.workers.claim("r2", BERTH)
    with pytest.raises(BadInput, match="r2 does not wait"):
        store.workers.move("r2", 1)
    with pytest.raises(NotFound):
        store.workers.move("nobody", 1)
    with pytest.raises(BadInput, match="no place 0"):
        store.workers.move("r1", 0)
    assert line_of(store) == ["r0", "r1"]


def order_of(entries: list[Waiting]) -> list[Waiting]:
    """The entries with the keys of this order, as the store writes them."""
    keys = rising(one.submitted_at_s for one in sorted(entries, key=lambda one: one.submitted_at_s))
    return [replace(one, line_at_s=key) for one, key in zip(entries, keys, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_placement_follows_the_line_and_nobody_is_delayed_by_more_than_the_moved_one(seed: int) -> None:
    chance = random.Random(seed)

    def job(at: int) -> Waiting:
        who = {"keys": (f"s{at}/n",), "run_id": f"s{at}", "submitted_at_s": float(at), "private": True}
        return entry(0, [ONE], **who, left_s=float(chance.randint(1, 50)))

    jobs = [job(at) for at in range(chance.randint(2, 6))]
    at, to = chance.randrange(len(jobs)), chance.randrange(len(jobs))
    view = FleetView(now_s=0.0, devices=(ONE,), rule=EVERYONE, mode="private")
    before = replace(view, waiting=tuple(order_of(jobs)))
    line = order_of(moved(jobs, at, to))
    after = replace(view, waiting=tuple(chance.sample(line, len(line))))
    assert decide(after).placements[0].keys == line[0].keys
    policy = FirstComeFirstServed()
    starts, now = (Fleet(one, policy).run().placed_s for one in (before, after))
    assert sorted(now, key=now.__getitem__) == [key for one in line for key in one.keys]
    for one in jobs:
        if one is not jobs[at]:
            assert now[one.keys[0]] - starts[one.keys[0]] <= (jobs[at].left_s or 0.0) + 1e-6
    plain = replace(after, waiting=tuple(replace(one, line_at_s=None) for one in after.waiting))
    first = decide(plain).placements[0].keys
    assert first == jobs[0].keys, "without its key the move would be seen to have no effect"
