"""Workers: supervisors claim runs for a device, workers register, and may die."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from unifiednn_core.base.clock import Clock
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.store.database import Database
from unifiednn_core.store.events import Code
from unifiednn_core.store.places import Place
from unifiednn_core.store.runs import (
    Runs,
    forget_deaths,
    note_progress,
    release_worker,
    run_of,
    submodel_of,
    submodels_of,
)
from unifiednn_core.store.schema import RECORDED, AttemptRow, RunRow, SliceRow, SubModelRow

# A claim sets the first heartbeat; until then no worker knows of a run.
_CLAIMED = (RunRow.heartbeat_at_s.is_not(None), RunRow.state.not_in([state.value for state in ENDED]))
_TO_BE_STOPPED = (RunRow.state == State.STOPPING.value) & RunRow.started_at_s.is_not(None)
_WAITING = (RunRow.heartbeat_at_s.is_(None), or_(RunRow.state == State.QUEUED.value, _TO_BE_STOPPED))

# Columns that an attempt on a baseline fills, besides the rows of `RECORDED`.
_OF_RUN = ("launched_at_s", "started_at_s", "cpu_s", "gpu_s", "energy_j", "memory_source", "peak_memory_bytes",
           "now_reason")  # fmt: skip
_OF_TURN = ("lane", "turn_since_s", "turn_reason")
_OF_SUBMODEL = ("ended_at_s", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "peak_memory_bytes",
                "cpu_s", "cause", "remedy", "model_path", "state_sha256", *_OF_TURN)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """Whether and when a run starts again after its workers died.

    Random kills rarely hit the same step `same_step` times in a row; a bad sub-model does. With `futile` deaths the
    waits add up to 12 minutes, which outlasts most troubles of a machine.
    """

    same_step: int = 5
    """Consecutive deaths at the same step of a sub-model after which it fails."""
    same_operator: int = 3
    """The same, if the last two were at the same operator. It is not known at the first death."""
    futile: int = 20
    """Consecutive deaths without a new checkpoint after which the run is interrupted."""
    first_wait_s: float = 0.5
    """Back-off after the second such death, doubled by each further one; none after the first."""
    longest_wait_s: float = 60.0

    def wait_s(self, deaths: int) -> float:
        """Back-off in seconds after a number of consecutive deaths."""
        return 0.0 if deaths < 2 else min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(deaths - 2, 30))


def first_period(deaths: int) -> float:
    """Share of a checkpoint period after which a worker writes its first one, after so many deaths without a new one.

    So even workers that live much shorter than a period make progress.
    """
    return 0.5**deaths


RESTARTS = RestartLimits()


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Identifies a process. PIDs are reused; after a reboot, a PID with the same start time may be, too."""

    pid: int
    started_at_s: float
    boot_id: str


