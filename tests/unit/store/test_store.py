import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import text, update
from sqlalchemy.exc import DatabaseError, OperationalError

from tests.clock import SimulatedClock
from tests.unit.rows import part_of, row_of
from unifiednn_core.base.errors import IllegalTransition, NotFound, WrongSchema
from unifiednn_core.base.paths import Home
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.runs import HEAVY
from unifiednn_core.store.schema import SCHEMA_VERSION, HybridRow, RunRow, SchemaRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import Berth, WorkerIdentity

BERTH = Berth(device="cpu", kind="", threads=1)


def add_run(
    store: Store,
    run_id: str,
    created_at_s: float = 0.0,
    device: str = "cpu",
    recovery: str = "auto",
    *,
    owners: Sequence[str] = ("", ""),
    lenders: Sequence[str] = (),
    shared: bool = False,
    names: Sequence[str] = ("a", "b"),
) -> None:
    parts = [{"name": name, "priority": 0, "hyperparameters": {"epochs": 1}} for name in names]
    spec = {"recovery": recovery, "policy": {"name": "fcfs"}, "submodels": parts}
    run = row_of(run_id, shared=shared, device=device, spec=spec, created_at_s=created_at_s)
    submodels = [
        part_of(run_id=run_id, name=name, owner=owners[place], lenders=list(lenders), arrival=place)
        for place, name in enumerate(names)
    ]
    store.runs.add((run, submodels))


def test_states_follow_the_table_and_leave_a_history(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")
    store.runs.transition("r", None, Event.CLAIM)
    clock.advance(5)
    store.runs.transition("r", None, Event.BEGIN)
    clock.advance(5)
    store.runs.transition("r", None, Event.COMPLETE)
    run, _ = store.runs.get("r")
    assert (run.state, run.started_at_s, run.ended_at_s) == ("completed", 1005.0, 1010.0)
    with pytest.raises(IllegalTransition) as raised:
        store.runs.transition("r", None, Event.PAUSE)
    assert raised.value.history == ("queued", "starting", "running", "completed")


def test_what_the_store_does_not_know_is_named(store: Store) -> None:
    add_run(store, "r")
    with pytest.raises(NotFound, match="no run 'x'"):
        store.runs.get("x")
    with pytest.raises(NotFound, match="It has: a, b"):
        store.runs.transition("r", "x", Event.BEGIN)


def test_a_batch_is_written_whole_or_not_at_all(store: Store) -> None:
    add_run(store, "r")
    step = {"submodel": "a", "attempt": 1, "steps": 1, "epoch": 0.1, "loss": 1.0, "accuracy": None}
    store.telemetry.write("r", TelemetryRows(steps=[{"step": 1, **step}], submodels={"a": {"steps_done": 1}}))
    doubled = TelemetryRows(steps=[{"step": 2, **step}, {"step": 1, **step}], submodels={"a": {"steps_done": 2}})
    with pytest.raises(Exception, match=r"(?i)unique"):
        store.telemetry.write("r", doubled)
    history = store.telemetry.history("r", None)
    assert [row.step for row in history.steps["a"]] == [1]
    assert store.runs.get("r")[1][0].steps_done == 1


FIGURES = {"learning_rate": 0.1, "train_loss": 1.0, "train_accuracy": None, "test_loss": None, "test_accuracy": None}


def test_a_batch_whose_commit_failed_can_be_written_again(store: Store) -> None:
    add_run(store, "r")
    batch = TelemetryRows(
        memory=[{"at_s": 0.0, "source": "x", "size_bytes": 1}], events=[event_columns(0.0, None, Code.WARNED, text="m")]
    )
    failures = iter([True])

    def fail_once(_: object) -> None:
        if next(failures, False):
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))

    sqlalchemy_event.listen(store._database._engine, "commit", fail_once)
    with pytest.raises(OperationalError):
        store.telemetry.write("r", batch)
    store.runs.transition("r", None, Event.CLAIM)  # writes an event of its own in between
    store.telemetry.write("r", batch)
    assert len(store.telemetry.history("r", "x").memory) == 1


