"""Placement: which sub-model trains in which hybrid, on which device. `decide(view) -> Plan`, pure, without torch.

There is one line for all devices: nothing is bound to a device before it can start there. The supervisor builds the
frozen view and enacts the plan.

Order: by submission, or as an operator moved runs, then by arrival. Each entry takes a free device, the one that the
fewest others can use; if none is free it joins the hybrid with the least left to do. An entry that cannot start claims
a device, and keeps others, so that no later entry delays it:

- On each device that it can use it has an earliest and a latest start if no other entry comes. Latest: when all that
  train there have ended, since a device with work does not rest. Earliest: the same, or, if it may join, when the
  first of them ends. Unknown seconds make the latest start infinite, and the earliest one 0 if it may join.
- It claims the device with the least latest start among those that no earlier entry keeps. It keeps this one, and each
  with an earlier earliest start. No later entry is placed on a device that is kept.
- Where devices draw on common memory, what it needs on the claimed one is taken off what is free for those behind.

So an entry overtakes the first in line only where the first can never start, or not before it starts elsewhere: as long
as predicted seconds are right, nothing moves and other programs keep their memory, the first would start no earlier
without the overtakers. If it waits for memory of other programs, all behind it that ask for its devices wait.

Entries that no device can serve hold up no other: those whose own people may not share a process, those that need more
than any device has, and those that gather.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.scheduling.line import (
    COMPANY_SHARE,
    DeviceView,
    FleetView,
    HybridView,
    Move,
    Need,
    Placed,
    Placement,
    Plan,
    Waiting,
    in_order,
)
from unifiednn_core.spec.devices import CUDA, host_of
from unifiednn_core.spec.sharing import PERMISSION

READ_BYTES_PER_S = 200e6
"""Speed at which data sets become resident: what a hybrid saves that holds them."""
MEMORY_SHARE = 0.9
"""Share of a device that the predicted peak of a hybrid may take if it has more than one submission."""

NOTHING = Need(kept_bytes=0, working_bytes=0)


def hybrid_bytes(needs: Iterable[Need], context_bytes: int, *, lanes: int = 1) -> int:
    """Most memory that a hybrid can take under any policy: when all have started, and the worst of them steps."""
    return Sums().add(*needs).peak_bytes(context_bytes, lanes)


def predicted_bytes(hybrid: HybridView, device: DeviceView, lanes: int) -> int | None:
    """Predicted peak of a hybrid on its device; None if that of a member is unknown."""
    needs = [member.need for member in hybrid.members if member.need is not None]
    if hybrid.private or len(needs) < len(hybrid.members):
        return hybrid.peak_bytes
    return hybrid_bytes(needs, device.context_bytes, lanes=lanes)


@dataclass(slots=True)
class Sums:
    """What the memory of a hybrid follows from; the peak takes the same time however many members there are."""

    kept_bytes: int = 0
    copies_bytes: int = 0
    working_bytes: int = 0
    """The most of any."""
    unslack_bytes: int = 0
    """The most of any, without its slack: copies come on top."""
    company_bytes: int = 0
    most_company_bytes: int = 0
    data: dict[str, int] = field(default_factory=dict)
    data_bytes: int = 0

    def add(self, *needs: Need) -> "Sums":
        """Count more sub-models; returns itself."""
        for need in needs:
            self.kept_bytes += need.kept_bytes
            self.copies_bytes += need.copies_bytes
            self.working_bytes = max(self.working_bytes, need.working_bytes)
            self.unslack_bytes = max(self.unslack_bytes, need.working_bytes - need.slack_bytes)
            self.company_bytes += need.company_bytes
            self.most_company_bytes = max(self.most_company_bytes, need.company_bytes)
            self.data_bytes += self._new_data_bytes(need)
            self.data.update(need.data)
        return self

    def peak_bytes(self, context_bytes: int, lanes: int, more: Need = NOTHING) -> int:
        """Most memory with the context, of all and one more."""
        unslack_bytes = max(self.unslack_bytes, more.working_bytes - more.slack_bytes)
        copies_bytes = self.copies_bytes + more.copies_bytes
        steps_bytes = max(self.working_bytes, more.working_bytes, unslack_bytes + copies_bytes)
        kept_bytes = self.kept_bytes + more.kept_bytes + self.data_bytes + self._new_data_bytes(more)
        peak_bytes = context_bytes + kept_bytes + steps_bytes
        if lanes < 2:
            return peak_bytes
        most_bytes = max(self.most_company_bytes, more.company_bytes)
        return peak_bytes + min(self.company_bytes + more.company_bytes - most_bytes, int(COMPANY_SHARE * peak_bytes))

    def _new_data_bytes(self, need: Need) -> int:
        return sum(size for sha256, size in need.data.items() if sha256 not in self.data)


EMPTY = Sums()


@dataclass(slots=True)
class Work:
    """Seconds left on a device."""

    known_s: float = 0.0
    least_s: float = inf
    most_s: float = 0.0
    unknown: int = 0
    count: int = 0

    def add(self, left_s: float | None) -> None:
        """Count one more sub-model."""
        self.count += 1
        if left_s is None:
            self.unknown += 1
            return
        self.known_s += left_s
        self.least_s, self.most_s = min(self.least_s, left_s), max(self.most_s, left_s)


@dataclass(slots=True)
class Site:
    """A device while a plan is made: with its hybrid, and with what the plan adds."""

    device: DeviceView
    index: int
    hybrid: HybridView | None
    lanes: int
    sums: Sums | None = None
    """None: the memory of a member is unknown, so nobody joins."""
    predicted_bytes: int | None = 0
    work: Work = field(default_factory=Work)
    circles: frozenset[tuple[str, ...]] = frozenset()
    threads: int = 0
    profile: str = ""
    open: bool = False
    """Whether others may join it."""
    entries: list[Waiting] = field(default_factory=list)
    also: tuple[str, ...] = ()
    """Further devices that its new hybrid takes."""
    lent: bool = False
    """Whether a new hybrid of another device takes it, too."""
    private: bool = False
    reasons: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether it has no hybrid, and gets none so far."""
        return self.hybrid is None and not self.entries and not self.lent

    @property
    def usable(self) -> bool:
        """Whether anything may be placed there."""
        return self.device.state == "ready"

    def alone_bytes(self, entry: Waiting) -> int | None:
        """Predicted peak of a hybrid of this entry only; None if unknown."""
        if entry.peak_bytes is not None or entry.need is None:
            return entry.peak_bytes
        return self.peak_bytes(EMPTY, entry.need, lanes=1)

    def joined_bytes(self, need: Need) -> int | None:
        """Predicted peak with one more; None if unknown."""
        return None if self.sums is None else self.peak_bytes(self.sums, need)

    def peak_bytes(self, sums: Sums, more: Need = NOTHING, *, lanes: int | None = None) -> int:
        """Predicted peak of a hybrid of these on this device."""
        return sums.peak_bytes(self.device.context_bytes, lanes or self.lanes, more)

    def most_bytes(self, *, alone: bool) -> float:
        """Memory that a hybrid may take. One submission alone may take it all, as its check has promised."""
        total_bytes = self.device.total_bytes
        return inf if total_bytes is None else total_bytes if alone else int(MEMORY_SHARE * total_bytes)

    def ever_holds(self, entry: Waiting) -> bool:
        """Whether the device, if it were free, could train it."""
        return (self.alone_bytes(entry) or 0) <= self.most_bytes(alone=True)

    def accepts(self, entry: Waiting, circles: frozenset[tuple[str, ...]]) -> bool:
        """Whether an entry may join the hybrid, memory apart."""
        same = self.device.type == CUDA or (entry.threads or self.device.threads) == self.threads
        same = same and entry.profile == self.profile and len(circles | self.circles) <= 1
        return self.open and same and entry.need is not None and not entry.private

    def take(self, entry: Waiting, circles: frozenset[tuple[str, ...]], *, opens: bool, reason: str) -> int:
        """Place an entry; returns the bytes by which the prediction grows."""
        before_bytes = self.predicted_bytes or 0
        if self.empty:
            self.threads, self.profile = entry.threads or self.device.threads, entry.profile
            self.private, self.open = entry.private, opens and not entry.private and entry.need is not None
            self.sums = Sums().add(entry.need) if self.open and entry.need is not None else None
            self.predicted_bytes = self.alone_bytes(entry)
        elif entry.need is not None and self.sums is not None:
            self.predicted_bytes = self.joined_bytes(entry.need)
            self.sums.add(entry.need)
        self.circles |= circles
        self.work.add(entry.left_s)
        self.entries.append(entry)
        self.reasons.append(reason)
        return (self.predicted_bytes or 0) - before_bytes

    def lend(self, entry: Waiting) -> int:
        """Let an entry that trains on another device have this one, too; returns the bytes that it takes here."""
        self.lent, self.private, self.predicted_bytes = True, True, self.bytes_of(self.alone_bytes(entry) or 0)
        self.work.add(entry.left_s)
        return self.predicted_bytes

    def bytes_of(self, peak_bytes: int) -> int:
        """Bytes here of a hybrid that has this device beside its first: none where both draw on common memory."""
        return 0 if self.device.pool else peak_bytes

    def placement(self) -> Placement:
        """What the plan adds here."""
        keys = tuple(key for entry in in_order(self.entries) for key in entry.keys)
        hybrid_id = None if self.hybrid is None else self.hybrid.id
        return Placement(
            keys=keys,
            device=self.device.name,
            also=self.also,
            hybrid_id=hybrid_id,
            private=self.private,
            threads=self.threads,
            profile=self.profile,
            reason=self.reasons[0],
        )


