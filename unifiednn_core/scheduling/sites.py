"""One device while a plan is made: its memory, its seconds left, and who may join its hybrid."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from unifiednn_core.scheduling.line import COMPANY_SHARE, DeviceView, HybridView, Need, Placement, Waiting, in_order
from unifiednn_core.spec.devices import CUDA

MEMORY_SHARE = 0.9
"""Share of a device that the predicted peak of a hybrid may take if it has more than one submission."""

NOTHING = Need(kept_bytes=0, working_bytes=0)


def hybrid_bytes(
    needs: Iterable[Need], context_bytes: int, *, lanes: int = 1, company_share: float = COMPANY_SHARE
) -> int:
    """Most memory that a hybrid can take under any policy: when all have started, and the worst of them steps."""
    return Sums().add(*needs).peak_bytes(context_bytes, lanes, company_share)


def predicted_bytes(hybrid: HybridView, device: DeviceView, lanes: int, company_share: float) -> int | None:
    """Predicted peak of a hybrid on its device; None if that of a member is unknown."""
    needs = [member.need for member in hybrid.members if member.need is not None]
    if hybrid.private or len(needs) < len(hybrid.members):
        return hybrid.peak_bytes
    return hybrid_bytes(needs, device.context_bytes, lanes=lanes, company_share=company_share)


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

    def peak_bytes(self, context_bytes: int, lanes: int, company_share: float, more: Need = NOTHING) -> int:
        """Most memory with the context, of all and one more."""
        unslack_bytes = max(self.unslack_bytes, more.working_bytes - more.slack_bytes)
        copies_bytes = self.copies_bytes + more.copies_bytes
        steps_bytes = max(self.working_bytes, more.working_bytes, unslack_bytes + copies_bytes)
        kept_bytes = self.kept_bytes + more.kept_bytes + self.data_bytes + self._new_data_bytes(more)
        peak_bytes = context_bytes + kept_bytes + steps_bytes
        if lanes < 2:
            return peak_bytes
        most_bytes = max(self.most_company_bytes, more.company_bytes)
        return peak_bytes + min(self.company_bytes + more.company_bytes - most_bytes, int(company_share * peak_bytes))

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
    company_share: float
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
        return sums.peak_bytes(self.device.context_bytes, lanes or self.lanes, self.company_share, more)

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
