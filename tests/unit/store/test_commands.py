import pytest
from sqlalchemy import event as sqlalchemy_event

from tests.unit.rows import part_of
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import ME, claim_next, states, take_up
from unifiednn_core.base.errors import BadInput, IllegalTransition
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb, brief_of
from unifiednn_core.views.event_text import command_text, event_text


@pytest.fixture
def running(store: Store) -> Store:
    """A store in which a worker trains run "r"."""
    add_run(store, "r")
    take_up(store, "r")
    for name in ("a", "b"):
        store.runs.transition("r", name, Event.BEGIN)
    return store


def applied(store: Store, run_id: str = "r") -> list[str]:
    return [event_text(event) for event in store.telemetry.history(run_id, None).events if event.kind == "applied"]


def test_an_order_and_the_state_that_shows_it_are_one_transaction(running: Store) -> None:
    assert running.commands.issue("r", "a", Verb.PAUSE) is State.PAUSING
    with pytest.raises(IllegalTransition):
        running.commands.issue("r", "a", Verb.RESUME)
    [command] = running.commands.open("r")
    assert (command.submodel, command.verb) == ("a", Verb.PAUSE)


def test_a_command_takes_effect_once_however_often_it_is_carried_out(running: Store) -> None:
    running.commands.issue("r", "a", Verb.PRIORITY, {"priority": 7})
    [command] = running.commands.open("r")
    assert running.runs.get("r")[1][0].priority == 0, "nothing changes before the engine has obeyed"
    for _ in range(3):
        running.commands.carry_out(command.id, 12)
    run, (a, _) = running.runs.get("r")
    assert (a.priority, run.spec["submodels"][0]["priority"]) == (7, 7)
    assert applied(running) == ["Priority 7 for a, at step 12."]
    assert running.commands.open("r") == []


def test_edits_change_rows_and_spec_alike(running: Store) -> None:
    running.commands.issue("r", "a", Verb.EPOCHS, {"epochs": 3})
    running.commands.issue("r", "a", Verb.DEADLINE, {"deadline_s": 90.0})
    running.commands.issue("r", None, Verb.ORDER, {"names": ["b", "a"]})
    running.commands.issue("r", None, Verb.POLICY, {"policy": {"name": "sjf"}})
    for command in running.commands.open("r"):
        running.commands.carry_out(command.id)
    run, rows = running.runs.get("r")
    assert [row.name for row in rows] == ["b", "a"] == [part["name"] for part in run.spec["submodels"]]
    assert (rows[1].epochs, rows[1].steps_total) == (3, 30)
    assert run.spec["submodels"][1]["hyperparameters"]["epochs"] == 3
    assert run.spec["policy"] == {"name": "sjf"}
    assert rows[1].deadline_s == run.spec["submodels"][1]["deadline_s"] == 90
    assert "Deadline 90 s for a." in applied(running)


def test_a_pause_asked_of_a_worker_that_died_is_shown_again(running: Store) -> None:
    running.commands.issue("r", None, Verb.PAUSE)
    running.workers.lose("r", "It died.", "Again.")
    assert states(running, "r") == ["queued"] * 3
    assert claim_next(running) == "r"
    running.workers.register("r", ME)
    running.commands.adopt("r")
    assert states(running, "r")[0] == "pausing"
    [command] = running.commands.open("r")
    running.commands.carry_out(command.id)
    assert states(running, "r") == ["paused", "queued", "queued"]


@pytest.mark.parametrize("target", [None, "a"])
def test_a_pause_is_not_lost_with_the_worker_that_was_to_reach_it(running: Store, target: str | None) -> None:
    running.commands.issue("r", target, Verb.PAUSE)
    running.workers.lose("r", "It died.", "Again.")
    running.commands.settle_unclaimed()
    assert states(running, "r") == (
        ["paused", "queued", "queued"] if target is None else ["queued", "paused", "queued"]
    )
    assert running.commands.open("r") == []


def test_a_resume_undoes_the_pauses_before_it(store: Store) -> None:
    add_run(store, "r", recovery="ask")
    take_up(store, "r")
    store.commands.issue("r", None, Verb.PAUSE)
    store.workers.lose("r", "It died.", "Resume it.")
    store.commands.issue("r", None, Verb.RESUME)
    store.commands.settle_unclaimed()
    assert states(store, "r") == ["queued"] * 3
    assert applied(store) == ["Pause: undone by a later resume.", "Resume."]


def test_what_is_being_kept_cannot_be_discarded_any_more(running: Store) -> None:
    running.commands.issue("r", None, Verb.STOP)
    with pytest.raises(IllegalTransition):
        running.commands.issue("r", None, Verb.DISCARD)


def test_a_name_is_taken_once(running: Store) -> None:
    for name in ("A", "b"):
        row = part_of(run_id="r", name=name, steps_total=5)
        with pytest.raises(BadInput, match="Two sub-models"):
            running.commands.issue("r", None, Verb.ADD, {"submodel": {"name": name}, "files": {}}, row=row)


def test_a_stop_is_answered_by_the_end_itself(running: Store) -> None:
    running.commands.issue("r", None, Verb.STOP)
    assert states(running, "r") == ["stopping"] * 3
    for name in ("a", "b"):
        running.runs.transition("r", name, Event.HALT)
    assert len(running.commands.open("r")) == 1
    assert running.runs.conclude("r")
    assert running.commands.open("r") == []
    assert applied(running) == ["Stop: done."]


