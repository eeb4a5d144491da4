"""Who works on what: runs are claimed for a device, workers register, and are lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from unifiednn_core.clock import Clock
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.store.database import Database
from unifiednn_core.store.runs import Runs, release_worker, run_of, submodel_of, submodels_of
from unifiednn_core.store.schema import AttemptRow, RunRow

# Workers in a row that died with the same sub-model at work, and nothing new kept, before it is taken for the culprit.
FRUITLESS_ATTEMPTS = 3

# A claim sets the first heartbeat; until then no worker knows of a run.
_CLAIMED = (RunRow.heartbeat_at_s.is_not(None), RunRow.state.not_in([state.value for state in ENDED]))
_TO_BE_STOPPED = (RunRow.state == State.STOPPING.value) & RunRow.started_at_s.is_not(None)
_WAITING = (RunRow.heartbeat_at_s.is_(None), or_(RunRow.state == State.QUEUED.value, _TO_BE_STOPPED))


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Names one process for good: a PID alone is reused, after a reboot its start time may be, too."""

    pid: int
    started_at_s: float
    boot_id: str


class Workers:
    """The part of the store that answers who works on which run."""

    def __init__(self, database: Database, runs: Runs, clock: Clock):
        self._database, self._runs, self._clock = database, runs, clock

    def claim_next(self, device: str) -> str | None:
        """Take the oldest waiting run for `device`, if no other run holds it; atomic between all supervisors."""
        with self._database.write() as session:
            on_device = RunRow.device == device
            if session.scalar(select(RunRow.id).where(on_device, *_CLAIMED).limit(1)) is not None:
                return None
            waiting = select(RunRow).where(on_device, *_WAITING).order_by(RunRow.created_at_s, RunRow.id)
            run = session.scalar(waiting.limit(1))
            if run is None:
                return None
            self._runs.transition_in(session, run.id, None, Event.CLAIM)
            run.heartbeat_at_s = self._clock.utc_s()
            return run.id

    def waited_for(self) -> list[str]:
        """Devices that some run waits for."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow.device).where(*_WAITING).distinct()))

    def launched(self, run_id: str, worker: WorkerIdentity) -> None:
        """Record which process was started for a claimed run, so that its death is seen even before it registers."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            if run.heartbeat_at_s is not None and run.worker_pid is None and State(run.state) not in ENDED:
                _set_worker(run, worker)

    def register(self, run_id: str, worker: WorkerIdentity) -> int | None:
        """Record which process trains the run; returns its attempt, or None where there is nothing for it to do."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            taken = run.worker_pid is not None and run.worker_pid != worker.pid
            if State(run.state) in ENDED or run.heartbeat_at_s is None or taken:
                return None
            _set_worker(run, worker)
            run.heartbeat_at_s = self._clock.utc_s()
            run.attempt += 1
            return run.attempt

    def begin(self, run_id: str, standings: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Open an attempt on each sub-model named, which goes on at these columns: what was done after them is void.

        Returns the number of the attempt of each.
        """
        with self._database.write() as session:
            attempts = {}
            for name, columns in standings.items():
                row = submodel_of(session, run_id, name)
                step, lost_steps = columns["steps_done"], max(0, row.steps_done - columns["steps_done"])
                row.attempt += 1
                if row.attempt > 1:
                    said = f"{name} goes on at step {step}; {lost_steps} steps are trained again."
                    self._runs.note(session, run_id, name, "recovery", said)
                for column, value in columns.items():
                    setattr(row, column, value)
                attempts[name] = row.attempt
                session.add(
                    AttemptRow(
                        run_id=run_id,
                        submodel=name,
                        attempt=row.attempt,
                        from_step=step,
                        at_s=self._clock.utc_s(),
                    )
                )
            return attempts

    def held(self) -> list[RunRow]:
        """Runs that hold a device: a worker should be alive for each, or coming up."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow).where(*_CLAIMED)))

    def lose(self, run_id: str, cause: str, remedy: str, *, fruitless_limit: int = FRUITLESS_ATTEMPTS) -> None:
        """Record that the worker of a run died; the run is queued again where it recovers by itself.

        Where `fruitless_limit` workers in a row died before anything new was kept, the sub-model that held the device
        is taken for the culprit and fails; where none held it, the run waits for a person.
        """
        with self._database.write() as session:
            run = run_of(session, run_id)
            if State(run.state) in ENDED or run.heartbeat_at_s is None:
                return
            run.fruitless_attempts += 1
            hopeless, culprit = run.fruitless_attempts >= fruitless_limit, run.now_submodel
            if hopeless and culprit is not None:
                self._blame(session, run, culprit, cause)
                hopeless = False
            self._runs.transition_in(session, run_id, None, Event.LOSE, cause=cause, remedy=remedy)
            for row in session.scalars(submodels_of(run_id)):
                if State(row.state) not in ENDED:
                    self._runs.transition_in(session, run_id, row.name, Event.LOSE)
            release_worker(run)
            if hopeless:
                run.fruitless_attempts = 0
            elif run.spec.get("recovery", "auto") == "auto":
                self._runs.note(session, run_id, None, "recovery", f"{cause} It goes on from its last checkpoints.")
                self._runs.transition_in(session, run_id, None, Event.RESUME)

    def quarantine(self, run_id: str, submodel: str, cause: str, remedy: str) -> None:
        """Take one sub-model out of its run before the worker, which cannot end it, ends itself."""
        with self._database.write() as session:
            self._runs.transition_in(session, run_id, submodel, Event.FAIL, cause=cause, remedy=remedy)
            run_of(session, run_id).fruitless_attempts = 0

    def _blame(self, session: Session, run: RunRow, submodel: str, cause: str) -> None:
        if State(submodel_of(session, run.id, submodel).state) not in ENDED:
            found = f"{run.fruitless_attempts} workers in a row died while {submodel} held the device. Last: {cause}"
            remedy = "It may need more memory than there is: retry it with a larger batch split. The others go on."
            self._runs.transition_in(session, run.id, submodel, Event.FAIL, cause=found, remedy=remedy)
        run.fruitless_attempts = 0


def _set_worker(run: RunRow, worker: WorkerIdentity) -> None:
    run.worker_pid, run.worker_started_at_s, run.worker_boot_id = worker.pid, worker.started_at_s, worker.boot_id