def test_what_never_passes_is_not_what_callers_try_again(store: Store) -> None:
    for transaction in (store._database.read, store._database.write):
        with pytest.raises(DatabaseError, match="missing") as wrong, transaction() as session:
            session.execute(text("SELECT missing"))
        assert not isinstance(wrong.value, OperationalError)


def test_what_a_later_attempt_did_again_counts_nowhere(store: Store) -> None:
    add_run(store, "r")
    columns = {"steps_done": 0, "epochs_done": 0}

    def trained(attempt: int, steps: range) -> None:
        rows = [
            {
                "submodel": "a",
                "attempt": attempt,
                "step": s,
                "steps": 1,
                "epoch": s / 10,
                "loss": attempt + s / 100,
                "accuracy": None,
            }
            for s in steps
        ]
        epochs = [{"submodel": "a", "attempt": attempt, "epoch": s, "step": s, **FIGURES} for s in steps]
        store.telemetry.write("r", TelemetryRows(steps=rows, epochs=epochs, submodels={"a": {"steps_done": steps[-1]}}))

    assert store.workers.begin("r", {"a": columns}) == {"a": 1}
    trained(1, range(1, 8))
    assert store.workers.begin("r", {"a": {**columns, "steps_done": 5}}) == {"a": 2}
    trained(2, range(6, 9))
    assert store.workers.begin("r", {"a": {**columns, "steps_done": 4}}) == {"a": 3}
    trained(3, range(5, 11))
    history = store.telemetry.history("r", None)
    assert [(point.step, point.attempt) for point in history.steps["a"]] == [
        *((step, 1) for step in range(1, 5)),
        *((step, 3) for step in range(5, 11)),
    ]
    epochs = list(store.telemetry.epochs("r", "a"))
    assert [row[1:4] for row in epochs] == [(point.attempt, point.step, point.step) for point in history.steps["a"]]
    assert epochs == history.epochs["a"]
    assert [(point.step, point.attempt) for point in history.lost_steps["a"]] == [
        *((step, 1) for step in range(5, 8)),
        *((step, 2) for step in range(6, 9)),
    ]


def test_a_turn_that_a_death_cut_short_is_told_and_its_lost_steps_count_nowhere(
    store: Store, clock: SimulatedClock
) -> None:
    add_run(store, "r")
    store.workers.claim("r", BERTH)
    store.workers.register("r", WorkerIdentity(1, 1.0, "boot"))
    store.runs.transition("r", None, Event.BEGIN)
    store.workers.begin("r", {"a": {"steps_done": 0}})
    turn = {"submodel": "a", "attempt": 1, "start_s": 0.0, "end_s": 2.0, "steps": 4, "reason": "It is first."}
    store.telemetry.write("r", TelemetryRows(slices=[turn], submodels={"a": {"steps_done": 4}}))
    clock.advance(5)
    at_work = {"lane": 2, "turn_reason": "Again.", "turn_since_s": 3.0}
    store.telemetry.write("r", TelemetryRows(submodels={"a": {"steps_done": 9} | at_work}))
    store.workers.lose("r", "It died.", "Again.")
    store.workers.begin("r", {"a": {"steps_done": 6}})
    slices = store.telemetry.history("r", None).slices
    assert [(s.start_s, s.end_s, s.steps, s.lane) for s in slices] == [(0.0, 2.0, 4, 1), (3.0, 5.0, 2, 2)]
    assert store.runs.get("r")[1][0].lane is None


