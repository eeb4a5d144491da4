"""Algorithm 1 of the paper: merges submitted networks into one hybrid model.

The hybrid model is the triple ⟨G, H, O⟩ of the paper: disjoint sub-graphs in one module, and for each of them its own
hyper-parameters, optimizer, criterion and LR scheduler. No edge, gradient or parameter leads from one to another.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from unifiednn_core.intake.base import Definition
from unifiednn_core.spec import Hyperparameters
from unifiednn_core.training_parts import build_criterion, build_lr_scheduler, build_optimizer

# A prefix keeps names such as "forward" or "type" from meeting attributes of nn.ModuleDict.
_PREFIX = "sub_"


@dataclass(frozen=True, slots=True)
class Submission:
    """One network as it was handed in."""

    name: str
    definition: Definition
    hyperparameters: Hyperparameters


@dataclass(frozen=True, slots=True)
class Part:
    """One sub-model inside the hybrid, with everything that belongs to it alone."""

    name: str
    definition: Definition
    hyperparameters: Hyperparameters
    module: nn.Sequential
    optimizer: Optimizer
    criterion: nn.Module
    lr_scheduler: LRScheduler | None

    def state_dict(self) -> dict[str, Tensor]:
        """Weights and buffers under the keys of the submitted network."""
        return dict(self.module[0].state_dict())

    def transient_buffers(self) -> dict[str, Tensor]:
        """Buffers that no `state_dict` holds; a network may still change them from step to step."""
        kept = self.state_dict().keys()
        return {name: buffer for name, buffer in self.module[0].named_buffers() if name not in kept}

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Take weights and buffers over; raises `RuntimeError` where keys or shapes differ."""
        self.module[0].load_state_dict(state_dict)


class HybridModel(nn.Module):
    """One module that holds one `nn.Sequential` for each sub-model; they can be added and removed at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.submodels = nn.ModuleDict()
        self._parts: dict[str, Part] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sub-models in order of arrival."""
        return tuple(self._parts)

    def part(self, name: str) -> Part:
        """One sub-model; raises `KeyError` where there is none of this name."""
        return self._parts[name]

    def add(self, submission: Submission) -> Part:
        """Merge one more network; raises `ValueError` where the name is taken."""
        if submission.name in self._parts:
            raise ValueError(f"the hybrid already holds a sub-model '{submission.name}'; choose another name")
        module = nn.Sequential(submission.definition.build())
        optimizer = build_optimizer(module.parameters(), submission.hyperparameters)
        part = Part(
            name=submission.name,
            definition=submission.definition,
            hyperparameters=submission.hyperparameters,
            module=module,
            optimizer=optimizer,
            criterion=build_criterion(submission.hyperparameters),
            lr_scheduler=build_lr_scheduler(optimizer, submission.hyperparameters),
        )
        self.submodels[_PREFIX + submission.name] = module
        self._parts[submission.name] = part
        return part

    def remove(self, name: str) -> Part:
        """Take one sub-model out; the others are not touched. Raises `KeyError` where there is none."""
        part = self._parts.pop(name)
        del self.submodels[_PREFIX + name]
        return part

    def forward(self, name: str, inputs: Tensor) -> Tensor:
        """Feed `inputs` to one sub-model: the global input leads to whoever trains, its output to the global one."""
        outputs: Tensor = self._parts[name].module(inputs)
        return outputs


def unify(submissions: Iterable[Submission]) -> HybridModel:
    """Merge all submissions, in order of arrival."""
    hybrid = HybridModel()
    for submission in submissions:
        hybrid.add(submission)
    return hybrid
