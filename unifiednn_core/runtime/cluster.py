"""The server's side of a Ray cluster: it starts the driver, watches it, and starts it again. Imports nothing of Ray."""

import importlib.util
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.runtime.background import Background
from unifiednn_core.store import Store
from unifiednn_core.store.nodes import CLUSTER, NodeRow

OPTION = "--ray"
LOCAL = "local"
"""Address of a Ray on this machine alone, which offers its devices in place of the server."""
LOOK_S = 0.5
AGAIN_S = 5.0
LOG_BYTES = 1 << 20
SILENT_S = 60.0
"""A driver that has written nothing for so long is started again, and its nodes count as gone."""
_DRIVER = "unifiednn_core.runtime.driver"
_log = logging.getLogger(__name__)


def ray_address(given: str) -> str:
    """The address of a cluster: `auto`, `local` or HOST:PORT. Raises `BadInput`."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput.of("Ray", "ray", "Ray is not installed.", "Install it: pip install 'unifiednn[ray]'")
    if (os.environ.get("RAY_ADDRESS", "") if given == "auto" else given).startswith("ray://"):
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
            driver = None
            try:
                driver, begun_s = self._started(), time.monotonic()
                while driver.poll() is None and not self._stop.wait(LOOK_S):
                    if self._is_silent() and time.monotonic() - begun_s > SILENT_S:
                        break
            except Exception:  # a full disk or a locked store must not end the watch
                log_error(_log, "The driver of the Ray cluster could not be watched; it is started again.")
            if driver is not None:
                driver.kill()
                driver.wait()
            self._stop.wait(AGAIN_S)

    def _started(self) -> "subprocess.Popen[bytes]":
        path = self._home.root / "driver.log"
        grown = path.exists() and path.stat().st_size > LOG_BYTES
        with path.open("wb" if grown else "ab") as log:
            command = [sys.executable, "-m", _DRIVER, str(self._home.root), self._address, str(os.getpid())]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            if self._address != "auto":  # Ray would prefer the variable
                environment.pop("RAY_ADDRESS", None)
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def _is_silent(self) -> bool:
        """Whether the driver has written nothing for a while; then it is recorded that no node can be reached."""
        rows, now_s = self._store.nodes.all(), self._clock.utc_s()
        seen_at_s = max((row.seen_at_s for row in rows if row.name == CLUSTER), default=0.0)
        if now_s - max(seen_at_s, self._begun_at_s) <= SILENT_S:
            return False
        rows = rows if seen_at_s else [NodeRow(name=CLUSTER, state="ready", facts={}, seen_at_s=0.0)]
        gone = f"The Ray cluster at {self._address} cannot be reached"
        why = f"{gone}: its head does not answer. driver.log in the home says more."
        news = [row for row in rows if row.state != "away" or row.why != why]
        for row in news:
            row.state, row.why = "away", why
        self._store.nodes.write(news)
        return True
