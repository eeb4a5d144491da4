"""Hosts: machines whose agents offer devices. Each agent renews a lease; a host whose lease runs out is lost."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from sqlalchemy import JSON, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.spec.devices import SERVER, DeviceState, host_of
from unifiednn_core.store import leases
from unifiednn_core.store.database import Database, Repository
from unifiednn_core.store.devices import AWAY, DRAINING, READY, DeviceRow
from unifiednn_core.store.hybrids import CLAIMED
from unifiednn_core.store.schema import Base, HybridRow

PARKING: Final = "parking"
FORGOTTEN_S = 7 * 86400.0
"""Seconds after which a host that is away is forgotten: names of containers do not return."""
HostState = Literal["ready", "parking", "away"]


class HostRow(Base):
    """A host, as its agent last wrote it. Moments are of the database's clock."""

    __tablename__ = "hosts"
    name: Mapped[str] = mapped_column(primary_key=True)
    """`server` is the machine of the server."""
    machine: Mapped[str]
    """What the machine calls itself."""
    boot_id: Mapped[str]
    """Of `launchers.boot_id`: PIDs mean something within it alone."""
    agent_pid: Mapped[int]
    agent_started_at_s: Mapped[float]
    state: Mapped[HostState] = mapped_column(default=READY)
    """A host that parks gives its devices back; one that is away is gone."""
    since_s: Mapped[float]
    """Since when it has renewed its lease without a gap."""
    renewed_at_s: Mapped[float]
    free_bytes: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """Free memory of its devices, by name; null where it is not known."""
    facts: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """Versions of what its workers run."""


