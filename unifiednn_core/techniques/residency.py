"""Which saved tensors stay on the device under a budget. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Absence:
    """A saved tensor that was on the host for a while."""

    size_bytes: int
    left: int | None = None
    """Moment from which its memory on the device was free; None if somebody else needed it until it came back."""
    back: int | None = None
    """Moment from which it was on the device again; None if nobody asked for it."""


@dataclass(frozen=True, slots=True)
class ResidencyPlan:
    """What stays, by the order of saving."""

    stays: frozenset[int]
    sizes_bytes: tuple[int, ...] | None
    """Of all saved tensors: with larger ones the plan does not hold. None without a budget."""

    def holds(self, place: int, size_bytes: int) -> bool:
        """Whether it was made for such a tensor."""
        return self.sizes_bytes is None or (place < len(self.sizes_bytes) and size_bytes <= self.sizes_bytes[place])


def planned(absences: Sequence[Absence], alive_bytes: Sequence[int], most_bytes: int | None) -> ResidencyPlan:
    """Keep as many tensors as fit, the last saved first: backward needs it first.

    `alive_bytes` is what was alive at each moment while all were away. A tensor whose memory stayed on the device
    anyway always stays. Without a limit no other does.
    """
    stays = {place for place, one in enumerate(absences) if one.left is None}
    if most_bytes is None:
        return ResidencyPlan(frozenset(stays), None)
    alive = list(alive_bytes)
    for place, one in reversed(list(enumerate(absences))):
        if one.left is None:
            continue
        there = range(one.left, len(alive) if one.back is None else one.back)
        if all(alive[moment] + one.size_bytes <= most_bytes for moment in there):
            stays.add(place)
            for moment in there:
                alive[moment] += one.size_bytes
    return ResidencyPlan(frozenset(stays), tuple(one.size_bytes for one in absences))
