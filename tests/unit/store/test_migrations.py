import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.migrations import STEPS
from unifiednn_core.store.schema import SCHEMA_VERSION, Base
from unifiednn_core.views.event_text import event_text

TABLES_OF_4 = (Path(__file__).parent / "version_4.sql").read_text(encoding="utf-8")
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
    assert (run.name, run.deaths, run.resume_at_s, part.steps_done) == ("demo", 0, None, 5)
    store.runs.transition("r", "a", Event.COMPLETE)
    store.close()
    Store(f"sqlite:///{database}").close()  # and once more, with nothing left to migrate
    with closing(sqlite3.connect(database)) as connection:
        assert [row[0] for row in connection.execute("SELECT outcome FROM commands")] == ["applied", "declined"]


def test_the_steps_give_the_tables_of_a_new_database(database: Path) -> None:
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
    with pytest.raises(OperationalError, match="no such table"):
        Store(f"sqlite:///{database}")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(4,)]
        assert connection.execute("SELECT message FROM events").fetchall() == [(m,) for _, _, m in EVENTS]
    assert before[:16] == database.read_bytes()[:16]


def test_every_version_from_the_oldest_on_has_a_step() -> None:
    assert sorted(STEPS) == list(range(min(STEPS), SCHEMA_VERSION))
