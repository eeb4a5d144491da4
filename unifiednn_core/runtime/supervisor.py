"""The background thread of a server: places what waits on devices, starts workers, records dead ones.

It places on all devices, and starts and judges the workers of its own machine; those on nodes are a driver's. Several
supervisors of that machine may watch one store, such as a server and a command line: claims are atomic, and the first
one to see a death records it.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import psutil
from sqlalchemy.exc import OperationalError

from unifiednn_core.base.clock import Clock, stamp
from unifiednn_core.base.paths import SHARED_HYBRID
from unifiednn_core.base.trouble import log_error
from unifiednn_core.machine.budget import Budget, budget_of
from unifiednn_core.machine.devices import Device, devices_of_host
from unifiednn_core.runtime.background import Background
from unifiednn_core.runtime.device_watch import DeviceWatch
from unifiednn_core.runtime.launchers import LocalLauncher, boot_id, identity_of, is_alive, is_elsewhere, own_identity
from unifiednn_core.runtime.placing import Fleet, Hybrids, Parts, fleet_of
from unifiednn_core.runtime.webhooks import WebhookSender
from unifiednn_core.scheduling.line import Placement
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.spec.devices import SERVER, host_of
from unifiednn_core.store import Store
from unifiednn_core.store.devices import READY
from unifiednn_core.store.hybrids import address
from unifiednn_core.store.schema import HYBRID, HybridRow, RunRow
from unifiednn_core.store.workers import Berth, WorkerIdentity

TICK_S = 0.5
REGISTRATION_PATIENCE_S = 120.0  # loading torch from a cold disk takes tens of seconds
NODE_SILENT_S = 180.0  # a worker on a node counts as dead without a heartbeat: Ray has ended it after a minute
SILENT_S = 30.0  # without a heartbeat, a worker in another container of this machine counts as dead
PAUSE_S = 15.0  # who did not look for so long was asleep or without the store, and so may workers have been
NOTE_AGAIN_S = 5.0  # free memory changes all the time; what a run waits for is written down no more often than this
DEVICES_AGAIN_S = 5.0  # how often the devices of this machine are looked at
RESUME = "Resume it: it continues from its last checkpoints."

_log = logging.getLogger(__name__)


class Supervisor(Background):
    """Watches a store. `start` begins the thread, `tick` is one look."""

    name = "supervisor"

    def __init__(
        self,
        store: Store,
        launcher: LocalLauncher,
        clock: Clock,
        *,
        budget: Callable[[str], Budget] = budget_of,
        devices: Callable[[], Sequence[Device]] = devices_of_host,
        chores: Callable[[], None] | None = None,
        verifying: Callable[[], bool] = lambda: False,
        cluster: Background | None = None,
    ):
        """`budget` reads the memory of a device now, `devices` finds those of this machine, `chores` are done beside.

        `verifying` says whether certificates are being made here, which baselines wait for. `cluster` keeps the driver
        of a Ray cluster running.
        """
        self._verifying = verifying
        self._store, self._launcher, self._clock = store, launcher, clock
        self._budget, self._devices, self._chores = budget, devices, chores
        self._devices_at_s: float | None = None
        self._noted_at_s: dict[str, float] = {}
        """When the reason of a waiting run was last written."""
        self._first_seen_s: dict[tuple[str, float | None], float] = {}
        """Monotonic time at which each claim was first seen with its heartbeat of now."""
        beside = (DeviceWatch(store), WebhookSender(store.webhooks, clock), cluster)
        self._beside = [one for one in beside if one is not None]
        """What starts and stops with it."""
        self._looked_at_s: float | None = None
        """When it last looked at the store without an error, by the monotonic clock."""
        self.trouble: Exception | None = None
        """Why its last look failed; a look that writes follows within seconds, whatever trains."""
        super().__init__()

    def start(self) -> None:
        """Start watching the store; idempotent."""
        if not self.alive:
            super().start()
            for one in self._beside:
                one.start()

    def stop(self) -> None:
        """Stop watching. Workers continue."""
        super().stop()
        for one in self._beside:
            one.stop()
        self._launcher.close()

    @property
    def silent_s(self) -> float:
        """Seconds since it last looked at the store without an error; 0 before the first look."""
        return 0.0 if self._looked_at_s is None else self._clock.monotonic_s() - self._looked_at_s

    def tick(self) -> None:
        """Record dead workers (the store queues a run again that recovers), settle commands, start what can start."""
        if self.silent_s > PAUSE_S:
            self._first_seen_s.clear()
        held = self._store.workers.held()
        self._launcher.forget_ended([hybrid.id for hybrid in held])
        claims = {_claim_of(hybrid) for hybrid in held}
        self._first_seen_s = {claim: seen_s for claim, seen_s in self._first_seen_s.items() if claim in claims}
        for hybrid in held:
            death = self._death_of(hybrid)
            if death is not None:
                self._lose(hybrid, death)
        self._store.commands.settle_unclaimed()
        self._look_at_devices()
        self._look_at_line(drains=bool(held) and self._store.devices.drain())

    def _look_at_line(self, *, drains: bool) -> None:
        waiting = self._store.workers.waiting()
        if waiting or drains or self._store.hybrids.share():
            hybrids = self._store.hybrids.listed()  # many rows; private hybrids alone need nothing
            self._go_on(hybrids)
            self._place(self._fleet_of(hybrids, waiting))

    def fleet(self) -> Fleet:
        """What placement sees now."""
        if self.alive or not self._store.devices.are_watched():  # else this may be a command, with other devices
            with suppress(OperationalError):  # on a full disk people still see what is known
                self._look_at_devices()
        hybrids, waiting = self._store.hybrids.listed(), self._store.workers.waiting()
        return self._fleet_of(hybrids, waiting)

    def _fleet_of(self, hybrids: Hybrids, waiting: Sequence[tuple[RunRow, Parts]]) -> Fleet:
        return fleet_of(self._store, self._budget, self._clock, hybrids, waiting, self._verifying)

    def _look_at_devices(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._devices_at_s is None or now_s - self._devices_at_s >= DEVICES_AGAIN_S:
            self._devices_at_s = now_s
            self._store.devices.write(self._devices())

    def _place(self, fleet: Fleet) -> None:
        """Enact what placement decides."""
        plan = decide(fleet.view)
        for placement in plan.placements:
            self._start(fleet, placement)
        for hybrid in fleet.view.hybrids:
            leaving = [move for move in plan.moves if move.hybrid_id == hybrid.id]
            if leaving:
                members = None if hybrid.private else [address("", move.key) for move in leaving]
                self._store.workers.ask_to_leave(hybrid.id, members, leaving[0].reason)
        waits = dict(fleet.forbidden)
        for key, text in plan.waits.items():
            waits.setdefault(address("", key)[0], text)
        self._noted_at_s = {run_id: at_s for run_id, at_s in self._noted_at_s.items() if run_id in waits}
        for run_id, text in waits.items():
            self._say(fleet, run_id, text)

    def _go_on(self, hybrids: Hybrids) -> None:
        """Start the shared hybrids again whose worker died, or end them if their device is not ready any more."""
        dead = [(hybrid, members) for hybrid, members in hybrids if hybrid.heartbeat_at_s is None]
        ready = {row.name for row in self._store.devices.all() if row.state == READY} if dead else set()
        for hybrid, members in dead:
            if not members or hybrid.device not in ready:
                self._store.workers.give_back(hybrid.id, dead=True)
            elif self._store.workers.restart(hybrid.id, own_identity()):
                self._launch(hybrid.id, hybrid.device, hybrid.threads, HYBRID)

    def _start(self, fleet: Fleet, placement: Placement) -> None:
        members, device = [address("", key) for key in placement.keys], fleet.devices[placement.device]
        at = Berth(device=device.name, kind=device.kind, threads=placement.threads, also=placement.also)
        workers = self._store.workers
        if placement.hybrid_id is not None:
            [hybrid] = [one for one in fleet.view.hybrids if one.id == placement.hybrid_id]
            workers.join(hybrid.id, members, beside=[address("", member.key) for member in hybrid.members])
            return
        run = fleet.runs[members[0][0]]
        if not run.shared:
            if workers.claim(run.id, at, own_identity()):
                self._launch(run.id, at.device, placement.threads, run.mode)
            return
        hybrid_id = f"{SHARED_HYBRID}{stamp(self._clock.utc_s())}-{secrets.token_hex(3)}"
        settings = fleet.pooling.hybrid.model_copy(update={"profile": placement.profile})
        stays_open = fleet.pooling.mode == "pooled"
        if workers.open_shared(hybrid_id, members, at, settings, own_identity(), stays_open=stays_open):
            self._launch(hybrid_id, at.device, placement.threads, HYBRID)

    def _say(self, fleet: Fleet, run_id: str, text: str) -> None:
        """Write down what a run waits for, if that is new."""
        now_s, run = self._clock.monotonic_s(), fleet.runs[run_id]
        if run.waits_for is None or now_s - self._noted_at_s.get(run_id, now_s - NOTE_AGAIN_S) >= NOTE_AGAIN_S:
            self._noted_at_s[run_id] = now_s
            if run.waits_for != text:
                self._store.workers.hold_back(run_id, text)

    def _launch(self, hybrid_id: str, device: str | None, threads: int, mode: str) -> None:
        """Start the worker of a claimed hybrid, unless a driver does, because the device is one of a node."""
        if host_of(device) != SERVER:
            return
        try:
            pid = self._launcher.start(hybrid_id, threads, mode)
            self._store.workers.launched(hybrid_id, identity_of(pid))
        except psutil.NoSuchProcess:  # it has ended already; its exit code says how
            return
        except OSError as error:  # no room for the log, no process to be had
            cause = f"The worker could not be started: {error.strerror or error}."
            self._store.workers.lose(hybrid_id, cause, "Correct that on this machine, then resume it.")

    def _lose(self, hybrid: HybridRow, death: "_Death") -> None:
        died_at = self._launcher.last_mark(hybrid.id)
        self._store.workers.lose(hybrid.id, death.cause, RESUME, seen=hybrid, died_at=died_at, counts=death.counts)

    def _watch(self) -> None:
        pause_s = TICK_S
        while not self._stop.wait(pause_s):
            begun_s = self._clock.monotonic_s()
            try:
                self.tick()
                pause_s = max(TICK_S, self._clock.monotonic_s() - begun_s)  # to see a large fleet takes seconds
                self._looked_at_s, self.trouble = self._clock.monotonic_s(), None
                if self._chores is not None:
                    self._chores()
            except Exception as error:  # a full disk or a locked store must not end the watch
                self.trouble = error
                log_error(_log, "The supervisor could not look at the store; it tries again.")

    def _death_of(self, hybrid: HybridRow) -> "_Death | None":
        """How the worker of a hybrid died; None while it lives or may still register."""
        if host_of(hybrid.device) != SERVER:
            if self._unchanged_s(hybrid) <= NODE_SILENT_S or self._store.nodes.are_watched():  # then a driver judges it
                return None
            cause = f"Nothing was heard of its worker on {host_of(hybrid.device)} for {NODE_SILENT_S:g} s."
            return _Death(cause, counts=False)
        log = f"Its log is {'hybrids' if hybrid.shared else 'runs'}/{hybrid.id}/worker.log in the home folder."
        if hybrid.worker_pid is not None:
            worker = WorkerIdentity(hybrid.worker_pid, hybrid.worker_started_at_s or 0.0, hybrid.worker_boot_id or "")
            if is_alive(worker):
                return None
            if is_elsewhere(worker):
                return self._silence_of(hybrid)
            return _Death(f"The worker process {worker.pid} died. {log}", counts=worker.boot_id == boot_id())
        claimer = None if hybrid.claimer is None else WorkerIdentity(**hybrid.claimer)
        code = self._launcher.exit_code(hybrid.id) if claimer in (None, own_identity()) else None
        if code is not None:  # of the worker that this very process has started
            return _Death(f"The worker ended with exit code {code} before it could register. {log}")
        if claimer is not None and not (is_alive(claimer) or is_elsewhere(claimer)):
            return _Death("The process that was starting its worker died.", counts=False)
        if self._unchanged_s(hybrid) > REGISTRATION_PATIENCE_S:
            return _Death(f"The worker did not register within {REGISTRATION_PATIENCE_S:.0f} s. {log}")
        return None

    def _silence_of(self, hybrid: HybridRow) -> "_Death | None":
        """The death of a worker in another container of this machine, of which only its heartbeat tells."""
        patience_s = SILENT_S if hybrid.claimer is None else REGISTRATION_PATIENCE_S
        if self._unchanged_s(hybrid) <= patience_s:
            return None
        return _Death(f"Nothing was heard of its worker, in another container, for {patience_s:g} s.", counts=False)

    def _unchanged_s(self, hybrid: HybridRow) -> float:
        """Seconds since this process first saw a claim with the heartbeat of now."""
        now_s = self._clock.monotonic_s()
        return now_s - self._first_seen_s.setdefault(_claim_of(hybrid), now_s)


class _Death(NamedTuple):
    """How a worker died, and whether that counts against it."""

    cause: str
    counts: bool = True


def _claim_of(hybrid: HybridRow) -> tuple[str, float | None]:
    """Key of one claim: until the worker registers, the heartbeat is the moment of the claim."""
    return hybrid.id, hybrid.heartbeat_at_s
