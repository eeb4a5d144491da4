"""Counts over the whole store, for monitoring."""

from dataclasses import dataclass

from sqlalchemy import func, select

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import FileRow, HybridRow, RunRow, SchemaRow, SubModelRow
from unifiednn_core.store.webhooks import WebhookRow


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
