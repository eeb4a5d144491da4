"""The background thread of a server: starts queued runs, one for each device, and notices workers that died.

Several supervisors may watch one store (a server and a command line, say): claims are atomic, and whoever sees a
death first records it.
"""

import logging
import os
import threading

from unifiednn_core.clock import Clock
from unifiednn_core.runtime.launchers import Launcher
from unifiednn_core.runtime.liveness import alive
from unifiednn_core.store import Store
from unifiednn_core.store.runs import WorkerIdentity
from unifiednn_core.store.schema import RunRow

TICK_S = 0.5
REGISTRATION_PATIENCE_S = 120.0  # loading torch from a cold disk takes tens of seconds

_log = logging.getLogger(__name__)


class Supervisor:
    """Watches a store. `start` begins the thread, `tick` is one look."""

    def __init__(self, store: Store, launcher: Launcher, clock: Clock):
        self._store, self._launcher, self._clock = store, launcher, clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch; safe to call again."""
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching. Workers go on."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._launcher.close()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def tick(self) -> None:
        """Record the dead, settle what needs no worker, then start what can start."""
        for run in self._store.runs.held():
            cause = self._death_of(run)
            if cause is not None:
                self._store.runs.lose(run.id, cause, "Submit it again; what was separated before can be downloaded.")
        self._store.commands.settle_unclaimed()
        for device in self._store.runs.waited_for():
            run_id = self._store.runs.claim_next(device)
            if run_id is not None:
                run, _ = self._store.runs.get(run_id)
                try:
                    self._launcher.start(run_id, run.threads or 1)
                except OSError as error:  # no room for the log, no process to be had
                    cause = f"The worker could not be started: {error.strerror or error}."
                    self._store.runs.lose(run_id, cause, "Correct that on this machine, then submit it again.")

    def _watch(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self.tick()
            except Exception:  # a full disk or a locked store must not end the watch
                _log.exception("The supervisor could not look at the store; it tries again.")

    def _death_of(self, run: RunRow) -> str | None:
        """Say how the worker of a run died; None while it lives or may still come up."""
        log = f"Its log is runs/{run.id}/worker.log in the home folder."
        if run.worker_pid is not None:
            worker = WorkerIdentity(run.worker_pid, run.worker_started_at_s or 0.0, run.worker_boot_id or "")
            return None if alive(worker) else f"The worker process {run.worker_pid} died. {log}"
        code = self._launcher.exit_code(run.id)
        if code is not None:
            return f"The worker ended with exit code {code} before it could register. {log}"
        if self._clock.utc_s() - (run.heartbeat_at_s or run.created_at_s) > REGISTRATION_PATIENCE_S:
            return f"The worker did not register within {REGISTRATION_PATIENCE_S:.0f} s. {log}"
        return None


def default_threads() -> int:
    """All cores but one, which the dashboard and the telemetry need."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)
