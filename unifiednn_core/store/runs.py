"""Runs and sub-models: handed in, moved from state to state, claimed by workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from unifiednn_core.clock import Clock
from unifiednn_core.errors import NotFound
from unifiednn_core.lifecycle import ENDED, Event, State, next_state
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import EventRow, RunRow, SubModelRow

# A claim sets the first heartbeat; until then no worker knows of a run.
_CLAIMED = (RunRow.heartbeat_at_s.is_not(None), RunRow.state.not_in([state.value for state in ENDED]))
_WAITING = (RunRow.heartbeat_at_s.is_(None), RunRow.state == State.QUEUED.value)


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Names one process for good: a PID alone is reused, after a reboot its start time may be, too."""

    pid: int
    started_at_s: float
    boot_id: str


class Runs:
    """The part of the store that answers where each run and sub-model stands."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def add(self, run: RunRow, submodels: Sequence[SubModelRow]) -> None:
        """Hand in a run, queued."""
        with self._database.write() as session:
            session.add(run)
            session.flush()
            session.add_all(submodels)
            self._note(session, run.id, None, "state", f"{run.name} is queued.")

    def get(self, run_id: str) -> tuple[RunRow, list[SubModelRow]]:
        """A run and its sub-models in order of arrival; raises `NotFound`."""
        with self._database.read() as session:
            run = _run(session, run_id)
            return run, list(session.scalars(_submodels_of(run_id)))

    def all(self) -> list[tuple[RunRow, list[SubModelRow]]]:
        """Every run, the newest first."""
        with self._database.read() as session:
            runs = list(session.scalars(select(RunRow).order_by(RunRow.created_at_s.desc(), RunRow.id.desc())))
            parts: dict[str, list[SubModelRow]] = {run.id: [] for run in runs}
            for row in session.scalars(select(SubModelRow).order_by(SubModelRow.run_id, SubModelRow.arrival)):
                parts[row.run_id].append(row)
            return [(run, parts[run.id]) for run in runs]

    def transition(
        self,
        run_id: str,
        submodel: str | None,
        event: Event,
        *,
        cause: str | None = None,
        remedy: str | None = None,
    ) -> State:
        """Move a run, or one of its sub-models, along the transition table; raises `IllegalTransition`."""
        with self._database.write() as session:
            return self.transition_in(session, run_id, submodel, event, cause=cause, remedy=remedy)

    def transition_in(
        self,
        session: Session,
        run_id: str,
        submodel: str | None,
        event: Event,
        *,
        cause: str | None = None,
        remedy: str | None = None,
    ) -> State:
        """`transition` inside the caller's transaction."""
        row = _run(session, run_id) if submodel is None else _submodel(session, run_id, submodel)
        before = State(row.state)
        what = row.name if submodel is None else f"{run_id}: {submodel}"
        state = next_state(what, before, event, self._history(session, run_id, submodel, submodel or row.name))
        now_s = self._clock.utc_s()
        if state is not before:
            row.state = state.value
            said = f" {cause}" if cause else ""
            self._note(session, run_id, submodel, "state", f"{submodel or row.name} is {state.value}.{said}")
        if cause is not None:
            row.cause, row.remedy = cause, remedy
        if isinstance(row, RunRow) and state is State.RUNNING and row.started_at_s is None:
            row.started_at_s = now_s
        if state in ENDED and row.ended_at_s is None:
            row.ended_at_s = now_s
        return state

    def update(self, run_id: str, **values: Any) -> None:
        """Set columns of a run that are no state."""
        with self._database.write() as session:
            row = _run(session, run_id)
            for name, value in values.items():
                setattr(row, name, value)

    def record_artifact(self, run_id: str, submodel: str, **columns: Any) -> None:
        """Record where the separated model of a sub-model lies."""
        with self._database.write() as session:
            row = _submodel(session, run_id, submodel)
            for name, value in {**columns, "artifact_at_s": self._clock.utc_s()}.items():
                setattr(row, name, value)

    def claim_next(self, device: str) -> str | None:
        """Take the oldest queued run for `device`, if no other run holds it; atomic between all supervisors."""
        with self._database.write() as session:
            on_device = RunRow.device == device
            if session.scalar(select(RunRow.id).where(on_device, *_CLAIMED).limit(1)) is not None:
                return None
            waiting = select(RunRow).where(on_device, *_WAITING).order_by(RunRow.created_at_s, RunRow.id)
            run = session.scalar(waiting.limit(1))
            if run is None:
                return None
            self.transition_in(session, run.id, None, Event.CLAIM)
            run.heartbeat_at_s = self._clock.utc_s()
            return run.id

    def waited_for(self) -> list[str]:
        """Devices that some queued run waits for."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow.device).where(*_WAITING).distinct()))

    def register_worker(self, run_id: str, worker: WorkerIdentity) -> bool:
        """Record which process trains the run; False where the run has ended and there is nothing to train."""
        with self._database.write() as session:
            run = _run(session, run_id)
            if State(run.state) in ENDED:
                return False
            run.worker_pid, run.worker_started_at_s, run.worker_boot_id = (
                worker.pid,
                worker.started_at_s,
                worker.boot_id,
            )
            run.heartbeat_at_s = self._clock.utc_s()
            return True

    def held(self) -> list[RunRow]:
        """Runs that hold a device: a worker should be alive for each, or coming up."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow).where(*_CLAIMED)))

    def lose(self, run_id: str, cause: str, remedy: str) -> None:
        """Record that the worker of a run died: the run and all that had not ended become interrupted."""
        with self._database.write() as session:
            run = _run(session, run_id)
            if State(run.state) in ENDED:
                return
            self.transition_in(session, run_id, None, Event.LOSE, cause=cause, remedy=remedy)
            run.now_submodel = run.now_reason = None
            for row in session.scalars(_submodels_of(run_id)):
                if State(row.state) not in ENDED:
                    self.transition_in(session, run_id, row.name, Event.LOSE, cause=cause, remedy=remedy)

    def halt_in(self, session: Session, run_id: str) -> None:
        """End a stopping run that never trained, and its sub-models, inside the caller's transaction."""
        for row in list(session.scalars(_submodels_of(run_id))):
            for event in (Event.STOP, Event.HALT):
                self.transition_in(session, run_id, row.name, event)
        self.transition_in(session, run_id, None, Event.HALT)

    def _history(self, session: Session, run_id: str, submodel: str | None, what: str) -> list[str]:
        of_this = (EventRow.run_id == run_id) & (EventRow.submodel.is_(None) if submodel is None
                                                  else EventRow.submodel == submodel)  # fmt: skip
        rows = select(EventRow.message).where(of_this, EventRow.kind == "state").order_by(EventRow.id.desc()).limit(5)
        return [
            message.removeprefix(f"{what} is ").split(".", 1)[0] for message in reversed(list(session.scalars(rows)))
        ]

    def _note(self, session: Session, run_id: str, submodel: str | None, kind: str, message: str) -> None:
        session.add(EventRow(run_id=run_id, submodel=submodel, at_s=self._clock.utc_s(), kind=kind, message=message))


def _run(session: Session, run_id: str) -> RunRow:
    run = session.get(RunRow, run_id)
    if run is None:
        raise NotFound(f"There is no run '{run_id}'. List the known ones with: unifiednn runs")
    return run


def _submodel(session: Session, run_id: str, name: str) -> SubModelRow:
    row = session.get(SubModelRow, (run_id, name))
    if row is None:
        known = ", ".join(session.scalars(select(SubModelRow.name).where(SubModelRow.run_id == run_id)))
        raise NotFound(f"Run '{run_id}' has no sub-model '{name}'. It has: {known or 'none'}.")
    return row


def _submodels_of(run_id: str) -> Any:
    return select(SubModelRow).where(SubModelRow.run_id == run_id).order_by(SubModelRow.arrival)
