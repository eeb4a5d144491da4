"""Memory that a sub-model needs and a run is predicted to need, in bytes. No torch here: the server reads them.

The need counts tensors alone, as `live_bytes` sees them.
"""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


class MemoryNeed(BaseModel):
    """Bytes of a sub-model at the batch that was asked for, and what its steps would take at smaller ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights_bytes: int
    """Parameters, buffers and constants."""
    gradients_bytes: int
    optimizer_bytes: int
    transient_bytes: int
    """Most that a step or an evaluation needs beside weights, gradients, optimizer state and data sets."""
    data: dict[str, int]
    """Resident bytes of each data set, by content hash."""
    batch_size: int
    batch_split: int = 1
    whole: dict[int, int] = {}
    """Transient bytes of a step by the size of its batch, where the batch goes through at once."""
    parts: dict[int, int] = {}
    """The same by the size of a part, where it goes through in several."""
    evaluation: dict[int, int] = {}
    """Transient bytes of an evaluation by the size of its batch, which is never split; empty without test data."""
    fitted: bool = False
    """Whether the figures at the full batch follow from small ones, because the full one was too costly to try."""

    def transient_of(self, batch_size: int, batch_split: int) -> int:
        """Transient bytes with another batch size or split; of sizes that are not in the tables, the next larger."""
        size = -(-batch_size // batch_split)
        step = _at(self.whole if batch_split == 1 else self.parts, size)
        return max(step, _at(self.evaluation, batch_size) if self.evaluation else 0)

    def changed(self, *, batch_size: int | None = None, batch_split: int | None = None) -> "MemoryNeed":
        """The need with another batch size or split."""
        size, split = batch_size or self.batch_size, batch_split or self.batch_split
        changes = {"batch_size": size, "batch_split": split, "transient_bytes": self.transient_of(size, split)}
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
    """Most that a step needs for a while, beside all others."""
    data_bytes: int
    measured: bool
    """Whether the transient part was measured in an earlier run of the same graph, and not estimated."""
    paper_bytes: int
    """Equation 1 of the paper: all of this sub-model, and the context."""

    @property
    def peak_bytes(self) -> int:
        """Most that it needs by itself while it trains, without the context."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.transient_bytes + self.data_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Memory that a run was predicted to need, before its start."""

    peak_bytes: int
    """Of the hybrid under its policy, with the context."""
    context_bytes: int
    paper_bytes: int
    """Equation 2 of the paper: the largest equation 1 of all; it forgets weights that stay resident."""
    by_policy: dict[str, int]
    """Peak of the same hybrid under each policy."""
    submodels: tuple[SubModelPrediction, ...]
    budget_bytes: int | None = None
    """Most that the device, or the limit of the spec, gives this run; None if it is not known."""
    budget_text: str = ""
    """What the budget is, as people read it: "of cuda:0", "memory_limit_bytes of the spec"."""