STAY_S = 600.0
"""Nothing moves to a free device twice within so long."""
GAIN_BY_COST = 5.0
"""A move to a free device must save so many times what it costs."""


def decide(view: FleetView) -> Plan:
    """Place what can start now, say what each other one waits for, and move what should train elsewhere."""
    line = in_order(view.waiting)
    fleet = _filled(view, line)
    if view.mode == "pooled":
        fleet = _balanced(view, line, fleet)
    return Plan(
        placements=tuple(site.placement() for site in fleet.sites if site.entries),
        moves=(*_drained(view), *_to_free_devices(fleet)),
        waits={key: text for entry, text in fleet.left for key in entry.keys},
    )


def _usual_seconds(view: FleetView) -> float:
    """Mean of the seconds left that are known."""
    lefts_s = [member.left_s for hybrid in view.hybrids for member in hybrid.members]
    known_s = [left_s for left_s in (*lefts_s, *(entry.left_s for entry in view.waiting)) if left_s is not None]
    return sum(known_s) / len(known_s) if known_s else 1.0


class _Fleet:
    """All devices while a plan is made."""

    def __init__(self, view: FleetView):
        self.view = view
        self._circle_of: dict[str, tuple[str, ...]] = {}
        by_device = {name: hybrid for hybrid in view.hybrids for name in (hybrid.device, *hybrid.also)}
        self.sites = [self._site(at, device, by_device.get(device.name)) for at, device in enumerate(view.devices)]
        self.by_name = {site.device.name: site for site in self.sites}
        self._free_bytes: dict[str, float] = {}
        for site in self.sites:
            pool, free_bytes = self._pool(site), site.device.free_bytes
            known = inf if free_bytes is None else free_bytes
            self._free_bytes[pool] = min(self._free_bytes.get(pool, inf), known)
        for site in self.sites:  # what is promised and not taken yet is not free
            used_bytes = None if site.hybrid is None else site.hybrid.used_bytes
            if used_bytes is not None and site.predicted_bytes:
                self._free_bytes[self._pool(site)] -= max(0, site.predicted_bytes - used_bytes)
        self.usual_s = _usual_seconds(view)
        """What an unknown number of seconds counts as, where devices are compared."""
        asked_by = Counter(entry.devices for entry in view.waiting)
        self._wanted: Counter[str] = Counter()
        for devices, count in asked_by.items():
            self._wanted.update(dict.fromkeys(devices, count))
        self._ready: dict[frozenset[str], list[Site]] = {}
        self.kept: set[str] = set()
        """Devices that are kept for an entry in line."""
        self.left: list[tuple[Waiting, str]] = []
        """Entries that are not placed, and what each waits for."""
        self.gathering = _gathering(view, self.circles)

    def circles(self, people: Iterable[str]) -> frozenset[tuple[str, ...]]:
        """Keys of the people with whom each of them may share a process: one, if they may share it themselves."""
        known = self._circle_of
        return frozenset(known.setdefault(one, self.view.rule.circle(one)) for one in people)

    def usable(self, entry: Waiting) -> list[Site]:
        """Devices on which it can train some day, as far as memory and states now say."""
        sites = self._ready.get(entry.devices)
        if sites is None:
            found = (self.by_name[name] for name in entry.devices if name in self.by_name)
            sites = sorted((site for site in found if site.usable), key=lambda site: site.index)
            self._ready[entry.devices] = sites
        sites = [site for site in sites if site.ever_holds(entry)]
        kinds = Counter(site.device.kind for site in sites)
        return [site for site in sites if kinds[site.device.kind] >= entry.claims]

    def place(self, entry: Waiting, sites: Sequence[Site]) -> Site | None:
        """Place an entry on the best of these devices where it can start now; None if there is none."""
        circles, pooled = self.circles(entry.people), self.view.mode == "pooled"
        free = [site for site in sites if site.empty and not site.device.resting and self._starts(entry, site)]
        kinds = Counter(site.device.kind for site in free)
        free = [site for site in free if kinds[site.device.kind] >= entry.claims]
        if free:
            free.sort(key=lambda site: (self._wanted[site.device.name], site.most_bytes(alone=True), site.index))
            best = free[0]
            self._take(best, entry, opens=pooled, reason=f"{best.device.name} was free.")
            more = [site for site in free[1:] if site.device.kind == best.device.kind][: entry.claims - 1]
            best.also = tuple(site.device.name for site in more)
            for site in more:
                self._free_bytes[self._pool(site)] -= site.lend(entry)
            return best
        joins = [site for site in sites if pooled and self._joins(entry, site, circles)]
        if not joins:
            return None
        best = min(joins, key=lambda site: (self._cost_s(entry, site), site.work.count, site.index))
        reason = f"{best.device.name} has room, and the least left to do of those that have."
        self._take(best, entry, opens=True, reason=reason)
        return best

    def gather(self, first: Waiting, site: Site, others: Iterable[Waiting]) -> list[Waiting]:
        """Place those that gathered with the first one into its new hybrid; returns who fits."""
        site.open, placed = first.need is not None, []
        site.sums = None if first.need is None else Sums().add(first.need)
        for entry in others:
            if site.device.name in entry.devices and self._joins(entry, site, self.circles(entry.people)):
                self._take(site, entry, opens=False, reason="")
                placed.append(entry)
        site.open = False
        return placed

    def _take(self, site: Site, entry: Waiting, *, opens: bool, reason: str) -> None:
        grows_bytes = site.take(entry, self.circles(entry.people), opens=opens, reason=reason)
        self._free_bytes[self._pool(site)] -= grows_bytes

    def _starts(self, entry: Waiting, site: Site) -> bool:
        """Whether a free device has the memory now."""
        return (site.alone_bytes(entry) or 0) <= min(site.most_bytes(alone=True), self._free_bytes[self._pool(site)])

    def _joins(self, entry: Waiting, site: Site, circles: frozenset[tuple[str, ...]]) -> bool:
        if site.device.resting or not site.accepts(entry, circles):
            return False
        room = self.room(entry, site)
        return room is not None and room[0] <= room[1]

    def joinable(self, entry: Waiting, site: Site) -> bool:
        """Whether only memory keeps an entry from a device."""
        joins = self.view.mode == "pooled" and site.accepts(entry, self.circles(entry.people))
        return not site.device.resting and (site.empty or joins)

    def fits_free(self, site: Site, members: Sequence[Placed]) -> bool:
        """Whether these fit on a free device."""
        sums = Sums().add(*(member.need for member in members if member.need is not None))
        needed_bytes = site.peak_bytes(sums)
        return needed_bytes <= min(site.most_bytes(alone=len(members) == 1), self._free_bytes[self._pool(site)])

    def room(self, entry: Waiting, site: Site) -> tuple[int, float] | None:
        """Bytes that an entry would take more on a device, and bytes that it may take; None if unknown."""
        free_bytes = self._free_bytes[self._pool(site)]
        if site.empty:
            alone_bytes = site.alone_bytes(entry)
            room_bytes = max(0, min(site.most_bytes(alone=True), free_bytes))
            return None if alone_bytes is None else (alone_bytes, room_bytes)
        joined_bytes = None if entry.need is None else site.joined_bytes(entry.need)
        if joined_bytes is None or site.predicted_bytes is None:
            return None
        room_bytes = site.most_bytes(alone=False) - site.predicted_bytes
        return joined_bytes - site.predicted_bytes, max(0, min(room_bytes, free_bytes))

    def _cost_s(self, entry: Waiting, site: Site) -> float:
        """Seconds left there, without those that resident data sets save."""
        held = set() if site.sums is None or entry.need is None else site.sums.data.keys() & entry.need.data.keys()
        saved_bytes = 0 if entry.need is None else sum(entry.need.data[sha256] for sha256 in held)
        return self._load_s(site) - saved_bytes / READ_BYTES_PER_S

    def expected_s(self, left_s: float | None) -> float:
        """Seconds left, or what is usual."""
        return self.usual_s if left_s is None else left_s

    def loads_s(self) -> list[float]:
        """Seconds left on the devices, most first."""
        return sorted(map(self._load_s, self.sites), reverse=True)

    def _load_s(self, site: Site) -> float:
        return site.work.known_s + site.work.unknown * self.usual_s

    def starts_within(self, entry: Waiting, site: Site) -> tuple[float, float]:
        """Seconds until its earliest and its latest start on a device, if nobody else comes."""
        work, alone_bytes = site.work, site.alone_bytes(entry) or 0
        all_free_bytes = self._free_bytes[self._pool(site)] + (site.predicted_bytes or 0)
        if site.empty or site.device.resting:  # it waits for memory of other programs, or for a moment
            return 0.0, inf
        latest_s = inf if work.unknown or alone_bytes > all_free_bytes else work.known_s
        if self.view.mode == "pooled" and site.accepts(entry, self.circles(entry.people)):
            return 0.0 if work.unknown else work.least_s, latest_s
        return work.known_s if self.view.lanes == 1 else work.most_s, latest_s

    def keep(self, entry: Waiting, sites: Sequence[Site]) -> None:
        """Keep devices for an entry that cannot start now, so that no later one delays it; see the top of the file."""
        starts = [(self.starts_within(entry, site), site) for site in sites]
        starts.sort(key=lambda start: (start[0][1], start[0][0], start[1].index))
        claimed = starts[0][1]
        same = [start for start in starts if start[1].device.kind == claimed.device.kind][: entry.claims]
        latest_s = same[-1][0][1]
        for start in starts:
            if start in same or start[0][0] < latest_s:
                self.kept.add(start[1].device.name)
        joins = self.view.mode == "pooled" and claimed.accepts(entry, self.circles(entry.people))
        ended_bytes = 0 if joins else claimed.predicted_bytes or 0
        self._free_bytes[self._pool(claimed)] -= max(0, (claimed.alone_bytes(entry) or 0) - ended_bytes)

    def _pool(self, site: Site) -> str:
        return site.device.pool or site.device.name

    def _site(self, index: int, device: DeviceView, hybrid: HybridView | None) -> Site:
        site = Site(device, index, hybrid, self.view.lanes)
        if hybrid is None:
            return site
        needs = [member.need for member in hybrid.members if member.need is not None]
        site.predicted_bytes = predicted_bytes(hybrid, device, self.view.lanes)
        if device.name != hybrid.device and site.predicted_bytes is not None:
            site.predicted_bytes = site.bytes_of(site.predicted_bytes)
        site.sums = None if site.predicted_bytes is None or hybrid.private else Sums().add(*needs)
        for member in hybrid.members:
            site.work.add(member.left_s)
            site.circles |= self.circles(member.people)
        site.threads, site.profile, site.private = hybrid.threads, hybrid.profile, hybrid.private
        site.open = hybrid.accepts and not hybrid.private
        return site


