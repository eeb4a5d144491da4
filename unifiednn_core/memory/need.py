"""Memory that one sub-model needs on its device, as it was found by running a step of it.

No torch here: the server reads it. All sizes count tensors alone, as `intake.live_bytes` sees them.
"""

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
