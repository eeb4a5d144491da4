"""The smallest change that makes a run fit into memory. Pure.

Changes are tried in this order: another policy trains the same weights, a larger batch split differs in rounding, a
smaller batch trains differently, and a run without one sub-model trains that later.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.estimate import Part
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import POLICIES

Peak = Callable[[Sequence[Part], Policy], int]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a spec, and the need of the run after it."""

    field: str
    """Entry of the spec that it changes."""
    value: str | int | None
    """New value of the entry; None if a sub-model is removed."""
    text: str
    """The change as a request, without a full stop."""
    peak_bytes: int

    @property
    def remedy(self) -> str:
        """The request and its effect."""
        return f"{self.text}: then {memory_text(self.peak_bytes)} are needed."


def smallest_change(
    parts: Sequence[Part], policy: Policy, peak: Peak, most_bytes: int, names: Collection[str]
) -> Change | None:
    """The first change after which `peak` is at most `most_bytes`; None if no single change is enough.

    `names` are the sub-models that can still be changed.
    """
    changes = _changes(parts, policy, peak, names)
    return next((change for change in changes if change.peak_bytes <= most_bytes), None)


def _changes(parts: Sequence[Part], policy: Policy, peak: Peak, names: Collection[str]) -> Iterator[Change]:
    now_bytes = peak(parts, policy)
    for peak_bytes, name in sorted((peak(parts, other()), other.name) for other in POLICIES):
        if peak_bytes < now_bytes and name != policy.name:
            yield Change("policy.name", name, f'Choose the policy "{name}"', peak_bytes)
    open_parts = [part for part in parts if part.name in names]
    factors = [2**n for n in range(1, max((part.need.batch_size for part in open_parts), default=1).bit_length())]
    asked = [("batch_split", part, factor) for factor in factors for part in open_parts
             if part.need.batch_split < factor <= part.need.batch_size]  # fmt: skip
    asked += [("batch_size", part, part.need.batch_size // factor) for factor in factors for part in open_parts
              if part.need.batch_size // factor >= part.need.batch_split]  # fmt: skip
    for entry, part, value in asked:
        changed = [part.changed(**{entry: value}) if other is part else other for other in parts]
        field = f"submodels.{part.name}.hyperparameters.{entry}"
        yield Change(field, value, f'Set "{entry}" of {part.name} to {value}', peak(changed, policy))
    if len(parts) > 1:
        rests = [(peak([other for other in parts if other is not part], policy), part.name) for part in open_parts]
        for peak_bytes, name in sorted(rests, reverse=True):  # the smallest sub-model that is enough
            yield Change(f"submodels.{name}", None, f"Submit {name} as a separate run", peak_bytes)