def _filled(view: FleetView, line: Sequence[Waiting]) -> _Fleet:
    """Place all entries that can start now, in this order."""
    fleet, placed = _Fleet(view), set[int]()
    for entry in line:
        if id(entry) in placed:
            continue
        sites = fleet.usable(entry)
        obstacle = _hopeless(fleet, entry, sites) or fleet.gathering.get(id(entry))
        if obstacle is not None:
            fleet.left.append((entry, obstacle))
            continue
        allowed = [site for site in sites if site.device.name not in fleet.kept]
        if not allowed:
            before = len(fleet.left)
            fleet.left.append((entry, f"its turn; {before} {'is' if before == 1 else 'are'} before it in line"))
            continue
        site = fleet.place(entry, allowed)
        if site is None:
            fleet.left.append((entry, _shortage(fleet, entry, allowed)))
            fleet.keep(entry, allowed)
            continue
        placed.add(id(entry))
        if view.mode == "gathered" and not entry.private:
            others = [other for other in line if other is not entry and _together(other, entry)]
            ready = [other for other in others if id(other) not in fleet.gathering and id(other) not in placed]
            placed.update(map(id, fleet.gather(entry, site, ready)))
    return fleet


def _balanced(view: FleetView, line: Sequence[Waiting], filled: _Fleet) -> _Fleet:
    """Spread those before the first who cannot start in the order that leaves the least to do on any device.

    All of them start now, so nobody is delayed by another order: longest first, with and without those first who can
    use the fewest devices.
    """
    left = {id(entry) for entry, _ in filled.left}
    until = next((at for at, entry in enumerate(line) if id(entry) in left), len(line))
    orders: tuple[Callable[[Waiting], tuple[float, ...]], ...] = (
        lambda entry: (-filled.expected_s(entry.left_s),),
        lambda entry: (len(entry.devices), -filled.expected_s(entry.left_s)),
    )
    best = filled
    for order in orders if until > 1 and len(filled.sites) > 1 else ():
        fleet = _filled(view, [*sorted(line[:until], key=order), *line[until:]])
        waits = {id(entry) for entry, _ in fleet.left}
        if not any(id(entry) in waits for entry in line[:until]) and fleet.loads_s() < best.loads_s():
            best = fleet
    return best


