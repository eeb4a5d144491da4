"""Runs and sub-models: handed in, and moved from state to state."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from unifiednn_core.clock import Clock
from unifiednn_core.errors import NotFound
from unifiednn_core.lifecycle import ENDED, Event, State, next_state
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import CommandRow, EventRow, RunRow, SubModelRow

_FINAL = ENDED - {State.INTERRUPTED}


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
            self.note(session, run.id, None, "state", f"{run.name} is queued.")

    def get(self, run_id: str) -> tuple[RunRow, list[SubModelRow]]:
        """A run and its sub-models in order of arrival; raises `NotFound`."""
        with self._database.read() as session:
            run = run_of(session, run_id)
            return run, list(session.scalars(submodels_of(run_id)))

    def all(self) -> list[tuple[RunRow, list[SubModelRow]]]:
        """Every run, the newest first."""
        with self._database.read() as session:
            runs = list(session.scalars(select(RunRow).order_by(RunRow.created_at_s.desc(), RunRow.id.desc())))
            parts: dict[str, list[SubModelRow]] = {run.id: [] for run in runs}
            for row in session.scalars(select(SubModelRow).order_by(SubModelRow.run_id, SubModelRow.arrival)):
                parts[row.run_id].append(row)
            return [(run, parts[run.id]) for run in runs]

    def transition(
        self, run_id: str, submodel: str | None, event: Event, *, cause: str | None = None, remedy: str | None = None
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
        row = run_of(session, run_id) if submodel is None else submodel_of(session, run_id, submodel)
        before = State(row.state)
        what = row.name if submodel is None else f"{run_id}: {submodel}"
        state = next_state(what, before, event, self._history(session, run_id, submodel, submodel or row.name))
        if state is not before:
            row.state = state.value
            said = f" {cause}" if cause else ""
            self.note(session, run_id, submodel, "state", f"{submodel or row.name} is {state.value}.{said}")
        if cause is not None:
            row.cause, row.remedy = cause, remedy
        if isinstance(row, RunRow):
            if before is State.QUEUED and state is not before:
                row.waits_for = None
            if event is Event.BEGIN and row.started_at_s is None:
                row.started_at_s = self._clock.utc_s()
            self._moved_run(session, row, before, state)
        else:
            self._keep_pause(row, paused=state is State.PAUSED or run_of(session, run_id).state == State.PAUSED.value)
        self._open_or_close(session, row, before, state)
        return state

    def update(self, run_id: str, **values: Any) -> None:
        """Set columns of a run that are no state."""
        with self._database.write() as session:
            row = run_of(session, run_id)
            for name, value in values.items():
                setattr(row, name, value)

    def record_environment(self, run_id: str, facts: Mapping[str, Any]) -> None:
        """Add what a result depends on to what is known of it."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            run.environment = {**run.environment, **facts}

    def record_artifact(self, run_id: str, submodel: str, **columns: Any) -> None:
        """Record where the separated model of a sub-model lies."""
        self._record(run_id, submodel, {**columns, "artifact_at_s": self._clock.utc_s()})

    def record_checkpoint(self, run_id: str, submodel: str, *, name: str, step: int, size_bytes: int) -> None:
        """Record the newest checkpoint of a sub-model."""
        columns = {"checkpoint": name, "checkpoint_step": step, "checkpoint_bytes": size_bytes}
        self._record(run_id, submodel, {**columns, "checkpoint_at_s": self._clock.utc_s()})

    def forget_checkpoint(self, run_id: str, submodel: str) -> None:
        """Record that a sub-model has no checkpoints any more."""
        names = ("checkpoint", "checkpoint_step", "checkpoint_bytes", "checkpoint_at_s")
        self._record(run_id, submodel, dict.fromkeys(names))

    def conclude(self, run_id: str) -> bool:
        """End a run whose sub-models have all ended: failed where one failed, stopped where a person stopped it.

        False where one joined, or is tried again, in the same moment.
        """
        with self._database.write() as session:
            rows = list(session.scalars(submodels_of(run_id)))
            if any(State(row.state) not in ENDED for row in rows):
                return False
            failed = [row.name for row in rows if State(row.state) is State.FAILED]
            if failed:
                cause = f"{', '.join(failed)} failed; what the others learnt is kept."
                remedy = "Open the failed sub-model: its own cause and remedy are there."
                self.transition_in(session, run_id, None, Event.FAIL, cause=cause, remedy=remedy)
            else:
                stopping = State(run_of(session, run_id).state) is State.STOPPING
                self.transition_in(session, run_id, None, Event.HALT if stopping else Event.COMPLETE)
            return True

    def halt_in(self, session: Session, run_id: str) -> None:
        """End a stopping run that never trained, and its sub-models, inside the caller's transaction."""
        for row in list(session.scalars(submodels_of(run_id))):
            if State(row.state) not in ENDED:
                for event in (Event.STOP, Event.HALT):
                    self.transition_in(session, run_id, row.name, event)
        self.transition_in(session, run_id, None, Event.HALT)

    def warn(self, run_id: str, submodel: str, sentences: Sequence[str]) -> None:
        """Add warnings to the history of a sub-model."""
        with self._database.write() as session:
            for sentence in sentences:
                self.note(session, run_id, submodel, "warning", sentence)

    def note(self, session: Session, run_id: str, submodel: str | None, kind: str, message: str) -> None:
        """Add a line to the history of a run, inside the caller's transaction."""
        session.add(EventRow(run_id=run_id, submodel=submodel, at_s=self._clock.utc_s(), kind=kind, message=message))

    # -- what goes with a move

    def _moved_run(self, session: Session, run: RunRow, before: State, state: State) -> None:
        """A run takes its sub-models along where it is paused, stopped, or goes on after a death."""
        if state is before:
            return
        for row in list(session.scalars(submodels_of(run.id))):
            own = State(row.state)
            if state is State.PAUSED and own is State.RUNNING:
                self.transition_in(session, run.id, row.name, Event.RELEASE)
            elif state is State.QUEUED and own is State.INTERRUPTED:
                self.transition_in(session, run.id, row.name, Event.RESUME)
            elif state is State.STOPPING and own not in ENDED:
                self.transition_in(session, run.id, row.name, Event.STOP)
            elif own not in ENDED:
                self._keep_pause(row, paused=State.PAUSED in (state, own))
        if state in (State.PAUSED, State.INTERRUPTED):
            release_worker(run)

    def _open_or_close(self, session: Session, row: RunRow | SubModelRow, before: State, state: State) -> None:
        if state not in ENDED:
            row.ended_at_s = None
            if before in ENDED:
                row.cause = row.remedy = None
            return
        if row.ended_at_s is None:
            row.ended_at_s = self._clock.utc_s()
        if isinstance(row, SubModelRow):
            self._keep_pause(row, paused=False)
        if state in _FINAL and state is not before:
            self._settle_commands(session, row, state)

    def _settle_commands(self, session: Session, row: RunRow | SubModelRow, state: State) -> None:
        """Whatever was still asked of something that has ended is answered by its end."""
        run_id, submodel = (row.id, None) if isinstance(row, RunRow) else (row.run_id, row.name)
        of_row = CommandRow.submodel.is_(None) if submodel is None else CommandRow.submodel == submodel
        asked = select(CommandRow).where(CommandRow.run_id == run_id, of_row, CommandRow.applied_at_s.is_(None))
        for command in session.scalars(asked):
            done = command.verb in (Event.STOP.value, Event.DISCARD.value) and state is State.STOPPED
            command.applied_at_s = self._clock.utc_s()
            command.outcome = "done" if done else f"came too late: {row.name} is {state.value}"
            self.note(session, run_id, submodel, "applied", f"{command.verb.capitalize()}: {command.outcome}.")

    def _keep_pause(self, row: SubModelRow, *, paused: bool) -> None:
        """Count the seconds in which a sub-model is paused, alone or with its run."""
        now_s = self._clock.utc_s()
        if paused and row.paused_since_s is None:
            row.paused_since_s = now_s
        elif not paused and row.paused_since_s is not None:
            row.paused_s, row.paused_since_s = row.paused_s + max(0.0, now_s - row.paused_since_s), None

    def _record(self, run_id: str, submodel: str, columns: dict[str, Any]) -> None:
        with self._database.write() as session:
            row = submodel_of(session, run_id, submodel)
            for name, value in columns.items():
                setattr(row, name, value)

    def _history(self, session: Session, run_id: str, submodel: str | None, what: str) -> list[str]:
        of_this = (EventRow.run_id == run_id) & (EventRow.submodel.is_(None) if submodel is None
                                                  else EventRow.submodel == submodel)  # fmt: skip
        rows = select(EventRow.message).where(of_this, EventRow.kind == "state").order_by(EventRow.id.desc()).limit(5)
        return [
            message.removeprefix(f"{what} is ").split(".", 1)[0] for message in reversed(list(session.scalars(rows)))
        ]


def run_of(session: Session, run_id: str) -> RunRow:
    """Row of a run; raises `NotFound`."""
    run = session.get(RunRow, run_id)
    if run is None:
        raise NotFound(f"There is no run '{run_id}'. List the known ones with: unifiednn runs")
    return run


def submodel_of(session: Session, run_id: str, name: str) -> SubModelRow:
    """Row of a sub-model; raises `NotFound`."""
    row = session.get(SubModelRow, (run_id, name))
    if row is None:
        known = ", ".join(session.scalars(select(SubModelRow.name).where(SubModelRow.run_id == run_id)))
        raise NotFound(f"Run '{run_id}' has no sub-model '{name}'. It has: {known or 'none'}.")
    return row


def submodels_of(run_id: str) -> Any:
    """Query for the sub-models of a run in order of arrival."""
    return select(SubModelRow).where(SubModelRow.run_id == run_id).order_by(SubModelRow.arrival)


def release_worker(run: RunRow) -> None:
    """Nobody works on the run any more, and it holds no device."""
    run.now_submodel = run.now_reason = run.now_since_s = run.claimer = None
    run.heartbeat_at_s = run.worker_pid = run.worker_started_at_s = run.worker_boot_id = None
