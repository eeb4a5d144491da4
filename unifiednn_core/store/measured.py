"""Memory that was measured once, kept to predict the next time."""

from collections.abc import Iterable

from sqlalchemy import select

from unifiednn_core.clock import Clock
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import MeasuredMemoryRow


class Measured:
    """The part of the store that remembers what things took."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def recall(self, keys: Iterable[str]) -> dict[str, int]:
        """Bytes that were measured, by key; what was never measured is not there."""
        wanted = set(keys)
        with self._database.read() as session:
            rows = session.scalars(select(MeasuredMemoryRow).where(MeasuredMemoryRow.key.in_(wanted)))
            return {row.key: row.size_bytes for row in rows}

    def remember(self, key: str, size_bytes: int, source: str) -> None:
        """Keep a measurement by `source`: the greatest of all, since each later sample may have missed the peak.

        A prediction that is too low lets a run in that dies of it; one that is too high only lets it wait. Figures of
        0 and without a key say nothing.
        """
        if not key or size_bytes <= 0:
            return
        with self._database.write() as session:
            row = session.get(MeasuredMemoryRow, key)
            if row is None:
                row = MeasuredMemoryRow(key=key, size_bytes=size_bytes, source=source, times=0)
                session.add(row)
            if size_bytes > row.size_bytes:
                row.size_bytes, row.source = size_bytes, source
            row.times += 1
            row.at_s = self._clock.utc_s()