def _together(one: Waiting, other: Waiting) -> bool:
    """Whether two can start as one, memory and people apart."""
    same = (one.devices, one.threads, one.profile) == (other.devices, other.threads, other.profile)
    return same and not one.private and not other.private


def _gathering(view: FleetView, circles: Callable[[Iterable[str]], frozenset[tuple[str, ...]]]) -> Mapping[int, str]:
    """What those wait for that still gather, by identity of the entry."""
    if view.mode != "gathered":
        return {}
    groups: dict[Hashable, list[Waiting]] = {}
    for entry in view.waiting:
        if not entry.private:
            key = (circles(entry.people), entry.devices, entry.threads, entry.profile)
            groups.setdefault(key, []).append(entry)
    found = {}
    for group in groups.values():
        left_s = min(entry.submitted_at_s for entry in group) + view.gather_s - view.now_s
        more = view.gather_n - len(group)
        if left_s > 0 and more > 0:
            shown = f"{ceil(left_s)} s" if left_s < 59 else duration_text(left_s)
            text = f"{more} more submission{'s' if more > 1 else ''} or {shown}"
            found.update({id(entry): text for entry in group})
    return found


def _hopeless(fleet: _Fleet, entry: Waiting, sites: Sequence[Site]) -> str | None:
    """Why no device helps an entry, as text after "waits for"; None if one may."""
    if len(fleet.circles(entry.people)) > 1:
        return f"{PERMISSION}: an admin gives it on the page Admin or with 'unifiednn people'"
    if sites:
        return None
    matching = [fleet.by_name[name] for name in sorted(entry.devices) if name in fleet.by_name]
    asked, ready = _asked(entry), [site for site in matching if site.usable]
    if not ready:
        states = ", ".join(f"{site.device.name} is {_STATES[site.device.state]}" for site in matching[:3])
        if entry.kind is not None and (entry.asked in _WORDS or not matching):
            like = f"a device like the one it began on ({entry.kind}), so that its bits stay the same"
            others = f"'unifiednn edit {entry.run_id} --moves any' lets it use another kind"
            return f"{like}; {states or 'none is there now'}. {others}"
        return f"{asked}; {states}" if matching else f"{asked}, which this server does not have now"
    most = max(Counter(site.device.kind for site in ready).values())
    if most < entry.claims:
        return f"{entry.claims} devices of one kind at once; {most} of those that it asks for {_ARE[most == 1]} ready"
    best = max(ready, key=lambda site: (site.most_bytes(alone=True), -site.index))
    needed, has = memory_text(best.alone_bytes(entry)), memory_text(best.device.total_bytes)
    return f"{needed} on {asked}; {best.device.name} has {has} in all. Stop it, and submit it with smaller batches"


