"""The background thread of a server or an agent: places what waits on devices, starts workers, records dead ones.

Several supervisors may watch one store: those of several hosts, or a server and a command line. Each sees all devices
and decides for all, but enacts only what concerns its own host; claims are atomic, and the first one to see a death
records it.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import psutil
from sqlalchemy.exc import OperationalError

from unifiednn_core.base.clock import Clock, stamp
from unifiednn_core.base.paths import SHARED_HYBRID
from unifiednn_core.base.trouble import log_error
from unifiednn_core.machine.budget import Budget, budget_of
from unifiednn_core.machine.cores import own_cores
from unifiednn_core.machine.devices import Device, devices_of_host
from unifiednn_core.runtime.background import Background
from unifiednn_core.runtime.device_watch import DeviceWatch
from unifiednn_core.runtime.host_lease import HostLease
from unifiednn_core.runtime.launchers import Launcher, boot_id, identity_of, is_alive, is_elsewhere, own_identity
from unifiednn_core.runtime.placing import Fleet, Hybrids, Parts, fleet_of
from unifiednn_core.runtime.webhooks import WebhookSender
from unifiednn_core.scheduling.line import Placement
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.spec.devices import CPU, SERVER, host_of, on_host, own_name
from unifiednn_core.store import Store, leases
from unifiednn_core.store.devices import READY
from unifiednn_core.store.hybrids import address
from unifiednn_core.store.schema import HYBRID, HybridRow, RunRow
from unifiednn_core.store.workers import RESTARTS, Berth, RestartLimits, WorkerIdentity

TICK_S = 0.5
REGISTRATION_PATIENCE_S = 120.0  # loading torch from a cold disk takes tens of seconds
NOTE_AGAIN_S = 5.0  # free memory changes all the time; what a run waits for is written down no more often than this
DEVICES_AGAIN_S = 5.0  # how often the devices of this host are looked at
RESUME = "Resume it: it continues from its last checkpoints."

_log = logging.getLogger(__name__)


class Supervisor(Background):
    """Watches a store. `start` begins the thread, `tick` is one look."""

    name = "supervisor"

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        clock: Clock,
        *,
        limits: RestartLimits = RESTARTS,
        budget: Callable[[str], Budget] = budget_of,
        devices: Callable[[], Sequence[Device]] = devices_of_host,
        chores: Callable[[], None] | None = None,
        host: str = SERVER,
        verifying: Callable[[], bool] = lambda: False,
    ):
        """`budget` reads the memory of a device now, `devices` finds those of this host, `chores` are done beside.

        `host` is what the fleet calls this machine; the server's has the name `server`. `verifying` says whether
        certificates are being made here, which baselines wait for.
        """
        self._verifying = verifying
        self._store, self._launcher, self._clock, self._limits = store, launcher, clock, limits
        self._budget, self._devices, self._chores = budget, devices, chores
        self._host, self.lease = host, HostLease(store, clock, host)
        self._devices_at_s: float | None = None
        self._noted_at_s: dict[str, float] = {}
        """When the reason of a waiting run was last written."""
        self._coming_up: dict[tuple[str, float | None], float] = {}
        """Monotonic time at which each claim was first seen without a worker."""
        self._watch_of_devices = DeviceWatch(store, host=host)
        self._webhooks = WebhookSender(store.webhooks, clock) if host == SERVER else None
        self._looked_at_s: float | None = None
        """When it last looked at the store without an error, by the monotonic clock."""
        self.trouble: Exception | None = None
        """Why its last look failed; a look that writes follows within seconds, whatever trains."""
        super().__init__()

    def start(self) -> None:
        """Start watching the store; idempotent. Raises `BadInput` if this machine may not, because another one does."""
        if not self.alive:
            self.lease.enter()
            super().start()
            self._watch_of_devices.start()
            if self._webhooks is not None:
                self._webhooks.start()

    def stop(self) -> None:
        """Stop watching. Workers continue."""
        super().stop()
        self._watch_of_devices.stop()
        if self._webhooks is not None:
            self._webhooks.stop()
        self._launcher.close()

    @property
    def silent_s(self) -> float:
        """Seconds since it last looked at the store without an error; 0 before the first look."""
        return 0.0 if self._looked_at_s is None else self._clock.monotonic_s() - self._looked_at_s

    def park(self) -> None:
        """Give the devices back: what trains here goes on elsewhere from its checkpoint, and nothing new comes."""
        self.lease.park()

    def held(self) -> list[HybridRow]:
        """Hybrids that hold a device of this host."""
        return [hybrid for hybrid in self._store.workers.held() if host_of(hybrid.device) == self._host]

    def tick(self) -> None:
        """Record dead workers (the store queues a run again that recovers), settle commands, start what can start."""
        renewed = self.lease.keep(
            lambda: {one.name: self._budget(own_name(one.name)).free_bytes for one in self._offered()}
        )
        if not self.lease.stands:  # another process serves this host
            return
        held = self.held()
        self._launcher.forget_ended([hybrid.id for hybrid in held])
        claims = {_claim_of(hybrid) for hybrid in held}
        self._coming_up = {claim: seen_s for claim, seen_s in self._coming_up.items() if claim in claims}
        for hybrid in held:
            death = self._death_of(hybrid)
            if death is not None:
                self._lose(hybrid, death, RESUME, judge=self._host if death.by_lease else None)
        self._store.commands.settle_unclaimed()
        self._look_at_devices()
        if renewed:
            self._judge_others()
        drains = self.lease.parks or (held and self._store.devices.drain())
        self._look_at_line(drains=bool(drains))

    def _look_at_line(self, *, drains: bool) -> None:
        waiting = self._store.workers.waiting()
        if waiting or drains or self._store.hybrids.share():
            hybrids = self._store.hybrids.listed()  # many rows; private hybrids alone need nothing
            self._go_on(hybrids)
            self._place(self._fleet_of(hybrids, waiting))

    def fleet(self) -> Fleet:
        """What placement sees now."""
        # Else this may be a command, with other devices.
        if self.lease.stands or not self._store.hosts.is_served(self._host):
            with suppress(OperationalError):  # on a full disk people still see what is known
                self._look_at_devices()
        hybrids, waiting = self._store.hybrids.listed(), self._store.workers.waiting()
        return self._fleet_of(hybrids, waiting)

    def _fleet_of(self, hybrids: Hybrids, waiting: Sequence[tuple[RunRow, Parts]]) -> Fleet:
        return fleet_of(self._store, self._budget, self._clock, hybrids, waiting, self._host, self._verifying)

    def _offered(self) -> list[Device]:
        """The devices of this host as the fleet knows them, with numbers of cores, which others cannot count."""
        own = (on_host(device, self._host) for device in self._devices())
        if self._host == SERVER:
            return list(own)
        return [replace(one, cpus=own_cores()) if one.type == CPU and not one.cpus else one for one in own]

    def _judge_others(self) -> None:
        """Declare hosts lost whose leases have run out, and their workers, which nobody judges any more.

        What each of them needs to be lost is looked at again in the transaction that says so.
        """
        foreign = [hybrid for hybrid in self._store.workers.held() if host_of(hybrid.device) != self._host]
        if not (foreign or self.lease.others):
            return
        now_s, there = self._store.hosts.now_s(), set[str]()
        for row in self.lease.others:
            if not (leases.is_stale(row.renewed_at_s, now_s) and self._store.hosts.lose(row.name, self._host)):
                there.add(row.name)
        for hybrid in foreign:
            host = host_of(hybrid.device)
            if host not in there and leases.is_stale(hybrid.heartbeat_at_s or 0.0, now_s):
                cause = f"Nothing was heard of the host {host} for {leases.LOST_S:g} s."
                self._lose(hybrid, _Death(cause, counts=False), RESUME, judge=self._host)

    def _look_at_devices(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._devices_at_s is None or now_s - self._devices_at_s >= DEVICES_AGAIN_S:
            self._devices_at_s = now_s
            self._store.devices.write(self._offered(), self._host)

    def _place(self, fleet: Fleet) -> None:
        """Enact what placement decides about this host."""
        plan = decide(fleet.view)
        for placement in plan.placements:
            if host_of(placement.device) == self._host:
                self._start(fleet, placement)
        for hybrid in fleet.view.hybrids:
            own = host_of(hybrid.device) == self._host
            leaving = [move for move in plan.moves if own and move.hybrid_id == hybrid.id]
            if leaving:
                members = None if hybrid.private else [address("", move.key) for move in leaving]
                self._store.workers.ask_to_leave(hybrid.id, members, leaving[0].reason)
        if not self.lease.speaks:
            return
        waits = dict(fleet.forbidden)
        for key, text in plan.waits.items():
            waits.setdefault(address("", key)[0], text)
        self._noted_at_s = {run_id: at_s for run_id, at_s in self._noted_at_s.items() if run_id in waits}
        for run_id, text in waits.items():
            self._say(fleet, run_id, text)

    def _go_on(self, hybrids: Hybrids) -> None:
        """Start the shared hybrids again whose worker died, or end them if their device is not ready any more."""
        others = {row.name for row in self.lease.others}
        dead = [
            (hybrid, members)
            for hybrid, members in hybrids
            if hybrid.heartbeat_at_s is None and host_of(hybrid.device) not in others
        ]
        ready = {row.name for row in self._store.devices.all() if row.state == READY} if dead else set()
        for hybrid, members in dead:
            foreign = host_of(hybrid.device) != self._host  # its own is gone
            if foreign or self.lease.parks or not members or hybrid.device not in ready:
                self._store.workers.give_back(hybrid.id, dead=True)
            elif self._store.workers.restart(hybrid.id, own_identity()):
                self._launch(hybrid.id, hybrid.threads, HYBRID)

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
                self._launch(run.id, placement.threads, run.mode)
            return
        hybrid_id = f"{SHARED_HYBRID}{stamp(self._clock.utc_s())}-{secrets.token_hex(3)}"
        settings = fleet.pooling.hybrid.model_copy(update={"profile": placement.profile})
        stays_open = fleet.pooling.mode == "pooled"
        if workers.open_shared(hybrid_id, members, at, settings, own_identity(), stays_open=stays_open):
            self._launch(hybrid_id, placement.threads, HYBRID)

    def _say(self, fleet: Fleet, run_id: str, text: str) -> None:
        """Write down what a run waits for, if that is new."""
        now_s, run = self._clock.monotonic_s(), fleet.runs[run_id]
        if run.waits_for is None or now_s - self._noted_at_s.get(run_id, now_s - NOTE_AGAIN_S) >= NOTE_AGAIN_S:
            self._noted_at_s[run_id] = now_s
            if run.waits_for != text:
                self._store.workers.hold_back(run_id, text)

    def _launch(self, hybrid_id: str, threads: int, mode: str) -> None:
        try:
            pid = self._launcher.start(hybrid_id, threads, mode)
            if pid is not None:
                self._store.workers.launched(hybrid_id, identity_of(pid))
        except psutil.NoSuchProcess:  # it has ended already; its exit code says how
            return
        except OSError as error:  # no room for the log, no process to be had
            cause = f"The worker could not be started: {error.strerror or error}."
            self._store.workers.lose(
                hybrid_id, cause, "Correct that on this machine, then resume it.", limits=self._limits
            )

    def _lose(self, hybrid: HybridRow, death: "_Death", remedy: str, judge: str | None = None) -> None:
        died_at = self._launcher.last_mark(hybrid.id) if judge is None else None
        lose = partial(self._store.workers.lose, hybrid.id, death.cause, remedy, seen=hybrid, limits=self._limits)
        lose(died_at=died_at, counts=death.counts, judge=judge)

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
        home = "the home folder" if self._host == SERVER else f"the home folder of {self._host}"
        log = f"Its log is {'hybrids' if hybrid.shared else 'runs'}/{hybrid.id}/worker.log in {home}."
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
        seen_at_s = self._coming_up.setdefault(_claim_of(hybrid), self._clock.monotonic_s())
        if self._clock.monotonic_s() - seen_at_s > REGISTRATION_PATIENCE_S:
            return _Death(f"The worker did not register within {REGISTRATION_PATIENCE_S:.0f} s. {log}")
        return None

    def _silence_of(self, hybrid: HybridRow) -> "_Death | None":
        """The death of a worker in another container of this machine, of which only its heartbeat tells."""
        patience_s = leases.LOST_S if hybrid.claimer is None else REGISTRATION_PATIENCE_S
        if not leases.is_stale(hybrid.heartbeat_at_s or 0.0, self._store.hosts.now_s(), patience_s):
            return None
        cause = f"Nothing was heard of its worker, in another container, for {patience_s:g} s."
        return _Death(cause, counts=False, by_lease=True)


class _Death(NamedTuple):
    """How a worker died, and whether that counts against it."""

    cause: str
    counts: bool = True
    by_lease: bool = False
    """Whether only its heartbeat says so, which may have come by now."""


def _claim_of(hybrid: HybridRow) -> tuple[str, float | None]:
    """Key of one claim: until the worker registers, the heartbeat is the moment of the claim."""
    return hybrid.id, hybrid.heartbeat_at_s
