import pytest
from sqlalchemy.exc import OperationalError

from tests.unit.store.test_store import add_run
from unifiednn_core import failpoints
from unifiednn_core.baselines.journal import Journal
from unifiednn_core.clock import SimulatedClock
from unifiednn_core.failpoints import Fault
from unifiednn_core.lifecycle import Event
from unifiednn_core.store import Store


@pytest.fixture
def journal(store: Store, clock: SimulatedClock) -> Journal:
    add_run(store, "r")
    return Journal(store, "r", clock)


def messages(store: Store) -> list[str]:
    return [event.message for event in store.telemetry.history("r", None).events][1:]


def enter_some(journal: Journal) -> None:
    journal.columns("a")["steps_done"] = 3
    journal.note("a", "error", "first")
    journal.move("a", Event.BEGIN)
    journal.note("a", "error", "second")
    journal.columns("a")["steps_done"] = 5


def test_entries_are_written_in_their_order(journal: Journal, store: Store) -> None:
    assert journal.written
    enter_some(journal)
    assert not journal.written
    journal.write_down()
    assert journal.written
    assert messages(store) == ["first", "a is running.", "second"]
    assert store.runs.get("r")[1][0].steps_done == 5


@pytest.mark.parametrize("hit", [1, 2, 3])
def test_what_the_store_cannot_take_now_is_written_later_and_once(journal: Journal, store: Store, hit: int) -> None:
    enter_some(journal)
    failpoints.arm(Fault("store.before_commit", "locked", hit))
    try:
        with pytest.raises(OperationalError):
            journal.write_down()
        assert not journal.written
        journal.write_down()
    finally:
        failpoints.arm(None)
    assert messages(store) == ["first", "a is running.", "second"]
    assert journal.written


def test_a_move_that_the_table_does_not_know_is_noted_and_holds_nothing_up(journal: Journal, store: Store) -> None:
    journal.move("a", Event.HALT)
    journal.move("a", Event.BEGIN)
    journal.write_down()
    journal.write_down()
    kinds = [event.kind for event in store.telemetry.history("r", None).events]
    assert kinds.count("defect") == 1
    assert store.runs.get("r")[1][0].state == "running"
