"""What the supervisor asks the store in a tick, which comes twice a second, day and night."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from tests.clock import SimulatedClock
from tests.unit.runtime.test_supervisor import Launcher, supervisor_of
from tests.unit.store.test_store import add_run
from unifiednn_core.runtime import supervisor
from unifiednn_core.runtime.placing import Fleet, fleet_of
from unifiednn_core.store import Store

MOST_STATEMENTS = 6


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """Statements that are sent meanwhile, without the begin of each transaction."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            sent.append(statement)

    event.listen(store._database._engine, "before_cursor_execute", note)
    yield sent
    event.remove(store._database._engine, "before_cursor_execute", note)


def tick(store: Store, clock: SimulatedClock) -> Callable[[], int]:
    """A tick of a supervisor that has seen its devices; returns how many statements it took."""
    watch = supervisor_of(store, Launcher(), clock)
    watch.tick()

    def ticked() -> int:
        with statements(store) as sent:
            watch.tick()
        return len(sent)

    return ticked


def test_a_tick_sees_the_fleet_only_if_something_waits(
    store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []

    def seen(*given: Any) -> Fleet:
        looked.append(clock.utc_s())
        return fleet_of(*given)

    monkeypatch.setattr(supervisor, "fleet_of", seen)
    ticked = tick(store, clock)
    ticked()
    assert not looked
    for number in range(4):  # more than there are devices
        add_run(store, f"r{number}", number)
    ticked()
    assert looked
    few = ticked()
    assert few > MOST_STATEMENTS  # so an idle tick that looked would be noticed
    for number in range(4, 12):
        add_run(store, f"r{number}", number)
    ticked()  # writes down what each waits for
    assert ticked() == few
