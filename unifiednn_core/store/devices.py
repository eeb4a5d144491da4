"""The devices of all hosts, as their supervisors saw them, and what an operator decided about them."""

from collections.abc import Collection, Iterable
from dataclasses import fields
from typing import Any, Final, Literal

from sqlalchemy import JSON, BigInteger, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.devices import SERVER, Device, DeviceState, host_of
from unifiednn_core.store.database import Database, Repository
from unifiednn_core.store.schema import Base

READY: Final = "ready"
DRAINING: Final = "draining"
AWAY: Final = "away"
SEEN_AGAIN_S = 10.0
FRESH_S = 3 * SEEN_AGAIN_S
"""A device that was seen so lately is there, even if this process may not use it."""
GONE_S = 600.0
"""Seconds after which a device that is away is not known any more."""
_FACTS = tuple(one.name for one in fields(Device))


class DeviceRow(Base):
    """A device: facts of its machine, and its state and limit."""

    __tablename__ = "devices"
    name: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[Literal["cpu", "cuda"]]
    host: Mapped[str]
    index: Mapped[int]
    uuid: Mapped[str | None]
    kind: Mapped[str]
    total_bytes: Mapped[int | None] = mapped_column(BigInteger)
    threads: Mapped[int]
    cpus: Mapped[list[int]] = mapped_column(JSON)
    driver: Mapped[str | None]
    limit_bytes: Mapped[int | None] = mapped_column(BigInteger)
    """Most memory that may be used there, as an operator set it; None is all."""
    state: Mapped[DeviceState] = mapped_column(default=READY)
    """Nothing new is placed on a device that drains, and what trains there leaves it. One that is away is gone."""
    seen_at_s: Mapped[float]
    """When it was last seen, to within `SEEN_AGAIN_S`."""

    @property
    def device(self) -> Device:
        """Its facts."""
        return Device(**{**{name: getattr(self, name) for name in _FACTS}, "cpus": tuple(self.cpus)})


class Devices(Repository):
    """Reads and writes devices."""

    def __init__(self, database: Database):
        super().__init__(database)
        self._seen: set[str] = set()
        """Devices that this process has written."""

    def write(self, devices: Iterable[Device], host: str = SERVER) -> None:
        """Record the devices that a host has now.

        Others become `away`, and `ready` when they return. A person's limit stays, and so does `draining`. What another
        process sees stays, too: a command may have other settings than the server. The first one divides the CPU.
        """
        there = {one.name: one for one in devices}
        self._seen |= set(there)
        rows, now_s = self._all_now()
        known = {row.name: row for row in rows if host_of(row.name) == host}
        foreign = {name for name, row in known.items() if name not in self._seen and _is_fresh(row, now_s)}
        if any(known[name].type == "cpu" for name in foreign):
            there = {name: one for name, one in there.items() if one.type != "cpu"}
        gone = [name for name, row in known.items() if name not in {*there, *foreign} and row.state == READY]
        news = [one for one in there.values() if one.name not in known or _is_news(one, known[one.name], now_s)]
        if not (gone or news):
            return
        with self._database.write() as session:
            for one in news:
                row = session.get(DeviceRow, one.name) or DeviceRow(name=one.name, state=READY)
                row.assign({**_columns(one), "seen_at_s": now_s})
                row.state = READY if row.state == AWAY else row.state
                session.add(row)
            for name in gone:
                row = _row(session, name)
                row.state = AWAY if row.state == READY else row.state

    def all(self) -> list[DeviceRow]:
        """All devices, also those that are away: GPUs first, by index."""
        return self._all_now()[0]

    def of_others(self) -> list[Device]:
        """The devices of other hosts than the server's that are known."""
        rows, now_s = self._all_now()
        return [row.device for row in rows if is_known(row, now_s) and host_of(row.name) != SERVER]

    def keep(self, hosts: Collection[str]) -> None:
        """Let devices of these hosts that are away be known for another while: they may return when asked for."""
        with self._database.write() as session:
            for row in session.scalars(select(DeviceRow).where(DeviceRow.state == AWAY)):
                if host_of(row.name) in hosts:
                    row.seen_at_s = self._database.now_s(session)

    def _all_now(self) -> tuple[list[DeviceRow], float]:
        with self._database.read() as session:
            asked = select(DeviceRow).order_by(DeviceRow.type.desc(), DeviceRow.index, DeviceRow.name)
            return list(session.scalars(asked)), self._database.now_s(session)

    def are_watched(self) -> bool:
        """Whether some process has looked at the server's machine lately."""
        rows, now_s = self._all_now()
        return any(_is_fresh(row, now_s) for row in rows if host_of(row.name) == SERVER)

    def cpus_of(self, name: str | None) -> list[int]:
        """Numbers of the cores of a device; none for all of them, and for an unknown device."""
        row = None if name is None else self._get(DeviceRow, name)
        return [] if row is None else row.cpus

    def drain(self) -> bool:
        """Whether an operator drains one."""
        return self._value(select(DeviceRow.name).where(DeviceRow.state == DRAINING).limit(1)) is not None

    def set_state(self, name: str, state: DeviceState) -> None:
        """Set the state of a device; raises `NotFound`."""
        with self._database.write() as session:
            _row(session, name).state = state

    def set_limit(self, name: str, limit_bytes: int | None) -> None:
        """Limit the memory that may be used on a device, or lift the limit with None; raises `NotFound`."""
        with self._database.write() as session:
            _row(session, name).limit_bytes = limit_bytes


def is_known(row: DeviceRow, now_s: float) -> bool:
    """Whether a device counts for what `auto` means, and may be asked for: it is there, or was lately."""
    return row.state != AWAY or now_s - row.seen_at_s < GONE_S


def _columns(device: Device) -> dict[str, Any]:
    return {**{name: getattr(device, name) for name in _FACTS}, "cpus": list(device.cpus)}


def _is_fresh(row: DeviceRow, now_s: float) -> bool:
    return row.state != AWAY and now_s - row.seen_at_s < FRESH_S


def _is_news(device: Device, row: DeviceRow, now_s: float) -> bool:
    return row.device != device or row.state == AWAY or abs(now_s - row.seen_at_s) >= SEEN_AGAIN_S


def _row(session: Session, name: str) -> DeviceRow:
    row = session.get(DeviceRow, name)
    if row is None:
        known = ", ".join(session.scalars(select(DeviceRow.name).order_by(DeviceRow.name))) or "none"
        raise NotFound(f"There is no device '{name}'. Known devices: {known}.")
    return row
