"""How the steps of a sub-model compute: as the exactness recipe says, or as the profile `fast` allows."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from unifiednn_core.data.batch import Batch
from unifiednn_core.engine.step import Step
from unifiednn_core.spec.run import Hyperparameters

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_FUSED = frozenset({"sgd", "adam", "adamw"})


@dataclass(frozen=True, slots=True)
class Computing:
    """What may differ from the recipe; by default nothing."""

    device_type: str = "cpu"
    autocast: torch.dtype | None = None
    """Type in which torch's autocast lets layers compute; the weights stay float32, and so does the loss."""
    fused: bool = False
    """Whether the optimizer updates by torch's fused kernel."""
    tf32: bool = False

    @classmethod
    def of(cls, hyperparameters: Hyperparameters, device: torch.device, *, fast: bool) -> "Computing":
        """How a sub-model computes under a profile. On a CPU only its own `precision` differs from the recipe."""
        if not fast:
            return cls(device.type)
        on_gpu = device.type == "cuda"
        return cls(
            device.type,
            autocast=_DTYPES.get(hyperparameters.precision),
            fused=on_gpu and hyperparameters.optimizer in _FUSED,
            tf32=on_gpu,
        )

    @property
    def exact(self) -> bool:
        """Whether it is what the recipe says."""
        return self == Computing(self.device_type)

    def scaler(self) -> GradScaler | None:
        """Scaler of the loss, without which small gradients of float16 are lost."""
        return GradScaler(self.device_type) if self.autocast is torch.float16 else None

    def forward(self, step: Step, module: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Run the network; with autocast its outputs become float32, in which the loss is computed."""
        with self._context():
            outputs = step.forward(module, batch)
        if self.autocast is None:
            return outputs
        return tuple(one.float() if one.dtype is self.autocast else one for one in outputs)

    def _context(self) -> AbstractContextManager[object]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device_type, self.autocast, cache_enabled=False)  # a graph must not hold the cache


EXACT = Computing()
