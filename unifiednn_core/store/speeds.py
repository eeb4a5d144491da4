"""How fast sub-models trained, for forecasts: turns, and what a run takes beside its training. Read only."""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from sqlalchemy import func, select

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import HYBRID, HybridRow, RunRow, SliceRow, SubModelRow

LAST_TURNS = 300
LAST_RUNS = 20


class Trained(NamedTuple):
    """A sub-model that has trained, and for how long."""

    run_id: str
    name: str
    service_s: float
    steps: int
    cpu_s: float | None
    step_s: float | None
    """Of a step alone, without warming up and evaluations."""


class TimedTurn(NamedTuple):
    """A turn; seconds count from the start of its run."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    from_step: int = 0
    """Steps that the sub-model had before."""


class Speeds(Repository):
    """Reads what earlier trainings took."""

    def trained(
        self, keys: Iterable[str], *, least_steps: int, threads: int | None, device_kind: str, owner: str | None = None
    ) -> dict[str, Trained]:
        """The last training of each memory key, on this kind of device with as many threads; only an `owner`'s.

        Unknown keys are left out.
        """
        part = SubModelRow
        columns = (part.run_id, part.name, part.service_s, part.steps_done, part.cpu_s, part.step_s)
        asked = select(*columns).join(RunRow, RunRow.id == part.run_id).where(RunRow.mode == HYBRID)
        asked = asked.where(part.steps_done >= least_steps, part.service_s > 0)
        asked = asked.where(part.device_kind.in_(("", device_kind)))
        if threads is not None:
            asked = asked.where(RunRow.threads == threads)
        if owner is not None:
            asked = asked.where(part.owner == owner)
        ended = asked.where(part.ended_at_s.is_not(None)).order_by(part.ended_at_s.desc())
        going = asked.where(part.ended_at_s.is_(None)).order_by(RunRow.created_at_s.desc())
        found: dict[str, Trained] = {}
        with self._database.read() as session:
            for key in set(keys) - {""}:  # the index gives the newest one of a key, however often it was trained
                for newest in (going, ended):
                    row = session.execute(newest.where(part.memory_key == key).limit(1)).first()
                    if row is not None:
                        found[key] = Trained._make(row)
                        break
        return found

    def turns(self, run_ids: Iterable[str], last: int = LAST_TURNS) -> dict[str, list[TimedTurn]]:
        """The newest turns of each run, oldest first."""
        found: dict[str, list[TimedTurn]] = {}
        with self._database.read() as session:
            for run_id in set(run_ids):
                columns = (SliceRow.submodel, SliceRow.start_s, SliceRow.end_s, SliceRow.steps, SliceRow.from_step)
                asked = select(*columns).where(SliceRow.run_id == run_id).order_by(SliceRow.id.desc()).limit(last)
                found[run_id] = [TimedTurn._make(row) for row in session.execute(asked)][::-1]
        return found

    def overheads(self) -> tuple[float | None, float | None]:
        """Medians of the last runs: seconds from the launch of a worker to its start, and from a last step to the file.

        None without any run.
        """
        starts = select(HybridRow.started_at_s - HybridRow.launched_at_s).where(HybridRow.mode == HYBRID)
        starts = starts.where(HybridRow.started_at_s.is_not(None), HybridRow.launched_at_s.is_not(None))
        ends = (
            select(SubModelRow.ended_at_s - func.max(RunRow.started_at_s) - func.max(SliceRow.end_s))
            .join(RunRow, RunRow.id == SubModelRow.run_id)
            .join(SliceRow, (SliceRow.run_id == SubModelRow.run_id) & (SliceRow.submodel == SubModelRow.name))
            .where(SubModelRow.state == State.COMPLETED.value, RunRow.mode == HYBRID, RunRow.shared.is_(False))
            .where(RunRow.id.in_(select(RunRow.id).order_by(RunRow.created_at_s.desc()).limit(LAST_RUNS)))
            .group_by(SubModelRow.run_id, SubModelRow.name)
        )
        with self._database.read() as session:
            launched_s = session.scalars(starts.order_by(HybridRow.launched_at_s.desc()).limit(LAST_RUNS)).all()
            exported_s = session.scalars(ends).all()
        return _median(launched_s), _median(exported_s)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and value >= 0]
    return median(known) if known else None
