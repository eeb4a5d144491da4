"""Samples of the devices of the machine: the last quarter of an hour, and no more."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Float, cast, delete, func, select
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.store.database import Database, Repository
from unifiednn_core.store.schema import Base

KEPT_S = 900.0
PRUNED_EVERY_S = 60.0
LEAST_GAP_S = 1.0
"""Another process that samples the same machine skips its turn if one came so lately."""
TOGETHER_S = 20.0
"""Samples of several hosts that lie so close are of one moment."""


class DeviceSampleRow(Base):
    """A sample of one device; None is not available."""

    __tablename__ = "device_samples"
    at_s: Mapped[float] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    total_bytes: Mapped[int | None] = mapped_column(BigInteger)
    own_bytes: Mapped[int | None] = mapped_column(BigInteger)
    """Of hybrids."""
    free_bytes: Mapped[int | None] = mapped_column(BigInteger)
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
            now_s = self._database.now_s(session)
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
        asked = select(DeviceSampleRow).where(DeviceSampleRow.at_s >= last - TOGETHER_S)  # each host has its own turn
        return {row.device: row for row in self._rows(asked.order_by(DeviceSampleRow.at_s))}

    def over_time(self, last_s: float, every_s: float) -> dict[str, list[UsePoint]]:
        """Means over every so many seconds, of the last ones, oldest first, by device."""
        row, since_s = DeviceSampleRow, self._clock.utc_s() - last_s
        bin_ = row.at_s // every_s
        used = 1.0 - cast(row.free_bytes, Float) / row.total_bytes
        asked = select(row.device, func.avg(row.at_s), func.avg(row.utilisation), func.avg(used))
        asked = asked.where(row.at_s.between(since_s, since_s + last_s)).group_by(row.device, bin_).order_by(bin_)
        found: dict[str, list[UsePoint]] = {}
        with self._database.read() as session:
            for device, *values in session.execute(asked):
                found.setdefault(device, []).append(UsePoint(*values))
        return found
