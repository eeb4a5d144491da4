"""The ends of the logs of workers, where several hosts write them: the newest lines of each file."""

from collections.abc import Iterable

from sqlalchemy import select

from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import WorkerLogRow


class WorkerLogs(Repository):
    """Reads and writes the ends of logs."""

    def write(self, hybrid_id: str, place: str, text: str, *, size_bytes: int, is_cut: bool) -> None:
        """Write the end of a log of `size_bytes`; it replaces the last one of this place."""
        with self._database.write() as session:
            session.merge(
                WorkerLogRow(
                    hybrid_id=hybrid_id,
                    place=place,
                    text=text,
                    size_bytes=size_bytes,
                    is_cut=is_cut,
                    at_s=self._clock.utc_s(),
                )
            )

    def of(self, hybrid_ids: Iterable[str]) -> list[WorkerLogRow]:
        """The logs of some hybrids, the one that was written last at the end."""
        asked = select(WorkerLogRow).where(WorkerLogRow.hybrid_id.in_(list(hybrid_ids))).order_by(WorkerLogRow.at_s)
        return self._rows(asked)

    def sizes(self) -> dict[tuple[str, str], int]:
        """Bytes of all files, whole, by hybrid and place."""
        asked = select(WorkerLogRow.hybrid_id, WorkerLogRow.place, WorkerLogRow.size_bytes)
        return {(hybrid_id, place): size_bytes for hybrid_id, place, size_bytes in self._all(asked)}
