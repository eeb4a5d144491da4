"""Token masking: some ids are replaced, and a network learns to predict them (BERT, Devlin et al. 2019)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Generator

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, refusal, token_ids

IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMasking:
    """Every id with probability p: most of those chosen become `mask`, some a random id, the rest stay as they are.

    With `predict`, targets become the ids that were chosen, and -100 elsewhere; evaluation needs such targets, too.
    """

    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    input: str | None = None
    mask: int
    """Id that stands for a masked one."""
    p: float = 0.15
    masked: float = 0.8
    """Share of the chosen ids that become `mask`."""
    random: float = 0.1
    """Share of the chosen ids that become a random one below `vocabulary`."""
    vocabulary: int = 0
    special: tuple[int, ...] = ()
    """Ids that are never chosen, such as padding."""
    predict: bool = True

    @property
    def training_only(self) -> bool:
        """Whether evaluation leaves it out: as noise alone; its targets are needed there."""
        return not self.predict

    @property
    def changes_targets(self) -> bool:
        """Whether the targets are others afterwards."""
        return self.predict

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, ids = token_ids(batch, self)
        largest = max(self.mask, self.vocabulary - 1)
        if largest > torch.iinfo(ids.dtype).max:
            message = f"'{name}' is {str(ids.dtype).removeprefix('torch.')}, which cannot hold the id {largest}."
            raise refusal(self, message, "Save these ids as int64.")
        place: dict[str, Any] = {"generator": generator, "device": ids.device}
        taken = torch.rand(ids.shape, **place) < self.p
        kind = torch.rand(ids.shape, **place)
        others = torch.randint(max(1, self.vocabulary), ids.shape, **place, dtype=ids.dtype)
        for one in self.special:
            taken = taken & (ids != one)
        result = ids.masked_fill(taken & (kind < self.masked), self.mask)
        result = torch.where(taken & (kind >= 1 - self.random), others, result)
        changes = changed(batch, name, result)
        return replace(changes, targets=ids.long().masked_fill(~taken, IGNORED)) if self.predict else changes
