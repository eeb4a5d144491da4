"""Workers: supervisors place what waits on devices, workers register, and may die."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from itertools import accumulate
from typing import Any, TypeVar

from sqlalchemy import delete, or_, select, tuple_
from sqlalchemy.orm import Session, defer

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store.database import Database, Repository
from unifiednn_core.store.events import Code
from unifiednn_core.store.hybrids import (
    CLAIMED,
    OPEN,
    Place,
    Resident,
    address,
    forget_deaths,
    hybrid_of,
    members_of,
    note_progress,
    release_worker,
    residents_in,
)
from unifiednn_core.store.runs import Runs, run_of, submodel_of, submodels_of
from unifiednn_core.store.schema import RECORDED, SAMPLED, AttemptRow, HybridRow, RunRow, SliceRow, SubModelRow

Entry = TypeVar("Entry")


def moved(line: Sequence[Entry], at: int, to: int) -> list[Entry]:
    """The line with one entry taken from one place to another; the order of all others stays."""
    others = [*line[:at], *line[at + 1 :]]
    return [*others[:to], line[at], *others[to:]]


def rising(keys: Iterable[float]) -> list[float]:
    """The keys of a line, each above the one before it: equal ones are raised by as little as a float can say.

    Runs exchange the keys that they have, so however often they are moved, no key is needed between two others.
    """
    return list(accumulate(keys, lambda before, key: max(key, math.nextafter(before, math.inf))))


_TO_BE_STOPPED = (RunRow.state == State.STOPPING.value) & RunRow.started_at_s.is_not(None)
_WAITING = or_(RunRow.state == State.QUEUED.value, _TO_BE_STOPPED)
_GOING = [state.value for state in (State.QUEUED, State.STARTING, State.RUNNING, State.STOPPING)]
_UNPLACED = (
    RunRow.state.in_(_GOING),
    SubModelRow.hybrid_id.is_(None),
    SubModelRow.state.in_([State.QUEUED.value, State.STOPPING.value]),
)

# Columns that an attempt on a baseline fills, besides the rows of `RECORDED` and `SAMPLED`.
_OF_RUN = ("launched_at_s", "started_at_s")
_OF_HYBRID = (*_OF_RUN, "cpu_s", "gpu_s", "energy_j", "memory_source", "peak_memory_bytes", "now_reason")
_OF_TURN = ("lane", "turn_since_s", "turn_reason")
_OF_SUBMODEL = (
    "ended_at_s",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "peak_memory_bytes",
    "cpu_s",
    "cause",
    "remedy",
    "model_path",
    "state_sha256",
    *_OF_TURN,
)


SAME_STEP, SAME_OPERATOR = 5, 3
"""Consecutive deaths at the same step of a sub-model after which it fails: random kills rarely hit one step so often.

Fewer are enough if the last two were at the same operator, which is not known at the first death.
"""
FUTILE = 20
"""Consecutive deaths without a new checkpoint after which a run is interrupted: their waits add up to 12 minutes, which
outlasts most troubles of a machine."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Back-off after the second such death, doubled by each further one; none after the first."""


def restart_wait_s(deaths: int) -> float:
    """Back-off in seconds after a number of consecutive deaths."""
    return 0.0 if deaths < 2 else min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(deaths - 2, 30))


