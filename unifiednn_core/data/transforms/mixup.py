"""Mixup (Zhang et al. 2018): every sample is mixed with its neighbour, and so is its loss."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator

from unifiednn_core.data.batch import Batch, Mix
from unifiednn_core.data.transforms.base import changed, chosen, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class MixUp:
    """One share for the whole batch, from Beta(alpha, alpha); as in torchvision the neighbour is the sample before."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    changes_targets: ClassVar[bool] = True
    input: str | None = None
    alpha: float = 1.0

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = chosen(batch, self)
        if not tensor.is_floating_point():
            remedy = "Give the sub-model a scale, or choose another input; ids cannot be mixed."
            raise refusal(self, f"It mixes real numbers, but '{name}' has integers.", remedy)
        if batch.targets is None:
            raise refusal(self, "It mixes the losses of two targets, but there are none.", "Leave it out.")
        alphas = torch.full((2,), self.alpha, dtype=torch.float32, device=tensor.device)
        share = torch._sample_dirichlet(alphas, generator)[0]  # what torch.distributions.Beta draws
        kept = share.to(tensor.dtype)
        mixed = kept * tensor + (1 - kept) * tensor.roll(1, 0)
        return replace(changed(batch, name, mixed), mix=Mix(batch.targets.roll(1, 0), share))
