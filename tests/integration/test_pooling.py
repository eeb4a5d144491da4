"""Submissions become hybrids by themselves: who meets in one process, when, and what that changes: no bit."""

from collections.abc import Iterator

import pytest

from tests.integration.pooled import ALICE, BOB, DATA_BYTES, Net, Pool, readable
from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import supervisor
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.pooling import Pooling

ALPHA, BRAVO, CHARLIE = (Net(name, seed) for seed, name in enumerate(("alpha", "bravo", "charlie")))


@pytest.fixture
def pool(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setattr(supervisor, "NOTE_AGAIN_S", 0.2)
    pool = Pool(home)
    yield pool
    pool.close()


def told(pool: Pool, person: Actor, run_id: str) -> str:
    """All that the service says to a person."""
    runs, library = pool.service.acting_as(person).runs, pool.service.acting_as(person).library
    pages: list[object] = [runs.runs(), runs.observe(run_id), runs.document(run_id), runs.spec_document(run_id)]
    pages += [runs.metrics_csv(run_id), runs.graph_dot(run_id), runs.trained(), library.files()]
    return "\n".join(map(repr, pages))


@pytest.mark.parametrize("other", [BRAVO, Net("bravo", 1, data=1)], ids=["one data set", "two data sets"])
def test_two_people_meet_in_one_worker_that_holds_their_data_once(pool: Pool, other: Net) -> None:
    hers = pool.submit(ALICE, ALPHA)
    pool.start_and_hold("alpha", 5, 9)
    his = pool.submit(BOB, other)
    pool.until(lambda: pool.row(his).hybrid_id, "place for the second one")
    pool.go_on(5)
    pool.until_held(9)
    [hybrid] = pool.hybrids()
    held_bytes = (1 + other.data) * DATA_BYTES
    pool.until(lambda: pool.data_bytes(hybrid.id) == held_bytes, "sample with both")
    assert pool.row(hers).attempt == 1 and pool.row(hers).state == State.RUNNING, "it trains while the second one joins"
    pool.go_on(9)
    alone = pool.submit(BOB, other, hybrid="private")
    pool.finish()
    assert pool.wrong() == {}
    [hybrid] = pool.hybrids()
    assert pool.places(hers, his) == [hybrid.id] * 2 and (hybrid.attempt, hybrid.recoveries) == (1, 0)
    assert pool.row(his).state_sha256 == pool.row(alone).state_sha256
    assert pool.data_bytes(hybrid.id) == held_bytes


def test_who_shares_a_worker_is_told_nothing_of_the_other(pool: Pool) -> None:
    runs = {}
    for person, net in ((ALICE, ALPHA), (BOB, BRAVO)):
        runs[person.id] = pool.submit(person, net)
    pool.start()
    pool.finish()
    [hybrid] = pool.hybrids()
    assert pool.places(*runs.values()) == [hybrid.id] * 2
    words = {
        person: {pool.nets[run_id].name, run_id, person.partition("@")[0], pool.row(run_id).state_sha256 or "?"}
        for person, run_id in runs.items()
    }
    for person, other in ((ALICE, BOB), (BOB, ALICE)):
        said = told(pool, person, runs[person.id])
        assert all(word in said for word in words[person.id] - {person.id.partition("@")[0]})
        assert not [word for word in (*words[other.id], hybrid.id, "least served") if word in said]
        own = pool.service.acting_as(person).runs
        assert [view.run_id for view in own.runs()] == [runs[person.id]]
        view = own.observe(runs[person.id])
        assert (view.peak_memory_bytes, view.memory_source, view.cpu_s, view.lanes) == (None,) * 4
        peak_bytes = view.submodels[0].peak_memory_bytes
        assert peak_bytes is None or peak_bytes < 50_000_000, "their own, not that of the process"
        for call in (own.observe, own.document, own.metrics_csv, own.stop, own.discard):
            with pytest.raises(NotFound):
                call(runs[other.id])


@pytest.mark.slow
def test_people_who_share_with_nobody_train_one_after_another(pool: Pool) -> None:
    pool.service.people.set_sharing("own")
    hers = pool.submit(ALICE, ALPHA)
    pool.start_and_hold("alpha", 5)
    his = pool.submit(BOB, BRAVO)
    pool.until(lambda: pool.waits_for(his), "reason to wait")
    assert readable(pool.waits_for(his)), pool.waits_for(his)
    said = told(pool, BOB, his) + pool.waits_for(his)
    assert not [word for word in ("alice", "alpha", hers) if word in said]
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {}
    first, second = pool.hybrids()
    assert pool.places(hers, his) == [first.id, second.id]
    assert (first.ended_at_s or 0.0) <= (second.launched_at_s or 0.0), "never two at once"


@pytest.mark.slow
def test_gathered_submissions_start_as_one_and_nobody_joins_later(pool: Pool) -> None:
    pool.store.hybrids.set_pooling(Pooling(mode="gathered", gather_s=3600, gather_n=3), "")
    first = [pool.submit(ALICE, ALPHA), pool.submit(BOB, BRAVO)]
    pool.start()
    pool.until(lambda: all(map(pool.waits_for, first)), "reason to wait")
    assert pool.places(*first) == ["", ""]
    assert all(pool.waits_for(run_id).startswith("1 more submission or ") for run_id in first)
    third = pool.submit(BOB, CHARLIE)
    pool.finish(*first, third)
    [hybrid] = pool.hybrids()
    assert pool.places(*first, third) == [hybrid.id] * 3


@pytest.mark.slow
def test_nobody_joins_those_who_gathered(pool: Pool) -> None:
    pool.store.hybrids.set_pooling(Pooling(mode="gathered", gather_s=3600, gather_n=2), "")
    first = [pool.submit(ALICE, ALPHA), pool.submit(BOB, BRAVO)]
    pool.start_and_hold("alpha", 5)
    late = [pool.submit(ALICE, CHARLIE), pool.submit(ALICE, Net("delta", 7))]
    pool.until(lambda: all(map(pool.waits_for, late)), "reason to wait")
    assert pool.places(*late) == ["", ""] and all(readable(pool.waits_for(run_id)) for run_id in late)
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {}
    one, two = pool.hybrids()
    assert pool.places(*first, *late) == [one.id, one.id, two.id, two.id]


@pytest.mark.slow
def test_in_private_mode_each_submission_has_its_own_hybrid(pool: Pool) -> None:
    pool.store.hybrids.set_pooling(Pooling(mode="private"), "")
    runs = [pool.submit(ALICE, net) for net in (ALPHA, BRAVO, CHARLIE)]
    pool.start()
    pool.finish()
    assert pool.wrong() == {}
    assert pool.places(*runs) == [hybrid.id for hybrid in pool.hybrids()]
