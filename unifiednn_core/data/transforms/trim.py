"""Trim: padded ids become as short as the longest sample of the batch."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import token_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Cut the columns at the end that hold only padding; at least one column stays."""

    training_only: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    input: str | None = None
    pad: int = 0
    """Id of the padding."""
    others: bool = False
    """Whether other inputs of the same length are cut, too: masks, positions."""
    targets: bool = False
    """Whether targets of the same length are cut, too: one for each id."""

    @property
    def changes_targets(self) -> bool:
        """Whether the targets are others afterwards."""
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
