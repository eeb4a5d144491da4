"""What the server deletes by itself, and what its disk holds. For admins."""

import json

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.machine.disk import DiskUse
from unifiednn_core.runtime import housekeeping
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.quotas import Room
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.retention import Due, Retention
from unifiednn_core.store import Store
from unifiednn_core.views.library import QuotaView


class RetentionService:
    """Reads and sets the retention, and shows what is on the disk."""

    def __init__(self, guard: Guard, home: Home, store: Store, clock: Clock, room: Room):
        self.guard, self._room = guard, room
        self._home, self._store, self._clock = home, store, clock

    @permission(Role.ADMIN, audited=False)
    def retention(self) -> Retention:
        """How long ended runs stay; everything, by default."""
        return housekeeping.retention_in(self._store)

    @permission(Role.ADMIN, about="{retention}")
    def set_retention(self, retention: Retention) -> None:
        """Set how long ended runs stay; applied once an hour."""
        value = json.dumps(retention.model_dump(exclude_none=True))
        self._store.people.set_setting(housekeeping.SETTING, value, self.guard.actor.label)

    @permission(Role.ADMIN, audited=False)
    def planned(self, retention: Retention | None = None) -> tuple[Due, ...]:
        """What the next pass would delete, by default under the current settings. Nothing is deleted."""
        return housekeeping.planned(self._home, self._store, self._clock, retention or self.retention())

    @permission(Role.ADMIN)
    def apply_retention(self) -> tuple[Due, ...]:
        """Delete now what is due; returns it."""
        return housekeeping.apply(self._home, self._store, self._clock)

    @permission(Role.ADMIN, audited=False)
    def disk_use(self) -> DiskUse:
        """What the home folder takes, by kind."""
        return self._room.disk_use()

    @permission(Role.ADMIN, audited=False)
    def owned(self) -> tuple[QuotaView, ...]:
        """What the files of each person take, the largest first."""
        people = self._store.people
        found = [
            QuotaView(person=person, **sizes, quota_bytes=people.quota_of(person))
            for person, sizes in self._store.library.owned_bytes().items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.used_bytes, one.person)))
