"""Who works on what: runs are claimed for a device, workers register, and are lost."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from unifiednn_core.clock import Clock
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.store.database import Database
from unifiednn_core.store.runs import Runs, release_worker, run_of, submodel_of, submodels_of
from unifiednn_core.store.schema import (
    AttemptRow,
    EpochRow,
    MemoryRow,
    RunRow,
    SliceRow,
    StepRow,
    StrataRow,
    SubModelRow,
)

# Workers in a row that died at the very same step of the same sub-model before it is taken for the culprit. Somebody
# who kills workers from outside hardly meets the same step so often.
DEATHS_LIMIT = 5

# A claim sets the first heartbeat; until then no worker knows of a run.
_CLAIMED = (RunRow.heartbeat_at_s.is_not(None), RunRow.state.not_in([state.value for state in ENDED]))
_TO_BE_STOPPED = (RunRow.state == State.STOPPING.value) & RunRow.started_at_s.is_not(None)
_WAITING = (RunRow.heartbeat_at_s.is_(None), or_(RunRow.state == State.QUEUED.value, _TO_BE_STOPPED))

# What an attempt on a baseline leaves behind.
_RECORDED = (StepRow, EpochRow, SliceRow, MemoryRow, StrataRow, AttemptRow)
_OF_RUN = ("launched_at_s", "started_at_s", "cpu_s", "gpu_s", "energy_j", "memory_source", "peak_memory_bytes",
           "now_submodel", "now_reason", "now_since_s")  # fmt: skip
_OF_SUBMODEL = ("ended_at_s", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "peak_memory_bytes",
                "cpu_s", "cause", "remedy", "model_path", "state_sha256")  # fmt: skip


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

    def next_in_line(self, device: str) -> tuple[RunRow, list[SubModelRow]] | None:
        """The run that `claim_next` would take, with its sub-models in order of arrival."""
        with self._database.read() as session:
            run = _next_in_line(session, device)
            return None if run is None else (run, list(session.scalars(submodels_of(run.id))))

    def hold_back(self, run_id: str, waits_for: str) -> None:
        """Say what a run waits for, unless it was claimed or ended meanwhile."""
        with self._database.write() as session:
            run = session.scalar(select(RunRow).where(RunRow.id == run_id, *_WAITING))
            if run is not None:
                run.waits_for = waits_for

    def claim_next(self, device: str, claimer: WorkerIdentity | None = None, *, only: str | None = None) -> str | None:
        """Take the oldest waiting run for `device`, if no other run holds it; atomic between all supervisors.

        `claimer` is the process that is going to start its worker: should it die before, the run is taken back. With
        `only`, nothing is taken where another run is the oldest by now.
        """
        with self._database.write() as session:
            run = _next_in_line(session, device)
            if run is None or only not in (None, run.id):
                return None
            self._runs.transition_in(session, run.id, None, Event.CLAIM)
            run.heartbeat_at_s = self._clock.utc_s()
            run.claimer = None if claimer is None else asdict(claimer)
            run.waits_for = None
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

    def begin_anew(self, run_id: str) -> None:
        """Forget what earlier attempts on a baseline recorded: a measurement is whole or nothing.

        What had ended in them is queued again; only what a person has stopped stays so.
        """
        with self._database.write() as session:
            run = run_of(session, run_id)
            for table in _RECORDED:
                session.execute(delete(table).where(table.run_id == run_id))
            for name in _OF_RUN:
                setattr(run, name, None)
            run.memory_notes = []
            for row in session.scalars(submodels_of(run_id)):
                if State(row.state) is State.STOPPED:
                    continue
                if State(row.state) in ENDED:  # no move of the table: nobody asked for it
                    row.state = State.QUEUED.value
                    self._runs.note(session, run_id, row.name, "state", f"{row.name} is queued.")
                row.attempt = row.epochs_done = row.steps_done = 0
                row.service_s = 0.0
                for name in _OF_SUBMODEL:
                    setattr(row, name, None)
            self._runs.note(session, run_id, None, "recovery", "A measurement is whole or nothing: it begins anew.")

    def held(self) -> list[RunRow]:
        """Runs that hold a device: a worker should be alive for each, or coming up."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow).where(*_CLAIMED)))

    def lose(
        self, run_id: str, cause: str, remedy: str, *, died_at: str | None = None, deaths_limit: int = DEATHS_LIMIT
    ) -> None:
        """Record that the worker of a run died; the run is queued again where it recovers by itself.

        `died_at` is what it was doing, as `NAME:DOING`. Where `deaths_limit` workers in a row died at the very same,
        the sub-model of that name is taken for the culprit and fails; without a name the run waits for a person.
        """
        with self._database.write() as session:
            run = run_of(session, run_id)
            if State(run.state) in ENDED or run.heartbeat_at_s is None:
                return
            _close_turn(session, run)
            run.deaths_there = run.deaths_there + 1 if run.died_at == died_at else 1
            run.died_at = died_at
            hopeless = run.deaths_there >= deaths_limit
            if hopeless and died_at is not None:
                self._blame(session, run, died_at, cause)
                hopeless = False
            self._runs.transition_in(session, run_id, None, Event.LOSE, cause=cause, remedy=remedy)
            for row in session.scalars(submodels_of(run_id)):
                if State(row.state) not in ENDED:
                    self._runs.transition_in(session, run_id, row.name, Event.LOSE)
            release_worker(run)
            if hopeless:
                run.deaths_there = 0
            elif run.spec.get("recovery", "auto") == "auto":
                run.recoveries += 1
                self._runs.note(session, run_id, None, "recovery", f"{cause} It goes on from its last checkpoints.")
                self._runs.transition_in(session, run_id, None, Event.RESUME)

    def quarantine(self, run_id: str, submodel: str, cause: str, remedy: str) -> None:
        """Take one sub-model out of its run before the worker, which cannot end it, ends itself."""
        with self._database.write() as session:
            self._runs.transition_in(session, run_id, submodel, Event.FAIL, cause=cause, remedy=remedy)

    def _blame(self, session: Session, run: RunRow, died_at: str, cause: str) -> None:
        submodel, _, doing = died_at.partition(":")
        found = f"{run.deaths_there} workers in a row died at {doing} of {submodel}. Last: {cause}"
        remedy = "It may need more memory than there is: retry it with a larger batch split. The others go on."
        if State(submodel_of(session, run.id, submodel).state) not in ENDED:
            self._runs.transition_in(session, run.id, submodel, Event.FAIL, cause=found, remedy=remedy)
        run.died_at, run.deaths_there = None, 0