def test_what_comes_too_late_is_said(running: Store) -> None:
    running.commands.issue("r", "a", Verb.PAUSE)
    running.runs.transition("r", "a", Event.COMPLETE)
    assert applied(running) == ["Pause: came too late: a is completed."]
    with pytest.raises(IllegalTransition):
        running.commands.issue("r", "a", Verb.PRIORITY, {"priority": 1})


def test_a_failed_submodel_is_tried_again_with_what_was_changed_even_after_the_end(running: Store) -> None:
    running.runs.transition("r", "a", Event.FAIL, cause="It broke.", remedy="Mend it.")
    running.runs.transition("r", "b", Event.COMPLETE)
    assert running.runs.conclude("r")
    assert states(running, "r") == ["failed", "failed", "completed"]
    assert running.commands.issue("r", "a", Verb.RETRY, {"hyperparameters": {"batch_split": 2}}) is State.QUEUED
    run, (a, _) = running.runs.get("r")
    assert states(running, "r") == ["queued", "queued", "completed"]
    assert (a.cause, a.ended_at_s, run.ended_at_s) == (None, None, None)
    assert run.spec["submodels"][0]["hyperparameters"] == {"epochs": 1, "batch_split": 2}
    assert claim_next(running) == "r"


def test_one_more_submodel_is_there_from_the_acknowledgement_on(running: Store) -> None:
    row = part_of(run_id="r", name="c", steps_total=5)
    arguments = {"submodel": {"name": "c", "hyperparameters": {}}, "files": {"c": {"sha256:1": "c.pt2"}}}
    running.commands.issue("r", None, Verb.ADD, arguments, row=row)
    run, rows = running.runs.get("r")
    assert [(row.name, row.arrival) for row in rows] == [("a", 0), ("b", 1), ("c", 2)]
    assert run.environment["files"] == {"c": {"sha256:1": "c.pt2"}}
    assert not running.runs.conclude("r")
    assert command_text(None, brief_of(running.commands.open("r")[0])) == "add c"


def test_a_run_that_waits_for_its_device_can_be_changed_paused_and_stopped_without_a_worker(store: Store) -> None:
    add_run(store, "r")
    store.commands.issue("r", "b", Verb.PRIORITY, {"priority": -1})
    store.commands.issue("r", "a", Verb.PAUSE)
    store.commands.issue("r", None, Verb.PAUSE)
    store.commands.settle_unclaimed()
    assert states(store, "r") == ["paused", "paused", "queued"]
    assert store.runs.get("r")[1][1].priority == -1
    assert claim_next(store) is None
    store.commands.issue("r", None, Verb.RESUME)
    assert claim_next(store) == "r"

    add_run(store, "s", created_at_s=6)
    store.commands.issue("s", "a", Verb.STOP)
    store.commands.issue("s", None, Verb.STOP)
    store.commands.settle_unclaimed()
    assert states(store, "s") == ["stopped"] * 3
    assert store.commands.open("s") == []


def test_a_command_that_cannot_be_settled_holds_up_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("r", "s"):
        add_run(store, name)
    store.commands.issue("r", None, Verb.STOP)
    store.commands.issue("s", None, Verb.PAUSE)

    def refuse(session: object, run_id: str) -> None:
        raise IllegalTransition(run_id, "queued", "halt", [])

    monkeypatch.setattr(store.runs, "halt_in", refuse)
    store.commands.settle_unclaimed()
    assert (states(store, "r")[0], states(store, "s")[0]) == ("stopping", "paused")
    assert (store.commands.open("r"), store.commands.open("s")) == ([], [])
    assert [event.code for event in store.telemetry.history("r", None).events][-1] == "declined"


def test_a_run_that_was_paused_is_stopped_by_a_worker_that_writes_out_what_was_learnt(running: Store) -> None:
    running.commands.issue("r", None, Verb.PAUSE)
    running.commands.carry_out(running.commands.open("r")[0].id)
    running.commands.issue("r", None, Verb.STOP)
    running.commands.settle_unclaimed()
    assert states(running, "r") == ["stopping"] * 3
    assert claim_next(running) == "r"
    assert running.workers.register("r", ME) == 2
    assert states(running, "r") == ["stopping"] * 3


@pytest.mark.parametrize("submodel", [None, "a"])
def test_a_pause_that_meets_an_interrupted_run_is_not_called_applied(store: Store, submodel: str | None) -> None:
    add_run(store, "r", recovery="ask")
    claim_next(store)
    store.workers.register("r", ME)
    store.runs.transition("r", None, Event.BEGIN)
    store.commands.issue("r", submodel, Verb.PAUSE)
    store.workers.lose("r", "It died.", "Resume it.")
    store.commands.settle_unclaimed()
    assert states(store, "r") == ["interrupted"] * 3
    assert applied(store) == [f"Pause: came too late: {submodel or 'r'} is interrupted."]


def test_the_history_is_read_for_an_error_alone(running: Store) -> None:
    statements: list[str] = []

    def hear(_c: object, _u: object, statement: str, *_: object) -> None:
        statements.append(statement)

    sqlalchemy_event.listen(running._database._engine, "before_cursor_execute", hear)
    running.runs.transition("r", "a", Event.RELEASE)
    assert not [text for text in statements if text.startswith("SELECT") and "FROM events" in text]
    with pytest.raises(IllegalTransition, match=r"Before: .*running"):
        running.runs.transition("r", "a", Event.RETRY)
