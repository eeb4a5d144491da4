"""The smallest change that makes a run fit into memory. Pure.

Changes are tried in this order: another policy trains the same weights, a larger batch split differs in rounding, a
smaller batch trains differently, and a run without one sub-model trains that later.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import itemgetter

from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.estimate import Part
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import POLICIES

Peak = Callable[[Sequence[Part], Policy], int]
Found = tuple[int, str, str]
"""Peak after a change, entry of the spec that it changes, request without a full stop."""


def smallest_change(
    parts: Sequence[Part], policy: Policy, peak: Peak, most_bytes: int, names: Collection[str]
) -> tuple[str, str] | None:
    """Entry of the spec and remedy of the first change after which `peak` is at most `most_bytes`; None without one.

    `names` are the sub-models that can still be changed.
    """
    for peak_bytes, entry, text in _changes(parts, policy, peak, names):
        if peak_bytes <= most_bytes:
            return entry, f"{text}: then {memory_text(peak_bytes)} are needed."
    return None


def _changes(parts: Sequence[Part], policy: Policy, peak: Peak, names: Collection[str]) -> Iterator[Found]:
    now_bytes = peak(parts, policy)
    peaks = [(peak(parts, other()), other.name) for other in POLICIES]
    for peak_bytes, name in sorted(peaks, key=itemgetter(0)):  # of equals, the first in display order
        if peak_bytes < now_bytes and name != policy.name:
            yield peak_bytes, "policy.name", f'Choose the policy "{name}"'
    open_parts = [part for part in parts if part.name in names]
    factors = [2**n for n in range(1, max((part.need.batch_size for part in open_parts), default=1).bit_length())]
    asked = [
        ("batch_split", part, factor)
        for factor in factors
        for part in open_parts
        if not part.need.nodes and part.need.batch_split < factor <= part.need.batch_size
    ]
    asked += [
        ("batch_size", part, part.need.batch_size // factor)
        for factor in factors
        for part in open_parts
        if part.need.batch_size // factor >= part.need.batch_split
    ]
    for entry, part, value in asked:
        changed = [part.changed(**{entry: value}) if other is part else other for other in parts]
        field = f"submodels.{part.name}.hyperparameters.{entry}"
        yield peak(changed, policy), field, f'Set "{entry}" of {part.name} to {value}'
    if len(parts) > 1:
        rests = [(peak([other for other in parts if other is not part], policy), part.name) for part in open_parts]
        for peak_bytes, name in sorted(rests, reverse=True):  # the smallest sub-model that is enough
            yield peak_bytes, f"submodels.{name}", f"Submit {name} as a separate run"
