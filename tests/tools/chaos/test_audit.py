import sqlite3
from typing import Any

import pytest

from tools.chaos.audit import StoreAudit, Tiling, Window, kept_windows, readable, redone, tiling
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store
from unifiednn_core.store.database import Database
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.schema import AttemptRow, Base, CommandRow, EpochRow, EventRow, RunRow, StepRow, SubModelRow

RUN = "run"
SPEC = {"policy": {"name": "fcfs"}, "submodels": []}


def add(home: Home, *rows: Base) -> StoreAudit:
    database = Database(home.database_url)
    with database.write() as session:
        if session.get(RunRow, RUN) is None:
            session.add(RunRow(id=RUN, name="chaos", state="running", device="cpu", spec=SPEC, created_at_s=0.0))
            session.flush()
        session.add_all(rows)
    database.close()
    return StoreAudit(home.database_url, RUN)


def submodel(name: str = "lenet", **columns: Any) -> SubModelRow:
    given = {
        "arrival": 0,
        "state": "queued",
        "priority": 0,
        "model_format": "kit",
        "parameters": 1,
        "epochs": 2,
        "steps_total": 8,
    } | columns
    return SubModelRow(run_id=RUN, name=name, **given)


def command(
    number: int,
    verb: str,
    name: str | None = None,
    *,
    applied: bool = True,
    outcome: str | None = None,
    **arguments: Any,
) -> CommandRow:
    return CommandRow(
        id=number,
        run_id=RUN,
        submodel=name,
        verb=verb,
        arguments=arguments,
        issued_at_s=1.0,
        applied_at_s=2.0 if applied else None,
        outcome=outcome or "applied",
    )


def event(code: Code, name: str | None = None, **fields: Any) -> EventRow:
    return EventRow(run_id=RUN, **event_columns(1.0, name, code, **fields))


def step(attempt: int, number: int, steps: int = 1) -> StepRow:
    return StepRow(run_id=RUN, submodel="lenet", attempt=attempt, step=number, steps=steps, epoch=0.1, loss=1.5)


def attempt(number: int, from_step: int) -> AttemptRow:
    return AttemptRow(run_id=RUN, submodel="lenet", attempt=number, from_step=from_step, at_s=1.0)


def test_steps_of_a_lost_tail_are_void() -> None:
    windows = [Window(1, 1, 1), Window(1, 2, 1), Window(1, 3, 1), Window(2, 3, 1), Window(2, 4, 1)]
    kept = kept_windows(windows, {1: 0, 2: 2})
    assert [(window.attempt, window.step) for window in kept] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert tiling(kept, 4) == Tiling(twice=0, missing=0)


def test_a_step_of_two_attempts_counts_twice() -> None:
    assert tiling([Window(1, 2, 2), Window(2, 3, 2)], 3) == Tiling(twice=1, missing=0)


def test_a_hole_is_missing_and_what_lies_beyond_the_end_is_too_much() -> None:
    assert tiling([Window(1, 2, 2), Window(1, 6, 2)], 5) == Tiling(twice=1, missing=2)


def test_a_window_across_the_step_where_a_later_attempt_began_is_void_as_a_whole() -> None:
    kept = kept_windows([Window(1, 4, 4), Window(2, 4, 2)], {1: 0, 2: 2})
    assert tiling(kept, 4) == Tiling(twice=0, missing=2)


def test_a_lost_tail_is_redone_once() -> None:
    windows = [Window(1, 10, 10), Window(2, 7, 3), Window(3, 9, 4)]
    assert redone(windows, {1: 0, 2: 4, 3: 5}) == [6, 2]
    assert redone(windows, {1: 0, 2: 4, 3: 4, 4: 4}) == [6, 3, 5]


def test_steps_and_epochs_are_read_from_the_store(home: Home) -> None:
    epochs = [
        EpochRow(run_id=RUN, submodel="lenet", attempt=number, epoch=epoch, step=at)
        for number, epoch, at in ((1, 1, 2), (1, 2, 4), (2, 2, 4))
    ]
    audit = add(home, submodel(), step(1, 2, 2), step(1, 4, 2), attempt(1, 0), attempt(2, 2), step(2, 4, 2), *epochs)
    kept = kept_windows(audit.windows("lenet"), audit.begun_at("lenet"))
    assert tiling(kept, 4) == Tiling(twice=0, missing=0)
    assert kept[0].loss == 1.5
    assert audit.kept_epochs("lenet") == [1, 2]
    assert audit.states() == {None: "running", "lenet": "queued"}
    assert audit.totals() == {"lenet": (2, 8, 0, None)}