def _shortage(fleet: _Fleet, entry: Waiting, sites: Sequence[Site]) -> str:
    """What an entry waits for that none of these devices can start now, as text after "waits for"."""
    asked = _asked(entry)
    lacking = [(site, room) for site in sites if fleet.joinable(entry, site) and (room := fleet.room(entry, site))]
    if lacking:
        site, (needed_bytes, room_bytes) = max(lacking, key=lambda found: found[1][1] - found[1][0])
        if needed_bytes > room_bytes:
            return f"{memory_text(needed_bytes)} on {asked}; {site.device.name} has {memory_text(int(room_bytes))} free"
    if entry.claims > 1:
        free = sum(site.empty and not site.device.resting for site in sites)
        return f"{entry.claims} devices of one kind to be free at once; {free} {_ARE[free == 1]} now"
    soonest = min(sites, key=lambda site: (fleet.starts_within(entry, site)[1], site.index))
    name = soonest.device.name
    if soonest.device.resting:
        return f"{name}, which starts in a moment"
    # When that is would soon be wrong in a text that is kept; the forecast of the line says it.
    known = name != asked and fleet.starts_within(entry, soonest)[1] < inf
    return f"{asked} to be free; {name} is the first" if known else f"{asked} to be free"


_ARE = {True: "is", False: "are"}
_STATES = {"draining": "drained", "away": "away"}