def first_period(deaths: int) -> float:
    """Share of a checkpoint period after which a worker writes its first one, after so many deaths without a new one.

    So even workers that live much shorter than a period make progress.
    """
    return 0.5**deaths


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Identifies a process. PIDs are reused; after a reboot, a PID with the same start time may be, too."""

    pid: int
    started_at_s: float
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Berth:
    """The device that placement chose, and how the worker there trains."""

    device: str
    kind: str
    threads: int
    also: tuple[str, ...] = ()
    """Further devices of that kind."""


class Workers(Repository):
    """Assigns hybrids to workers, and records deaths of workers."""

    def __init__(self, database: Database, runs: Runs):
        super().__init__(database)
        self._runs = runs

    # -- placement

    def waiting(self) -> list[tuple[RunRow, list[SubModelRow]]]:
        """Runs that wait for a device, in the order of the line, with the sub-models that wait; all of a private one.

        Runs that back off after a death are left out.
        """
        with self._database.read() as session:
            return self._waiting_in(session)

    def move(self, run_id: str, place: int) -> tuple[int, int]:
        """Move a waiting run to a place in the line, from 1; returns its old and its new place.

        A place behind the last one is the last one. Raises `BadInput` for a run that does not wait, and for no place.
        """
        with self._database.write() as session:
            line = [run for run, _ in self._waiting_in(session)]
            if run_id not in (run.id for run in line):  # `run_of` raises for an unknown one
                message = f"{run_of(session, run_id).name} does not wait for a device."
                raise BadInput.of("Line", "run", message, "Only what waits can be moved: unifiednn queue")
            if place < 1:
                raise BadInput.of("Line", "place", f"There is no place {place}.", f"Give 1 to {len(line)}.")
            old, new = next(at for at, run in enumerate(line) if run.id == run_id), min(place, len(line)) - 1
            order = moved(line, old, new)
            for run, line_at_s in zip(order, rising(run.line_at_s for run in line), strict=True):
                run.line_at_s = line_at_s
            return old + 1, new + 1

    def _waiting_in(self, session: Session) -> list[tuple[RunRow, list[SubModelRow]]]:
        now_s = self._clock.utc_s()
        due = or_(
            HybridRow.resume_at_s.is_(None),
            HybridRow.resume_at_s <= now_s,
            HybridRow.resume_at_s > now_s + LONGEST_WAIT_S,
        )  # the clock was set back
        all_of = select(SubModelRow).join(RunRow, RunRow.id == SubModelRow.run_id)
        private = all_of.join(HybridRow, HybridRow.id == RunRow.id).where(_WAITING, ~CLAIMED, due)
        shared = all_of.where(RunRow.shared, *_UNPLACED)
        found: dict[str, tuple[RunRow, list[SubModelRow]]] = {}
        for run, row in residents_in(session, [row for asked in (private, shared) for row in session.scalars(asked)]):
            found.setdefault(run.id, (run, []))[1].append(row)
        return sorted(found.values(), key=lambda one: (one[0].line_at_s, one[0].id))

    def hold_back(self, run_id: str, waits_for: str) -> None:
        """Record what a run waits for, if a part of it still waits."""
        with self._database.write() as session:
            of_shared = select(SubModelRow.name).where(SubModelRow.run_id == RunRow.id, *_UNPLACED).exists()
            of_private = select(HybridRow.id).where(HybridRow.id == RunRow.id, ~CLAIMED, _WAITING).exists()
            run = session.scalar(select(RunRow).where(RunRow.id == run_id, or_(of_shared, of_private)))
            if run is not None:
                run.waits_for = waits_for

    def claim(self, run_id: str, at: Berth, claimer: WorkerIdentity | None = None) -> bool:
        """Give a device to the private hybrid of a waiting run; atomic between all supervisors.

        `claimer` is the process that will start its worker; if it dies first, the run is queued again. False if the run
        does not wait any more, or another hybrid holds the device.
        """
        with self._database.write() as session:
            hybrid = hybrid_of(session, run_id)
            waits = session.scalar(select(RunRow.id).where(RunRow.id == run_id, _WAITING)) is not None
            if not waits or hybrid.heartbeat_at_s is not None or _is_held(session, at.device, *at.also):
                return False
            self._runs.transition_in(session, run_id, None, Event.CLAIM)
            run_of(session, run_id).waits_for = None
            self._take(session, hybrid, at, claimer)
            return True

    def open_shared(
        self,
        hybrid_id: str,
        members: Sequence[tuple[str, str]],
        at: Berth,
        settings: HybridSettings,
        claimer: WorkerIdentity | None = None,
        *,
        stays_open: bool = True,
    ) -> bool:
        """Make a shared hybrid on a device and place sub-models in it, given as run and name; False as for `claim`.

        With `stays_open`, others may join it.
        """
        with self._writes("open") as session:
            rows = _unplaced(session, members)
            if not rows or _is_held(session, at.device):
                return False
            document = settings.model_dump(mode="json", exclude_none=True)
            hybrid = HybridRow(id=hybrid_id, shared=True, open=stays_open, settings=document)
            session.add(hybrid)
            session.flush()
            self._take(session, hybrid, at, claimer)
            self._place(session, hybrid, rows)
            return True

    def join(self, hybrid_id: str, members: Sequence[tuple[str, str]], *, beside: Sequence[tuple[str, str]]) -> bool:
        """Place sub-models in a shared hybrid that has a worker; it reads them at its next tick.

        False if that ended, or if its open members are not those that it was decided for: they decide who may share
        the process, and its memory.
        """
        with self._writes("join") as session:
            hybrid = hybrid_of(session, hybrid_id)
            rows = _unplaced(session, members)
            now = {(run.id, row.name) for run, row in members_of(session, hybrid_id) if State(row.state) not in ENDED}
            if not rows or not hybrid.open or hybrid.heartbeat_at_s is None or not now or now != set(beside):
                return False
            self._place(session, hybrid, rows)
            return True

    def restart(self, hybrid_id: str, claimer: WorkerIdentity | None = None) -> bool:
        """Let a shared hybrid whose worker died go on, on the same device.

        False if that is held by another one, if it still backs off, or if all its members were to leave.
        """
        with self._writes("restart") as session:
            hybrid, now_s = hybrid_of(session, hybrid_id), self._clock.utc_s()
            if hybrid.ended_at_s is not None or hybrid.heartbeat_at_s is not None:
                return False
            self._let_go(
                session, members_of(session, hybrid_id)
            )  # those that were asked to leave after its worker died
            members = [one for one in members_of(session, hybrid_id) if State(one.row.state) not in ENDED]
            backs_off = hybrid.resume_at_s is not None and now_s < hybrid.resume_at_s <= now_s + LONGEST_WAIT_S
            if backs_off or not members or _is_held(session, hybrid.device or ""):
                return False
            at = Berth(device=hybrid.device or "", kind=hybrid.device_kind, threads=hybrid.threads)
            self._take(session, hybrid, at, claimer)
            for run in {member.run.id: member.run for member in members}.values():
                self._runs.follow_in(session, run)
            return True

    def ask_to_leave(self, hybrid_id: str, members: Sequence[tuple[str, str]] | None, reason: str) -> None:
        """Let sub-models of a shared hybrid, or all of a private one (None), leave at their next step boundary."""
        with self._database.write() as session:
            hybrid = hybrid_of(session, hybrid_id)
            if members is None:
                hybrid.leaving = reason
            for run_id, name in members or ():
                row = submodel_of(session, run_id, name)
                if row.hybrid_id == hybrid_id and State(row.state) not in ENDED:
                    row.leaving = reason

    def left(self, hybrid_id: str, key: str) -> None:
        """Record that a sub-model has left a shared hybrid, its checkpoint being on disk; it waits or is paused."""
        failpoints.passing("placement.before_release")
        with self._writes("leave") as session:
            run_id, name = address(hybrid_id, key)
            row = submodel_of(session, run_id, name)
            if row.hybrid_id == hybrid_id and State(row.state) not in ENDED:
                self._release(session, Resident(run_of(session, run_id), row), row.leaving or "")

    def give_back(self, hybrid_id: str, *, dead: bool = False) -> None:
        """Record that a worker has ended in order because its device is needed: what it trained waits again.

        With `dead`, it is for a hybrid whose worker died, and does nothing if that has another one by now.
        """
        with self._writes("give_back") as session:
            hybrid = hybrid_of(session, hybrid_id)
            if dead and hybrid.heartbeat_at_s is not None:
                return
            reason = hybrid.leaving or "its device is needed"
            for run, row in members_of(session, hybrid_id):
                if State(row.state) not in ENDED and not hybrid.shared:
                    self._runs.note(session, run.id, row.name, Code.LEFT, device=hybrid.device, reason=reason)
                    if State(row.state) is State.RUNNING:
                        self._runs.transition_in(session, run.id, row.name, Event.RELEASE)
                    row.assign(dict.fromkeys(_OF_TURN))
                elif State(row.state) not in ENDED:
                    self._release(session, Resident(run, row), reason)
            release_worker(hybrid)
            if hybrid.shared:
                hybrid.ended_at_s = self._clock.utc_s()
            elif State(run_of(session, hybrid_id).state) in (State.RUNNING, State.STARTING):
                self._runs.transition_in(session, hybrid_id, None, Event.RELEASE)

    def close(self, hybrid_id: str) -> bool:
        """End a shared hybrid if nothing open is placed in it; False if something has been placed meanwhile."""
        with self._writes("close") as session:
            still = select(SubModelRow.name).where(SubModelRow.hybrid_id == hybrid_id, OPEN)
            if session.scalar(still.limit(1)) is not None:
                return False
            hybrid = hybrid_of(session, hybrid_id)
            release_worker(hybrid)
            hybrid.ended_at_s = self._clock.utc_s()
            return True

    @contextmanager
    def _writes(self, what: str) -> Iterator[Session]:
        """A transaction between two failpoints."""
        with self._database.write() as session:
            yield session
            failpoints.passing(f"placement.before_{what}")
        failpoints.passing(f"placement.after_{what}")

    def _take(self, session: Session, hybrid: HybridRow, at: Berth, claimer: WorkerIdentity | None) -> None:
        hybrid.device, hybrid.device_kind, hybrid.threads = at.device, at.kind, at.threads
        hybrid.also = list(at.also)
        hybrid.heartbeat_at_s = self._clock.utc_s()
        hybrid.claimer = None if claimer is None else asdict(claimer)
        hybrid.resume_at_s = hybrid.leaving = None

    def _place(self, session: Session, hybrid: HybridRow, rows: Sequence[SubModelRow]) -> None:
        for row in rows:
            run, now_s = run_of(session, row.run_id), self._clock.utc_s()
            row.hybrid_id, row.leaving = hybrid.id, None
            row.placed_at_s = now_s if row.device_kind else None
            run.waits_for = None
            if run.launched_at_s is None and hybrid.attempt > 0:  # its process runs already
                run.launched_at_s = now_s
            self._runs.note(session, run.id, row.name, Code.PLACED, device=hybrid.device)
            self._runs.follow_in(session, run)

    def _release(self, session: Session, member: Resident, reason: str) -> None:
        """Take a sub-model out of its hybrid; it waits for a place again, or is paused."""
        run, row = member
        hybrid = hybrid_of(session, row.hybrid_id or "")
        _close_turn(session, hybrid, run, row)
        row.hybrid_id = row.leaving = None
        if State(row.state) is State.PAUSING:
            self._runs.hold_in(session, run.id, row.name)
            self._runs.answer_pauses_in(session, run.id, row.name)
        elif State(row.state) is State.RUNNING:
            self._runs.transition_in(session, run.id, row.name, Event.RELEASE)
            self._runs.note(session, run.id, row.name, Code.LEFT, device=hybrid.device, reason=reason)
        self._runs.follow_in(session, run)

    def _let_go(self, session: Session, members: Sequence[Resident]) -> None:
        """Release those that are to leave a hybrid without a worker; they go on from their last checkpoints."""
        for member in members:
            if member.row.leaving is not None and State(member.row.state) not in ENDED:
                self._release(session, member, member.row.leaving)

    # -- workers

    def launched(self, hybrid_id: str, worker: WorkerIdentity) -> None:
        """Record the process started for a claimed hybrid, so its death is noticed even before it registers."""
        with self._database.write() as session:
            hybrid = hybrid_of(session, hybrid_id)
            if hybrid.heartbeat_at_s is not None and hybrid.worker_pid is None:
                _set_worker(hybrid, worker)

    def register(self, hybrid_id: str, worker: WorkerIdentity, launched_at_s: float | None = None) -> int | None:
        """Record the worker process of a hybrid; returns its attempt, or None if it ended or has another worker.

        A baseline gives no launch, because it counts from that of its first script.
        """
        with self._database.write() as session:
            hybrid = hybrid_of(session, hybrid_id)
            taken = hybrid.worker_pid is not None and _worker_of(hybrid) != astuple(worker)
            if hybrid.heartbeat_at_s is None or taken:
                return None
            _set_worker(hybrid, worker)
            hybrid.heartbeat_at_s, hybrid.claimer = self._clock.utc_s(), None
            hybrid.attempt += 1
            hybrid.launched_at_s = hybrid.launched_at_s or launched_at_s
            for run, _ in members_of(session, hybrid_id):
                run.launched_at_s = run.launched_at_s or launched_at_s
            return hybrid.attempt

    def begin(self, hybrid_id: str, starts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Open an attempt on each sub-model, by key, which continues from these columns; later steps are void.

        Returns the attempt number of each.
        """
        with self._database.write() as session:
            attempts, hybrid = {}, hybrid_of(session, hybrid_id)
            for key, columns in starts.items():
                run_id, name = address(hybrid_id, key)
                row, run = submodel_of(session, run_id, name), run_of(session, run_id)
                step, lost_steps = columns["steps_done"], max(0, row.steps_done - columns["steps_done"])
                row.attempt += 1
                if columns.get("checkpoint_step", 0) > (
                    row.checkpoint_step or 0
                ):  # its worker died before it reported it
                    note_progress(session, row, columns["checkpoint_step"])
                if row.attempt > 1:
                    self._runs.note(session, run_id, name, Code.CONTINUED, step=step, lost_steps=lost_steps)
                row.assign({**columns, **dict.fromkeys(_OF_TURN), "device_kind": hybrid.device_kind})
                attempts[key] = row.attempt
                now_s = self._clock.utc_s()
                session.add(
                    AttemptRow(
                        run_id=run_id,
                        submodel=name,
                        attempt=row.attempt,
                        from_step=step,
                        at_s=now_s,
                        hybrid_id=hybrid_id,
                        device=hybrid.device or "",
                        device_kind=hybrid.device_kind,
                    )
                )
                if run.shared and State(run.state) in (State.QUEUED, State.STARTING):
                    self._runs.transition_in(session, run_id, None, Event.BEGIN)
            return attempts

    def begin_anew(self, run_id: str) -> None:
        """Delete the records of earlier attempts on a baseline, which is one uninterrupted measurement.

        Sub-models that had ended are queued again, unless a person stopped them.
        """
        with self._database.write() as session:
            run = run_of(session, run_id)
            for table in RECORDED:
                session.execute(delete(table).where(table.run_id == run_id))
            for sampled in SAMPLED:
                session.execute(delete(sampled).where(sampled.hybrid_id == run_id))
            run.assign(dict.fromkeys(_OF_RUN))
            hybrid_of(session, run_id).assign({**dict.fromkeys(_OF_HYBRID), "memory_notes": []})
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

    def held(self) -> list[HybridRow]:
        """Hybrids that hold a device, without their documents; each should have a worker that lives or starts."""
        documents = (HybridRow.settings, HybridRow.prediction, HybridRow.graph, HybridRow.environment)
        asked = select(HybridRow).where(CLAIMED).options(*map(defer, documents))
        return self._rows(asked)

    def lose(
        self,
        hybrid_id: str,
        cause: str,
        remedy: str,
        *,
        seen: HybridRow | None = None,
        died_at: str | None = None,
        counts: bool = True,
    ) -> None:
        """Record that a worker died; queue its runs again if the settings and the number of deaths allow it.

        `seen` is the row in which its death was noticed: nothing happens if the hybrid has another worker by now,
        because another supervisor was faster, or another heartbeat. `died_at` is what the worker was doing, as text of
        `places`. `counts` is False for deaths that the hybrid did not cause: the host restarted, or the process that
        was starting the worker died.
        """
        with self._database.write() as session:
            hybrid = hybrid_of(session, hybrid_id)
            if hybrid.heartbeat_at_s is None or (seen is not None and _heard_of(hybrid) != _heard_of(seen)):
                return
            for run, row in members_of(session, hybrid_id):
                _close_turn(session, hybrid, run, row)
            self._let_go(session, members_of(session, hybrid_id))
            members = members_of(session, hybrid_id)
            if hybrid.shared:  # its log and its id are the operator's
                cause = "The worker that trained it died."
            if counts:
                self._count_death(session, hybrid, died_at, cause)
            futile = hybrid.deaths >= FUTILE
            if futile:
                cause = f"{hybrid.deaths} workers in a row died without a new checkpoint. Last: {cause}"
            runs = {run.id: run for run, _ in members if State(run.state) not in ENDED}
            if not hybrid.shared:
                for run_id in runs:
                    self._runs.transition_in(session, run_id, None, Event.LOSE, cause=cause, remedy=remedy)
            again = not futile and hybrid.settings.get("recovery", "auto") == "auto"
            open_rows = [row for _, row in members if State(row.state) not in ENDED]
            for row in open_rows:
                if not (hybrid.shared and again and State(row.state) is State.STOPPING):  # the next worker ends it
                    self._runs.transition_in(session, row.run_id, row.name, Event.LOSE)
            release_worker(hybrid)
            wait_s = restart_wait_s(hybrid.deaths) if again else 0.0
            hybrid.recoveries += again
            waits_for = f"{wait_s:g} s to pass, because its last {hybrid.deaths} workers died" if wait_s else None
            hybrid.resume_at_s = self._clock.utc_s() + wait_s if wait_s else None
            for run_id, run in runs.items() if again else ():
                self._runs.note(session, run_id, None, Code.WORKER_LOST, cause=cause, wait_s=wait_s or None)
                if not hybrid.shared:
                    self._runs.transition_in(session, run_id, None, Event.RESUME)
                run.waits_for = waits_for
            if hybrid.shared:
                self._lose_shared(session, hybrid, open_rows, list(runs.values()), again, (cause, remedy))

    def _lose_shared(
        self,
        session: Session,
        hybrid: HybridRow,
        rows: Sequence[SubModelRow],
        runs: Sequence[RunRow],
        again: bool,
        why: tuple[str, str],
    ) -> None:
        """Move the runs of a shared hybrid whose worker died: they go on with it, or are interrupted."""
        for row in rows:
            if again and State(row.state) is State.INTERRUPTED:
                self._runs.transition_in(session, row.run_id, row.name, Event.RESUME)
        for run in runs:
            self._runs.follow_in(session, run)
            if not again and State(run.state) is State.INTERRUPTED:
                run.cause, run.remedy = why
        if not again:
            hybrid.ended_at_s = self._clock.utc_s()
            for row in rows:
                row.hybrid_id = row.leaving = None

    def _count_death(self, session: Session, hybrid: HybridRow, died_at: str | None, cause: str) -> None:
        before, now = Place.all_of(hybrid.died_at), Place.all_of(died_at)
        again = [place for place in now if any(place.is_near(other) for other in before)]
        hybrid.deaths_there = hybrid.deaths_there + 1 if again else 1
        hybrid.died_at = "\n".join(map(str, again or now)) or None
        hybrid.deaths += 1
        exact = [place for place in again if place.operator is not None and place in before]
        if again and hybrid.deaths_there >= (SAME_OPERATOR if exact else SAME_STEP):
            self._blame(session, hybrid, again[0], cause)

    def _blame(self, session: Session, hybrid: HybridRow, at: Place, cause: str) -> None:
        run_id, name = address(hybrid.id, at.submodel)
        found = f"{hybrid.deaths_there} workers in a row died at {at.doing} of {name}. Last: {cause}"
        remedy = "It may need more memory than is available: retry it with a larger batch split. The others continue."
        if at.operator is not None:
            found = found.replace(". Last:", f", in the operator {at.operator}. Last:")
            remedy = f"Change what the network gives to {at.operator}. {remedy}"
        row = submodel_of(session, run_id, name)
        if row.hybrid_id == hybrid.id and State(row.state) not in ENDED:  # the mark is the worker's own word
            self._runs.transition_in(session, run_id, name, Event.FAIL, cause=found, remedy=remedy)
            self._runs.follow_in(session, run_of(session, run_id))
        forget_deaths(hybrid)