@pytest.mark.parametrize("done", [3, 4, 5, 8, 9, 31, 100])
def test_of_many_epochs_a_page_reads_few_that_stay_and_the_last_one(store: Store, done: int) -> None:
    add_run(store, "r")
    shown = []
    for now in (done - 1, done):
        rows = [
            {"submodel": name, "attempt": 1, "epoch": epoch, "step": epoch, **FIGURES}
            for name, last in (("a", now), ("b", 3))
            for epoch in range(1 if now < done else last, last + 1)
            if now < done or name == "a"
        ]
        store.telemetry.write("r", TelemetryRows(epochs=rows, submodels={"a": {"epochs_done": now}}))
        few, whole = (store.telemetry.history("r", None, most_epochs=most).epochs for most in (4, None))
        assert [row.epoch for row in whole["a"]] == list(range(1, now + 1)), "an export takes all"
        assert few["b"] == whole["b"], "a sub-model with few epochs loses none"
        shown.append([row.epoch for row in few["a"]])
    before, after = shown
    assert after[-1] == done and len(after) <= 4 + 1
    assert set(after[:-1]) <= set(before), "points that are drawn do not move about"


def test_the_history_is_told_whatever_a_run_is_called(store: Store) -> None:
    add_run(store, "this is. demo")
    with pytest.raises(IllegalTransition) as raised:
        store.runs.transition("this is. demo", None, Event.HOLD)
    assert raised.value.history == ("queued",)


def test_readers_see_one_moment_while_others_write(store: Store, home: Home) -> None:
    add_run(store, "r")
    other = sqlite3.connect(home.database, isolation_level=None)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE runs SET name = 'changed'")
    assert store.runs.get("r")[0].name == "r"
    other.execute("COMMIT")
    assert store.runs.get("r")[0].name == "changed"
    other.close()


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_store_of_another_version_is_refused_with_the_way_out(home: Home, version: int) -> None:
    store = Store.open(home)
    with store._database.write() as session:
        session.execute(update(SchemaRow).values(version=version))
    store.close()
    said = f"holds schema {version}, this program reads {SCHEMA_VERSION}. Use .* UNIFIEDNN_HOME to a new folder"
    with pytest.raises(WrongSchema, match=said):
        Store.open(home)


def test_many_can_open_a_new_home_at_once(tmp_path: Path) -> None:
    """SQLite does not wait for the other when two switch a new file to WAL mode; the store has to."""
    for attempt in range(12):
        file, together = tmp_path / f"{attempt}.db", threading.Barrier(8, timeout=60)

        def open_it(file: Path = file, together: threading.Barrier = together) -> None:
            together.wait()
            Store(file).close()

        with ThreadPoolExecutor(8) as threads:
            for opened in [threads.submit(open_it) for _ in range(8)]:
                opened.result()


def test_light_rows_have_all_columns_but_the_heavy_ones(store: Store) -> None:
    for place, run_id in enumerate(("first", "second")):
        add_run(store, run_id, created_at_s=place)
    (newest, parts), (oldest, _) = store.runs.listed()
    assert (newest.id, oldest.id, oldest.state) == ("second", "first", "queued")
    columns = {*RunRow.__table__.columns.keys(), *HybridRow.__table__.columns.keys()}
    assert set(newest._fields) == (columns - HEAVY) | {"policy"}
    assert [part.name for part in parts] == [row.name for row in store.runs.get("second")[1]]
    assert newest.policy == store.runs.get("second")[0].spec.get("policy")


def test_runs_of_one_fingerprint_and_the_line_before_a_run_are_queries(store: Store) -> None:
    for place, run_id in enumerate(("first", "second", "third")):
        add_run(store, run_id, created_at_s=place)
    for run_id in ("first", "third"):
        store.runs.update(run_id, fingerprint="f")
    assert [run.id for run, _ in store.runs.with_fingerprint("f")] == ["third", "first"]
    assert [store.runs.queued_before(store.runs.get(run_id)[0]) for run_id in ("first", "second", "third")] == [0, 1, 2]
    assert store.workers.claim("first", BERTH)
    assert store.runs.queued_before(store.runs.get("third")[0]) == 1
