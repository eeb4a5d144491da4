"""PipeDream's runtime: a straight pipeline of stages under 1F1B with weight stashing.

A batch goes forward and backward through a stage with one version of its weights (`schedule.version_of`), however many
updates there were in between. Nothing is restored in place: the leaves that a forward used stay as they are, and the
optimizer writes into a copy. Buffers, such as the statistics of BatchNorm, have one version that all batches change, as
in PipeDream. Stages may lie on several devices, or all on one, where the pipeline does its works in turns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput
from unifiednn_core.techniques.pipelines.schedule import StageWork, schedule

LossOf = Callable[[Tensor], Tensor]
"""The loss of a batch from the output of the last stage."""


class TakenForward(NamedTuple):
    """One batch that has passed all stages forward."""

    batch: int
    loss: Tensor
    output: Tensor
    """Without gradients, as the loss."""


class _Flight(NamedTuple):
    """A batch between its forward and its backward through one stage."""

    inputs: Tensor
    output: Tensor
    leaves: Mapping[str, Tensor]
    version: int


class StashingStage:
    """One stage: its newest weights, and those with which batches are under way."""

    def __init__(self, module: nn.Module, optimizer: Optimizer):
        """`optimizer` knows the weights of `module`; it may know more, because it steps where gradients are."""
        self.module, self.version = module, 0
        self._optimizer = optimizer
        self._weights = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._newest = self._leaves()
        self._flights: dict[int, _Flight] = {}

    @property
    def device(self) -> torch.device | None:
        """Where its weights are; None without any."""
        return next((one.device for one in self.module.parameters()), None)

    @property
    def in_flight(self) -> int:
        """Batches between forward and backward."""
        return len(self._flights)

    @property
    def versions(self) -> int:
        """Versions of the weights in memory."""
        return len({id(self._newest), *(id(one.leaves) for one in self._flights.values())})

    def begin(self) -> None:
        """Count versions anew; batches that a broken call left under way are dropped."""
        self.version = 0
        self._flights.clear()

    def forward(self, batch: int, inputs: Tensor, *, first: bool, loss_of: LossOf | None) -> tuple[Tensor, int]:
        """Take a batch forward with the newest weights; returns output, without gradients, and version.

        The `first` stage needs no gradient of its inputs; the last one has the loss.
        """
        given = inputs.detach().requires_grad_(inputs.is_floating_point() and not first)
        output: Tensor = functional_call(self.module, dict(self._newest), (given,))
        kept = output if loss_of is None else loss_of(output)
        self._flights[batch] = _Flight(given, kept, self._newest, self.version)
        return output.detach(), self.version

    def loss(self, batch: int) -> Tensor:
        """The loss of a batch under way, if this is the last stage."""
        return self._flights[batch].output.detach()

    def backward(self, batch: int, gradient: Tensor | None) -> tuple[Tensor | None, int]:
        """Take a batch backward with the weights of its forward, and update the newest ones.

        `gradient` is that of the output, None of a loss. Returns the gradient of the inputs, and the version used.
        """
        flight = self._flights.pop(batch)
        wanted = [flight.inputs] if flight.inputs.requires_grad else []
        if not wanted and not flight.leaves:
            return None, flight.version
        found = torch.autograd.grad(flight.output, [*wanted, *flight.leaves.values()], gradient, allow_unused=True)
        names, version = tuple(flight.leaves), flight.version
        del flight, wanted  # its version of the weights is gone before the update makes another one
        self._update(dict(zip(names, found[-len(names) :], strict=True)) if names else {})
        return (found[0] if len(found) > len(names) else None), version

    def _update(self, gradients: Mapping[str, Tensor | None]) -> None:
        used = any(one.leaves is self._newest for one in self._flights.values())
        for name, weight in self._weights.items():
            weight.grad = gradients[name]
            if used:  # a batch under way needs what the optimizer writes into
                weight.data = weight.data.clone(memory_format=torch.preserve_format)
        self._optimizer.step()
        for weight in self._weights.values():
            weight.grad = None
        self.version += 1
        self._newest = self._leaves()

    def _leaves(self) -> dict[str, Tensor]:
        """The newest weights as leaves of their own, on the same memory."""
        return {name: one.data.requires_grad_() for name, one in self._weights.items()}


class PipeDream:
    """Stages in their order, each with its optimizer."""

    def __init__(self, stages: Sequence[nn.Module], optimizers: Sequence[Optimizer]):
        """One optimizer per stage. Raises `BadInput` if two stages share weights."""
        owned = [id(one) for stage in stages for one in stage.parameters()]
        if len(owned) != len(set(owned)):
            raise BadInput.of(
                "Shared weights",
                field="model",
                message="Two stages share weights, of which each would train versions of its own.",
                remedy="Use fewer stages, so that one stage has them all.",
            )
        self.stages = [StashingStage(module, optimizer) for module, optimizer in zip(stages, optimizers, strict=True)]
        self.on_work: Callable[[StageWork], object] = lambda _: None
        """Hears of each work with the version that it really used."""

    def train(self, batches: Iterable[tuple[Tensor, LossOf]], count: int) -> Iterator[TakenForward]:
        """Fill the pipeline, train `count` batches, each with one update of each stage, and drain it.

        Yields each batch once its loss is known. Versions count from the start of the call.
        """
        for stage in self.stages:
            stage.begin()
        coming, last = iter(batches), len(self.stages) - 1
        forward: dict[tuple[int, int], Tensor] = {}  # by the stage that waits for it, and batch
        backward: dict[tuple[int, int], Tensor | None] = {}
        losses: dict[int, LossOf] = {}
        for work in schedule(len(self.stages), count):
            stage, batch = self.stages[work.stage], work.batch
            if work.kind == "forward":
                if work.stage == 0:
                    forward[0, batch], losses[batch] = next(coming)
                inputs = _placed(forward.pop((work.stage, batch)), stage.device)
                loss_of = losses.pop(batch) if work.stage == last else None
                output, version = stage.forward(batch, inputs, first=work.stage == 0, loss_of=loss_of)
                if loss_of is None:
                    forward[work.stage + 1, batch] = output
                else:
                    yield TakenForward(batch, stage.loss(batch), output)
            else:
                gradient = backward.pop((work.stage, batch), None)
                passed, version = stage.backward(batch, None if gradient is None else _placed(gradient, stage.device))
                if work.stage:
                    backward[work.stage - 1, batch] = passed
            self.on_work(StageWork(work.tick, work.stage, batch, work.kind, version))


def _placed(tensor: Tensor, device: torch.device | None) -> Tensor:
    return tensor if device is None else tensor.to(device, non_blocking=True)