class Workers:
    """Assigns runs to workers, and records deaths of workers."""

    def __init__(self, database: Database, runs: Runs, clock: Clock):
        self._database, self._runs, self._clock = database, runs, clock

    def next_in_line(self, device: str) -> tuple[RunRow, list[SubModelRow]] | None:
        """The run that `claim_next` would take, with its sub-models in order of arrival."""
        with self._database.read() as session:
            run = _next_in_line(session, device, self._clock.utc_s())
            return None if run is None else (run, list(session.scalars(submodels_of(run.id))))

    def hold_back(self, run_id: str, waits_for: str, *, for_s: float | None = None) -> None:
        """Record what a run waits for, if it still waits; with `for_s`, others may overtake it meanwhile."""
        with self._database.write() as session:
            run = session.scalar(select(RunRow).where(RunRow.id == run_id, *_WAITING))
            if run is not None:
                run.waits_for = waits_for
                if for_s is not None:
                    run.resume_at_s = self._clock.utc_s() + for_s

    def claim_next(self, device: str, claimer: WorkerIdentity | None = None, *, only: str | None = None) -> str | None:
        """Take the oldest waiting run for `device`, if no other run holds it; atomic between all supervisors.

        `claimer` is the process that will start its worker; if it dies first, the run is queued again. With `only`,
        nothing is taken if another run is the oldest by now.
        """
        with self._database.write() as session:
            run = _next_in_line(session, device, self._clock.utc_s())
            if run is None or only not in (None, run.id):
                return None
            self._runs.transition_in(session, run.id, None, Event.CLAIM)
            run.heartbeat_at_s = self._clock.utc_s()
            run.claimer = None if claimer is None else asdict(claimer)
            run.waits_for = run.resume_at_s = None
            return run.id

    def waited_for(self) -> list[str]:
        """Devices with waiting runs."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow.device).where(*_WAITING).distinct()))

    def launched(self, run_id: str, worker: WorkerIdentity) -> None:
        """Record the process started for a claimed run, so its death is noticed even before it registers."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            if run.heartbeat_at_s is not None and run.worker_pid is None and State(run.state) not in ENDED:
                _set_worker(run, worker)

    def register(self, run_id: str, worker: WorkerIdentity) -> int | None:
        """Record the worker process of a run; returns its attempt, or None if the run ended or has another worker."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            taken = run.worker_pid is not None and run.worker_pid != worker.pid
            if State(run.state) in ENDED or run.heartbeat_at_s is None or taken:
                return None
            _set_worker(run, worker)
            run.heartbeat_at_s = self._clock.utc_s()
            run.attempt += 1
            return run.attempt

    def begin(self, run_id: str, starts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Open an attempt on each sub-model, which continues from these columns; later steps are void.

        Returns the attempt number of each.
        """
        with self._database.write() as session:
            attempts = {}
            for name, columns in starts.items():
                row = submodel_of(session, run_id, name)
                step, lost_steps = columns["steps_done"], max(0, row.steps_done - columns["steps_done"])
                row.attempt += 1
                if columns.get("checkpoint_step", 0) > (
                    row.checkpoint_step or 0
                ):  # its worker died before it reported it
                    note_progress(run_of(session, run_id), name, columns["checkpoint_step"])
                if row.attempt > 1:
                    self._runs.note(session, run_id, name, Code.CONTINUED, step=step, lost_steps=lost_steps)
                row.assign({**columns, **dict.fromkeys(_OF_TURN)})
                attempts[name] = row.attempt
                now_s = self._clock.utc_s()
                session.add(AttemptRow(run_id=run_id, submodel=name, attempt=row.attempt, from_step=step, at_s=now_s))
            return attempts

    def begin_anew(self, run_id: str) -> None:
        """Delete the records of earlier attempts on a baseline, which is one uninterrupted measurement.

        Sub-models that had ended are queued again, unless a person stopped them.
        """
        with self._database.write() as session:
            run = run_of(session, run_id)
            for table in RECORDED:
                session.execute(delete(table).where(table.run_id == run_id))
            run.assign({**dict.fromkeys(_OF_RUN), "memory_notes": []})
            for row in session.scalars(submodels_of(run_id)):
                if State(row.state) is State.STOPPED:
                    continue
                if State(row.state) in ENDED:  # not in the transition table
                    row.state = State.QUEUED.value
                    self._runs.note(session, run_id, row.name, Code.ENTERED, state=State.QUEUED, name=row.name)
                row.attempt = row.epochs_done = row.steps_done = 0
                row.service_s = 0.0
                row.assign(dict.fromkeys(_OF_SUBMODEL))
            self._runs.note(session, run_id, None, Code.RESTARTED)

    def held(self) -> list[RunRow]:
        """Runs that hold a device; each should have a worker that lives or starts."""
        with self._database.read() as session:
            return list(session.scalars(select(RunRow).where(*_CLAIMED)))

    def lose(
        self, run_id: str, cause: str, remedy: str, *, seen: RunRow | None = None,
        died_at: str | None = None, counts: bool = True, limits: RestartLimits = RESTARTS,
    ) -> None:  # fmt: skip
        """Record that the worker of a run died; queue the run again if its spec and `limits` allow it.

        `seen` is the row in which its death was noticed: nothing happens if the run has another worker by now, because
        another supervisor was faster. `died_at` is what the worker was doing, as text of `places`. `counts` is False
        for deaths that the run did not cause: the host restarted, or the process that was starting the worker died.
        """
        with self._database.write() as session:
            run = run_of(session, run_id)
            if State(run.state) in ENDED or run.heartbeat_at_s is None:
                return
            if seen is not None and _worker_of(run) != _worker_of(seen):
                return
            for row in session.scalars(submodels_of(run_id)):
                _close_turn(session, run, row)
            if counts:
                before, now = Place.all_of(run.died_at), Place.all_of(died_at)
                again = [place for place in now if any(place.is_near(other) for other in before)]
                run.deaths_there = run.deaths_there + 1 if again else 1
                run.died_at = "\n".join(map(str, again or now)) or None
                run.deaths += 1
                exact = [place for place in again if place.operator is not None and place in before]
                if again and run.deaths_there >= (limits.same_operator if exact else limits.same_step):
                    self._blame(session, run, again[0], cause)
            futile = run.deaths >= limits.futile
            if futile:
                cause = f"{run.deaths} workers in a row died without a new checkpoint. Last: {cause}"
            self._runs.transition_in(session, run_id, None, Event.LOSE, cause=cause, remedy=remedy)
            for row in session.scalars(submodels_of(run_id)):
                if State(row.state) not in ENDED:
                    self._runs.transition_in(session, run_id, row.name, Event.LOSE)
            release_worker(run)
            if not futile and run.spec.get("recovery", "auto") == "auto":
                wait_s = limits.wait_s(run.deaths)
                run.recoveries += 1
                self._runs.note(session, run_id, None, Code.WORKER_LOST, cause=cause, wait_s=wait_s or None)
                self._runs.transition_in(session, run_id, None, Event.RESUME)
                if wait_s:
                    run.resume_at_s = self._clock.utc_s() + wait_s
                    run.waits_for = f"{wait_s:g} s to pass, because its last {run.deaths} workers died"

    def _blame(self, session: Session, run: RunRow, at: Place, cause: str) -> None:
        found = f"{run.deaths_there} workers in a row died at {at.doing} of {at.submodel}. Last: {cause}"
        remedy = "It may need more memory than is available: retry it with a larger batch split. The others continue."
        if at.operator is not None:
            found = found.replace(". Last:", f", in the operator {at.operator}. Last:")
            remedy = f"Change what the network gives to {at.operator}. {remedy}"
        if State(submodel_of(session, run.id, at.submodel).state) not in ENDED:
            self._runs.transition_in(session, run.id, at.submodel, Event.FAIL, cause=found, remedy=remedy)
        forget_deaths(run)


