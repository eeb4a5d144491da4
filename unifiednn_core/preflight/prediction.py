"""Memory that a sub-model needs and a run is predicted to need, in bytes. No torch here: the server reads them.

The need counts only tensors, as `live_bytes` does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from unifiednn_core.scheduling.company import Fall


class MemoryNeed(BaseModel, frozen=True, extra="forbid"):
    """Bytes of a sub-model at its batch size, and transient bytes of its steps at smaller ones."""

    weights_bytes: int
    """Parameters, buffers and constants."""
    gradients_bytes: int
    optimizer_bytes: int
    transient_bytes: int
    """Peak of a step or an evaluation, without weights, gradients, optimizer state and data sets."""
    data: dict[str, int]
    """Resident bytes of each data set, by content hash."""
    batch_size: int
    batch_split: int = 1
    """Shares of a batch: parts, or the sum of the shares of virtual nodes."""
    largest_share: int = 1
    nodes: bool = False
    """Whether virtual nodes cut the batch."""
    devices: int = 1
    """Logical devices of its virtual nodes."""
    at_once: bool = False
    """Whether they compute at once."""
    whole: dict[int, int] = {}
    """Transient bytes of a step by the size of its batch, if the batch is not split."""
    parts: dict[int, int] = {}
    """Transient bytes of a step by the size of a part of its batch."""
    evaluation: dict[int, int] = {}
    """Transient bytes of an evaluation by the size of its batch, which is never split; empty without test data."""
    leaves: bool = False
    """Whether weights and optimizer state are on a GPU only during its turns."""
    curve: tuple[int, ...] = ()
    """Bytes during a step at a few of its moments, with gradients; empty if a batch is computed in parts."""
    falls: tuple[Fall, ...] = ()
    """Where a step comes down from its peak; empty as `curve` is."""
    fitted: bool = False
    """Whether the figures at the full batch are extrapolated, because the full one was too costly to try."""

    def transient_of(self, batch_size: int, batch_split: int) -> int:
        """Transient bytes with another batch size or split; a size that is not in the tables counts as the next one."""
        size = min(batch_size, -(-batch_size // batch_split) * self.largest_share)
        step = _at(self.whole if size == batch_size else self.parts, size)
        more = min(self.devices, batch_split) - 1 if self.at_once else 0
        step += more * (step + self.gradients_bytes)
        return max(step, _at(self.evaluation, batch_size) if self.evaluation else 0)

    def step_of(self, batch_split: int) -> int:
        """Transient bytes of a step alone, with another split."""
        return self.model_copy(update={"evaluation": {}}).transient_of(self.batch_size, batch_split)

    def within(self, resident: "MemoryNeed", budget_bytes: int) -> "MemoryNeed":
        """The need of steps that keep as much on the device as a budget allows: from this one up to `resident`."""

        def filled(least: dict[int, int], most: dict[int, int]) -> dict[int, int]:
            return {size: max(least_bytes, min(most[size], budget_bytes)) for size, least_bytes in least.items()}

        tables = {"whole": filled(self.whole, resident.whole), "parts": filled(self.parts, resident.parts)}
        return self.model_copy(update=tables).changed()

    def cut(self, shares: Sequence[int]) -> "MemoryNeed":
        """The need with other shares of virtual nodes."""
        whole = math.gcd(*shares)
        split = min(sum(shares) // whole, self.batch_size)
        return self.model_copy(update={"batch_split": split, "largest_share": max(shares) // whole}).changed()

    def with_devices(self, devices: int) -> "MemoryNeed":
        """The need with another number of logical devices."""
        return self.model_copy(update={"devices": devices}).changed()

    def changed(self, *, batch_size: int | None = None, batch_split: int | None = None) -> "MemoryNeed":
        """The need with another batch size or split."""
        size, split = batch_size or self.batch_size, batch_split or self.batch_split
        changes: dict[str, object] = {"batch_size": size, "batch_split": split}
        changes["transient_bytes"] = self.transient_of(size, split)
        if (size, split) != (self.batch_size, self.batch_split):
            changes |= {"curve": (), "falls": ()}
        return self.model_copy(update=changes)


def _at(table: dict[int, int], size: int) -> int:
    return table[min((known for known in table if known >= size), default=max(table))]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModelPrediction:
    """Memory that one sub-model was predicted to need."""

    name: str
    weights_bytes: int
    """Parameters and buffers."""
    gradients_bytes: int
    optimizer_bytes: int
    transient_bytes: int
    """What a step needs in addition to all others, at its peak."""
    data_bytes: int
    measured: bool
    """Whether the transient part was measured in an earlier run of the same graph."""
    paper_bytes: int
    """Equation 1 of the paper: this sub-model and the context."""

    @property
    def peak_bytes(self) -> int:
        """Peak while it trains alone, without the context."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.transient_bytes + self.data_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Memory that a run was predicted to need before its start."""

    peak_bytes: int
    """Of the hybrid under its policy, with the context and with company."""
    context_bytes: int
    paper_bytes: int
    """Equation 2 of the paper, the maximum of equation 1 over all sub-models: it forgets resident weights."""
    by_policy: dict[str, int]
    """Peak of the same hybrid under each policy."""
    submodels: tuple[SubModelPrediction, ...]
    company_bytes: int = 0
    """What sub-models that step at once may add to the peak of one at a time."""
    budget_bytes: int | None = None
    """Limit of the device or of the spec; None if it is unknown."""
    budget_text: str = ""
    """Source of the limit, such as "on cuda:0 in all" or "by memory_limit_bytes of the spec"."""
