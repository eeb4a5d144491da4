"""`placement.decide` on columns: the same placements and moves, at a cost that hardly grows with the fleet.

It follows `placement` line by line, with all devices at once where that has a loop, and looks no further down the line
once no device is left that anybody could take. It does not say what each waits for; `decide` does.
`tests/unit/scheduling/test_quick.py` holds that both plan alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from unifiednn_core.scheduling.columns import SEVERAL, Draft, Flags, FleetColumns, Floats, site_of
from unifiednn_core.scheduling.line import FleetView, HybridView, Move, Placed, Placement, Plan, Waiting, in_order
from unifiednn_core.scheduling.placement import GAIN_BY_COST, best_move, drained, usual_seconds
from unifiednn_core.scheduling.sites import Site, Sums

Places = npt.NDArray[np.int64]
Seen = tuple[HybridView, Mapping[str, tuple[float, float]]]
"""A hybrid, and for `FleetColumns.write` when those end that train."""
HybridNamed = Callable[[str], HybridView]


class QuickPlans:
    """Plans of a fleet that is told what changes."""

    def __init__(self, view: FleetView, pools: Mapping[str, float]):
        self.columns = FleetColumns(view)
        self.columns.give(pools)
        self._changed: dict[str, None] = {}
        self._guesses = False
        """Whether seconds of anybody are unknown."""

    def changed(self, hybrid_id: str) -> None:
        """Note that a hybrid begins, ends, or is not what it was."""
        self._changed[hybrid_id] = None

    def want(self, entry: Waiting, change: int) -> None:
        """Count an entry that waits (1), or waits no longer (-1)."""
        self.columns.want(entry, change)
        self._guesses = self._guesses or entry.left_s is None

    def plan(
        self, now_s: float, line: Sequence[Waiting], seen: Callable[[str], Seen | None], whole: Callable[[], FleetView]
    ) -> Plan:
        """Plan at a moment. `seen` shows a hybrid; `whole` is the view for `decide`."""
        changed = list(self._changed)
        self._changed.clear()
        for name in changed:
            found = seen(name)
            if found is None:
                self.columns.clear(name)
                continue
            self._guesses = self._guesses or any(one.left_s is None for one in found[0].members)
            if self.columns.write(*found):
                self._changed[name] = None

        def named(name: str) -> HybridView:
            found = seen(name)
            if found is None:
                raise LookupError(name)
            return found[0]

        return quick_plan(self.columns, now_s, line, named, usual_seconds(whole()) if self._guesses else 0.0)


def quick_plan(
    columns: FleetColumns, now_s: float, line: Sequence[Waiting], hybrid_named: HybridNamed, usual_s: float
) -> Plan:
    """Placements and moves of `decide`. `line` is in order, and `usual_s` counts where seconds are unknown.

    Modes are `pooled` and `private`; those that gather are for `decide`.
    """
    if columns.view.mode == "private" and not columns.draining and not (line and columns.any_free()):
        return Plan()
    found = _Filled(columns, now_s, usual_s).fill(line)
    if columns.view.mode == "pooled":
        found = _balanced(columns, now_s, line, usual_s, found)
    return Plan(
        placements=tuple(_placement(found.draft, at) for at in sorted(found.draft.entries)),
        moves=(*_drained(columns, hybrid_named), *_to_free_devices(found, hybrid_named)),
    )


class _Filled:
    """The fill pass of `placement.decide` on columns; places in the same order, and keeps no reasons for waiting."""

    def __init__(self, columns: FleetColumns, now_s: float, usual_s: float):
        self.columns, self.now_s, self.usual_s = columns, now_s, usual_s
        self.pooled = columns.view.mode == "pooled"
        self.draft = Draft(columns, now_s)
        self.placed = set[int]()

    def fill(self, line: Sequence[Waiting]) -> "_Filled":
        """Place all that can start now, in this order."""
        columns, draft = self.columns, self.draft
        joins = sum(map(_joins, line)) if self.pooled else 0
        left = self._takers(joins=joins > 0) if line else None
        for entry in line:
            if left is None or not left.any():
                break
            joins -= _joins(entry)
            if columns.circle(entry.people) == SEVERAL:
                continue
            alone = columns.alone(entry)
            sites = columns.usable(entry, alone) & ~draft.kept
            if not sites.any():
                continue
            if self._place(entry, sites, alone):
                self.placed.add(id(entry))
            else:
                self._keep(entry, sites, alone)
            left = self._takers(joins=joins > 0)
        return self

    def _takers(self, *, joins: bool) -> Flags:
        """Devices that anybody behind could take, memory apart; with `joins`, somebody there may join a hybrid."""
        columns, draft = self.columns, self.draft
        found: Flags = columns.ready & ~columns.resting & ~draft.kept
        found &= draft.empty | draft.takes if joins else draft.empty
        return found

    def _place(self, entry: Waiting, sites: Flags, alone: Floats | None) -> bool:
        columns, draft = self.columns, self.draft
        free = sites & draft.empty & ~columns.resting
        room = draft.free[columns.pool]
        free &= (0.0 if alone is None else alone) <= np.minimum(columns.total, room)
        free = columns.of_kinds(free, entry.claims)
        if free.any():
            places = _first(np.flatnonzero(free), (columns.wanted, columns.total), all_of_them=entry.claims > 1)
            best = int(places[0])
            draft.take(best, entry, opens=self.pooled, reason=f"{columns.view.devices[best].name} was free.")
            more = [int(at) for at in places[1:] if columns.kind[at] == columns.kind[best]][: entry.claims - 1]
            draft.also[best] = tuple(more)
            for at in more:
                draft.lend(at, entry)
            return True
        if not self.pooled or entry.need is None:
            return False
        joins = sites & ~columns.resting & draft.joinable(entry) & draft.summed
        if not joins.any():
            return False
        grows = draft.peaks(entry.need) - draft.predicted
        with np.errstate(invalid="ignore"):
            joins &= grows <= np.maximum(0.0, np.minimum(columns.shared_most - draft.predicted, room))
        places = np.flatnonzero(joins)
        if not places.size:
            return False
        cost_s = self.loads_s()
        if entry.need.data:
            cost_s = cost_s - draft.saved(entry.need) / columns.view.read_bytes_per_s
        best = int(_first(places, (cost_s, draft.count))[0])
        name = columns.view.devices[best].name
        draft.take(best, entry, opens=True, reason=f"{name} has room, and the least left to do of those that have.")
        return True

    def _keep(self, entry: Waiting, sites: Flags, alone: Floats | None) -> None:
        columns, draft = self.columns, self.draft
        idle = draft.empty | columns.resting
        predicted = np.nan_to_num(draft.predicted, nan=0.0)
        unknown = draft.unknown > 0
        alone_bytes: Any = 0.0 if alone is None else alone
        latest = np.where(unknown | (alone_bytes > draft.free[columns.pool] + predicted) | idle, inf, draft.known)
        joins = draft.joinable(entry) if self.pooled else np.zeros(len(idle), bool)
        ends = draft.known if columns.view.lanes == 1 else draft.most
        earliest = np.where(idle, 0.0, np.where(joins, np.where(unknown, 0.0, draft.least), ends))
        places = _first(np.flatnonzero(sites), (latest, earliest), all_of_them=entry.claims > 1)
        claimed = int(places[0])
        same = places[columns.kind[places] == columns.kind[claimed]][: entry.claims]
        draft.kept |= sites & (earliest < latest[same[-1]])
        draft.kept[same] = True
        ended = 0.0 if joins[claimed] else predicted[claimed]
        claims = 0.0 if alone is None else alone[claimed]
        draft.free[columns.pool[claimed]] -= max(0.0, claims - ended)

    def loads_s(self) -> Floats:
        """Seconds left on each device."""
        draft = self.draft
        loads: Floats = draft.known + draft.unknown * self.usual_s if self.usual_s else draft.known
        return loads

    def fits_free(self, site: Site, members: Sequence[Placed]) -> bool:
        """Whether these fit on a free device."""
        sums = Sums().add(*(member.need for member in members if member.need is not None))
        room = min(site.most_bytes(alone=len(members) == 1), self.draft.free[self.columns.pool[site.index]])
        return bool(site.peak_bytes(sums) <= room)

    @property
    def view(self) -> FleetView:
        """Settings and moment."""
        return replace(self.columns.view, now_s=self.now_s)


def _joins(entry: Waiting) -> bool:
    """Whether it may join a hybrid at all."""
    return entry.need is not None and not entry.private


def _first(places: Places, keys: Sequence[Floats], *, all_of_them: bool = False) -> Places:
    """Places in the order of these keys, the first one foremost, then of the devices; or only the first place."""
    if all_of_them:
        return places[np.lexsort([key[places] for key in reversed(keys)])]
    for key in keys:
        values = key[places]
        places = places[values == values.min()]
    return places[:1]


def _balanced(columns: FleetColumns, now_s: float, line: Sequence[Waiting], usual_s: float, filled: _Filled) -> _Filled:
    """Fill again in the orders of `placement._balanced`; all who start must still start, with the lowest loads."""
    until = next((at for at, entry in enumerate(line) if id(entry) not in filled.placed), len(line))
    if until < 2 or len(columns.index) < 2:
        return filled

    def left_s(entry: Waiting) -> float:
        return usual_s if entry.left_s is None else entry.left_s

    orders: tuple[Callable[[Waiting], tuple[float, ...]], ...] = (
        lambda entry: (-left_s(entry),), lambda entry: (len(entry.devices), -left_s(entry)))  # fmt: skip
    best = filled
    for order in orders:
        found = _Filled(columns, now_s, usual_s).fill([*sorted(line[:until], key=order), *line[until:]])
        all_start = all(id(entry) in found.placed for entry in line[:until])
        if all_start and _most_first(found.loads_s()) < _most_first(best.loads_s()):
            best = found
    return best


def _most_first(loads_s: Floats) -> list[float]:
    found: list[float] = np.sort(loads_s)[::-1].tolist()
    return found


def _placement(draft: Draft, at: int) -> Placement:
    columns, entries = draft.columns, draft.entries[at]
    device, first = columns.view.devices[at], entries[0]
    hybrid_id = columns.hybrid_of[at]
    return Placement(
        keys=tuple(key for entry in in_order(entries) for key in entry.keys), device=device.name,
        also=tuple(columns.view.devices[one].name for one in draft.also.get(at, ())), hybrid_id=hybrid_id,
        private=first.private, threads=int(draft.threads_now[at]), profile=first.profile, reason=draft.reasons[at],
    )  # fmt: skip


def _drained(columns: FleetColumns, hybrid_named: HybridNamed) -> tuple[Move, ...]:
    """Moves of `placement.drained`, asked only for the hybrids on devices that drain."""
    ids = {str(columns.hybrid_of[at]) for at in columns.draining if columns.hybrid_of[at] is not None}
    hybrids = tuple(map(hybrid_named, sorted(ids, key=columns.born.__getitem__)))
    return tuple(drained(replace(columns.view, hybrids=hybrids))) if ids else ()


def _to_free_devices(filled: _Filled, hybrid_named: HybridNamed) -> list[Move]:
    """Moves to devices that nobody in line can use, as `placement._to_free_devices` finds them.

    Looks only at hybrids where a move can pay: a member gains at most what the others of its hybrid still have to do.
    """
    columns, draft, cost_s = filled.columns, filled.draft, filled.view.move_cost_s
    if not filled.pooled or cost_s == inf:
        return []
    free = np.flatnonzero(draft.empty & columns.ready & ~columns.resting & ~draft.kept)
    if not free.size:
        return []
    # Sums are rounded here and there.
    pays = columns.ready & (draft.known - draft.most - cost_s > (1 - 1e-6) * GAIN_BY_COST * cost_s)
    pays &= columns.rows[0] > 0  # not those of this plan
    ids = sorted({str(columns.hybrid_of[at]) for at in np.flatnonzero(pays)}, key=columns.born.__getitem__)
    views = [view for view in map(hybrid_named, ids) if not view.private and columns.ready[columns.index[view.device]]]
    rich: Mapping[str, list[Placed]] = {view.id: list(view.members) for view in views}
    asked = {member.devices for view in views for member in view.members}
    found: list[Move] = []
    useless = set[object]()
    for at in free if rich else ():
        site, goes = site_of(columns, int(at)), list[Placed]()
        where = tuple(bool(columns.mask(names)[at]) for names in asked)
        alike = where, site.device.total_bytes, site.device.context_bytes, float(draft.free[columns.pool[at]])
        if alike in useless:
            continue
        while (best := best_move(filled, site, rich, goes)) is not None:
            hybrid_id, member = best
            rich[hybrid_id].remove(member)
            goes.append(member)
            found.append(Move(key=member.key, hybrid_id=hybrid_id, reason=f"{site.device.name} is free."))
        if not goes:
            useless.add(alike)
    return found
