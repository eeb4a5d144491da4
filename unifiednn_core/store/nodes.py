"""Nodes: machines that offer devices beside the server's own, as the driver last saw them."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from sqlalchemy import JSON, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import Base

CLUSTER: Final = "ray"
"""Name of the row that stands for the cluster itself."""
WATCHED_S, FORGOTTEN_S = 60.0, 7 * 86400.0
NodeState = Literal["ready", "refused", "away"]


class NodeRow(Base):
    """A node, or the cluster."""

    __tablename__ = "nodes"
    name: Mapped[str] = mapped_column(primary_key=True)
    """It stands before the names of its devices: `node7/cuda:0`."""
    state: Mapped[NodeState]
    """A node that is refused is there, and its devices are not used."""
    why: Mapped[str]
    """Why it is not ready, as a sentence; empty if it is."""
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    """What it runs, and what it has."""
    seen_at_s: Mapped[float]


class Nodes(Repository):
    """Reads and writes nodes."""

    def write(self, rows: Sequence[NodeRow]) -> None:
        """Record nodes; each replaces what was known of it. Those that were away for a week are forgotten."""
        with self._database.write() as session:
            session.execute(delete(NodeRow).where(NodeRow.seen_at_s < self._clock.utc_s() - FORGOTTEN_S))
            for row in rows:
                session.merge(row)

    def all(self) -> list[NodeRow]:
        """All known nodes, by name."""
        return self._rows(select(NodeRow).order_by(NodeRow.name))

    def clear(self) -> None:
        """Forget all nodes, and the cluster."""
        with self._database.write() as session:
            session.execute(delete(NodeRow))

    def are_watched(self) -> bool:
        """Whether a driver has written lately."""
        row = self._get(NodeRow, CLUSTER)
        return row is not None and self._clock.utc_s() - row.seen_at_s < WATCHED_S