def test_epochs_that_count_twice_are_found(home: Home) -> None:
    rows = [EpochRow(run_id=RUN, submodel="lenet", attempt=number, epoch=1, step=4) for number in (1, 2)]
    audit = add(home, submodel(), attempt(1, 0), attempt(2, 4), *rows)
    assert audit.kept_epochs("lenet") == [1, 1]


def test_acknowledged_commands_have_to_be_there_and_to_have_taken_effect(home: Home) -> None:
    audit = add(home, submodel(), command(1, "save"), command(2, "pause", "lenet", applied=False))
    assert audit.open_commands([1]) == []
    assert audit.open_commands([1, 2, 3]) == ["command 3 is gone", "command 2 (pause) never took effect"]


def test_one_effect_is_told_of_each_command(home: Home) -> None:
    audit = add(
        home,
        submodel(),
        command(1, "save"),
        command(2, "pause", "lenet"),
        command(3, "save", applied=False),
        event(Code.APPLIED, verb="save"),
        event(Code.APPLIED, "lenet", verb="pause"),
    )
    assert audit.applied_otherwise_than_once() == []
    audit = add(home, event(Code.APPLIED, verb="save"))
    assert audit.applied_otherwise_than_once() == ["run: 1 commands, 2 effects"]


def test_what_was_set_last_is_what_there_is(home: Home) -> None:
    commands = [
        command(1, "priority", "lenet", priority=3),
        command(2, "priority", "lenet", priority=5),
        command(3, "epochs", "lenet", epochs=9, outcome="obsolete"),
        command(4, "policy", policy={"name": "sjf"}),
        command(5, "order", names=["resnet", "lenet"]),
    ]
    audit = add(home, submodel(priority=5, arrival=1), submodel("resnet"), *commands)
    assert audit.values_not_as_asked() == ["policy of the run is {'name': 'fcfs'}, asked for was {'name': 'sjf'}"]
    audit = add(home, command(6, "priority", "lenet", priority=7), command(7, "order", names=["lenet", "resnet"]))
    assert [problem.split(" is ")[0] for problem in audit.values_not_as_asked()] == [
        "priority of lenet",
        "policy of the run",
        "order of the run",
    ]


def test_a_pause_that_paused_nothing_is_found(home: Home) -> None:
    audit = add(
        home,
        submodel(),
        event(Code.ENTERED, "lenet", state="paused"),
        event(Code.APPLIED, "lenet", verb="pause"),
        event(Code.ENTERED, state="queued"),
        event(Code.OBSOLETE, verb="pause"),
    )
    assert audit.pauses_without_effect() == []
    audit = add(home, event(Code.APPLIED, verb="pause", step=3))
    assert audit.pauses_without_effect() == ["A pause of the run was applied in state queued"]


def test_the_history_has_to_tell_of_damage(home: Home) -> None:
    message = "The checkpoint of lenet at step 8 is damaged (it was changed); the one at step 4 is used."
    audit = add(home, submodel(), event(Code.WARNED, "lenet", text=message))
    assert audit.tells_of_damage("lenet", 8)
    assert not audit.tells_of_damage("lenet", 4)
    assert not audit.tells_of_damage("resnet", 8)


def test_a_whole_store_is_readable(home: Home) -> None:
    Store.open(home).close()
    assert readable(home.database_url) == []


def test_a_spoilt_store_is_not(home: Home) -> None:
    add(home, submodel(), *(step(1, number) for number in range(1, 2000)))
    path = home.database
    content = bytearray(path.read_bytes())
    content[4096 * 10 : 4096 * 20] = b"\xff" * 4096 * 10
    path.write_bytes(content)
    assert readable(home.database_url)


def test_a_store_of_another_version_is_not(home: Home) -> None:
    Store.open(home).close()
    path = home.database
    database = sqlite3.connect(path)
    database.execute("UPDATE schema_version SET version = 999")
    database.commit()
    database.close()
    [problem] = readable(home.database_url)
    assert problem.startswith("WrongSchema")


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to be taken for one " * 40])
def test_a_file_that_is_no_store_of_ours_is_told_of_or_made_one(home: Home, content: bytes) -> None:
    path = home.database
    path.write_bytes(content)
    assert bool(readable(home.database_url)) == bool(content)
