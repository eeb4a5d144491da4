import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DatabaseError

from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.migrations import STEPS
from unifiednn_core.store.schema import SCHEMA_VERSION, AttemptRow, Base, HybridRow
from unifiednn_core.store.workers import Berth
from unifiednn_core.views.event_text import event_text

TABLES_OF_4, TABLES_OF_8 = (
    (Path(__file__).parent / f"version_{version}.sql").read_text(encoding="utf-8") for version in (4, 8)
)
EVENTS = [
    (None, "state", "demo is queued."),
    ("a", "state", "a is running."),
    ("a", "state", "a is failed. The file is gone."),
    ("a", "applied", "Pause for a, at step 3."),
]


def columns(table: str, **values: object) -> str:
    held = ", ".join(values)
    given = ", ".join(f"'{json.dumps(v)}'" if isinstance(v, dict | list) else repr(v) for v in values.values())
    return f"INSERT INTO {table} ({held}) VALUES ({given})"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database as version 4 wrote it: one running run, its history, two attempts and their slices."""
    path = tmp_path / "old.sqlite3"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES_OF_4)
        connection.execute("INSERT INTO schema_version VALUES (4)")
        run = {"id": "r", "name": "demo", "submitter": "", "state": "running", "device": "cpu", "mode": "hybrid",
               "fingerprint": "", "spec": {"submodels": []}, "attempt": 1, "recoveries": 0, "deaths_there": 0,
               "created_at_s": 1.0, "prediction": {}, "memory_notes": [], "environment": {}, "graph": ""}  # fmt: skip
        part = {"run_id": "r", "name": "a", "owner": "", "arrival": 0, "number": 0, "state": "running", "priority": 0,
                "attempt": 2, "model_format": "pt2", "parameters": 1, "epochs": 1, "epochs_done": 0, "steps_total": 9,
                "steps_done": 5, "service_s": 1.0, "paused_s": 0.0, "memory_key": ""}  # fmt: skip
        connection.execute(columns("runs", **run))
        connection.execute(columns("submodels", **part))
        for name, kind, message in EVENTS:
            values = ("r", name, 1.0, kind, message)
            connection.execute("INSERT INTO events (run_id, submodel, at_s, kind, message) VALUES (?,?,?,?,?)", values)
        for attempt, from_step in ((1, 0), (2, 3)):
            begun = {"run_id": "r", "submodel": "a", "attempt": attempt, "from_step": from_step, "at_s": 1.0}
            connection.execute(columns("attempts", **begun))
        for attempt, steps in ((1, 2), (1, 3), (2, 2)):
            turn = {"run_id": "r", "submodel": "a", "attempt": attempt, "start_s": 0.0, "end_s": 1.0, "steps": steps,
                    "reason": ""}  # fmt: skip
            connection.execute(columns("slices", **turn))
        for verb, outcome in (("pause", "pause for a, at step 3"), ("save", "came too late: a is failed")):
            asked = {"run_id": "r", "verb": verb, "arguments": {}, "issued_at_s": 1.0, "applied_at_s": 2.0}
            connection.execute(columns("commands", **asked, outcome=outcome))
    return path


def test_a_database_of_version_4_opens_and_everything_is_readable(database: Path) -> None:
    store = Store(f"sqlite:///{database}")
    history = store.telemetry.history("r", None)
    assert [event_text(event) for event in history.events] == [message for _, _, message in EVENTS]
    assert [event.state for event in history.events] == ["queued", "running", "failed", None]
    assert {event.code for event in history.events} == {"legacy"}
    assert [turn.from_step for turn in history.slices] == [0, 2, 3]
    assert [turn.steps for turn in history.slices] == [2, 1, 2]
    run, [part] = store.runs.get("r")
    hybrid, [member] = store.hybrids.get("r")
    assert (run.name, hybrid.deaths, hybrid.resume_at_s, part.steps_done) == ("demo", 0, None, 5)
    assert (hybrid.shared, member.key, store.commands.open("r")) == (False, "a", [])
    store.runs.transition("r", "a", Event.COMPLETE)
    store.close()
    Store(f"sqlite:///{database}").close()  # and once more, with nothing left to migrate
    with closing(sqlite3.connect(database)) as connection:
        assert [row[0] for row in connection.execute("SELECT outcome FROM commands")] == ["applied", "declined"]


SPEC_OF_8 = {"policy": {"name": "round_robin", "quantum_steps": 3}, "profile": "fast", "lanes": 2, "recovery": "ask",
             "checkpoint": {"every_steps": 5}, "step_limit_s": 9.0, "submodels": []}  # fmt: skip
WORKER = {"worker_pid": 7, "worker_started_at_s": 3.0, "worker_boot_id": "boot", "heartbeat_at_s": 9.0}
DIED = {"attempt": 3, "died_at": "a:step 4", "recoveries": 2, "deaths_there": 1, "deaths": 2, "resume_at_s": 99.0}
FIGURES = {"cpu_s": 1.5, "gpu_s": 2.5, "energy_j": 3.5, "memory_source": "PSS", "peak_memory_bytes": 4711,
           "memory_notes": ["a note"], "now_reason": "It is first.", "graph": "[]"}  # fmt: skip


@pytest.fixture
def of_8(tmp_path: Path) -> Path:
    """A database as version 8 wrote it: a run in each state, each with a dead worker on its row, and its records."""
    path = tmp_path / "old.sqlite3"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES_OF_8)
        connection.execute("INSERT INTO schema_version VALUES (8)")
        for state in State:
            run = {"id": state.value, "name": "demo", "submitter": "ann", "state": state.value, "device": "cuda:1",
                   "mode": "hybrid", "fingerprint": "f", "spec": SPEC_OF_8, "threads": 4, "created_at_s": 1.0,
                   "launched_at_s": 2.0, "started_at_s": 3.0, "prediction": {"parts": []},
                   "environment": {"torch": "2"}} | WORKER | DIED | FIGURES  # fmt: skip
            part = {"run_id": state.value, "name": "a", "owner": "ann", "lenders": [], "arrival": 0, "number": 0,
                    "state": state.value, "priority": 0, "attempt": 2, "model_format": "pt2", "parameters": 1,
                    "epochs": 1, "epochs_done": 0, "steps_total": 9, "steps_done": 5, "service_s": 1.0, "paused_s": 0.0,
                    "memory_key": ""}  # fmt: skip
            of_run = {"run_id": state.value, "submodel": "a", "attempt": 1}
            at = {"run_id": state.value, "at_s": 0.5, "source": "PSS"}
            connection.execute(columns("runs", **run))
            connection.execute(columns("submodels", **part))
            connection.execute(columns("attempts", **of_run, from_step=0, at_s=3.0))
            connection.execute(columns("memory_samples", **at, size_bytes=8))
            connection.execute(columns("memory_strata", **at, total_bytes=8, strata={"weights": {"a": 8}}))
    return path


def test_a_run_of_version_8_gets_a_private_hybrid_and_keeps_its_meaning(of_8: Path) -> None:
    store = Store(f"sqlite:///{of_8}")
    settings = {name: value for name, value in SPEC_OF_8.items() if name != "submodels"}
    for state in State:
        run, [part] = store.runs.get(state)
        hybrid, [member] = store.hybrids.get(state)
        assert (run.state, run.shared, run.device, run.spec, run.launched_at_s) == (
            state,
            False,
            "cuda:1",
            SPEC_OF_8,
            2,
        )
        assert run.environment == hybrid.environment == {"torch": "2"} and run.prediction == {"parts": []}
        assert HybridSettings.model_validate(hybrid.settings).model_dump(exclude_none=True) == settings
        assert (hybrid.id, hybrid.shared, hybrid.device, hybrid.threads) == (state, False, "cuda:1", 4)
        assert (member.key, part.hybrid_id, part.leaving) == ("a", state, None)
        assert {name: getattr(hybrid, name) for name in {**DIED, **FIGURES}} == {**DIED, **FIGURES}
        holds = state not in {*ENDED, State.PAUSED}
        assert {name: getattr(hybrid, name) for name in WORKER} == (WORKER if holds else dict.fromkeys(WORKER))
        history = store.telemetry.history(state, "PSS")
        assert (history.memory, history.strata[0].strata) == ([(0.5, 8)], {"weights": {"a": 8}})
        with store._database.read() as session:
            attempt = session.get_one(AttemptRow, (state.value, "a", 1))
            assert (attempt.hybrid_id, attempt.device) == (state, "cuda:1")
    assert {hybrid.id for hybrid in store.workers.held()} == set(State) - {*ENDED, State.PAUSED}


def test_what_an_older_version_left_running_is_queued_again_and_claimed(of_8: Path) -> None:
    store = Store(f"sqlite:///{of_8}")
    with store._database.write() as session:
        for hybrid in session.scalars(select(HybridRow)):
            hybrid.settings = {**hybrid.settings, "recovery": "auto"}
            hybrid.deaths, hybrid.resume_at_s = 0, None
    berth = Berth(device="cuda:1", kind="H200", threads=1)
    assert not store.workers.claim("running", berth), "its worker is not buried yet"
    for hybrid in store.workers.held():
        store.workers.lose(hybrid.id, "The host restarted.", "Resume it.", counts=False)
    assert {run.id for run, _ in store.workers.waiting()} == set(State) - {*ENDED, State.PAUSED}
    assert store.workers.claim("running", berth)


@pytest.mark.parametrize("written", ["database", "of_8"])
def test_the_steps_give_the_tables_of_a_new_database(request: pytest.FixtureRequest, written: str) -> None:
    database = request.getfixturevalue(written)
    Store(f"sqlite:///{database}").close()
    with closing(sqlite3.connect(database)) as connection:
        for name, table in Base.metadata.tables.items():
            found = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            assert found == set(table.columns.keys()), name
            indexes = {row[1] for row in connection.execute(f"PRAGMA index_list({name})")}
            assert {str(index.name) for index in table.indexes} <= indexes, name


def test_a_step_that_fails_leaves_the_database_as_it_was(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = database.read_bytes()
    monkeypatch.setattr("unifiednn_core.store.migrations.STEPS", {4: (*STEPS[4], "DROP TABLE no_such_table")})
    with pytest.raises(DatabaseError, match="no such table"):
        Store(f"sqlite:///{database}")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(4,)]
        assert connection.execute("SELECT message FROM events").fetchall() == [(m,) for _, _, m in EVENTS]
    assert before[:16] == database.read_bytes()[:16]


def test_every_version_from_the_oldest_on_has_a_step() -> None:
    assert sorted(STEPS) == list(range(min(STEPS), SCHEMA_VERSION))
