"""The audit of shared hybrids: silent about what the store does, and loud about each row that must not be."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tools.chaos import pool_audit
from unifiednn_core.base.paths import Home
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import Berth, WorkerIdentity, Workers

HYBRID, OTHER = "h1", "h2"
WORKER = WorkerIdentity(pid=11, started_at_s=1.0, boot_id="boot")
SPEC: dict[str, Any] = {"hybrid": "shared", "submodels": []}
BERTHS = {HYBRID: Berth(device="cpu:0", kind="", threads=1), OTHER: Berth(device="cpu:1", kind="", threads=1)}


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    """Two people's runs in one hybrid with a worker; `net` of the first one has begun."""
    store = Store.open(home)
    pool_audit.watch(home.database_url)
    for run_id in ("s1", "s2"):
        run = RunRow(id=run_id, name=run_id, state="queued", device="cpu", shared=True, spec=SPEC, created_at_s=1.0)
        row = SubModelRow(
            run_id=run_id,
            name="net",
            arrival=0,
            state="queued",
            priority=0,
            model_format="kit",
            parameters=1,
            epochs=2,
            steps_total=8,
        )
        store.runs.add((run, [row]))
    assert store.workers.open_shared(HYBRID, [("s1", "net"), ("s2", "net")], BERTHS[HYBRID], HybridSettings())
    assert store.workers.register(HYBRID, WORKER) == 1
    store.workers.begin(HYBRID, {"s1/net": {"steps_done": 0}, "s2/net": {"steps_done": 0}})
    store.runs.transition("s1", "net", Event.BEGIN)
    yield store
    store.close()


def found(home: Home) -> list[str]:
    return [*pool_audit.found(home.database_url), *pool_audit.contradictions(home.database_url)]


def state(store: Store, run_id: str, name: str | None = None) -> str:
    run, [row] = store.runs.get(run_id)
    return run.state if name is None else row.state


def step(attempt: int, number: int) -> TelemetryRows:
    row = {"submodel": "s1/net", "attempt": attempt, "step": number, "steps": 1, "epoch": 0.1, "loss": 1.0}
    return TelemetryRows(steps=[row])


