"""Monitoring: figures for a time series database, and the health of the server."""

import shutil

from sqlalchemy.exc import DatabaseError

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import Forbidden
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight import client
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.devices import FRESH_S
from unifiednn_core.service.doctor import Check, examined
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import Role
from unifiednn_core.service.uploads import SPARE_BYTES
from unifiednn_core.store import Store
from unifiednn_core.store.database import trouble
from unifiednn_core.store.devices import READY
from unifiednn_core.views.monitoring import DeviceFigures, Figures, Health, HealthPart
from unifiednn_core.views.people import view_of

SILENT_S = 60.0
"""A supervisor that has not looked at the store for this long is stuck."""
RESTART = "Restart the dashboard: unifiednn app"


class MonitoringService:
    """Reads figures and health."""

    def __init__(self, guard: Guard, home: Home, store: Store, clock: Clock, supervisor: Supervisor):
        self.guard, self._home, self._store, self._clock, self._supervisor = guard, home, store, clock, supervisor

    @permission(Role.VIEWER, audited=False)
    def figures(self) -> Figures:
        """The server in figures; raises `Forbidden` for a submitter, who sees nothing of others."""
        self._require_whole()
        counts, now_s = self._store.monitoring.counts(), self._clock.utc_s()
        disk = shutil.disk_usage(self._home.root)
        since_s = counts.waiting_since_s
        return view_of(
            Figures,
            counts,
            queue_length=counts.runs.get("queued", 0),
            oldest_wait_s=0.0 if since_s is None else max(0.0, now_s - since_s),
            devices=self._devices(now_s),
            disk_total_bytes=disk.total,
            disk_free_bytes=disk.free,
            supervisor_alive=self._supervisor.alive,
        )

    @permission(Role.VIEWER, audited=False)
    def require_figures(self) -> None:
        """Raise `Forbidden` for a person who may not see the figures."""
        self._require_whole()

    @permission(Role.ADMIN, audited=False)
    def health(self) -> Health:
        """Health of the parts of the server."""
        return health_of(self._home, self._store, self._supervisor)

    @permission(Role.ADMIN, audited=False)
    def doctor(self) -> tuple[Check, ...]:
        """What this machine offers and lacks for training, and what keeps people and networks apart on it."""
        return examined(self._home)

    def _require_whole(self) -> None:
        if self.guard.actor.sees_only_own:
            raise Forbidden("Figures of the whole server are not for submitters. Ask an admin for a token of a viewer.")

    def _devices(self, now_s: float) -> tuple[DeviceFigures, ...]:
        newest, found = self._store.device_samples.newest(), []
        for row in self._store.devices.all():
            seen, ready = newest.get(row.name), row.state == READY
            if seen is None or now_s - seen.at_s > FRESH_S:
                found.append(DeviceFigures(device=row.name, ready=ready, total_bytes=row.total_bytes))
                continue
            sizes = (seen.total_bytes, seen.free_bytes, seen.own_bytes)
            others = None if None in sizes else max(0, (sizes[0] or 0) - (sizes[1] or 0) - (sizes[2] or 0))
            found.append(view_of(DeviceFigures, seen, ready=ready, others_bytes=others))
        return tuple(found)


def health_of(home: Home, store: Store, supervisor: Supervisor) -> Health:
    """Health of the parts of a server, for everybody: it tells no more than that they work."""
    parts = (_store(store, supervisor), _supervisor(supervisor), _intake(), _disk(home))
    return Health(ok=all(part.ok for part in parts if part.vital), parts=parts)


def _store(store: Store, supervisor: Supervisor) -> HealthPart:
    try:
        store.monitoring.answers()
        error, verb = supervisor.trouble, "written"
    except DatabaseError as found:
        error, verb = found, "read"
    if isinstance(error, DatabaseError):
        said, remedy = trouble(error)
        text = f"The store cannot be {verb}: {said}."
        return HealthPart(name="store", ok=False, vital=True, text=text, remedy=remedy)
    return HealthPart(name="store", ok=True, vital=True, text="The store answers.")


def _supervisor(supervisor: Supervisor) -> HealthPart:
    text, remedy = "The supervisor starts what waits.", ""
    if not supervisor.alive:
        text, remedy = "The supervisor does not run, so no run can start.", RESTART
    elif supervisor.silent_s > SILENT_S:
        text, remedy = f"The supervisor has not looked at the store for {supervisor.silent_s:.0f} s.", RESTART
    return HealthPart(name="supervisor", ok=not remedy, vital=True, text=text, remedy=remedy)


def _intake() -> HealthPart:
    if client.template.pid is None:
        text, remedy = "The process that reads files does not run.", "It starts with the next file, which then waits."
        return HealthPart(name="intake", ok=False, vital=False, text=text, remedy=remedy)
    return HealthPart(name="intake", ok=True, vital=False, text="The process that reads files is loaded.")


def _disk(home: Home) -> HealthPart:
    free = shutil.disk_usage(home.root).free
    text = f"{memory_text(free)} are free for the home folder."
    ok = free > SPARE_BYTES
    remedy = "" if ok else "Delete files of the library, or move the home to a larger disk."
    return HealthPart(name="disk", ok=ok, vital=True, text=text, remedy=remedy)
