"""How much the files of a person may take, and what the home folder may hold."""

from dataclasses import dataclass

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import memory_text
from unifiednn_core.machine.disk import DiskUse, disk_use
from unifiednn_core.runtime.housekeeping import retention_in
from unifiednn_core.service.recent import Recent
from unifiednn_core.service.roles import Actor
from unifiednn_core.store import Store
from unifiednn_core.views.library import QuotaView

LOOK_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Room:
    """The room that one person has for files."""

    home: Home
    store: Store
    actor: Actor
    recent: Recent

    def view(self) -> QuotaView:
        """What this person's files take, and the limits, at most a minute ago; anew once a person changed something.

        The home as a whole is told only to operators.
        """
        mine = self.recent.within(LOOK_AGAIN_S, ("owned", self.actor.id), self._owned_bytes)
        quota_bytes = self.store.people.quota_of(self.actor.id)
        if self.actor.sees_only_own:
            return QuotaView(person=self.actor.id, quota_bytes=quota_bytes, **mine)
        use, limit_bytes = self.disk_use(), retention_in(self.store).home_limit_bytes
        return QuotaView(
            person=self.actor.id,
            quota_bytes=quota_bytes,
            **mine,
            home_bytes=use.home,
            home_limit_bytes=limit_bytes,
            free_bytes=use.free,
        )

    def disk_use(self) -> DiskUse:
        """What the home folder takes, at most a minute ago: a look at all files of many runs takes seconds."""
        return self.recent.within(LOOK_AGAIN_S, "disk", lambda: disk_use(self.home))

    def _owned_bytes(self) -> dict[str, int]:
        return self.store.library.owned_bytes(self.actor.id).get(self.actor.id, {})

    def require(self, filename: str, size_bytes: int) -> None:
        """Raise `BadInput` if so many more bytes exceed the quota of this person or the limit of the home folder."""
        quota_bytes = self.store.people.quota_of(self.actor.id)
        if quota_bytes is not None:
            used = sum(self._owned_bytes().values())
            if used + size_bytes > quota_bytes:
                has, limit = memory_text(used), memory_text(quota_bytes)
                message = f"This file has {memory_text(size_bytes)}. Your files take {has} of {limit}."
                remedy = "Delete files or runs that you no longer need, or ask an admin for a larger quota."
                raise BadInput.of("Quota", filename, message, remedy)
        limit_bytes = retention_in(self.store).home_limit_bytes
        if limit_bytes is not None and disk_use(self.home).home + size_bytes > limit_bytes:
            message = "The home folder of this server is full: an admin limited its size."
            raise BadInput.of(
                "Home folder full", filename, message, "Delete what is no longer needed, or ask an admin."
            )
