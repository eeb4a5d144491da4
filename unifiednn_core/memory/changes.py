"""The smallest change of a run that makes it fit into the memory that there is. Pure.

Changes are tried from the gentlest on: another policy trains the very same weights, a larger batch split computes the
same but for rounding, a smaller batch is another training, and a run without one sub-model leaves work for later.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from unifiednn_core.memory.estimate import Part
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.units import memory_text

Peak = Callable[[Sequence[Part], Policy], int]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a spec, and what the run needs after it."""

    field: str
    """Entry of the spec that it changes."""
    value: str | int | None
    """What the entry is to be; None where a sub-model is to be left out."""
    text: str
    """The change as a request, without a full stop."""
    peak_bytes: int

    @property
    def remedy(self) -> str:
        """The request, and what it leads to."""
        return f"{self.text}: then {memory_text(self.peak_bytes)} are needed."


def smallest_change(
    parts: Sequence[Part], policy: Policy, peak: Peak, most_bytes: int, names: Collection[str]
) -> Change | None:
    """The first change that fits into `most_bytes` by `peak`; None where no single entry does it.

    `names` are the sub-models that can still be changed.
    """
    for change in _changes(tuple(parts), policy, peak, names):
        if change.peak_bytes <= most_bytes:
            return change
    return None


def _changes(parts: tuple[Part, ...], policy: Policy, peak: Peak, names: Collection[str]) -> Iterator[Change]:
    yield from _policies(parts, policy, peak)
    open_parts = [part for part in parts if part.name in names]
    largest = max((part.need.batch_size for part in open_parts), default=1)
    for split in _doublings(largest):
        for part in open_parts:
            if part.need.batch_split < split <= part.need.batch_size:
                peak_bytes = peak(_with(parts, part.changed(batch_split=split)), policy)
                yield _entry(part, "batch_split", split, peak_bytes)
    for divisor in _doublings(largest):
        for part in open_parts:
            size = part.need.batch_size // divisor
            if size >= part.need.batch_split:
                yield _entry(part, "batch_size", size, peak(_with(parts, part.changed(batch_size=size)), policy))
    if len(parts) > 1:
        rests = [(peak([other for other in parts if other is not part], policy), part.name) for part in open_parts]
        for peak_bytes, name in sorted(rests, reverse=True):  # the smallest one that is enough
            yield Change(f"submodels.{name}", None, f"Submit {name} as a run of its own", peak_bytes)


def _policies(parts: Sequence[Part], policy: Policy, peak: Peak) -> list[Change]:
    """Other policies, with their defaults, that need less; the one that needs least goes first."""
    others = [other() for other in POLICIES if other.name != policy.name]
    found = sorted((peak(parts, other), other.name) for other in others)
    now_bytes = peak(parts, policy)
    return [
        Change("policy.name", name, f'Choose the policy "{name}"', peak_bytes)
        for peak_bytes, name in found
        if peak_bytes < now_bytes
    ]


def _entry(part: Part, entry: str, value: int, peak_bytes: int) -> Change:
    field = f"submodels.{part.name}.hyperparameters.{entry}"
    return Change(field, value, f'Set "{entry}" of {part.name} to {value}', peak_bytes)


def _doublings(most: int) -> Iterator[int]:
    value = 2
    while value <= most:
        yield value
        value *= 2


def _with(parts: Sequence[Part], changed: Part) -> list[Part]:
    return [changed if part.name == changed.name else part for part in parts]
