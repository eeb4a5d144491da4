"""Hybrids: workers on devices, and the sub-models placed in them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import select, union
from sqlalchemy.orm import Session, defer, raiseload

from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.store.database import Repository
from unifiednn_core.store.people import SettingRow
from unifiednn_core.store.schema import HybridRow, RunRow, SubModelRow

_LINE = re.compile(r"(?P<submodel>[^:]+):(?P<doing>.*?)(?: in (?P<operator>\S+))?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is, as text that outlives it: a line `lenet:step 120 in aten.div.Tensor_mode` for each lane."""

    submodel: str
    doing: str
    """`loading`, `step 120` or `evaluation after step 120`."""
    operator: str | None = None
    """Known only at a place where the worker before it died: see `runtime.worker.OperatorTrace`."""

    @classmethod
    def all_of(cls, text: str | None) -> "tuple[Place, ...]":
        """Read the text of a mark: the places of all lanes."""
        found = [_LINE.fullmatch(line) for line in (text or "").splitlines()]
        return tuple(cls(**match.groupdict()) for match in found if match is not None)

    @property
    def step(self) -> int:
        """Step of the sub-model, from 1; 0 while it is loaded."""
        last = self.doing.rpartition(" ")[2]
        return int(last) if last.isdecimal() else 0

    def is_near(self, other: "Place") -> bool:
        """Whether another place is the same but for the operator."""
        return (self.submodel, self.doing) == (other.submodel, other.doing)

    def __str__(self) -> str:
        return f"{self.submodel}:{self.doing}" + (f" in {self.operator}" if self.operator else "")


POOLING = "pooling"
CLAIMED = HybridRow.heartbeat_at_s.is_not(None)
"""A claim sets the first heartbeat; until then no worker knows of a hybrid."""
OPEN = SubModelRow.state.not_in([state.value for state in ENDED])


LIGHT = (
    raiseload(RunRow.hybrid),
    *(defer(column, raiseload=True) for column in (RunRow.spec, RunRow.prediction, RunRow.environment)),
    defer(SubModelRow.certificate, raiseload=True),
)
"""What lists of members need not read."""


class Resident(NamedTuple):
    """A sub-model placed in a hybrid, with its run."""

    run: RunRow
    row: SubModelRow

    @property
    def key(self) -> str:
        """Its name in the hybrid."""
        return key_of(self.row.hybrid_id or "", self.row.run_id, self.row.name)


def key_of(hybrid_id: str, run_id: str, name: str) -> str:
    """Name of a sub-model in a hybrid: its own in the private one of its run, unique in a shared one."""
    return name if run_id == hybrid_id else f"{run_id}/{name}"


def address(hybrid_id: str, key: str) -> tuple[str, str]:
    """Run and own name of a sub-model with this key."""
    run_id, separator, name = key.rpartition("/")
    return (run_id, name) if separator else (hybrid_id, key)


class Hybrids(Repository):
    """Reads and updates hybrids. Methods raise `NotFound` for an unknown one."""

    def get(self, hybrid_id: str) -> tuple[HybridRow, list[Resident]]:
        """A hybrid and all that is placed in it, in order of submission and arrival; ended sub-models, too."""
        with self._database.read() as session:
            return hybrid_of(session, hybrid_id), members_of(session, hybrid_id)

    def listed(self) -> list[tuple[HybridRow, list[Resident]]]:
        """Hybrids that have not ended, with their members that have not, in order of their ids."""
        with self._database.read() as session:
            open_ids = select(HybridRow.id).where(HybridRow.shared.is_(True), HybridRow.ended_at_s.is_(None))
            going = HybridRow.id.in_(
                union(select(HybridRow.id).where(CLAIMED), open_ids)
            )  # each by an index of its own
            hybrids = list(session.scalars(select(HybridRow).where(going).order_by(HybridRow.id)))
            members: dict[str, list[Resident]] = {hybrid.id: [] for hybrid in hybrids}
            placed = select(SubModelRow).where(OPEN, SubModelRow.hybrid_id.in_(members))
            for one in residents_in(session, list(session.scalars(placed)) if members else []):
                members[one.row.hybrid_id or ""].append(one)
            return [(hybrid, members[hybrid.id]) for hybrid in hybrids]

    def share(self) -> bool:
        """Whether a shared hybrid goes on."""
        going = select(HybridRow.id).where(HybridRow.shared.is_(True), HybridRow.ended_at_s.is_(None))
        return self._value(going.limit(1)) is not None

    def members(self, hybrid_ids: Sequence[str]) -> dict[str, list[Resident]]:
        """What `get` says is placed in each of these hybrids, without the documents of the runs."""
        found: dict[str, list[Resident]] = {hybrid_id: [] for hybrid_id in hybrid_ids}
        placed = select(RunRow, SubModelRow).join(SubModelRow, SubModelRow.run_id == RunRow.id)
        placed = placed.where(SubModelRow.hybrid_id.in_(found))
        placed = placed.order_by(RunRow.created_at_s, RunRow.id, SubModelRow.arrival).options(*LIGHT)
        for run, row in self._all(placed) if found else ():
            found[row.hybrid_id or ""].append(Resident(run, row))
        return found

    def open_members(self, hybrid_id: str) -> list[tuple[str, bool]]:
        """Keys of all that is placed in a hybrid and has not ended, and whether each is to leave."""
        asked = select(SubModelRow.run_id, SubModelRow.name, SubModelRow.leaving.is_not(None))
        rows = self._all(asked.where(SubModelRow.hybrid_id == hybrid_id, OPEN))
        return [(key_of(hybrid_id, run_id, name), leaves) for run_id, name, leaves in rows]

    def is_to_leave(self, hybrid_id: str) -> bool:
        """Whether a private hybrid is to free its device."""
        return self._value(select(HybridRow.leaving).where(HybridRow.id == hybrid_id)) is not None

    def pooling(self) -> Pooling:
        """How shared submissions become hybrids, as an operator set it."""
        row = self._get(SettingRow, POOLING)
        return Pooling() if row is None else Pooling.model_validate_json(row.value)

    def set_pooling(self, pooling: Pooling, by: str) -> None:
        """Set how shared submissions become hybrids from now on; hybrids that train stay as they are."""
        value, now_s = pooling.model_dump_json(exclude_none=True), self._clock.utc_s()
        with self._database.write() as session:
            session.merge(SettingRow(name=POOLING, value=value, changed_at_s=now_s, changed_by=by))

    def begin(self, hybrid_id: str) -> None:
        """Record that the worker trains: the zero of its clock."""
        with self._database.write() as session:
            hybrid = hybrid_of(session, hybrid_id)
            if hybrid.started_at_s is None:
                hybrid.started_at_s = self._clock.utc_s()

    def update(self, hybrid_id: str, **values: Any) -> None:
        """Set columns of a hybrid."""
        with self._database.write() as session:
            hybrid_of(session, hybrid_id).assign(values)

    def record_environment(self, hybrid_id: str, facts: Mapping[str, Any]) -> None:
        """Add facts about the environment that results depend on."""
        with self._database.write() as session:
            hybrid = hybrid_of(session, hybrid_id)
            hybrid.environment = {**hybrid.environment, **facts}


