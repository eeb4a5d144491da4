"""The server's side of a Ray cluster: it starts the driver, watches it, and starts it again. Imports nothing of Ray."""

import importlib.util
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.background import Background
from unifiednn_core.runtime.launchers import training_environment
from unifiednn_core.store import Store
from unifiednn_core.store.nodes import CLUSTER, NodeRow

OPTION = "--ray"
LOCAL = "local"
"""Address of a Ray on this machine alone, which offers its devices in place of the server."""
LOOK_S = 0.5
AGAIN_S = 5.0
SILENT_S = 60.0
"""A driver that has written nothing for so long is started again, and its nodes count as gone."""
_DRIVER = "unifiednn_core.runtime.driver"
_log = logging.getLogger(__name__)


def ray_address(given: str) -> str:
    """The address of a cluster: `auto`, `local` or HOST:PORT. Raises `BadInput`."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput.of("Ray", "ray", "Ray is not installed.", "Install it: pip install 'unifiednn[ray]'")
    if given.startswith("ray://"):
        message = "Ray's client cannot start workers that outlive it."
        raise BadInput.of("Ray", "ray", message, "Join this machine to the cluster: ray start --address=HOST:PORT")
    host, colon, port = given.rpartition(":")
    if given not in ("auto", LOCAL) and not (host and colon and port.isdecimal()):
        raise BadInput.of("Ray", "ray", f"'{given}' is no address.", "Give auto, local or HOST:PORT.")
    return given


def address_in(arguments: Sequence[str]) -> str | None:
    """The address of a cluster among the arguments of the server; None without one."""
    return next((word for option, word in pairwise(arguments) if option == OPTION), None)


class Cluster(Background):
    """Keeps a driver running."""

    name = "cluster"

    def __init__(self, home: Home, store: Store, clock: Clock, address: str):
        """`address` is one of `ray_address`."""
        self._home, self._store, self._clock, self._address = home, store, clock, address
        self._begun_at_s = clock.utc_s()
        super().__init__()

    def _watch(self) -> None:
        # The driver dies with the thread that started it, which is this one.
        while not self._stop.is_set():
            driver, begun_s = self._started(), time.monotonic()
            while driver.poll() is None and not self._stop.wait(LOOK_S):
                if self._is_silent() and time.monotonic() - begun_s > SILENT_S:
                    break
            driver.kill()
            driver.wait()
            self._stop.wait(AGAIN_S)

    def _started(self) -> "subprocess.Popen[bytes]":
        with (self._home.root / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", _DRIVER, str(self._home.root), self._address]
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=training_environment(1)
            )

    def _is_silent(self) -> bool:
        """Whether the driver has written nothing for a while; then it is recorded that no node can be reached."""
        rows, now_s = self._store.nodes.all(), self._clock.utc_s()
        seen_at_s = max((row.seen_at_s for row in rows if row.name == CLUSTER), default=0.0)
        if now_s - max(seen_at_s, self._begun_at_s) <= SILENT_S:
            return False
        rows = rows if seen_at_s else [NodeRow(name=CLUSTER, facts={}, seen_at_s=0.0)]
        for row in rows:
            row.state = "away"
            row.why = f"The Ray cluster at {self._address} cannot be reached: its head does not answer."
        self._store.nodes.write(rows)
        return True