class Hosts(Repository):
    """Reads and writes hosts."""

    def enter(self, row: HostRow, *, over: tuple[int, float] | None = None, parks: bool = False) -> HostRow | None:
        """Record that an agent begins to serve its host; returns the host whose lease prevents that, or None.

        A host of another machine prevents it. So does another agent of the same name, unless it is the
        process `over`, which has ended; several processes of the server's machine may serve that.
        """
        with self._database.write() as session:
            now_s = self._clock.utc_s()
            for other in session.scalars(select(HostRow)):
                if self._prevents(row, other, over, now_s):
                    return other
                if other.state == AWAY and now_s - other.renewed_at_s > FORGOTTEN_S and other.name != SERVER:
                    _forget(session, other)
            known = session.get(HostRow, row.name)
            since_s = None if known is None else known.since_s
            unbroken_s = leases.since(since_s, None if known is None else known.renewed_at_s, now_s)
            row.state, row.free_bytes = PARKING if parks else READY, {}
            row.since_s, row.renewed_at_s = unbroken_s, now_s
            session.merge(row)
            return None

    def _prevents(self, row: HostRow, other: HostRow, over: tuple[int, float] | None, now_s: float) -> bool:
        if other.state == AWAY or leases.is_stale(other.renewed_at_s, now_s):
            return False
        other_machine = machine_of(other.boot_id) != machine_of(row.boot_id)
        if other_machine or other.name != row.name or row.name == SERVER:
            return other_machine
        process = other.agent_pid, other.agent_started_at_s
        return process not in (over, (row.agent_pid, row.agent_started_at_s))

    def renew(self, row: HostRow, free_bytes: Mapping[str, int | None], *, parks: bool = False) -> bool:
        """Renew the lease of a host; False if another agent serves it by now, or it was declared lost.

        With `parks` it gives its devices back: nothing new is placed there, and what trains there leaves.
        """
        with self._database.write() as session:
            now_s, known = self._clock.utc_s(), session.get(HostRow, row.name)
            if known is None or known.state == AWAY or not _is_served_by(known, row):
                return False
            known.since_s = leases.since(known.since_s, known.renewed_at_s, now_s)
            known.renewed_at_s, known.free_bytes = now_s, dict(free_bytes)
            known.state = PARKING if parks else READY
            return True

    def leave(self, name: str) -> None:
        """Record that a host is gone, with its devices."""
        with self._database.write() as session:
            row = session.get(HostRow, name)
            if row is not None:
                _leave(session, row)

    def forget(self, name: str) -> None:
        """Forget a host that does not return, with its devices and their limits; its agent may join again.

        Raises `NotFound`, and `BadInput` for a host that is there, or on which a worker still reports.
        """
        with self._database.write() as session:
            row = session.get(HostRow, name)
            if row is None:
                known = ", ".join(session.scalars(select(HostRow.name).order_by(HostRow.name))) or "none"
                raise NotFound(f"There is no host '{name}'. Known hosts: {known}.")
            if name == SERVER:
                message, remedy = "The host of the server stays.", "Forget only hosts of agents."
                raise BadInput.of("Host", "host", message, remedy)
            if row.state != AWAY:
                message, remedy = f"{name} is there.", "End its agent, or wait until it counts as lost."
                raise BadInput.of("Host", "host", message, remedy)
            if name in map(host_of, session.scalars(select(HybridRow.device).where(CLAIMED))):
                message, remedy = f"A worker on {name} still trains.", "Wait until it ends, or stop its run."
                raise BadInput.of("Host", "host", message, remedy)
            _forget(session, row)

    def all(self) -> list[HostRow]:
        """All hosts there ever were, the server's first."""
        return self._rows(select(HostRow).order_by(HostRow.name != SERVER, HostRow.name))

    def are_beside(self, name: str) -> bool:
        """Whether there are other hosts than this one."""
        return any(row.name != name and row.state != AWAY for row in self.all())

    def is_served(self, name: str) -> bool:
        """Whether some process serves a host now."""
        with self._database.read() as session:
            row = session.get(HostRow, name)
            served = row is not None and row.state != AWAY
            return served and not leases.is_stale(row.renewed_at_s if row else 0.0, self._clock.utc_s())

    def now_s(self) -> float:
        """Now, by the clock that leases count by."""
        return self._clock.utc_s()

    def lose(self, name: str, judge: str | None, after_s: float = leases.LOST_S) -> bool:
        """Declare a host lost that was silent for so long, if `judge` may judge; returns whether it is away now.

        Without a judge it is known from elsewhere that it is gone.
        """
        with self._database.write() as session:
            row = session.get(HostRow, name)
            if row is None or row.state == AWAY:
                return True
            may = judge is None or may_judge(session, judge, self._database)
            if not may or not leases.is_stale(row.renewed_at_s, self._clock.utc_s(), after_s):
                return False
            _leave(session, row)
            return True


def machine_of(boot_id: str) -> str:
    """What boots of a machine have in common in all its containers."""
    return boot_id.partition("/")[0]


def state_on(row: DeviceRow, host: HostRow | None) -> DeviceState:
    """State of a device as its host lets it be: away with that, and draining while that parks."""
    if host is None or host.state == READY:
        return row.state
    return AWAY if host.state == AWAY else DRAINING if row.state == READY else row.state


def _is_served_by(known: HostRow, row: HostRow) -> bool:
    """Whether this agent is the one of a host. PIDs alone are equal in containers of one machine."""
    if row.name == SERVER:
        return machine_of(known.boot_id) == machine_of(row.boot_id)
    process, own = (known.agent_pid, known.agent_started_at_s), (row.agent_pid, row.agent_started_at_s)
    return known.boot_id == row.boot_id and process == own


def _forget(session: Session, row: HostRow) -> None:
    for device in session.scalars(select(DeviceRow)):
        if host_of(device.name) == row.name:
            session.delete(device)
    session.delete(row)


def may_judge(session: Session, judge: str, database: Database) -> bool:
    """Whether a host may declare others lost now."""
    own = session.get(HostRow, judge)
    now_s = database.clock.utc_s()
    return own is not None and own.state != AWAY and leases.may_judge(own.since_s, own.renewed_at_s, now_s)


def _leave(session: Session, row: HostRow) -> None:
    row.state = AWAY
    for device in session.scalars(select(DeviceRow)):
        if host_of(device.name) == row.name and device.state == READY:
            device.state = AWAY
