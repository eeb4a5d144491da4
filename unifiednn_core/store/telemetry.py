"""What a worker reports while it trains: metrics, slices, memory, progress. Written in batches, read by pages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from unifiednn_core.clock import Clock
from unifiednn_core.store.database import Database
from unifiednn_core.store.retention import thin
from unifiednn_core.store.schema import (
    AttemptRow,
    EpochRow,
    EventRow,
    MemoryRow,
    RunRow,
    SliceRow,
    StepRow,
    StrataRow,
    SubModelRow,
)

Row = dict[str, Any]

CHECKPOINT, SEPARATED = "checkpoint", "separated"
_MARKING = ("state", CHECKPOINT, SEPARATED)
MOST_MARKS = 300


@dataclass(slots=True)
class Batch:
    """Everything since the last write, as columns by name: plain values can be written again after a failure."""

    steps: list[Row] = field(default_factory=list)
    epochs: list[Row] = field(default_factory=list)
    slices: list[Row] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    strata: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    submodels: dict[str, Row] = field(default_factory=dict)
    """Columns of sub-models that changed, by name."""
    run: Row = field(default_factory=dict)
    """Columns of the run that changed."""


class StepPoint(NamedTuple):
    """One point of a curve over steps; `StepRow` says what the values are."""

    submodel: str
    attempt: int
    step: int
    steps: int
    epoch: float
    loss: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class History:
    """All recorded rows of one run. What a later attempt did once more is void: it counts nowhere."""

    steps: Mapping[str, Sequence[StepPoint]]
    lost_steps: Mapping[str, Sequence[StepPoint]]
    """Void steps, attempt by attempt."""
    epochs: Mapping[str, Sequence[EpochRow]]
    slices: Sequence[SliceRow]
    counted_steps: Mapping[int, int]
    """Steps of each slice, by its id, that no later attempt did once more."""
    memory: Sequence[tuple[float, int]]
    """`at_s` and `size_bytes` of `MemoryRow`."""
    strata: Sequence[StrataRow]
    events: Sequence[EventRow]
    marks: Sequence[EventRow]
    """Lines that explain changes of memory: states of sub-models, checkpoints, separations."""


class Telemetry:
    """The part of the store that answers what happened, and when."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def write(self, run_id: str, batch: Batch) -> None:
        """Write a batch and the heartbeat in one transaction."""
        with self._database.write() as session:
            for table, rows in (
                (StepRow, batch.steps),
                (EpochRow, batch.epochs),
                (SliceRow, batch.slices),
                (MemoryRow, batch.memory),
                (StrataRow, batch.strata),
                (EventRow, batch.events),
            ):
                if rows:
                    session.execute(insert(table), [{"run_id": run_id, **row} for row in rows])
            if batch.memory or batch.strata:
                thin(session, run_id)
            run = session.get_one(RunRow, run_id)
            if run.worker_pid is not None:  # a run that was just paused has none any more
                run.heartbeat_at_s = self._clock.utc_s()
            for name, value in batch.run.items():
                setattr(run, name, value)
            for submodel, columns in batch.submodels.items():
                row = session.get_one(SubModelRow, (run_id, submodel))
                for name, value in columns.items():
                    setattr(row, name, value)

    def history(
        self, run_id: str, memory_source: str | None, *, last_events: int = 200, last_slices: int | None = None
    ) -> History:
        """Everything recorded of a run, oldest first; of events, and of slices where asked, only the last ones."""
        with self._database.read() as session:
            void_after = _void_after(session, run_id)
            steps: dict[str, list[StepPoint]] = {}
            lost: dict[str, list[StepPoint]] = {}
            columns = select(*(getattr(StepRow, name) for name in StepPoint._fields))
            for row in session.execute(columns.where(StepRow.run_id == run_id).order_by(StepRow.attempt, StepRow.step)):
                kept = row.step <= void_after.get((row.submodel, row.attempt), math.inf)
                (steps if kept else lost).setdefault(row.submodel, []).append(StepPoint._make(row))
            epochs: dict[str, list[EpochRow]] = {}
            for epoch in session.scalars(select(EpochRow).where(EpochRow.run_id == run_id).order_by(EpochRow.epoch)):
                if epoch.step <= void_after.get((epoch.submodel, epoch.attempt), math.inf):
                    epochs.setdefault(epoch.submodel, []).append(epoch)
            of_source = (MemoryRow.run_id == run_id) & (MemoryRow.source == (memory_source or ""))
            memory = select(MemoryRow.at_s, MemoryRow.size_bytes).where(of_source).order_by(MemoryRow.at_s)
            strata = select(StrataRow).where(StrataRow.run_id == run_id).order_by(StrataRow.at_s)
            latest = select(EventRow).where(EventRow.run_id == run_id).order_by(EventRow.id.desc())
            events = latest.where(EventRow.kind != CHECKPOINT).limit(last_events)
            marks = latest.where(EventRow.kind.in_(_MARKING), EventRow.submodel.is_not(None)).limit(MOST_MARKS)
            slices = select(SliceRow).where(SliceRow.run_id == run_id).order_by(SliceRow.id.desc()).limit(last_slices)
            shown = list(reversed(list(session.scalars(slices))))
            return History(
                counted_steps=_counted_steps(session, run_id, void_after),
                steps=steps,
                lost_steps=lost,
                epochs=epochs,
                slices=shown,
                memory=[(row.at_s, row.size_bytes) for row in session.execute(memory)],
                strata=list(session.scalars(strata)),
                events=list(reversed(list(session.scalars(events)))),
                marks=list(reversed(list(session.scalars(marks)))),
            )

    def last_turns(self, run_id: str) -> dict[str, float]:
        """When each sub-model last gave the device back, in seconds since the start of the run."""
        with self._database.read() as session:
            ends = select(SliceRow.submodel, func.max(SliceRow.end_s).label("end_s")).where(SliceRow.run_id == run_id)
            return {row.submodel: row.end_s for row in session.execute(ends.group_by(SliceRow.submodel))}


def _counted_steps(session: Session, run_id: str, void_after: Mapping[tuple[str, int], float]) -> dict[int, int]:
    """Steps of each slice up to where its attempt became void."""
    attempts = session.scalars(select(AttemptRow).where(AttemptRow.run_id == run_id))
    done: dict[tuple[str, int], int] = {(row.submodel, row.attempt): row.from_step for row in attempts}
    columns = select(SliceRow.id, SliceRow.submodel, SliceRow.attempt, SliceRow.steps)
    counted = {}
    for row in session.execute(columns.where(SliceRow.run_id == run_id).order_by(SliceRow.id)):
        key = (row.submodel, row.attempt)
        before = done.get(key, 0)
        done[key] = before + row.steps
        counted[row.id] = int(max(0, min(done[key], void_after.get(key, math.inf)) - before))
    return counted


def _void_after(session: Session, run_id: str) -> dict[tuple[str, int], float]:
    """Last step that counts of each attempt on each sub-model; a later attempt went on from there."""
    rows = session.scalars(select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.attempt.desc()))
    void_after: dict[tuple[str, int], float] = {}
    lowest: dict[str, float] = {}
    for row in rows:
        void_after[row.submodel, row.attempt] = lowest.get(row.submodel, math.inf)
        lowest[row.submodel] = min(row.from_step, lowest.get(row.submodel, math.inf))
    return void_after
