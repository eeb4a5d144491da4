"""From rows to what placement sees. `scheduling.placement` decides, the supervisor enacts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from typing import Literal

from unifiednn_core.base.clock import Clock
from unifiednn_core.machine import allocator
from unifiednn_core.machine.budget import Budget
from unifiednn_core.machine.cores import lanes_of
from unifiednn_core.machine.devices import Device, matching
from unifiednn_core.preflight.estimate import context_key, context_of, need_of
from unifiednn_core.runtime.admission import lacks_permission, now_needed_bytes, open_parts
from unifiednn_core.scheduling.line import DeviceView, FleetView, HybridView, Need, Placed, Waiting
from unifiednn_core.spec.devices import CPU, SERVER, host_of, type_named
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.placement import devices_claimed
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.store import Store
from unifiednn_core.store.devices import READY, DeviceRow, is_known
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.people import parties_of
from unifiednn_core.store.schema import HYBRID, HybridRow, RunRow, SubModelRow

BudgetOf = Callable[[str], Budget]
Hybrids = Sequence[tuple[HybridRow, Sequence[Resident]]]
Parts = Sequence[SubModelRow]
Seconds = Mapping[str, float]
"""Seconds per step, by memory key."""
CERTIFICATES = "the certificates of models that have ended"
"""What baselines wait for: while one is measured, none is made."""
NOTHING = Need(kept_bytes=0, working_bytes=0)
"""Need of a sub-model that is only to be saved."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What placement sees, and the rows that it was made of."""

    view: FleetView
    pooling: Pooling
    devices: Mapping[str, DeviceRow]
    runs: Mapping[str, RunRow]
    """Runs that wait, by id."""
    forbidden: Mapping[str, str]
    """What runs wait for that no device can give, by id."""
    residents: Mapping[str, Resident] = field(default_factory=dict)
    """All that waits or is placed, with its run, by `RUN_ID/NAME`."""
    speeds: Seconds = field(default_factory=dict)


def fleet_of(
    store: Store,
    budget_of: BudgetOf,
    clock: Clock,
    hybrids: Hybrids,
    waiting: Sequence[tuple[RunRow, Parts]],
    verifying: Callable[[], bool] = lambda: False,
) -> Fleet:
    """The fleet now, for `decide`, from `hybrids.listed()` and `workers.waiting()`.

    `budget_of` reads the memory of a device of the server's machine, by its name; those of nodes are from their rows.
    While it is `verifying` models, no baseline starts.
    """
    rows, now_s = {row.name: row for row in store.devices.all()}, clock.utc_s()
    pooling = store.hybrids.pooling()
    placed = [member for _, members in hybrids for member in members]
    all_rows = [*(row for _, parts in waiting for row in parts), *(member.row for member in placed)]
    speeds = store.runs.speeds(row.memory_key for row in all_rows)
    rule, used, held_bytes = store.people.sharing_rule(), allocator.of_workers(), store.telemetry.memory_now()
    known = _Known([row.device for row in rows.values() if is_known(row, now_s)], used)
    types = {row.type for row in rows.values()}  # also of those that are gone
    keys: dict[str, str] = {kind: context_key(kind, _torch_version(), used) for kind in sorted(types)}
    contexts = store.measured.recall(list(keys.values()))

    def context_bytes(kind: str) -> int:
        return context_of(kind, contexts.get(keys[kind]), used)

    resting = {name for hybrid, _ in hybrids if hybrid.worker_pid is None for name in (hybrid.device, *hybrid.also)}

    def budget(row: DeviceRow) -> Budget:
        is_own = host_of(row.name) == SERVER
        return budget_of(row.name) if is_own else Budget(row.total_bytes, row.free_bytes)

    devices = tuple(
        _device(row, budget(row), context_bytes(row.type), resting=row.name in resting) for row in rows.values()
    )
    verifies = any(run.mode != HYBRID for run, _ in waiting) and verifying()
    lacking = {
        run.id: CERTIFICATES if verifies and run.mode != HYBRID else lacks_permission(run, parts, rule)
        for run, parts in waiting
    }
    asked = [
        entry
        for run, parts in waiting
        if lacking[run.id] is None
        for entry in _entries(run, parts, known, speeds, private=pooling.mode == "private")
    ]
    return Fleet(
        FleetView(
            now_s=now_s,
            devices=devices,
            hybrids=tuple(_hybrid(one, members, known, speeds, held_bytes.get(one.id, 0)) for one, members in hybrids),
            waiting=tuple(asked),
            rule=rule,
            mode=pooling.mode,
            gather_s=pooling.gather_s,
            gather_n=pooling.gather_n,
            lanes=max([1, *(_lanes_on(row.device, pooling) for row in rows.values() if row.state == READY)]),
        ),
        pooling,
        rows,
        {run.id: run for run, _ in waiting},
        {run_id: text for run_id, text in lacking.items() if text is not None},
        {
            f"{one.run.id}/{one.row.name}": one
            for one in (*placed, *(Resident(run, row) for run, parts in waiting for row in parts))
        },
        speeds,
    )


