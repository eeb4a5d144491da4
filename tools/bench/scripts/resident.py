"""Plain PyTorch that indexes tensors on the device as a hybrid does, without the cost of a `DataLoader`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from unifiednn_core.compare import vanilla
from unifiednn_core.compare.vanilla import Loaded, Permutations


@dataclass(frozen=True, slots=True)
class ResidentBatches:
    """Batches indexed from tensors on the device, in the same order as a `DataLoader`; file order without `order`."""

    tensors: tuple[Tensor, ...]
    batch_size: int
    order: Permutations | None = None

    def __iter__(self) -> Iterator[Loaded]:
        """Yield the batches of one epoch, each a copy."""
        order = range(len(self.tensors[0])) if self.order is None else self.order
        for chosen in torch.split(torch.tensor(list(order), device=self.tensors[0].device), self.batch_size):
            yield tuple(tensor.index_select(0, chosen) for tensor in self.tensors)

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.batch_size)


class ResidentScript(vanilla.PlainScript):
    """The plain script with another loader."""

    def _loader(self, tensors: Mapping[str, Tensor], order: Permutations | None = None) -> Any:
        return ResidentBatches(self._placed(list(tensors.values())), self.job.batch_size, order)


if __name__ == "__main__":
    with patch.object(vanilla, "PlainScript", ResidentScript):
        vanilla.main()
