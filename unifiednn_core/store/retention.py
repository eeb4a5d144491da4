"""Keeps the samples of a run few enough to be drawn, however long it lasts, without losing a peak."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from unifiednn_core.store.schema import MemoryRow, StrataRow

MOST_ROWS = 2000
_CHUNK = 500  # SQLite takes only so many values in one statement


class Sample(NamedTuple):
    """What is asked of a row."""

    id: int
    at_s: float
    size_bytes: int


def thin(session: Session, run_id: str, *, most_rows: int = MOST_ROWS) -> None:
    """Drop rows of a run's memory where there are more than `most_rows` of a source, inside the caller's transaction.

    Half of them stay, so this happens once in a thousand samples; otherwise it costs two counts over an index.
    """
    for table, size in ((MemoryRow, MemoryRow.size_bytes), (StrataRow, StrataRow.total_bytes)):
        counts = select(table.source, func.count()).where(table.run_id == run_id).group_by(table.source)
        for source, count in session.execute(counts).all():
            if count <= most_rows:
                continue
            of_source = (table.run_id == run_id) & (table.source == source)
            rows = session.execute(select(table.id, table.at_s, size).where(of_source).order_by(table.at_s))
            surplus = superfluous([Sample(*row) for row in rows], most_rows // 2)
            for start in range(0, len(surplus), _CHUNK):
                session.execute(delete(table).where(table.id.in_(surplus[start : start + _CHUNK])))


def superfluous(samples: Sequence[Sample], slots: int) -> list[int]:
    """Ids of all samples but the greatest in each of so many equal stretches of time, the first and the last."""
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    width_s = (last_s - first_s) / slots or 1.0
    greatest: dict[int, Sample] = {}
    for sample in samples:
        slot = min(slots - 1, int((sample.at_s - first_s) / width_s))
        if slot not in greatest or sample.size_bytes > greatest[slot].size_bytes:
            greatest[slot] = sample
    kept = {sample.id for sample in greatest.values()} | {samples[0].id, samples[-1].id}
    return [sample.id for sample in samples if sample.id not in kept]