@cache
def _torch_version() -> str:
    return version("torch")  # it reads a file


def _device(row: DeviceRow, budget: Budget, context_bytes: int, *, resting: bool) -> DeviceView:
    totals = [size for size in (budget.total_bytes, row.limit_bytes) if size is not None]
    return DeviceView(
        name=row.name,
        type=row.type,
        kind=row.kind,
        total_bytes=min(totals) if totals else None,
        free_bytes=budget.free_bytes,
        pool=host_of(row.name) if row.type == "cpu" else "",
        context_bytes=context_bytes,
        threads=row.threads,
        state=row.state,
        resting=resting,
    )


def _lanes_on(device: Device, pooling: Pooling) -> int:
    return lanes_of(pooling.hybrid.lanes, device.threads, device.type, len(device.cpus))


def _entries(
    run: RunRow, parts: Sequence[SubModelRow], devices: "_Known", speeds: Seconds, *, private: bool
) -> list[Waiting]:
    """What a run has in the line: one entry for each sub-model that shares, one for all of a private run."""
    if run.shared:
        return [_shared(run, row, devices, speeds, private=private) for row in parts]
    still = [row for row in parts if State(row.state) not in ENDED]
    saves_only = all(State(row.state) is State.STOPPING for row in still)
    kind = None if saves_only else next(filter(None, map(_kind, still)), None)
    return [
        Waiting(
            keys=tuple(f"{run.id}/{row.name}" for row in still or parts),  # with none open a worker only ends the run
            run_id=run.id,
            submitted_at_s=run.created_at_s,
            line_at_s=run.line_at_s,
            arrival=0,
            asked=run.device,
            devices=_devices_for(run, kind, devices),
            kind=_stays(run, kind),
            private=True,
            people=() if saves_only or run.mode != HYBRID else tuple(party.person for party in parties_of(run, parts)),
            peak_bytes=None if saves_only else _peak_bytes(run, parts, devices),
            claims=1 if saves_only or run.mode != HYBRID else devices_claimed(run.spec["submodels"]),
            threads=run.threads,
            profile=run.spec.get("profile", "exact"),
            left_s=_sum([_left_s(row, speeds) for row in still]),
        )
    ]


def _shared(run: RunRow, row: SubModelRow, devices: "_Known", speeds: Seconds, *, private: bool) -> Waiting:
    saves_only = State(row.state) is State.STOPPING
    kind = None if saves_only else _kind(row)
    device_type = devices.type_of(run.device, _stays(run, kind))
    return Waiting(
        keys=(f"{run.id}/{row.name}",),
        run_id=run.id,
        submitted_at_s=run.created_at_s,
        line_at_s=run.line_at_s,
        arrival=row.arrival,
        asked=run.device,
        devices=_devices_for(run, kind, devices),
        kind=_stays(run, kind),
        private=private,
        people=(row.owner, *row.lenders),
        need=NOTHING if saves_only else _need(run, row, device_type, devices.used),
        threads=run.threads if device_type == CPU else None,  # on a GPU they decide no bit
        profile=run.spec.get("profile", "exact"),
        left_s=_left_s(row, speeds),
    )


