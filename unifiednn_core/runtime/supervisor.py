"""The background thread of a server: starts queued runs, one per device, and records dead workers.

Several supervisors may watch one store (a server and a command line, say): claims are atomic, and the first one to see
a death records it.
"""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

import psutil

from unifiednn_core.base.clock import Clock
from unifiednn_core.machine.budget import Budget, budget_of
from unifiednn_core.runtime.admission import lacks_permission, waits_for
from unifiednn_core.runtime.launchers import Launcher, boot_id, identity_of, is_alive, own_identity
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.workers import RESTARTS, RestartLimits, WorkerIdentity

TICK_S = 0.5
REGISTRATION_PATIENCE_S = 120.0  # loading torch from a cold disk takes tens of seconds
NOTE_AGAIN_S = 5.0  # free memory changes all the time; what a run waits for is written down no more often than this

_log = logging.getLogger(__name__)


class Supervisor:
    """Watches a store. `start` begins the thread, `tick` is one look."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        clock: Clock,
        *,
        limits: RestartLimits = RESTARTS,
        budget: Callable[[str], Budget] = budget_of,
    ):
        """`budget` reads the memory of a device now."""
        self._store, self._launcher, self._clock, self._limits = store, launcher, clock, limits
        self._budget = budget
        self._noted_at_s: dict[str, float] = {}
        """When the reason of a waiting run was last written."""
        self._coming_up: dict[tuple[str, float | None], float] = {}
        """Monotonic time at which each claim was first seen without a worker."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching the store; idempotent."""
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching. Workers continue."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._launcher.close()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def tick(self) -> None:
        """Record dead workers (the store queues a run again that recovers), settle commands, start what can start."""
        held = self._store.workers.held()
        claims = {_claim_of(run) for run in held}
        self._coming_up = {claim: seen_s for claim, seen_s in self._coming_up.items() if claim in claims}
        for run in held:
            death = self._death_of(run)
            if death is not None:
                self._lose(run, death, "Resume it: it continues from its last checkpoints.")
        self._store.commands.settle_unclaimed()
        for device in self._store.workers.waited_for():
            first = self._startable(device)
            if first is not None and self._store.workers.claim_next(device, own_identity(), only=first.id) is not None:
                self._launch(first)

    def _startable(self, device: str) -> RunRow | None:
        """The first in line for a device, if there is room. No smaller run overtakes it, or it could starve."""
        first = self._permitted(device)
        if first is None:
            return None
        run, rows = first
        lacking = waits_for(run, rows, self._budget(device))
        if lacking is None:
            self._noted_at_s.pop(run.id, None)
            return run
        now_s = self._clock.monotonic_s()
        if run.waits_for is None or now_s - self._noted_at_s.get(run.id, now_s - NOTE_AGAIN_S) >= NOTE_AGAIN_S:
            self._noted_at_s[run.id] = now_s
            if run.waits_for != lacking:
                self._store.workers.hold_back(run.id, lacking)
        return None

    def _permitted(self, device: str) -> tuple[RunRow, list[SubModelRow]] | None:
        """The first in line for a device whose people may share a process; teams and setting may have changed.

        Those that may not wait instead of failing, because an admin may change it again and their progress is kept.
        Others overtake them, because no device that gets free would let them start.
        """
        while (first := self._store.workers.next_in_line(device)) is not None:
            run, rows = first
            lacking = lacks_permission(run, rows, self._store.people.sharing_rule())
            if lacking is None:
                return first
            self._store.workers.hold_back(run.id, lacking, for_s=NOTE_AGAIN_S)
        return None

    def _launch(self, run: RunRow) -> None:
        try:
            pid = self._launcher.start(run.id, run.threads or 1, run.mode)
            if pid is not None:
                self._store.workers.launched(run.id, identity_of(pid))
        except psutil.NoSuchProcess:  # it has ended already; its exit code says how
            return
        except OSError as error:  # no room for the log, no process to be had
            cause = f"The worker could not be started: {error.strerror or error}."
            self._store.workers.lose(
                run.id, cause, "Correct that on this machine, then resume it.", limits=self._limits
            )

    def _lose(self, run: RunRow, death: "_Death", remedy: str) -> None:
        died_at, limits = self._launcher.last_mark(run.id), self._limits
        lose = self._store.workers.lose
        lose(run.id, death.cause, remedy, seen=run, died_at=died_at, counts=death.counts, limits=limits)

    def _watch(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self.tick()
            except Exception:  # a full disk or a locked store must not end the watch
                _log.exception("The supervisor could not look at the store; it tries again.")

    def _death_of(self, run: RunRow) -> "_Death | None":
        """How the worker of a run died; None while it lives or may still register."""
        log = f"Its log is runs/{run.id}/worker.log in the home folder."
        if run.worker_pid is not None:
            worker = WorkerIdentity(run.worker_pid, run.worker_started_at_s or 0.0, run.worker_boot_id or "")
            same_boot = worker.boot_id == boot_id()
            return None if is_alive(worker) else _Death(f"The worker process {run.worker_pid} died. {log}", same_boot)
        claimer = None if run.claimer is None else WorkerIdentity(**run.claimer)
        code = self._launcher.exit_code(run.id) if claimer in (None, own_identity()) else None
        if code is not None:  # of the worker that this very process has started
            return _Death(f"The worker ended with exit code {code} before it could register. {log}")
        if claimer is not None and not is_alive(claimer):
            return _Death("The process that was starting its worker died.", counts=False)
        seen_at_s = self._coming_up.setdefault(_claim_of(run), self._clock.monotonic_s())
        if self._clock.monotonic_s() - seen_at_s > REGISTRATION_PATIENCE_S:
            return _Death(f"The worker did not register within {REGISTRATION_PATIENCE_S:.0f} s. {log}")
        return None


class _Death(NamedTuple):
    """How a worker died, and whether that counts against its run."""

    cause: str
    counts: bool = True


def _claim_of(run: RunRow) -> tuple[str, float | None]:
    """Key of one claim: until the worker registers, the heartbeat is the moment of the claim."""
    return run.id, run.heartbeat_at_s
