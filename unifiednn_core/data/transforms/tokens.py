"""Transforms of texts as ids."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import OfInput, changed, refusal, token_ids

IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMasking(OfInput):
    """Every id with probability p: most of those chosen become `mask`, some a random id, the rest stay as they are.

    With `predict`, targets become the ids that were chosen, and -100 elsewhere; evaluation needs such targets, too.
    """

    draws: ClassVar[bool] = True
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
        """Whether it changes the targets."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim(OfInput):
    """Cut the columns at the end that hold only padding; at least one column stays."""

    training_only: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    pad: int = 0
    """Id of the padding."""
    others: bool = False
    """Whether other inputs of the same length are cut, too: masks, positions."""
    targets: bool = False
    """Whether targets of the same length are cut, too: one for each id."""

    @property
    def changes_targets(self) -> bool:
        """Whether it changes the targets."""
        return self.targets

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, ids = token_ids(batch, self)
        length = ids.shape[1]
        columns = torch.arange(1, length + 1, device=ids.device)
        longest = max(1, int(((ids != self.pad) * columns).max()))

        def cut(tensor: Tensor) -> Tensor:
            same = tensor.dim() >= 2 and tensor.shape[1] == length
            return tensor[:, :longest].contiguous() if same else tensor

        inputs = {key: cut(one) if self.others or key == name else one for key, one in batch.inputs.items()}
        targets = cut(batch.targets) if self.targets and batch.targets is not None else batch.targets
        return replace(batch, inputs=inputs, targets=targets)