def hybrid_of(session: Session, hybrid_id: str) -> HybridRow:
    """Row of a hybrid; raises `NotFound`."""
    hybrid = session.get(HybridRow, hybrid_id)
    if hybrid is None:
        raise NotFound(f"There is no hybrid '{hybrid_id}'. List the known ones with: unifiednn queue")
    return hybrid


def residents_in(session: Session, rows: Sequence[SubModelRow]) -> list[Resident]:
    """Sub-models with their runs, in order of submission and arrival. Each run is read once: its documents are long."""
    asked = select(RunRow).where(RunRow.id.in_({row.run_id for row in rows}))
    runs = {run.id: run for run in session.scalars(asked)} if rows else {}
    found = [Resident(runs[row.run_id], row) for row in rows if row.run_id in runs]
    return sorted(found, key=lambda one: (one.run.created_at_s, one.run.id, one.row.arrival))


def members_of(session: Session, hybrid_id: str) -> list[Resident]:
    """Everything placed in a hybrid, in order of submission and arrival."""
    placed = select(RunRow, SubModelRow).join(SubModelRow, SubModelRow.run_id == RunRow.id)
    placed = placed.where(SubModelRow.hybrid_id == hybrid_id)
    rows = session.execute(placed.order_by(RunRow.created_at_s, RunRow.id, SubModelRow.arrival))
    return [Resident(run, row) for run, row in rows]


def is_live(session: Session, row: SubModelRow) -> bool:
    """Whether a worker has the sub-model, or starts for it."""
    hybrid = None if row.hybrid_id is None else session.get(HybridRow, row.hybrid_id)
    return hybrid is not None and hybrid.heartbeat_at_s is not None


def note_progress(session: Session, row: SubModelRow, step: int | None) -> None:
    """Count deaths from zero, because a sub-model has a checkpoint at `step`, or completed (None).

    Where the last worker died is forgotten only once that sub-model is past it: others may progress between two deaths.
    """
    hybrid = None if row.hybrid_id is None else session.get(HybridRow, row.hybrid_id)
    if hybrid is None:
        return
    key = key_of(hybrid.id, row.run_id, row.name)
    hybrid.deaths, hybrid.resume_at_s, places = 0, None, Place.all_of(hybrid.died_at)
    left = [place for place in places if place.submodel != key or (step is not None and step < place.step)]
    if left:
        hybrid.died_at = "\n".join(map(str, left))
    else:
        forget_deaths(hybrid)


def forget_deaths(hybrid: HybridRow) -> None:
    """Reset the counts of worker deaths, because nothing of them is left or a person resumed it."""
    hybrid.deaths = hybrid.deaths_there = 0
    hybrid.died_at = hybrid.resume_at_s = None


def release_worker(hybrid: HybridRow) -> None:
    """Record that the hybrid has no worker and holds no device."""
    hybrid.now_reason = hybrid.claimer = hybrid.leaving = None
    hybrid.heartbeat_at_s = hybrid.worker_pid = hybrid.worker_started_at_s = hybrid.worker_boot_id = None
