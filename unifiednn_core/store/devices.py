"""The devices of all hosts, as the supervisor and the driver saw them, and what an operator decided about them."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import JSON, Float, cast, delete, func, select
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
LISTED_S = 86_400.0
"""What a cluster has not offered for so long is not listed any more."""
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
    total_bytes: Mapped[int | None]
    free_bytes: Mapped[int | None]
    """Free memory of a device of a node; None for the server's own, which is read when it is needed."""
    threads: Mapped[int]
    cpus: Mapped[list[int]] = mapped_column(JSON)
    limit_bytes: Mapped[int | None]
    """Most memory that may be used there, as an operator set it; None is all."""
    state: Mapped[DeviceState] = mapped_column(default=READY)
    """Nothing new is placed on a device that drains, and what trains there leaves it. One that is away is gone, or of a
    node of which nobody has written for `FRESH_S`."""
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

    def write(
        self, devices: Iterable[Device], host: str = SERVER, free_bytes: Mapping[str, int | None] | None = None
    ) -> None:
        """Record the devices that a host has now, those of a node with their free memory, by name.

        Others become `away`, and `ready` when they return. A person's limit stays, and so does `draining`. What another
        process sees stays, too: a command may have other settings than the server. The first one divides the CPU.
        """
        there, free = {one.name: one for one in devices}, free_bytes or {}
        self._seen |= set(there)
        rows, now_s = self._all_now()
        known = {row.name: row for row in rows if host_of(row.name) == host}
        foreign = {name for name, row in known.items() if name not in self._seen and _is_fresh(row, now_s)}
        if any(known[name].type == "cpu" for name in foreign):
            there = {name: one for name, one in there.items() if one.type != "cpu"}
        gone = [name for name, row in known.items() if name not in {*there, *foreign} and row.state == READY]
        news = [
            one for name, one in there.items() if name not in known or _is_news(one, free.get(name), known[name], now_s)
        ]
        if not (gone or news):
            return
        with self._database.write() as session:
            for one in news:
                row = session.get(DeviceRow, one.name) or DeviceRow(name=one.name, state=READY)
                facts = {name: getattr(one, name) for name in _FACTS}
                row.assign({**facts, "cpus": list(one.cpus), "free_bytes": free.get(one.name), "seen_at_s": now_s})
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

    def _all_now(self) -> tuple[list[DeviceRow], float]:
        asked = select(DeviceRow).order_by(DeviceRow.type.desc(), DeviceRow.index, DeviceRow.name)
        rows, now_s = self._rows(asked), self._clock.utc_s()
        for row in rows:
            if host_of(row.name) != SERVER and not _is_fresh(row, now_s):
                row.state = AWAY  # the row is no part of a session any more
        return rows, now_s

    def are_watched(self) -> bool:
        """Whether a server or another process has written devices lately; a server may have none but those of nodes."""
        rows, now_s = self._all_now()
        return any(_is_fresh(row, now_s) for row in rows)

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


def _is_fresh(row: DeviceRow, now_s: float) -> bool:
    return row.state != AWAY and now_s - row.seen_at_s < FRESH_S


def _is_news(device: Device, free_bytes: int | None, row: DeviceRow, now_s: float) -> bool:
    changed = row.device != device or row.free_bytes != free_bytes
    return changed or row.state == AWAY or abs(now_s - row.seen_at_s) >= SEEN_AGAIN_S


def _row(session: Session, name: str) -> DeviceRow:
    row = session.get(DeviceRow, name)
    if row is None:
        known = ", ".join(session.scalars(select(DeviceRow.name).order_by(DeviceRow.name))) or "none"
        raise NotFound(f"There is no device '{name}'. Known devices: {known}.")
    return row


KEPT_S = 900.0
PRUNED_EVERY_S = 60.0
LEAST_GAP_S = 1.0
"""Another process that samples the same machine skips its turn if one came so lately."""
TOGETHER_S = 20.0
"""Samples of several processes that lie so close are of one moment."""


class DeviceSampleRow(Base):
    """A sample of one device; None is not available."""

    __tablename__ = "device_samples"
    at_s: Mapped[float] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    total_bytes: Mapped[int | None]
    own_bytes: Mapped[int | None]
    """Of hybrids."""
    free_bytes: Mapped[int | None]
    utilisation: Mapped[float | None]
    """0 to 1."""
    temperature_c: Mapped[float | None]
    power_w: Mapped[float | None]
    load: Mapped[float | None]
    others: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    """Processes of others: `pid`, `user`, `name`, `size_bytes`."""


class UsePoint(NamedTuple):
    """Use of a device as a mean over some seconds; None is not available."""

    at_s: float
    utilisation: float | None
    used_share: float | None
    """Of its memory, by everybody, 0 to 1."""


class DeviceSamples(Repository):
    """Writes and reads samples."""

    def __init__(self, database: Database):
        super().__init__(database)
        self._pruned_at_s = 0.0

    def write(self, samples: Iterable[dict[str, Any]]) -> None:
        """Write samples of this moment, as columns, unless another process has just done so; forget the oldest ones."""
        samples = list(samples)
        with self._database.write() as session:
            now_s = self._clock.utc_s()
            same = DeviceSampleRow.device.in_([columns["device"] for columns in samples])
            newest_s = session.scalar(select(func.max(DeviceSampleRow.at_s)).where(same))
            if newest_s is not None and abs(now_s - newest_s) < LEAST_GAP_S:
                return
            session.add_all(DeviceSampleRow(at_s=now_s, **columns) for columns in samples)
            if abs(now_s - self._pruned_at_s) >= PRUNED_EVERY_S:
                self._pruned_at_s = now_s
                old = (DeviceSampleRow.at_s < now_s - KEPT_S) | (DeviceSampleRow.at_s > now_s + KEPT_S)
                session.execute(delete(DeviceSampleRow).where(old))

    def newest(self) -> dict[str, DeviceSampleRow]:
        """The last sample, by device."""
        last = select(func.max(DeviceSampleRow.at_s)).scalar_subquery()
        asked = select(DeviceSampleRow).where(DeviceSampleRow.at_s >= last - TOGETHER_S)
        return {row.device: row for row in self._rows(asked.order_by(DeviceSampleRow.at_s))}

    def over_time(self, last_s: float, every_s: float) -> dict[str, list[UsePoint]]:
        """Means over every so many seconds, of the last ones, oldest first, by device."""
        row, since_s = DeviceSampleRow, self._clock.utc_s() - last_s
        bin_ = row.at_s // every_s
        used = 1.0 - cast(row.free_bytes, Float) / row.total_bytes
        asked = select(row.device, func.avg(row.at_s), func.avg(row.utilisation), func.avg(used))
        asked = asked.where(row.at_s.between(since_s, since_s + last_s)).group_by(row.device, bin_).order_by(bin_)
        found: dict[str, list[UsePoint]] = {}
        for device, *values in self._all(asked):
            found.setdefault(device, []).append(UsePoint(*values))
        return found
