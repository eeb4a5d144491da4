"""The lease of the host that a supervisor serves: while it is renewed, nobody else offers or judges its devices."""

import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from platform import node, python_version

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime.launchers import is_alive, own_identity
from unifiednn_core.spec.devices import SERVER
from unifiednn_core.store import Store, leases
from unifiednn_core.store.devices import AWAY, SEEN_AGAIN_S
from unifiednn_core.store.hosts import HostRow, machine_of
from unifiednn_core.store.workers import WorkerIdentity

VERSIONS = ("unifiednn", "torch", "numpy", "safetensors")
ASK_AGAIN_S = 0.5


def versions() -> dict[str, str]:
    """What decides about bits, besides the kind of a device."""
    return {"python": python_version(), **{name: version(name) for name in VERSIONS}}


class HostLease:
    """The lease of one host. `enter` takes it, `keep` renews it; a lone host on SQLite does so less often."""

    def __init__(self, store: Store, clock: Clock, host: str):
        self._store, self._clock, self.host = store, clock, host
        self._renewed_s: float | None = None
        self.stands = False
        """Whether this process serves the host."""
        self.others: tuple[HostRow, ...] = ()
        """Other hosts that are there, as of the last renewal."""
        self.parks = False
        """Whether the host gives its devices back."""

    def enter(self, sleep: Callable[[float], object] = time.sleep) -> None:
        """Begin to serve the host. Waits out the lease of one that ended; raises `BadInput` if that renews it."""
        seen: dict[str, float] = {}
        while (blocking := self._enter()) is not None:
            renews = blocking.renewed_at_s > seen.setdefault(blocking.name, blocking.renewed_at_s)
            if renews or self._runs_here(blocking):
                raise self._refusal(blocking)
            sleep(ASK_AGAIN_S)

    def keep(self, free_bytes: Callable[[], Mapping[str, int | None]]) -> bool:
        """Renew the lease if that is due, or take it; returns whether that was due. `stands` says how it went."""
        period_s, now_s = leases.RENEW_S if self._has_company else SEEN_AGAIN_S, self._clock.monotonic_s()
        if self._renewed_s is not None and now_s - self._renewed_s < period_s:
            return False
        free = free_bytes() if self.others else {}
        if not (self.stands and self._store.hosts.renew(self._row(), free, parks=self.parks)):
            self.stands = self._enter() is None
        self.others = tuple(row for row in self._store.hosts.all() if row.name != self.host and row.state != AWAY)
        self._renewed_s = now_s
        return True

    def park(self) -> None:
        """Give the devices of the host back, from the next renewal on, which is due now."""
        self.parks, self._renewed_s = True, None

    @property
    def speaks(self) -> bool:
        """Whether this host writes what runs wait for: one does, so that texts do not change all the time."""
        return all((self.host != SERVER, self.host) < (row.name != SERVER, row.name) for row in self.others)

    @property
    def _has_company(self) -> bool:
        return bool(self.others) or self.host != SERVER

    def _enter(self) -> HostRow | None:
        known = next((row for row in self._store.hosts.all() if row.name == self.host), None)
        ended = None if known is None or self._runs_here(known) else (known.agent_pid, known.agent_started_at_s)
        blocking = self._store.hosts.enter(self._row(), over=ended, parks=self.parks)
        self.stands = blocking is None
        return blocking

    def _row(self) -> HostRow:
        me = own_identity()
        return HostRow(
            name=self.host,
            machine=node(),
            boot_id=me.boot_id,
            agent_pid=me.pid,
            agent_started_at_s=me.started_at_s,
            facts=versions(),
        )

    def _runs_here(self, row: HostRow) -> bool:
        """Whether the agent of a host is a process of this machine that lives."""
        return is_alive(WorkerIdentity(row.agent_pid, row.agent_started_at_s, row.boot_id))

    def _refusal(self, blocking: HostRow) -> BadInput:
        if machine_of(blocking.boot_id) != machine_of(own_identity().boot_id):
            message = f"SQLite serves one machine, and {blocking.machine} uses this database now."
            remedy = "Use a home of this machine (UNIFIEDNN_HOME)."
            return BadInput.of("Another machine", "home", message, remedy)
        message = f"The process {blocking.agent_pid} of {blocking.machine} is the agent of '{self.host}' already."
        return BadInput.of("Host", "host", message, "Give this one another name with --host, or end the other one.")