def sql(home: Home, statement: str) -> None:
    with closing(sqlite3.connect(home.database)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        columns = ", ".join(
            ["id", *(row[1] for row in database.execute("PRAGMA table_info(hybrids)") if row[1] != "id")]
        )
        database.execute(statement.format(columns=columns))


def test_a_life_in_a_hybrid_is_no_contradiction(home: Home, store: Store) -> None:
    store.telemetry.write(HYBRID, step(1, 1))
    store.workers.ask_to_leave(HYBRID, [("s1", "net")], "it moves")
    store.workers.left(HYBRID, "s1/net")
    assert state(store, "s1") == state(store, "s1", "net") == State.QUEUED
    assert store.workers.open_shared(OTHER, [("s1", "net")], BERTHS[OTHER], HybridSettings())
    store.workers.register(OTHER, WORKER)
    store.workers.begin(OTHER, {"s1/net": {"steps_done": 1}})
    store.telemetry.write(OTHER, step(2, 2))
    store.runs.transition("s1", "net", Event.BEGIN)
    store.runs.transition("s1", "net", Event.COMPLETE)
    assert store.workers.close(OTHER)
    assert state(store, "s1") == State.COMPLETED
    assert found(home) == []


@pytest.mark.parametrize("how", ["moves", "is paused", "run is paused", "is stopped"])
@pytest.mark.parametrize("dead", [False, True], ids=["before the death", "after the death"])
def test_who_is_to_leave_does_so_even_if_the_worker_dies(home: Home, store: Store, how: str, dead: bool) -> None:
    if dead:
        store.workers.lose(HYBRID, "killed", "none")
    match how:
        case "moves":
            store.workers.ask_to_leave(HYBRID, [("s1", "net")], "it moves")
        case "is paused":
            store.commands.issue("s1", "net", Verb.PAUSE)
        case "run is paused":
            store.commands.issue("s1", None, Verb.PAUSE)
        case _:
            store.commands.issue("s1", None, Verb.STOP)
    assert found(home) == []
    store.commands.settle_unclaimed()
    if not dead:
        store.workers.lose(HYBRID, "killed", "none")
    assert found(home) == []
    assert store.workers.restart(HYBRID)
    assert found(home) == []
    _, [row] = store.runs.get("s1")
    if how == "is stopped":
        assert (row.hybrid_id, row.state, state(store, "s1")) == (HYBRID, State.STOPPING, State.STOPPING)
        return
    assert row.hybrid_id is row.leaving is None
    paused = (State.PAUSED, State.PAUSED if how == "is paused" else State.QUEUED)
    assert (state(store, "s1"), row.state) == ((State.QUEUED,) * 2 if how == "moves" else paused)
    assert store.commands.open("s1") == []
    assert state(store, "s2") == State.STARTING


def test_a_death_that_lets_go_of_nobody_would_be_noticed(
    home: Home, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "_let_go", lambda *_: None)
    store.commands.issue("s1", "net", Verb.PAUSE)
    store.workers.lose(HYBRID, "killed", "none")
    _, [row] = store.runs.get("s1")
    assert row.hybrid_id == HYBRID
    assert len(store.commands.open("s1")) == 1


def test_who_was_paused_since_the_line_was_read_is_not_placed(home: Home, store: Store) -> None:
    store.workers.ask_to_leave(HYBRID, [("s1", "net")], "it moves")
    store.workers.left(HYBRID, "s1/net")
    [(run, _)] = store.workers.waiting()
    assert run.id == "s1"
    store.commands.issue("s1", None, Verb.PAUSE)
    assert store.commands.open("s1") == []
    assert not store.workers.join(HYBRID, [("s1", "net")], beside=[("s2", "net")])
    assert not store.workers.open_shared(OTHER, [("s1", "net")], BERTHS[OTHER], HybridSettings())
    assert state(store, "s1") == State.PAUSED
    assert found(home) == []
    store.commands.issue("s1", None, Verb.RESUME)
    assert store.workers.join(HYBRID, [("s1", "net")], beside=[("s2", "net")]), "nothing but the pause was in the way"
    assert found(home) == []


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE submodels SET state = 'interrupted' WHERE run_id = 's1'", "is interrupted"),
        ("UPDATE submodels SET hybrid_id = 'h9' WHERE run_id = 's1'", "does not exist"),
        ("UPDATE hybrids SET ended_at_s = 1.0", "was left behind"),
        ("UPDATE hybrids SET heartbeat_at_s = NULL", "runs without a worker"),
        ("UPDATE hybrids SET heartbeat_at_s = NULL", "trains without a worker"),
        ("UPDATE submodels SET hybrid_id = NULL, leaving = 'it moves' WHERE run_id = 's1'", "is nowhere"),
        ("UPDATE runs SET state = 'completed' WHERE id = 's1'", "a sub-model has not"),
        ("UPDATE submodels SET state = 'completed' WHERE run_id = 's1'", "all sub-models have"),
        ("UPDATE runs SET state = 'queued' WHERE id = 's1'", "waits in line"),
        ("UPDATE runs SET state = 'paused' WHERE id = 's1'", "still placed"),
        ("INSERT INTO hybrids ({columns}) SELECT 'h3' || {columns} FROM hybrids", "two hybrids hold cpu:0"),
        ("UPDATE attempts SET hybrid_id = 'h9' WHERE run_id = 's1'", "which is over"),
        ("UPDATE submodels SET attempt = 2 WHERE run_id = 's1'", "which is over"),
    ],
)
def test_what_must_not_be_is_found(home: Home, store: Store, statement: str, what: str) -> None:
    sql(home, statement)
    if what == "which is over":
        store.telemetry.write(HYBRID, step(1, 1))
    assert any(what in one for one in found(home)), found(home)


def test_an_attempt_where_a_submodel_is_not_placed_is_found(home: Home, store: Store) -> None:
    store.workers.ask_to_leave(HYBRID, [("s1", "net")], "it moves")
    store.workers.left(HYBRID, "s1/net")
    store.workers.begin(HYBRID, {"s1/net": {"steps_done": 0}})
    assert any("is not there" in one for one in pool_audit.found(home.database_url))


def test_hybrids_that_nobody_ended_are_found(home: Home, store: Store) -> None:
    assert pool_audit.still_held(home.database_url) == [f"hybrid {HYBRID} still has cpu:0"]
