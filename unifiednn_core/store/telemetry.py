"""Reports of workers: metrics, turns, memory, progress. Workers write them in batches; pages read them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, delete, func, insert, or_, select
from sqlalchemy.orm import Session

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.database import Repository
from unifiednn_core.store.events import KINDS, Code
from unifiednn_core.store.hybrids import address, key_of
from unifiednn_core.store.schema import (
    AttemptRow,
    Base,
    EpochRow,
    EventRow,
    FileRow,
    HybridRow,
    MemoryRow,
    RunRow,
    SchemaRow,
    SliceRow,
    StepRow,
    StrataRow,
    SubModelRow,
)
from unifiednn_core.store.webhooks import WebhookRow

Columns = dict[str, Any]
"""Values of one row, by column."""

_MARKING = ("state", KINDS[Code.CHECKPOINT], KINDS[Code.SEPARATED])
LAST_EVENTS, MOST_MARKS = 200, 300
MOST_ROWS = 2000
_CHUNK = 500  # SQLite limits the values of one statement
# A page reads all curves of a run every second, so longer trainings store means over several steps.
STEP_ROWS_OF_RUN = 6000
FEWEST_STEP_ROWS = 200
_SINCE_START = ("start_s", "end_s", "turn_since_s")
SHOWN_FIGURES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
"""Figures of the newest epoch that are also columns of `SubModelRow`."""


def curve_stride(steps_total: int, peers: int) -> int:
    """Steps averaged in one row of the curve of a sub-model, one of `peers` in its run."""
    return max(1, math.ceil(steps_total / max(FEWEST_STEP_ROWS, STEP_ROWS_OF_RUN // peers)))


@dataclass(slots=True)
class TelemetryRows:
    """Everything since the last write of a worker. It holds plain values, so it can be written again after a failure.

    Sub-models are named by their keys in the hybrid; seconds count from its start.
    """

    steps: list[Columns] = field(default_factory=list)
    epochs: list[Columns] = field(default_factory=list)
    slices: list[Columns] = field(default_factory=list)
    memory: list[Columns] = field(default_factory=list)
    strata: list[Columns] = field(default_factory=list)
    events: list[Columns] = field(default_factory=list)
    submodels: dict[str, Columns] = field(default_factory=dict)
    """Changed columns of sub-models, by key."""
    hybrid: Columns = field(default_factory=dict)
    """Changed columns of the hybrid."""


class StepPoint(NamedTuple):
    """A mean over steps; `StepRow` describes the values."""

    submodel: str
    attempt: int
    step: int
    steps: int
    epoch: float
    loss: float | None
    accuracy: float | None


class EpochPoint(NamedTuple):
    """Figures of a complete epoch; `EpochRow` describes the values."""

    submodel: str
    attempt: int
    epoch: int
    step: int
    learning_rate: float | None
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None


class StrataPoint(NamedTuple):
    """Memory by use at one moment; `StrataRow` describes the values."""

    at_s: float
    source: str
    total_bytes: int
    strata: Mapping[str, Any]


class SlicePoint(NamedTuple):
    """Columns of a `SliceRow`; `steps` leaves out those that a later attempt repeated."""

    id: int
    submodel: str
    attempt: int
    start_s: float
    end_s: float
    steps: int
    from_step: int
    reason: str
    lane: int


@dataclass(frozen=True, slots=True)
class History:
    """All recorded rows of one run. Steps that a later attempt repeated are void and do not count."""

    steps: Mapping[str, Sequence[StepPoint]]
    """Columns of `StepRow` by sub-model."""
    lost_steps: Mapping[str, Sequence[StepPoint]]
    """Void steps, in order of attempts."""
    epochs: Mapping[str, Sequence[EpochPoint]]
    slices: Sequence[SlicePoint]
    memory: Sequence[tuple[float, int]]
    """`at_s` and `size_bytes` of `MemoryRow`."""
    strata: Sequence[StrataPoint]
    """`at_s`, `source`, `total_bytes` and `strata` of `StrataRow`."""
    events: Sequence[EventRow]
    marks: Sequence[EventRow]
    """Events that explain changes of memory: states of sub-models, checkpoints, separations."""


class HybridTurn(NamedTuple):
    """A turn of a member of a hybrid, in seconds since the start of the hybrid."""

    run_id: str
    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    lane: int


@dataclass(frozen=True, slots=True)
class HybridHistory:
    """What a hybrid did with its device, oldest first."""

    memory: Sequence[tuple[float, int]]
    strata: Sequence[StrataPoint]
    turns: Sequence[HybridTurn]


class Telemetry(Repository):
    """Writes and reads what workers report."""

    def write(self, hybrid_id: str, batch: TelemetryRows) -> None:
        """Write a batch and the heartbeat in one transaction. The turns of a run count from its own start."""
        with self._database.write() as session:
            hybrid = session.get_one(HybridRow, hybrid_id)
            lists = (batch.steps, batch.epochs, batch.slices, batch.events)
            for table, rows in zip((StepRow, EpochRow, SliceRow, EventRow), lists, strict=True):
                if rows:
                    session.execute(insert(table), [_of_run(session, hybrid, row) for row in rows])
            for sampled, rows in ((MemoryRow, batch.memory), (StrataRow, batch.strata)):
                if rows:
                    session.execute(insert(sampled), [{"hybrid_id": hybrid_id, **row} for row in rows])
            if batch.memory or batch.strata:
                thin(session, hybrid_id)
            if hybrid.worker_pid is not None:  # one that was just paused has no worker
                hybrid.heartbeat_at_s = self._clock.utc_s()
            hybrid.assign(batch.hybrid)
            for key, columns in batch.submodels.items():
                row = _of_run(session, hybrid, {"submodel": key, **columns})
                session.get_one(SubModelRow, (row.pop("run_id"), row.pop("submodel"))).assign(row)

    def history(
        self, run_id: str, memory_source: str | None, *, last_slices: int | None = None, most_epochs: int | None = None
    ) -> History:
        """Everything recorded of a run, oldest first; only the last events, and the `last_slices` if given.

        Of a sub-model with more than `most_epochs`, each 2nd, 4th, 8th ... epoch and the last one.
        """
        with self._database.read() as session:
            void_after = _void_after(session, run_id)
            void = {key for key, last in void_after.items() if last < math.inf}
            steps: dict[str, list[StepPoint]] = {}
            lost: dict[str, list[StepPoint]] = {}
            points = _select(StepRow, StepPoint._fields).where(StepRow.run_id == run_id)
            for point in map(StepPoint._make, session.execute(points.order_by(StepRow.attempt, StepRow.step))):
                kept = not void or point[:2] not in void or point.step <= void_after[point[:2]]
                (steps if kept else lost).setdefault(point.submodel, []).append(point)
            epochs: dict[str, list[EpochPoint]] = {}
            of_run = _epochs(session, run_id, most_epochs).order_by(EpochRow.epoch)
            for epoch in map(EpochPoint._make, session.execute(of_run)):
                if not void or epoch.step <= void_after.get((epoch.submodel, epoch.attempt), math.inf):
                    epochs.setdefault(epoch.submodel, []).append(epoch)
            memory, strata = _samples(session, run_id, memory_source or "")
            latest = select(EventRow).where(EventRow.run_id == run_id).order_by(EventRow.id.desc())
            events = latest.where(EventRow.kind != KINDS[Code.CHECKPOINT]).limit(LAST_EVENTS)
            marks = latest.where(EventRow.kind.in_(_MARKING), EventRow.submodel.is_not(None)).limit(MOST_MARKS)
            turns = _select(SliceRow, SlicePoint._fields).where(SliceRow.run_id == run_id)
            latest_turns = session.execute(turns.order_by(SliceRow.id.desc()).limit(last_slices)).all()
            shown = [SlicePoint._make(row) for row in reversed(latest_turns)]
            if void:
                shown = [turn._replace(steps=_counted(turn, void_after)) for turn in shown]
            return History(
                steps=steps,
                lost_steps=lost,
                epochs=epochs,
                slices=shown,
                memory=memory,
                strata=strata,
                events=session.scalars(events).all()[::-1],
                marks=session.scalars(marks).all()[::-1],
            )

    def epochs(self, run_id: str, submodel: str) -> Iterator[EpochPoint]:
        """Epochs of a sub-model that no later attempt repeated, in order; read a few at a time."""
        with self._database.read() as session:
            void_after = _void_after(session, run_id)
            asked = _epochs(session, run_id, None).where(EpochRow.submodel == submodel).order_by(EpochRow.epoch)
            for epoch in map(EpochPoint._make, session.execute(asked.execution_options(yield_per=_CHUNK))):
                if epoch.step <= void_after.get((submodel, epoch.attempt), math.inf):
                    yield epoch

    def of_hybrid(self, hybrid_id: str, memory_source: str | None, *, last_turns: int) -> HybridHistory:
        """Memory of a hybrid, and the newest turns of all sub-models in it, also of those that have left it."""
        with self._database.read() as session:
            hybrid = session.get_one(HybridRow, hybrid_id)
            same = [getattr(AttemptRow, name) == getattr(SliceRow, name) for name in ("run_id", "submodel", "attempt")]
            there = select(SliceRow).join(AttemptRow, and_(*same)).where(AttemptRow.hybrid_id == hybrid_id)
            rows = list(session.scalars(there.order_by(SliceRow.id.desc()).limit(last_turns)))[::-1]
            starts = select(RunRow.id, RunRow.started_at_s).where(RunRow.id.in_({row.run_id for row in rows}))
            zero_s = hybrid.started_at_s or 0.0
            later_s = {row.id: (row.started_at_s or zero_s) - zero_s for row in session.execute(starts)}
            turns = [
                HybridTurn(
                    row.run_id,
                    row.submodel,
                    row.start_s + later_s[row.run_id],
                    row.end_s + later_s[row.run_id],
                    row.steps,
                    row.reason,
                    row.lane,
                )
                for row in rows
            ]
            memory, strata = _sampled(session, hybrid_id, memory_source or "")
            return HybridHistory(memory, strata, turns)

    def memory_now(self) -> dict[str, int]:
        """Newest sample of each hybrid that has a worker, of its main source, in bytes."""
        of_it = (MemoryRow.hybrid_id == HybridRow.id) & (MemoryRow.source == HybridRow.memory_source)
        newest = select(MemoryRow.size_bytes).where(of_it).order_by(MemoryRow.at_s.desc()).limit(1)
        asked = select(HybridRow.id, newest.scalar_subquery()).where(HybridRow.heartbeat_at_s.is_not(None))
        return {row[0]: row[1] for row in self._all(asked) if row[1] is not None}

    def attempts(self, run_ids: Iterable[str]) -> dict[str, list[AttemptRow]]:
        """Attempts on the sub-models of runs, oldest first, by run."""
        found: dict[str, list[AttemptRow]] = {run_id: [] for run_id in run_ids}
        asked = select(AttemptRow).where(AttemptRow.run_id.in_(found)).order_by(AttemptRow.at_s, AttemptRow.attempt)
        for row in self._rows(asked):
            found[row.run_id].append(row)
        return found

    def last_turns(self, hybrid_id: str) -> dict[str, float]:
        """End of the last turn of each sub-model of a hybrid, by key, in seconds since the start of the hybrid."""
        with self._database.read() as session:
            hybrid = session.get_one(HybridRow, hybrid_id)
            ends = select(SliceRow.run_id, SliceRow.submodel, func.max(SliceRow.end_s).label("end_s")).join(
                SubModelRow, (SubModelRow.run_id == SliceRow.run_id) & (SubModelRow.name == SliceRow.submodel)
            )
            ends = ends.where(SubModelRow.hybrid_id == hybrid_id).group_by(SliceRow.run_id, SliceRow.submodel)
            return {
                key_of(hybrid_id, row.run_id, row.submodel): row.end_s
                + (0.0 if row.run_id == hybrid_id else _earlier_s(session, hybrid, row.run_id))
                for row in session.execute(ends)
            }


def _of_run(session: Session, hybrid: HybridRow, row: Columns) -> Columns:
    """Columns of one row with its run, the own name of its sub-model, and seconds since the start of that run."""
    if row.get("submodel") is None:
        return {"run_id": hybrid.id, **row}
    run_id, name = address(hybrid.id, row["submodel"])
    found = {**row, "run_id": run_id, "submodel": name}
    if run_id != hybrid.id:
        earlier_s = _earlier_s(session, hybrid, run_id)
        found |= {column: row[column] - earlier_s for column in _SINCE_START if row.get(column) is not None}
    return found


def _earlier_s(session: Session, hybrid: HybridRow, run_id: str) -> float:
    """Seconds by which a hybrid started before a run."""
    started_at_s = session.get_one(RunRow, run_id).started_at_s
    return 0.0 if None in (started_at_s, hybrid.started_at_s) else (started_at_s or 0.0) - (hybrid.started_at_s or 0.0)


def _select(table: type[Base], columns: Sequence[str]) -> Select[Any]:
    return select(*(getattr(table, name) for name in columns))


def _epochs(session: Session, run_id: str, most: int | None) -> Select[Any]:
    """Epochs of a run, at most about so many of each sub-model."""
    wanted = _select(EpochRow, EpochPoint._fields).where(EpochRow.run_id == run_id)
    if most is None:
        return wanted
    asked = select(SubModelRow.name, SubModelRow.epochs_done).where(SubModelRow.run_id == run_id)
    many = {name: done for name, done in session.execute(asked) if done > most}
    if not many:
        return wanted
    # Powers of two: most of the chosen epochs stay the same while the run goes on.
    chosen = [
        and_(
            EpochRow.submodel == name,
            or_(EpochRow.epoch % 2 ** math.ceil(math.log2(done / most)) == 0, EpochRow.epoch >= done),
        )
        for name, done in many.items()
    ]
    return wanted.where(or_(EpochRow.submodel.not_in(many), *chosen))


def _samples(session: Session, run_id: str, source: str) -> tuple[list[tuple[float, int]], list[StrataPoint]]:
    """Memory of a run: of its private hybrid, or its own part in each shared one, without what it shares."""
    run = session.get_one(RunRow, run_id)
    if not run.shared:
        return _sampled(session, run_id, source)
    stays = select(HybridRow).where(HybridRow.id.in_(select(AttemptRow.hybrid_id).where(AttemptRow.run_id == run_id)))
    found: list[StrataPoint] = []
    for hybrid in session.scalars(stays.order_by(HybridRow.started_at_s.nulls_first())):
        earlier_s = _earlier_s(session, hybrid, run_id)
        used = _select(StrataRow, StrataPoint._fields).where(StrataRow.hybrid_id == hybrid.id).order_by(StrataRow.at_s)
        for point in map(StrataPoint._make, session.execute(used)):
            own = _own_strata(point.strata, f"{run_id}/")
            if own:
                size_bytes = sum(sum(sizes.values()) for sizes in own.values())
                found.append(StrataPoint(point.at_s - earlier_s, point.source, size_bytes, own))
    return [], found


def _sampled(session: Session, hybrid_id: str, source: str) -> tuple[list[tuple[float, int]], list[StrataPoint]]:
    """Memory of a hybrid."""
    of_source = (MemoryRow.hybrid_id == hybrid_id) & (MemoryRow.source == source)
    memory = select(MemoryRow.at_s, MemoryRow.size_bytes).where(of_source).order_by(MemoryRow.at_s)
    used = _select(StrataRow, StrataPoint._fields).where(StrataRow.hybrid_id == hybrid_id).order_by(StrataRow.at_s)
    sizes = [(row.at_s, row.size_bytes) for row in session.execute(memory)]
    return sizes, [StrataPoint._make(row) for row in session.execute(used)]


def _own_strata(strata: Mapping[str, Any], prefix: str) -> dict[str, dict[str, int]]:
    """The part of a memory breakdown that belongs to the sub-models whose keys begin with `prefix`, by own name."""
    own = {
        use: {key.removeprefix(prefix): size for key, size in sizes.items() if key.startswith(prefix)}
        for use, sizes in strata.items()
        if isinstance(sizes, Mapping)
    }
    return {use: sizes for use, sizes in own.items() if sizes}


def _counted(row: SlicePoint, void_after: Mapping[tuple[str, int], float]) -> int:
    """Steps of a slice that no later attempt trained again."""
    end = min(row.from_step + row.steps, void_after.get((row.submodel, row.attempt), math.inf))
    return int(max(0, end - row.from_step))


def _void_after(session: Session, run_id: str) -> dict[tuple[str, int], float]:
    """Last valid step of each attempt on each sub-model; a later attempt continued from there."""
    rows = session.scalars(select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.attempt.desc()))
    void_after: dict[tuple[str, int], float] = {}
    lowest: dict[str, float] = {}
    for row in rows:
        void_after[row.submodel, row.attempt] = lowest.get(row.submodel, math.inf)
        lowest[row.submodel] = min(row.from_step, lowest.get(row.submodel, math.inf))
    return void_after


def thin(session: Session, hybrid_id: str, *, most_rows: int = MOST_ROWS) -> None:
    """Thin out the memory rows of a hybrid if a source has more than `most_rows`, inside the caller's transaction.

    Half of them stay, so this happens once in a thousand samples; otherwise it costs two indexed counts.
    """
    for table, size in ((MemoryRow, MemoryRow.size_bytes), (StrataRow, StrataRow.total_bytes)):
        if (session.scalar(select(func.count()).where(table.hybrid_id == hybrid_id)) or 0) <= most_rows:
            continue
        counts = select(table.source, func.count()).where(table.hybrid_id == hybrid_id).group_by(table.source)
        for source, count in session.execute(counts).all():
            if count <= most_rows:
                continue
            of_source = (table.hybrid_id == hybrid_id) & (table.source == source)
            rows = session.execute(
                select(table.id, table.at_s, size.label("size_bytes")).where(of_source).order_by(table.at_s)
            )
            surplus = rows_to_drop(rows.all(), most_rows // 2)
            for start in range(0, len(surplus), _CHUNK):
                session.execute(delete(table).where(table.id.in_(surplus[start : start + _CHUNK])))


def rows_to_drop(samples: Sequence[Any], slots: int) -> list[int]:
    """Ids to drop: all but the first, the last, and the largest sample of each of `slots` equal periods.

    Each sample has `id`, `at_s` and `size_bytes`.
    """
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    width_s = (last_s - first_s) / slots or 1.0
    greatest: dict[int, Any] = {}
    for sample in samples:
        slot = min(slots - 1, int((sample.at_s - first_s) / width_s))
        if slot not in greatest or sample.size_bytes > greatest[slot].size_bytes:
            greatest[slot] = sample
    kept = {sample.id for sample in greatest.values()} | {samples[0].id, samples[-1].id}
    return [sample.id for sample in samples if sample.id not in kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the store holds now."""

    runs: dict[str, int]
    """By state."""
    submodels: dict[str, int]
    waiting_since_s: float | None
    """Submission of the oldest run that waits."""
    workers: int
    restarts: int
    steps: int
    files_bytes: int
    webhooks_failing: int


