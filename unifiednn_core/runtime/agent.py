"""An agent: a supervisor on a machine of its own, which offers its devices to the fleet of a database.

It pulls: it opens no port, and nothing needs to reach it. Its workers outlive it, and the next agent of the same name
finds them again. When it is asked to end it parks: what trains there goes on elsewhere.
"""

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine.devices import Device
from unifiednn_core.runtime.host_lease import versions
from unifiednn_core.runtime.launchers import is_alive
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.spec.devices import AUTO, CPU, CUDA, HOST_NAME, SERVER
from unifiednn_core.store import Store
from unifiednn_core.store.hosts import HostRow
from unifiednn_core.store.schema import HybridRow
from unifiednn_core.store.workers import WorkerIdentity

PATIENCE_S, KILLED_S, GIVES_UP_S = 30.0, 52.0, 58.0
"""After a request to end: when workers that have not left are told to save and end, and when they are killed."""
LOOK_S = 0.2
DONE, TAKEN = 0, 1
_log = logging.getLogger(__name__)


def host_named(given: str) -> str:
    """Name of a host as devices carry it. Raises `BadInput`."""
    name = re.sub(r"[^a-z0-9._-]+", "-", given.strip().lower()).strip("-._")[:64]
    if not HOST_NAME.fullmatch(name) or name in (SERVER, AUTO, CPU, CUDA):
        message, remedy = (
            f"'{given}' cannot be the name of a host.",
            "Give letters, digits, dots and dashes: --host gpu-1",
        )
        raise BadInput.of("Host", "host", message, remedy)
    return name


def differences(own: Mapping[str, str], servers: Mapping[str, str]) -> tuple[str, ...]:
    """Versions of a host that are not the server's, as sentences. Bits may depend on them."""
    return tuple(
        f"{name} is {own.get(name, 'missing')}, and {servers[name]} on the server."
        for name in sorted(servers)
        if own.get(name) != servers[name]
    )


def warnings_of(hosts: Sequence[HostRow]) -> tuple[str, ...]:
    """What differs here from the server, as far as that has written it down."""
    return next((differences(versions(), row.facts) for row in hosts if row.name == SERVER), ())


@dataclass(slots=True)
class Agent:
    """Supervises a host until it is asked to end, or has been idle for long enough."""

    store: Store
    supervisor: Supervisor
    clock: Clock
    until_idle_s: float | None = None

    def run(self, asked: threading.Event) -> int:
        """Serve the host until `asked`, then park; returns the exit code. Raises `BadInput` if it may not."""
        self.supervisor.start()
        try:
            taken = not self._serve(asked)
            if not taken:
                self.park()
        finally:
            self.supervisor.stop()
        return TAKEN if taken else DONE

    def park(self) -> None:
        """Give all devices back, within a minute."""
        self.supervisor.park()
        begun_s = self.clock.monotonic_s()
        told: set[WorkerIdentity] = set()
        known: list[HybridRow] = []
        while (passed_s := self.clock.monotonic_s() - begun_s) < GIVES_UP_S and (held := self._held()) != []:
            known = known if held is None else held  # while the database is away: what it said last
            for worker in filter(None, map(_worker, known)):
                if passed_s > KILLED_S:
                    _send(worker, signal.SIGKILL)
                elif passed_s > PATIENCE_S and worker not in told:
                    told.add(worker)
                    _send(worker, signal.SIGTERM)
            time.sleep(LOOK_S)
        self.supervisor.stop()  # first: a tick would enter the host again, or write its devices as ready
        with suppress(OperationalError):
            self.store.hosts.leave(self.supervisor.lease.host)

    def _held(self) -> list[HybridRow] | None:
        """Hybrids that hold a device here; None while the database does not answer."""
        try:
            return self.supervisor.held()
        except OperationalError:
            return None

    def _serve(self, asked: threading.Event) -> bool:
        """Wait until it is time to end; False if another agent has taken over."""
        idle_since_s = self.clock.monotonic_s()
        while not asked.wait(LOOK_S):
            if not self.supervisor.lease.stands:
                _log.error("Another agent serves the host %s now; this one ends.", self.supervisor.lease.host)
                return False
            if self.until_idle_s is None:
                continue
            if self._held() != []:
                idle_since_s = self.clock.monotonic_s()
            elif self.clock.monotonic_s() - idle_since_s >= self.until_idle_s:
                break
        return True


def _worker(hybrid: HybridRow) -> WorkerIdentity | None:
    if hybrid.worker_pid is None:
        return None
    return WorkerIdentity(hybrid.worker_pid, hybrid.worker_started_at_s or 0.0, hybrid.worker_boot_id or "")


def _send(worker: WorkerIdentity, number: int) -> None:
    if is_alive(worker):
        with suppress(ProcessLookupError):
            os.kill(worker.pid, number)


def offered(devices: Callable[[], Sequence[Device]]) -> None:
    """Raise `BadInput` if a machine has nothing to offer."""
    if not devices():
        message = "This machine has none of the devices that it should offer."
        raise BadInput.of("Devices", "devices", message, "Name some that it has, such as --devices cuda:0,cuda:1")
