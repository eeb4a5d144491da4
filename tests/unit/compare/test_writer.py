import pytest
from sqlalchemy.exc import OperationalError

from tests.clock import SimulatedClock
from tests.unit.store.test_store import add_run
from unifiednn_core.base import failpoints
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.compare.scripts import BaselineWriter
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.events import Code
from unifiednn_core.views.event_text import event_text


@pytest.fixture
def writer(store: Store, clock: SimulatedClock) -> BaselineWriter:
    add_run(store, "r")
    return BaselineWriter(store, "r", clock)


def messages(store: Store) -> list[str]:
    return [event_text(event) for event in store.telemetry.history("r", None).events][1:]


def enter_some(writer: BaselineWriter) -> None:
    writer.columns("a")["steps_done"] = 3
    writer.note("a", Code.WARNED, text="first")
    writer.move("a", Event.BEGIN)
    writer.note("a", Code.WARNED, text="second")
    writer.columns("a")["steps_done"] = 5


def test_entries_are_written_in_their_order(writer: BaselineWriter, store: Store) -> None:
    assert writer.written
    enter_some(writer)
    assert not writer.written
    writer.flush()
    assert writer.written
    assert messages(store) == ["first", "a is running.", "second"]
    assert store.runs.get("r")[1][0].steps_done == 5


@pytest.mark.parametrize("hit", [1, 2, 3])
def test_a_failed_write_is_repeated_once(writer: BaselineWriter, store: Store, hit: int) -> None:
    enter_some(writer)
    failpoints.arm(Fault("store.before_commit", "locked", hit))
    try:
        with pytest.raises(OperationalError):
            writer.flush()
        assert not writer.written
        writer.flush()
    finally:
        failpoints.arm(None)
    assert messages(store) == ["first", "a is running.", "second"]
    assert writer.written


def test_an_illegal_move_is_noted_and_blocks_nothing(writer: BaselineWriter, store: Store) -> None:
    writer.move("a", Event.HALT)
    writer.move("a", Event.BEGIN)
    writer.flush()
    writer.flush()
    kinds = [event.kind for event in store.telemetry.history("r", None).events]
    assert kinds.count("defect") == 1
    assert store.runs.get("r")[1][0].state == "running"