def _asked(entry: Waiting) -> str:
    """The device that an entry asks for, in words."""
    if entry.asked in _WORDS and entry.kind:
        return f"any {entry.kind}"
    if entry.asked in _WORDS:
        return _WORDS[entry.asked]
    if entry.devices and all(host_of(name) == entry.asked for name in entry.devices):
        return f"a device of {entry.asked}"
    return entry.asked if ":" in entry.asked or entry.asked in entry.devices else f"any {entry.asked}"


_WORDS = {"auto": "any device", "cuda": "any GPU", "cpu": "the CPU"}


def _drained(view: FleetView) -> Iterator[Move]:
    """All sub-models leave a device that is drained."""
    states = {device.name: device.state for device in view.devices}
    for hybrid in view.hybrids:
        drained = next((name for name in (hybrid.device, *hybrid.also) if states.get(name) == "draining"), None)
        if drained is not None:
            reason = f"{drained} is drained."
            yield from (Move(key=m.key, hybrid_id=hybrid.id, reason=reason) for m in hybrid.members if not m.leaving)


def _to_free_devices(fleet: _Fleet) -> Iterator[Move]:
    """Who leaves a hybrid of several for a device that nobody in line can use."""
    if fleet.view.mode != "pooled":
        return
    free = [site for site in fleet.sites if site.empty and site.usable and not site.device.resting]
    free = [site for site in free if site.device.name not in fleet.kept]
    stay = {site.device.name for site in fleet.sites if site.usable}
    rich = {
        hybrid.id: list(hybrid.members) for hybrid in fleet.view.hybrids if hybrid.device in stay and not hybrid.private
    }
    for site in free:
        goes: list[Placed] = []
        while (found := _best_move(fleet, site, rich, goes)) is not None:
            hybrid_id, member = found
            rich[hybrid_id].remove(member)
            goes.append(member)
            yield Move(key=member.key, hybrid_id=hybrid_id, reason=f"{site.device.name} is free.")


