import random
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import select

from tests.clock import SimulatedClock
from tests.unit.rows import part_of, row_of
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run_query import RunQuery
from unifiednn_core.store import Store, run_lists
from unifiednn_core.store.run_lists import MOST_EQUAL, MOST_FAILED, NEWEST
from unifiednn_core.store.schema import HybridRow, RunRow

PEOPLE, DEVICES = ("", "ann@example.org", "bob@example.org"), ("cpu", "cuda:0")
COUNT = 120


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Runs of three people in all states; also what the list has to hide."""
    with closing(Store(tmp_path_factory.mktemp("store") / "store.db", SimulatedClock())) as store:
        _fill(store)
        yield store


def _fill(store: Store) -> None:
    draw = random.Random(7)
    with store._database.write() as session:
        for place in range(COUNT):
            state, owner, device = draw.choice(list(State)), draw.choice(PEOPLE), draw.choice(DEVICES)
            run_id, name = f"2026-{place:04}", f"{draw.choice(('Alpha', 'beta', '100%_x'))}-{place}"
            ended = 2000.0 + draw.random() * 99 if state in ENDED else None
            who = {"name": name, "submitter": owner, "fingerprint": f"f{place % 9}", "spec": {"policy": {}}}
            times = {"created_at_s": float(draw.randrange(1000)), "launched_at_s": 1000.0, "ended_at_s": ended}
            removed = {"removed_at_s": 1.0 if place % 10 == 0 else None}
            session.add(row_of(run_id, state=state.value, **who, **times, **removed))
            session.add(HybridRow(id=run_id, device=device, peak_memory_bytes=draw.choice((None, draw.randrange(99)))))
            session.flush()
            for number, own in enumerate({owner, draw.choice(PEOPLE)}):
                session.add(
                    part_of(
                        run_id=run_id,
                        name=f"net{number}",
                        owner=own,
                        arrival=number,
                        state=state.value,
                        steps_total=1,
                        ended_at_s=ended,
                        test_accuracy=draw.choice((None, draw.random())),
                    )
                )


def everything(store: Store, query: RunQuery, person: str | None = None):
    first = store.run_lists.page(query, person)
    later = (RunQuery(**{**_fields(query), "page": at}) for at in range(1, -(-first.total // query.rows)))
    pages = [first, *(store.run_lists.page(one, person) for one in later)]
    return [row for page in pages for row in page.rows], first.total


def _fields(query: RunQuery) -> dict:
    return {name: getattr(query, name) for name in query.__slots__}


def reference(store: Store, query: RunQuery, person: str | None):
    """The same by Python over all rows."""

    def fits(run, parts) -> bool:
        own = [part for part in parts if person in (None, part.owner)]
        names = [run.name, run.id, *(part.name for part in own), *([run.submitter] if person is None else [])]
        return (
            bool(own)
            and (not query.text or any(query.text.lower() in name.lower() for name in names))
            and (not query.states or State(run.state) in query.states)
            and (query.owner is None or person is not None or query.owner in {run.submitter, *(p.owner for p in parts)})
            and (not query.device or run.device == query.device)
            and (query.since_s is None or run.created_at_s >= query.since_s)
        )

    return [(run, parts) for run, parts in store.runs.listed() if fits(run, parts)]


QUERIES = [
    RunQuery(),
    RunQuery(text="ALPHA"),
    RunQuery(text="100%_"),
    RunQuery(text="net1"),
    RunQuery(text="bob@"),
    RunQuery(text="%"),
    RunQuery(states=(State.FAILED, State.COMPLETED)),
    RunQuery(owner=""),
    RunQuery(owner=PEOPLE[1]),
    RunQuery(device="cuda:0", since_s=200.0),
    RunQuery(rows=7),
    RunQuery(text="nothing has this"),
]


@pytest.mark.parametrize("person", [None, "ann@example.org"])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_pages_together_are_all_that_matches_each_once(store, query, person) -> None:
    found, total = everything(store, query, person)
    wanted = reference(store, query, person)
    assert [run.id for run, _ in found] == [run.id for run, _ in wanted]
    assert total == len(wanted)
    assert all(
        [part.name for part in parts] == [part.name for part in other]
        for (_, parts), (_, other) in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("sort", ["submitted", "name"])
@pytest.mark.parametrize("person", [None, "ann@example.org"])
def test_a_text_is_looked_for_in_the_newest_runs_unless_in_all(store, monkeypatch, sort, person) -> None:
    monkeypatch.setattr(run_lists, "SEARCHED", 20)
    with store._database.read() as session:
        newest = session.scalars(select(RunRow.created_at_s).order_by(RunRow.created_at_s.desc())).all()
    query = RunQuery(text="alpha", sort=sort, rows=7)
    found, total = everything(store, query, person)
    wanted = {run.id for run, _ in reference(store, query, person) if person or run.created_at_s > newest[20]}
    assert {run.id for run, _ in found} == wanted and total == len(wanted) > 0
    whole, every = everything(store, replace(query, everywhere=True), person)
    assert every == len(whole) == len(reference(store, query, person))
    assert (every > total) == (person is None), "a person's own runs are all looked at"
    first = store.run_lists.page(query, person)
    assert first.searched == (20 if person is None else None)
    assert store.run_lists.page(replace(query, text=""), person).searched is None


@pytest.mark.parametrize("sort", ["name", "state", "owner", "device", "time", "accuracy", "memory"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("person", [None, "ann@example.org"])
def test_a_list_is_sorted_by_what_the_person_may_see_and_no_value_comes_last(store, sort, descending, person) -> None:
    found, total = everything(store, RunQuery(sort=sort, descending=descending, rows=50), person)
    assert len(found) == total == len({run.id for run, _ in found})

    def value(run, parts):
        own = [part for part in parts if person in (None, part.owner)]
        best = [part.test_accuracy for part in own if part.test_accuracy is not None]
        return {
            "name": run.name.lower(),
            "state": run.state,
            "device": run.device,
            "time": None if run.ended_at_s is None else run.ended_at_s - run.launched_at_s,
            "accuracy": max(best, default=None),
            "owner": run.submitter if person is None else run.created_at_s,
            "memory": run.peak_memory_bytes if person is None else run.created_at_s,
        }[sort]

    values = [value(run, parts) for run, parts in found]
    known = [one for one in values if one is not None]
    assert values == known + [None] * (len(values) - len(known))
    assert known == sorted(known, reverse=descending)


def test_filters_offer_what_there_is(store) -> None:
    choices = store.run_lists.choices()
    assert set(choices.owners) == set(PEOPLE) and choices.devices == DEVICES
    assert choices.total == COUNT * 9 // 10
    mine = store.run_lists.choices("ann@example.org")
    assert mine.owners == () and 0 < mine.total < choices.total


@pytest.mark.parametrize("person", [None, *PEOPLE])
@pytest.mark.parametrize("since_s", [0.0, 2050.0, 9999.0])
def test_current_runs_are_the_open_the_newest_and_those_that_failed(store, person, since_s):
    rows = reference(store, RunQuery(), person)
    open_ids = {run.id for run, _ in rows if State(run.state) not in ENDED}
    ended = [run.id for run, _ in rows if State(run.state) in ENDED]
    broken = [
        run.id
        for run, parts in rows
        if (run.ended_at_s or 0.0) >= since_s
        and (run.state in ("failed", "interrupted") or any(part.state == "failed" for part in parts))
    ]
    found = store.run_lists.current(since_s, person)
    ids = [run.id for run, _ in found]
    assert open_ids | {*ended[:NEWEST]} | {*broken} <= {*ids} <= {run.id for run, _ in rows}
    assert ids == [run.id for run, _ in rows if run.id in {*ids}], "the newest first"
    assert [parts for _, parts in found] == [parts for run, parts in rows if run.id in {*ids}]
    assert len(ids) <= len(open_ids) + NEWEST + MOST_FAILED + MOST_EQUAL
