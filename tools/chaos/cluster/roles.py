"""What processes of the drill on a cluster do: an agent of a host, and somebody who opens all pages."""

import json
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from tools.chaos.pool_roles import REFUSED
from tools.chaos.rows import rows
from tools.chaos.scene import Scene
from tools.chaos.serving import LIMITS, ForkLauncher, open_service
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.machine.devices import Device, devices_of_host
from unifiednn_core.runtime.agent import Agent
from unifiednn_core.runtime.carrier import Carrier
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.store import Store, depot, leases, postgresql, workers
from unifiednn_core.store.database import Fence
from unifiednn_core.store.schema import SubModelRow

LEASE_SETTING, WITHOUT_SETTING = "UNIFIEDNN_CHAOS_LEASE", "UNIFIEDNN_CHAOS_WITHOUT"
ENDED = 0
LINGERS_S = 1.0
NO_DEVICES = "no-devices"
"""File in the folder of a host that has lost its devices."""


def settle() -> None:
    """Let this process go by the lease of the drill, and by its defences, if it belongs to a cluster."""
    lease: Mapping[str, float] = json.loads(os.environ.get(LEASE_SETTING) or "{}")
    for name, value_s in lease.items():
        setattr(leases, name.upper(), value_s)
    for name in os.environ.get(WITHOUT_SETTING, "").split():
        _SWITCHED_OFF[name]()


def _without_fence() -> None:
    setattr(Fence, "require", lambda fence, session: None)  # noqa: B010  (a plain assignment is no typed one)


def _without_scopes() -> None:
    setattr(postgresql, "_key", lambda scope: secrets.randbits(62))  # noqa: B010  (locks that nobody shares)


def _without_haste() -> None:
    """Not a defence: whoever has seen what waits lingers before taking it, so that two who may overlap do."""
    as_always = workers._unplaced

    def unplaced(session: Session, members: Sequence[tuple[str, str]]) -> list[SubModelRow]:
        found = as_always(session, members)
        time.sleep(LINGERS_S)
        return found

    setattr(workers, "_unplaced", unplaced)  # noqa: B010


def _without_lease() -> None:
    setattr(leases, "STOPS_S", math.inf)  # noqa: B010


_SWITCHED_OFF: Mapping[str, Callable[[], None]] = {
    "fence": _without_fence,
    "lease": _without_lease,
    "scopes": _without_scopes,
    "haste": _without_haste,
}
"""What a control does without, to show that their absence is noticed."""


def serve_host(scene: Scene, socket_path: Path) -> int:
    """Be the agent of a host until SIGTERM; then give its devices back."""
    told, clock = threading.Event(), RealClock()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    home = scene.home.create()
    try:
        store = Store(scene.url, clock)
        launcher = ForkLauncher(scene, socket_path)
        supervisor = Supervisor(
            store, launcher, clock, limits=LIMITS, host=scene.host, devices=lambda: _devices_of(scene)
        )
        carrier = Carrier(home, store, clock, host=scene.host)
        carrier.start()
        return Agent(store, supervisor, clock).run(told)
    except UnifiedNNError as error:  # no store to be had now; who keeps services up starts it again
        print(error, flush=True)  # noqa: T201
        return REFUSED


def _devices_of(scene: Scene) -> Sequence[Device]:
    """Those of this machine, unless a test has taken them away."""
    return () if (scene.place / NO_DEVICES).exists() else devices_of_host()


def share_files(scene: Scene) -> int:
    """Let the hosts share what is in the home of the server's machine, as a server does at its start."""
    store = Store(scene.url, RealClock())
    depot.settle(scene.home, store.blobs, store.people)
    store.depot(scene.home).keep_what_is_here()
    return ENDED


def read_pages(scene: Scene) -> int:
    """Ask for all that pages show of all runs, hybrids and devices."""
    service = open_service(scene, LocalLauncher(scene.home))
    for run in service.runs.runs():
        service.runs.observe(run.run_id)
        service.runs.document(run.run_id)
        service.runs.metrics_csv(run.run_id)
        service.runs.spec_document(run.run_id)
    service.queue.line()
    service.queue.ends()
    service.queue.hybrids()
    for (hybrid_id,) in rows(scene.url, "SELECT id FROM hybrids WHERE attempt > 0"):
        service.queue.hybrid(hybrid_id)
    service.devices.cards()
    service.runs.trained()
    service.health()
    return ENDED
