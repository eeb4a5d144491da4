"""All devices of a fleet as columns of numbers that are kept between plans: what `placement` knows of each `Site`.

A column has one number for each device, in the order of the view. Seconds of those that train now are kept as the
moments at which they end, so time passes without a change of any number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import numpy.typing as npt

from unifiednn_core.scheduling.line import DeviceView, FleetView, HybridView, Need, Waiting
from unifiednn_core.scheduling.sites import MEMORY_SHARE, Site, Sums, predicted_bytes
from unifiednn_core.spec.devices import CUDA

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NOBODY, SEVERAL = -1, -2
"""Circles of a hybrid without people, and of one whose people may not share a process."""
_ROWS = (
    "held", "accepts", "takes", "predicted", "summed", "kept", "copies", "working", "unslack", "company",
    "most_company", "data", "threads_now", "profile_now", "circle", "known", "rate", "least", "most", "first_end",
    "last_end", "end_rate", "unknown", "count",
)  # fmt: skip


class FleetColumns:
    """Devices, and the hybrids that hold them. `write` and `clear` follow what happens; plans only read."""

    def __init__(self, view: FleetView):
        self.view = view
        devices = view.devices
        self.index = {device.name: at for at, device in enumerate(devices)}
        self.ready = np.array([device.state == "ready" for device in devices])
        self.resting = np.array([device.resting for device in devices])
        self.total = _floats([inf if device.total_bytes is None else device.total_bytes for device in devices])
        self.shared_most = _floats(
            [inf if device.total_bytes is None else int(MEMORY_SHARE * device.total_bytes) for device in devices]
        )
        self.context = _floats([device.context_bytes for device in devices])
        self.threads = _floats([device.threads for device in devices])
        self.on_gpu = np.array([device.type == CUDA for device in devices])
        self.pooled = np.array([bool(device.pool) for device in devices])
        self.kind = _codes([device.kind for device in devices])
        self.pool = _codes([device.pool or device.name for device in devices])
        self.free = np.full(int(self.pool.max(initial=-1)) + 1, inf)
        """Bytes of each pool that hybrids may take more."""
        for at, device in enumerate(devices):
            free_bytes = inf if device.free_bytes is None else device.free_bytes
            self.free[self.pool[at]] = min(self.free[self.pool[at]], free_bytes)
        self.rows = np.zeros((len(_ROWS), len(devices)))
        self.wanted = np.zeros(len(devices))
        """How many that wait can use a device."""
        self.draining = [at for at, device in enumerate(devices) if device.state == "draining"]
        self.hybrid_of: list[str | None] = [None] * len(devices)
        self.born: dict[str, int] = {}
        self._places: dict[str, list[int]] = {}
        self._pool_bytes: dict[str, tuple[int, float]] = {}
        """What the prediction of each hybrid takes of which pool."""
        self._masks: dict[frozenset[str], Flags] = {}
        self._circles: dict[tuple[str, ...], int] = {}
        self._circle_of: dict[tuple[str, ...], int] = {}
        self._profiles: dict[str, int] = {}
        self.data: dict[str, Flags] = {}
        """By content hash of a data set: where it is resident."""

    def change(self, device: DeviceView) -> None:
        """Note the new state of a device."""
        at = self.index[device.name]
        self.ready[at] = device.state == "ready"
        devices = (*self.view.devices[:at], device, *self.view.devices[at + 1 :])
        self.view = replace(self.view, devices=devices)
        self.draining = [place for place, one in enumerate(devices) if one.state == "draining"]

    def any_free(self) -> bool:
        """Whether a device that is ready has no hybrid."""
        return bool((self.ready & (self.rows[0] == 0)).any())

    def give(self, pools: Mapping[str, float]) -> None:
        """Set the bytes that hybrids may share out of each pool."""
        for at, device in enumerate(self.view.devices):
            self.free[self.pool[at]] = pools[device.pool or device.name]

    # -- entries

    def mask(self, names: frozenset[str]) -> Flags:
        """The devices of these names."""
        known = self._masks.get(names)
        if known is None:
            known = np.zeros(len(self.index), bool)
            known[[self.index[name] for name in names if name in self.index]] = True
            self._masks[names] = known
        return known

    def want(self, entry: Waiting, change: int) -> None:
        """Count an entry that waits (1), or waits no longer (-1)."""
        self.wanted += change * self.mask(entry.devices)

    def circle(self, people: tuple[str, ...]) -> int:
        """The circle of these people, `NOBODY`, or `SEVERAL`."""
        known = self._circle_of.get(people)
        if known is None:
            found = {self.view.rule.circle(one) for one in people}
            known = SEVERAL if found else NOBODY
            if len(found) == 1:
                known = self._circles.setdefault(found.pop(), len(self._circles))
            self._circle_of[people] = known
        return known

    def profile(self, name: str) -> int:
        """A number for a profile."""
        return self._profiles.setdefault(name, len(self._profiles))

    def alone(self, entry: Waiting) -> Floats | None:
        """Predicted peak of a hybrid of this entry only on each device; None if unknown. See `Site.alone_bytes`."""
        if entry.peak_bytes is not None:
            return np.full(len(self.index), float(entry.peak_bytes))
        if entry.need is None:
            return None
        return self.context + Sums().peak_bytes(0, 1, self.view.company_share, entry.need)

    def usable(self, entry: Waiting, alone: Floats | None) -> Flags:
        """Devices on which it can train some day; see `_Fleet.usable`."""
        sites: Flags = self.mask(entry.devices) & self.ready
        if alone is not None:
            sites &= alone <= self.total
        return self.of_kinds(sites, entry.claims)

    def of_kinds(self, sites: Flags, claims: int) -> Flags:
        """Those of which there are enough of one kind."""
        if claims <= 1 or not sites.any():
            return sites
        enough = np.bincount(self.kind[sites], minlength=int(self.kind.max()) + 1) >= claims
        return sites & enough[self.kind]

    # -- hybrids

    def write(self, hybrid: HybridView, ends: Mapping[str, tuple[float, float]]) -> bool:
        """Note a hybrid as it is now; returns whether it has to be written again before each plan.

        `ends` has, for each member that trains now, the moment at which it ends if it goes on, and how many seconds
        placement counts for one of that time.
        """
        self.clear(hybrid.id)
        self.born.setdefault(hybrid.id, len(self.born))
        rates = {rate for _, rate in ends.values()}
        moving = ends if len(rates) == 1 and 0.0 not in rates else {}
        self._places[hybrid.id] = [self.index[name] for name in (hybrid.device, *hybrid.also) if name in self.index]
        for at in self._places[hybrid.id]:
            self._write_at(at, hybrid, moving)
        return len(moving) < len(ends)

    def _write_at(self, at: int, hybrid: HybridView, ends: Mapping[str, tuple[float, float]]) -> None:
        device, column = self.view.devices[at], dict.fromkeys(_ROWS, 0.0)
        needs = [member.need for member in hybrid.members if member.need is not None]
        size = predicted_bytes(hybrid, device, self.view.lanes, self.view.company_share)
        if device.name == hybrid.device:
            pool = int(self.pool[at])
            self._pool_bytes[hybrid.id] = pool, float(size or 0)
            self.free[pool] -= size or 0
        elif size is not None:
            size = 0 if device.pool else size
        summed = size is not None and not hybrid.private
        column |= _sums_of(Sums().add(*needs)) if summed else {}
        column |= {"held": 1.0, "takes": float(hybrid.accepts and not hybrid.private), "summed": float(summed),
                   "predicted": np.nan if size is None else float(size), "threads_now": float(hybrid.threads),
                   "profile_now": float(self.profile(hybrid.profile)), "least": inf, "first_end": inf,
                   "last_end": -inf, "count": float(len(hybrid.members))}  # fmt: skip
        circles = {self.circle(member.people) for member in hybrid.members if member.people} or {NOBODY}
        column["circle"] = float(next(iter(circles)) if len(circles) == 1 else SEVERAL)
        for member in hybrid.members:
            if member.key in ends:
                end_s, rate = ends[member.key]
                column["known"] += rate * end_s
                column["rate"] += rate
                column["end_rate"] = rate
                column["first_end"] = min(column["first_end"], end_s)
                column["last_end"] = max(column["last_end"], end_s)
            elif member.left_s is None:
                column["unknown"] += 1
            else:
                column["known"] += member.left_s
                column["least"] = min(column["least"], member.left_s)
                column["most"] = max(column["most"], member.left_s)
        self.rows[:, at] = [column[name] for name in _ROWS]
        self.hybrid_of[at] = hybrid.id
        if summed:
            for sha256 in {sha256 for need in needs for sha256 in need.data}:
                self.data.setdefault(sha256, np.zeros(len(self.index), bool))[at] = True

    def clear(self, hybrid_id: str) -> None:
        """Forget a hybrid, if it is known."""
        pool, size = self._pool_bytes.pop(hybrid_id, (0, 0.0))
        self.free[pool] += size
        for at in self._places.pop(hybrid_id, ()):
            self.hybrid_of[at] = None
            self.rows[:, at] = 0.0
            for places in self.data.values():
                places[at] = False


class Draft:
    """The columns while a plan is made: at one moment, with what the plan adds."""

    def __init__(self, columns: FleetColumns, now_s: float):
        self.columns = columns
        rows = columns.rows.copy()
        self._of = dict(zip(_ROWS, rows, strict=True))
        self.free = np.maximum(columns.free, 0.0)
        self.data = {sha256: places.copy() for sha256, places in columns.data.items()}
        of = self._of
        self.known: Floats = of["known"]
        self.known -= of["rate"] * now_s
        busy = of["rate"] > 0
        with np.errstate(invalid="ignore"):
            ends = of["end_rate"] * (of["first_end"] - now_s), of["end_rate"] * (of["last_end"] - now_s)
        self.least: Floats = np.where(busy, np.minimum(of["least"], ends[0]), of["least"])
        self.most: Floats = np.where(busy, np.maximum(of["most"], ends[1]), of["most"])
        self.unknown, self.count = of["unknown"], of["count"]
        self.empty: Flags = of["held"] == 0
        self.least[self.empty] = inf
        self.takes: Flags = of["takes"] > 0
        """Whether others may join, memory and people apart."""
        self.summed: Flags = of["summed"] > 0
        self.predicted, self.circle, self.threads_now = of["predicted"], of["circle"], of["threads_now"]
        self.circle[self.empty] = NOBODY
        self.kept = np.zeros(len(columns.index), bool)
        self.entries: dict[int, list[Waiting]] = {}
        self.reasons: dict[int, str] = {}
        self.also: dict[int, tuple[int, ...]] = {}

    def peaks(self, need: Need) -> Floats:
        """Predicted peaks with one more; see `Sums.peak_bytes`."""
        of, view = self._of, self.columns.view
        unslack = np.maximum(of["unslack"], need.working_bytes - need.slack_bytes)
        steps = np.maximum(np.maximum(of["working"], need.working_bytes), unslack + of["copies"] + need.copies_bytes)
        peak: Floats = self.columns.context + of["kept"] + of["data"] + steps + need.kept_bytes
        for sha256, size in need.data.items():
            peak += size * ~self._resident(sha256)
        if view.lanes < 2:
            return peak
        company = of["company"] + need.company_bytes - np.maximum(of["most_company"], need.company_bytes)
        found: Floats = peak + np.minimum(company, np.floor(view.company_share * peak))
        return found

    def saved(self, need: Need) -> Floats:
        """Bytes of data sets that are resident already."""
        found = np.zeros(len(self.columns.index))
        for sha256, size in need.data.items():
            found += size * self._resident(sha256)
        return found

    def joinable(self, entry: Waiting) -> Flags:
        """Whose hybrid an entry may join, memory apart; see `Site.accepts`."""
        columns, circle = self.columns, self.columns.circle(entry.people)
        if entry.need is None or entry.private:
            return np.zeros(len(columns.index), bool)
        threads = columns.threads if not entry.threads else float(entry.threads)
        same = columns.on_gpu | (self.threads_now == threads)
        same &= self._of["profile_now"] == columns.profile(entry.profile)
        people = (self.circle == NOBODY) | (self.circle == circle) if circle != NOBODY else self.circle != SEVERAL
        found: Flags = self.takes & same & people
        return found

    def take(self, at: int, entry: Waiting, *, opens: bool, reason: str) -> None:
        """Place an entry on a device; see `Site.take`."""
        columns, of = self.columns, self._of
        before = 0.0 if np.isnan(self.predicted[at]) else float(self.predicted[at])
        if self.empty[at]:
            self.empty[at] = False
            self.threads_now[at] = entry.threads or columns.threads[at]
            of["profile_now"][at] = columns.profile(entry.profile)
            alone = columns.alone(entry)
            self.takes[at] = opens and not entry.private and entry.need is not None
            self.summed[at] = self.takes[at]
            if self.takes[at] and entry.need is not None:
                for name, value in _sums_of(Sums().add(entry.need)).items():
                    of[name][at] = value
                self._keep_data(at, entry.need)
            self.predicted[at] = np.nan if alone is None else alone[at]
        elif entry.need is not None and self.summed[at]:
            self.predicted[at] = self.peaks(entry.need)[at]
            self._add(at, entry.need)
        circle = columns.circle(entry.people)
        if circle != NOBODY:
            self.circle[at] = circle if self.circle[at] in (NOBODY, circle) else SEVERAL
        self.work(at, entry.left_s)
        self.entries.setdefault(at, []).append(entry)
        self.reasons.setdefault(at, reason)
        self.free[columns.pool[at]] -= (0.0 if np.isnan(self.predicted[at]) else self.predicted[at]) - before

    def lend(self, at: int, entry: Waiting) -> None:
        """Let an entry that trains on another device have this one, too; see `Site.lend`."""
        alone = self.columns.alone(entry)
        size = 0.0 if alone is None or self.columns.pooled[at] else alone[at]
        self.empty[at], self.takes[at], self.predicted[at] = False, False, size
        self.work(at, entry.left_s)
        self.free[self.columns.pool[at]] -= size

    def work(self, at: int, left_s: float | None) -> None:
        """Count one more sub-model; see `Work.add`."""
        self.count[at] += 1
        if left_s is None:
            self.unknown[at] += 1
            return
        self.known[at] += left_s
        self.least[at] = min(self.least[at], left_s)
        self.most[at] = max(self.most[at], left_s)

    def _add(self, at: int, need: Need) -> None:
        of = self._of
        new = sum(size for sha256, size in need.data.items() if not self._resident(sha256)[at])
        of["kept"][at] += need.kept_bytes
        of["copies"][at] += need.copies_bytes
        of["working"][at] = max(of["working"][at], need.working_bytes)
        of["unslack"][at] = max(of["unslack"][at], need.working_bytes - need.slack_bytes)
        of["company"][at] += need.company_bytes
        of["most_company"][at] = max(of["most_company"][at], need.company_bytes)
        of["data"][at] += new
        self._keep_data(at, need)

    def _keep_data(self, at: int, need: Need) -> None:
        for sha256 in need.data:
            self._resident(sha256)[at] = True

    def _resident(self, sha256: str) -> Flags:
        return self.data.setdefault(sha256, np.zeros(len(self.columns.index), bool))


def site_of(columns: FleetColumns, at: int) -> Site:
    """A free device, as `placement` sees it."""
    return Site(columns.view.devices[at], at, None, columns.view.lanes, columns.view.company_share)


def _sums_of(sums: Sums) -> dict[str, float]:
    return {
        "kept": float(sums.kept_bytes), "copies": float(sums.copies_bytes), "working": float(sums.working_bytes),
        "unslack": float(sums.unslack_bytes), "company": float(sums.company_bytes),
        "most_company": float(sums.most_company_bytes), "data": float(sums.data_bytes),
    }  # fmt: skip


def _floats(values: Sequence[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def _codes(words: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each word, equal for equal ones."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)