def _next_in_line(session: Session, device: str, now_s: float) -> RunRow | None:
    """The oldest run that waits for a device and is not backing off; None while another run holds the device."""
    on_device = RunRow.device == device
    if session.scalar(select(RunRow.id).where(on_device, *_CLAIMED).limit(1)) is not None:
        return None
    due = or_(RunRow.resume_at_s.is_(None), RunRow.resume_at_s <= now_s,
              RunRow.resume_at_s > now_s + RESTARTS.longest_wait_s)  # the clock was set back  # fmt: skip
    waiting = select(RunRow).where(on_device, due, *_WAITING).order_by(RunRow.created_at_s, RunRow.id)
    run: RunRow | None = session.scalar(waiting.limit(1))
    return run


def _worker_of(run: RunRow) -> tuple[object, ...]:
    """Identity of the worker of a run; until it is known, the moment of the claim."""
    known = run.worker_pid is not None
    return (run.worker_pid, run.worker_started_at_s, run.worker_boot_id) if known else (run.heartbeat_at_s,)


def _set_worker(run: RunRow, worker: WorkerIdentity) -> None:
    run.worker_pid, run.worker_started_at_s, run.worker_boot_id = worker.pid, worker.started_at_s, worker.boot_id


def _close_turn(session: Session, run: RunRow, row: SubModelRow) -> None:
    """Record the reported part of a turn that a death cut short."""
    lane, start_s, reason = row.lane, row.turn_since_s, row.turn_reason or ""
    row.assign(dict.fromkeys(_OF_TURN))
    if lane is None or start_s is None or run.started_at_s is None:
        return
    of_attempt = (SliceRow.run_id == run.id) & (SliceRow.submodel == row.name) & (SliceRow.attempt == row.attempt)
    last = session.scalar(select(SliceRow).where(of_attempt).order_by(SliceRow.id.desc()).limit(1))
    attempt = session.get(AttemptRow, (run.id, row.name, row.attempt))
    begun_at = 0 if attempt is None else attempt.from_step
    from_step = begun_at if last is None else last.from_step + last.steps
    steps, end_s = row.steps_done - from_step, max(start_s, (run.heartbeat_at_s or 0.0) - run.started_at_s)
    if steps > 0:
        session.add(SliceRow(run_id=run.id, submodel=row.name, attempt=row.attempt, start_s=start_s, end_s=end_s,
                             steps=steps, from_step=from_step, reason=reason, lane=lane))  # fmt: skip