def _hybrid(
    hybrid: HybridRow, members: Sequence[Resident], devices: "_Known", speeds: Seconds, used_bytes: int
) -> HybridView:
    kind = type_named(hybrid.device or "")
    own = next(iter(members), None)
    peak_bytes = None if hybrid.shared or own is None else _peak_bytes(own.run, [one.row for one in members], devices)
    return HybridView(
        id=hybrid.id,
        device=hybrid.device or "",
        also=tuple(hybrid.also),
        private=not hybrid.shared,
        accepts=bool(members) and hybrid.shared and hybrid.open and hybrid.heartbeat_at_s is not None,
        threads=hybrid.threads,
        profile=hybrid.settings.get("profile", "exact"),
        members=tuple(
            Placed(
                key=f"{run.id}/{row.name}",
                run_id=run.id,
                devices=_devices_for(run, hybrid.device_kind if row.steps_done else None, devices),
                people=(row.owner, *row.lenders),
                need=_need(run, row, kind, devices.used) if hybrid.shared else None,
                left_s=_left_s(row, speeds),
                moved_at_s=row.placed_at_s,
                leaving=row.leaving is not None or hybrid.leaving is not None,
            )
            for run, row in members
        ),
        peak_bytes=peak_bytes,
        used_bytes=0 if hybrid.worker_pid is None else used_bytes,
    )


def _kind(row: SubModelRow) -> str | None:
    """Kind of device that its progress belongs to; None if it has none."""
    return row.device_kind if row.checkpoint_step and row.device_kind else None


class _Known:
    """The devices that count. What a word of a spec means among many of them is looked up once."""

    def __init__(self, devices: Sequence[Device], used: str):
        self.used = used
        """Allocator of workers."""
        self.meant = cache(partial(matching, devices=devices))
        self.of_kind = cache(self._of_kind)
        self.largest = cache(self._largest)

    def _of_kind(self, asked: str, kind: str | None) -> tuple[frozenset[str], Literal["cpu", "cuda"]]:
        """Names of those that are meant, of a kind if one is given, and their type."""
        found = [device for device in self.meant(asked) if kind in (None, device.kind)]
        return frozenset(device.name for device in found), min((device.type for device in found), default="cpu")

    def _largest(self, asked: str) -> tuple[Literal["cpu", "cuda"], int | None]:
        """Type of the first one that is meant, and the largest memory of one."""
        found = self.meant(asked)
        sizes = [device.total_bytes for device in found if device.total_bytes is not None]
        return found[0].type if found else "cpu", max(sizes, default=None)

    def type_of(self, asked: str, kind: str | None) -> str:
        """Their type; `cpu` if there are several or none."""
        return self.of_kind(asked, kind)[1]


def _stays(run: RunRow, kind: str | None) -> str | None:
    """The kind of device that a run must stay on; None for any."""
    return kind if run.spec.get("moves", "same") == "same" else None


def _devices_for(run: RunRow, kind: str | None, devices: _Known) -> frozenset[str]:
    """Names of the devices that a run asks for, of the kind that it must stay on."""
    return devices.of_kind(run.device, _stays(run, kind))[0]


def _need(run: RunRow, row: SubModelRow, device_type: str, used: str) -> Need | None:
    """Memory of a sub-model, from the prediction of its run, with the allocator that workers use; None without one."""
    try:
        [part] = open_parts(run, [row])
    except (
        ValueError,
        KeyError,
        TypeError,
    ):  # there is none, or another version wrote it: nobody else may wait for that
        return None
    return need_of(part, device_type, used)


def _peak_bytes(run: RunRow, parts: Sequence[SubModelRow], devices: _Known) -> int | None:
    """Predicted peak of a private run; None if unknown, and for a concurrent baseline that can never fit.

    That one starts all the same: not to fit is its result.
    """
    kind, largest = devices.largest(run.device)
    needed_bytes = now_needed_bytes(run, parts, kind, devices.used)
    hopeless = needed_bytes is not None and largest is not None and needed_bytes > largest
    return None if hopeless and run.mode == "concurrent" else needed_bytes


def _left_s(row: SubModelRow, speeds: Seconds) -> float | None:
    """Seconds of service that a sub-model still needs, by its own speed or that of an earlier equal one."""
    own = row.service_s / row.steps_done if row.steps_done and row.service_s else speeds.get(row.memory_key)
    return None if own is None else own * max(0, row.steps_total - row.steps_done)


def _sum(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None
