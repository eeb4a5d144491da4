"""Devices: which there are, how they are used now, which take new work, and how much of their memory may be used."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine.device_samples import DeviceSampler
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.machine.processes import OtherProcess
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.recent import Recent
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.devices import CPU, SERVER, host_of
from unifiednn_core.store import Store
from unifiednn_core.store.devices import AWAY, DRAINING, LISTED_S, READY, DeviceRow, UsePoint
from unifiednn_core.views.devices import DeviceCard, DeviceChoice, ListedCluster, ListedDevice, UseOverTime, cluster_of
from unifiednn_core.views.people import view_of

SHOWN_S, EVERY_S = 600.0, 10.0
"""How much of the past a card shows, and how finely."""
FRESH_S = 25.0
"""An older sample says nothing about now."""
MEMORY_STEP, UTILISATION_STEP = 0.05, 0.1
"""How finely those see the use of a device who may not know about the work of others."""
_FIGURES = ("own_bytes", "free_bytes", "utilisation", "temperature_c", "power_w", "load")


class DeviceService:
    """Shows devices, their use, and what a spec can ask for; drains devices and limits their memory."""

    def __init__(self, guard: Guard, store: Store, clock: Clock, recent: Recent):
        self.guard, self._store, self._clock, self._recent = guard, store, clock, recent
        self._devices, self._samples = store.devices, store.device_samples

    @permission(Role.OPERATOR, audited=False)
    def devices(self) -> tuple[ListedDevice, ...]:
        """All devices, also those that drain or are away: GPUs first, by host, the server's first."""
        return tuple(view_of(ListedDevice, row, cpus=tuple(row.cpus)) for row in self._listed())

    @permission(Role.OPERATOR, audited=False)
    def cluster(self) -> ListedCluster:
        """The cluster whose nodes offer devices beside the server's own; empty without one."""
        return cluster_of(self._store.nodes.all(), self._clock.utc_s())

    @permission(Role.VIEWER, audited=False)
    def cards(self, *, within_s: float = 0.0) -> tuple[DeviceCard, ...]:
        """Each device that is there, as it is used now and over the last ten minutes: GPUs first; at most so old.

        Only operators see processes of others. A submitter sees about how much is in use now, and by nobody in
        particular.
        """
        actor, now_s = self.guard.actor, self._clock.utc_s()
        listed, newest, over_time, held = self._recent.within(within_s, "devices", self._seen)
        fresh: dict[str, Any] = {name: row for name, row in newest.items() if now_s - row.at_s <= FRESH_S}
        if not fresh:  # no server runs
            own = [row.device for row in listed if host_of(row.name) == SERVER]
            fresh = {one.device: one for one in DeviceSampler().sample(own, (), {})}
        cards = [
            _card(row, fresh.get(row.name), over_time.get(row.name, ()), now_s, held=row.name in held) for row in listed
        ]
        if actor.sees_only_own:
            return tuple(map(coarse, cards))
        if actor.role.rank < Role.OPERATOR.rank:
            return tuple(replace(card, others=()) for card in cards)
        return tuple(cards)

    @permission(Role.SUBMITTER, audited=False)
    def device_choices(self) -> tuple[DeviceChoice, ...]:
        """Name and kind of each device that is there, and nothing about its use."""
        return tuple(view_of(DeviceChoice, row) for row in self._listed() if row.state != AWAY)

    @permission(Role.OPERATOR, about="{name}")
    def drain_device(self, name: str) -> None:
        """Place nothing new on a device; what trains there goes on elsewhere. Raises `NotFound`."""
        self._known()
        self._devices.set_state(name, DRAINING)

    @permission(Role.OPERATOR, about="{name}")
    def ready_device(self, name: str) -> None:
        """Use a device again that drains; raises `NotFound`, and `BadInput` for one that is away."""
        if any(row.name == name and row.state == AWAY for row in self._known()):
            message, remedy = f"{name} is away: its host does not offer it now.", "Wait until it returns."
            raise BadInput.of("Device", "name", message, remedy)
        self._devices.set_state(name, READY)

    @permission(Role.OPERATOR, about="{name} {limit_bytes}")
    def limit_device(self, name: str, limit_bytes: int | None) -> None:
        """Use at most so much memory of a device from now on, or all of it with None.

        What trains there goes on. Raises `NotFound`, and `BadInput` for a limit that no device has.
        """
        if limit_bytes is not None and not 0 < limit_bytes < 2**63:
            remedy = 'Give a size such as 4GiB, or "none". To use nothing of it, drain it.'
            raise BadInput.of("Limit", "limit", f"A device cannot be limited to {limit_bytes} bytes.", remedy)
        self._known()
        self._devices.set_limit(name, limit_bytes)

    def _seen(self) -> tuple[list[DeviceRow], Mapping[str, Any], Mapping[str, list[UsePoint]], set[str]]:
        """Devices that are there, their last samples, their use over time, and names of those that hybrids hold.

        A device has hundreds of samples.
        """
        listed = [row for row in self._listed() if row.state != AWAY]
        held = {name for one in self._store.workers.held() for name in (one.device or "", *one.also)}
        return listed, self._samples.newest(), self._samples.over_time(SHOWN_S, EVERY_S), held

    def _listed(self) -> list[DeviceRow]:
        now_s = self._clock.utc_s()
        listed = [row for row in self._known() if host_of(row.name) == SERVER or now_s - row.seen_at_s <= LISTED_S]
        return sorted(listed, key=lambda row: (row.type == CPU, host_of(row.name) != SERVER, host_of(row.name)))

    def _known(self) -> list[DeviceRow]:
        """All devices, as they are now also where no supervisor runs."""
        if not self._devices.are_watched():
            self._devices.write(devices_of_host())
        return self._devices.all()


def _card(row: DeviceRow, seen: Any, over_time: list[UsePoint] | tuple[()], now_s: float, *, held: bool) -> DeviceCard:
    """`seen` is a row or a value with the columns of a sample; None without a fresh one."""
    figures = {"free_bytes": row.free_bytes} if seen is None else {name: getattr(seen, name) for name in _FIGURES}
    if held and not figures.get("own_bytes"):  # its worker has not said yet
        figures["own_bytes"] = None
    total_bytes = row.total_bytes if seen is None or seen.total_bytes is None else seen.total_bytes
    others = () if seen is None else tuple(map(_process, seen.others))
    past = UseOverTime(
        before_s=tuple(now_s - point.at_s for point in over_time),
        utilisation=tuple(point.utilisation for point in over_time),
        memory=tuple(point.used_share for point in over_time),
    )
    return view_of(
        DeviceCard, row, total_bytes=total_bytes, others=others, over_time=past, **dict.fromkeys(_FIGURES) | figures
    )


def _process(given: OtherProcess | Mapping[str, Any]) -> OtherProcess:
    return given if isinstance(given, OtherProcess) else OtherProcess(**given)


def coarse(card: DeviceCard) -> DeviceCard:
    """A card that says whether there is room, and nothing of what others do."""
    used, total = card.used_bytes, card.total_bytes
    shown_free = None
    if used is not None and total:
        shown_free = total - round(MEMORY_STEP * total * round(used / total / MEMORY_STEP))
    share = card.utilisation
    busy = None if share is None else UTILISATION_STEP * round(share / UTILISATION_STEP)
    hidden: dict[str, Any] = dict.fromkeys(("own_bytes", "temperature_c", "power_w", "load"))
    return replace(card, **hidden, free_bytes=shown_free, utilisation=busy, others=(), over_time=UseOverTime())
