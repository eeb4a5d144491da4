"""The fence: a worker whose hybrid was given to another one can write nothing any more."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from unifiednn_core.base.errors import Fenced
from unifiednn_core.store.schema import HybridRow


@dataclass(frozen=True, slots=True)
class Fence:
    """What has to hold for a worker to write: the hybrid has a worker, and it is this one."""

    hybrid_id: str
    attempt: int
    process: tuple[int, float] | None = None
    """PID and start of the worker; None does not look at them. A new worker has others before it has a new attempt."""

    def require(self, session: Session) -> None:
        """Raise `Fenced` if the worker has lost its hybrid. Nothing that could take it overlaps a write transaction."""
        asked = select(HybridRow.attempt, HybridRow.worker_pid, HybridRow.worker_started_at_s).where(
            HybridRow.id == self.hybrid_id, HybridRow.heartbeat_at_s.is_not(None), HybridRow.worker_pid.is_not(None)
        )
        found = session.execute(asked).one_or_none()
        if found is None or found[0] != self.attempt or self.process not in (None, tuple(found[1:])):
            raise Fenced(self.hybrid_id, self.attempt)