def _is_held(session: Session, *devices: str) -> bool:
    """Whether a hybrid holds one of these devices."""
    held = session.execute(select(HybridRow.device, HybridRow.also).where(CLAIMED))
    return any(name in devices for device, also in held for name in (device, *also))


def _unplaced(session: Session, members: Sequence[tuple[str, str]]) -> list[SubModelRow]:
    """Those of these sub-models that still wait for a place; a person may have paused or stopped them meanwhile."""
    asked = tuple_(SubModelRow.run_id, SubModelRow.name).in_(members)
    rows = select(SubModelRow).join(RunRow, RunRow.id == SubModelRow.run_id).where(asked, *_UNPLACED)
    return list(session.scalars(rows.order_by(RunRow.line_at_s, RunRow.id, SubModelRow.arrival)))


def _worker_of(hybrid: HybridRow) -> tuple[object, ...]:
    """Identity of the worker of a hybrid; until it is known, the moment of the claim."""
    known = hybrid.worker_pid is not None
    worker = (hybrid.worker_pid, hybrid.worker_started_at_s, hybrid.worker_boot_id)
    return worker if known else (hybrid.heartbeat_at_s,)


def _heard_of(hybrid: HybridRow) -> tuple[object, ...]:
    """Its worker and the last heartbeat of that."""
    return *_worker_of(hybrid), hybrid.heartbeat_at_s


def _set_worker(hybrid: HybridRow, worker: WorkerIdentity) -> None:
    hybrid.worker_pid, hybrid.worker_started_at_s = worker.pid, worker.started_at_s
    hybrid.worker_boot_id = worker.boot_id


def _close_turn(session: Session, hybrid: HybridRow, run: RunRow, row: SubModelRow) -> None:
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
    steps, end_s = row.steps_done - from_step, max(start_s, (hybrid.heartbeat_at_s or 0.0) - run.started_at_s)
    if steps > 0:
        session.add(
            SliceRow(
                run_id=run.id,
                submodel=row.name,
                attempt=row.attempt,
                start_s=start_s,
                end_s=end_s,
                steps=steps,
                from_step=from_step,
                reason=reason,
                lane=lane,
            )
        )
