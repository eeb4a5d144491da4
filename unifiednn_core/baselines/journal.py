"""Writes a baseline down, in order: what the store cannot take now stays first in line, and nothing is dropped."""

from collections import deque
from collections.abc import Callable
from functools import partial

from unifiednn_core.clock import Clock
from unifiednn_core.errors import IllegalTransition
from unifiednn_core.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.telemetry import Batch, Row


class Journal:
    """The writing hand of a conductor. Used by one thread alone."""

    def __init__(self, store: Store, run_id: str, clock: Clock):
        self._store, self._run_id, self._clock = store, run_id, clock
        self._line: deque[Callable[[], object]] = deque()
        self.batch = Batch()
        """Rows since the last entry; they are written before the next one."""

    @property
    def written(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._line and self.batch == Batch()

    def columns(self, submodel: str) -> Row:
        """Columns of a sub-model that are to change."""
        return self.batch.submodels.setdefault(submodel, {})

    def note(self, submodel: str | None, kind: str, message: str) -> None:
        """Add a line to the history of the run."""
        self.batch.events.append({"submodel": submodel, "at_s": self._clock.utc_s(), "kind": kind, "message": message})

    def move(self, submodel: str | None, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        """Move the run or a sub-model along the transition table, after everything that was entered before."""
        self.enter(partial(self._move, submodel, event, cause, remedy))

    def enter(self, action: Callable[[], object]) -> None:
        """Have one transaction carried out after everything that was entered before."""
        if self.batch != Batch():
            self._line.append(partial(self._store.telemetry.write, self._run_id, self.batch))
            self.batch = Batch()
        self._line.append(action)

    def write_down(self) -> None:
        """Write everything, and the heartbeat; raises `OperationalError` where the store cannot be written now."""
        while self._line:
            self._line[0]()
            self._line.popleft()
        self._store.telemetry.write(self._run_id, self.batch)
        self.batch = Batch()

    def _move(self, submodel: str | None, event: Event, cause: str | None, remedy: str | None) -> None:
        try:
            self._store.runs.transition(self._run_id, submodel, event, cause=cause, remedy=remedy)
        except IllegalTransition as error:  # a state that is wrong costs less than the whole measurement
            self.note(submodel, "defect", str(error))
