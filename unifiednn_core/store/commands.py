"""Orders of people to workers: written here, picked up by the worker, applied once at a step boundary."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select, update

from unifiednn_core.clock import Clock
from unifiednn_core.lifecycle import Event, State
from unifiednn_core.store.database import Database
from unifiednn_core.store.runs import Runs
from unifiednn_core.store.schema import CommandRow, RunRow


@dataclass(frozen=True, slots=True)
class Command:
    """`event` (pause, resume or stop) for one sub-model, or for the whole run where `submodel` is None."""

    id: int
    submodel: str | None
    event: Event


class Commands:
    """The part of the store that carries orders."""

    def __init__(self, database: Database, runs: Runs, clock: Clock):
        self._database, self._runs, self._clock = database, runs, clock

    def issue(self, run_id: str, submodel: str | None, event: Event) -> State:
        """Ask for `event`: the state shows at once that it was heard, in the same transaction as the order itself.

        Raises `IllegalTransition` where the state does not allow it, `NotFound` where there is no such thing.
        """
        with self._database.write() as session:
            state = self._runs.transition_in(session, run_id, submodel, event)
            session.add(CommandRow(run_id=run_id, submodel=submodel, verb=event.value, issued_at_s=self._clock.utc_s()))
            return state

    def open(self, run_id: str) -> list[Command]:
        """Orders that the worker has not applied yet, oldest first."""
        with self._database.read() as session:
            rows = session.scalars(
                select(CommandRow)
                .where(CommandRow.run_id == run_id, CommandRow.applied_at_s.is_(None))
                .order_by(CommandRow.id)
            )
            return [Command(row.id, row.submodel, Event(row.verb)) for row in rows]

    def settle_unclaimed(self) -> None:
        """Carry out what was asked of runs that no worker knows of yet: nothing has to be waited for."""
        asked = RunRow.state.in_([State.PAUSING.value, State.STOPPING.value])
        unclaimed = select(RunRow).where(RunRow.heartbeat_at_s.is_(None), asked)
        with self._database.read() as session:
            if session.scalar(unclaimed.limit(1)) is None:  # the rule; no lock is taken for it
                return
        with self._database.write() as session:
            for run in session.scalars(unclaimed):
                if State(run.state) is State.PAUSING:
                    self._runs.transition_in(session, run.id, None, Event.HOLD)
                else:
                    self._runs.halt_in(session, run.id)
                of_run = (CommandRow.run_id == run.id) & CommandRow.submodel.is_(None)
                session.execute(update(CommandRow).where(of_run).values(applied_at_s=self._clock.utc_s()))

    def applied(self, ids: Iterable[int]) -> None:
        """Record that orders have taken effect."""
        with self._database.write() as session:
            session.execute(
                update(CommandRow).where(CommandRow.id.in_(list(ids))).values(applied_at_s=self._clock.utc_s())
            )