def _next_in_line(session: Session, device: str) -> RunRow | None:
    """The oldest run that waits for a device; None while another one holds it."""
    on_device = RunRow.device == device
    if session.scalar(select(RunRow.id).where(on_device, *_CLAIMED).limit(1)) is not None:
        return None
    waiting = select(RunRow).where(on_device, *_WAITING).order_by(RunRow.created_at_s, RunRow.id)
    run: RunRow | None = session.scalar(waiting.limit(1))
    return run


def _set_worker(run: RunRow, worker: WorkerIdentity) -> None:
    run.worker_pid, run.worker_started_at_s, run.worker_boot_id = worker.pid, worker.started_at_s, worker.boot_id


def _close_turn(session: Session, run: RunRow) -> None:
    """Record the turn that a death has cut short, as far as it was told."""
    if run.now_submodel is None or run.now_since_s is None or run.started_at_s is None:
        return
    row = submodel_of(session, run.id, run.now_submodel)
    of_attempt = (SliceRow.run_id == run.id) & (SliceRow.submodel == row.name) & (SliceRow.attempt == row.attempt)
    told = session.scalar(select(func.sum(SliceRow.steps)).where(of_attempt)) or 0
    attempt = session.get(AttemptRow, (run.id, row.name, row.attempt))
    steps = row.steps_done - (attempt.from_step if attempt is not None else 0) - told
    end_s = max(run.now_since_s, (run.heartbeat_at_s or 0.0) - run.started_at_s)
    if steps > 0:
        session.add(
            SliceRow(
                run_id=run.id,
                submodel=row.name,
                attempt=row.attempt,
                start_s=run.now_since_s,
                end_s=end_s,
                steps=steps,
                reason=run.now_reason or "",
            )
        )