def _best_move(
    fleet: _Fleet, site: Site, rich: Mapping[str, Sequence[Placed]], there: Sequence[Placed]
) -> tuple[str, Placed] | None:
    """The member whose end a move to a device brings forward most, with its hybrid; None if no move pays."""
    now_s, cost_s = fleet.view.now_s, fleet.view.move_cost_s
    best: tuple[float, str, Placed] | None = None
    for hybrid_id, members in rich.items():
        if len(members) < 2 or any(member.left_s is None or member.leaving for member in members):
            continue
        for member in members:
            if site.device.name not in member.devices or member.need is None:
                continue
            stays = member.moved_at_s is not None and now_s - member.moved_at_s < STAY_S
            if stays or not fleet.fits_free(site, [*there, member]):
                continue
            gain_s = _in_turns_s(member, members) - cost_s - _in_turns_s(member, [*there, member])
            if gain_s > GAIN_BY_COST * cost_s and (best is None or gain_s > best[0]):
                best = gain_s, hybrid_id, member
    return None if best is None else best[1:]


def _in_turns_s(member: Placed, members: Iterable[Placed]) -> float:
    """Seconds until a member ends if all of these take turns."""
    left_s = member.left_s or 0.0
    return sum(min(left_s, other.left_s or 0.0) for other in members)