class Monitoring(Repository):
    """Counts without reading what rows hold."""

    def counts(self) -> Counts:
        """Counts of one moment."""
        queued = select(func.min(RunRow.created_at_s)).where(RunRow.state == State.QUEUED.value)
        kept = RunRow.removed_at_s.is_(None)
        by_state = select(RunRow.state, func.count()).where(kept).group_by(RunRow.state)
        live = func.count(HybridRow.heartbeat_at_s)  # of those that are not null
        with self._database.read() as session:
            workers, restarts = session.execute(select(live, func.sum(HybridRow.recoveries))).one()
            of_state = select(SubModelRow.state, func.count(), func.sum(SubModelRow.steps_done))
            seen = of_state.where(SubModelRow.run_id.not_in(select(RunRow.id).where(~kept)))
            parts = session.execute(seen.group_by(SubModelRow.state)).all()
            return Counts(
                runs={row[0]: row[1] for row in session.execute(by_state)},
                submodels={state: count for state, count, _ in parts},
                waiting_since_s=session.scalar(queued),
                workers=workers or 0,
                restarts=int(restarts or 0),
                steps=sum(int(steps) for _, _, steps in parts),
                files_bytes=int(session.scalar(select(func.sum(FileRow.size_bytes))) or 0),
                webhooks_failing=session.scalar(select(func.count()).where(WebhookRow.error.is_not(None))) or 0,
            )

    def answers(self) -> None:
        """Read one row; raises `DatabaseError` if the store cannot be read."""
        self._value(select(SchemaRow.version))
