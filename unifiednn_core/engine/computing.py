"""How the steps of a sub-model compute: as the exactness recipe says, or as the profile `fast` allows."""

from dataclasses import dataclass, replace

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
    channels_last: bool = False
    """Whether images, and weights of convolutions, lie in memory with the channels last."""
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
            channels_last=on_gpu,
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
        if self.channels_last:
            batch = replace(batch, inputs={name: _channels_last(one) for name, one in batch.inputs.items()})
        if self.autocast is None:
            return step.forward(module, batch)
        with torch.autocast(self.device_type, self.autocast, cache_enabled=False):  # a graph must not hold the cache
            outputs = step.forward(module, batch)
        return tuple(one.float() if getattr(one, "dtype", None) is self.autocast else one for one in outputs)

    def laid_out(self, module: nn.Module, step: Step, batch: Batch) -> "Computing":
        """Lay out the weights; returns how to compute: with channels last only if the network takes a batch so."""
        if not self.channels_last or not any(one.dim() == 4 for one in module.parameters()):
            return replace(self, channels_last=False)
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        training = module.training
        try:
            with torch.no_grad():
                self.forward(step, module.eval(), batch)
        except Exception:  # such as a view of what no longer lies in rows
            module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            return replace(self, channels_last=False)
        finally:
            module.train(training)
        return self


def _channels_last(tensor: Tensor) -> Tensor:
    images = tensor.dim() == 4 and tensor.is_floating_point()
    return tensor.contiguous(memory_format=torch.channels_last) if images else tensor


EXACT = Computing()
