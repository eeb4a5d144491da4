"""One forward and backward pass for all members of a gang, and how far its gradients are from those of each alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unifiednn_core.data.datasets import DataSource
from unifiednn_core.engine import batched
from unifiednn_core.engine.batched import Stacked
from unifiednn_core.engine.learning import EagerLearner, Learned
from unifiednn_core.engine.step_program import StepProgram, state_of

_SMALL = 0.1
"""Share of the norm of all gradients; what one tensor's differs by is measured against at least that much.

The gradient of a bias before a normalisation, for example, is nothing but rounding noise.
"""
_STATE_ERROR = 10.0
"""Running statistics may differ by this many times as much as gradients: a mean near 0 has a large relative error."""
Pair = tuple[Tensor, Tensor]
"""Inputs and targets of one member."""
State = Sequence[Tensor]
"""All tensors of one member, as `state_of` returns them."""


class Fused(NamedTuple):
    """Results of a fused pass, all with the members in front. Nothing of a member has changed yet."""

    outputs: Tensor
    targets: Tensor
    losses: Tensor
    gradients: Sequence[Tensor | None]
    """In the order of `state_of`; None for what is not trained or does not reach the loss."""
    state: State
    """Copies of `state_of`; its buffers are as the step leaves them."""

    def hand_out(self, states: Sequence[State]) -> None:
        """Leave gradients and buffers with the members."""
        for own, stack, gradient in zip(zip(*states, strict=True), self.state, self.gradients, strict=True):
            if isinstance(own[0], nn.Parameter):
                rows = [None] * len(own) if gradient is None else gradient.unbind()
                for tensor, row in zip(own, rows, strict=True):
                    tensor.grad = row
            else:
                with torch.no_grad():
                    torch._foreach_copy_(list(own), list(stack.unbind()))

    def correct(self, ignored: int | None) -> Tensor:
        """Correct predictions of each member, [members], if outputs score classes; `ignored` is no label."""
        right = self.outputs.argmax(2) == self.targets
        right = right if ignored is None else right & (self.targets != ignored)
        return torch.count_nonzero(right.flatten(1), dim=1)

    def error(self, states: Sequence[State]) -> float:
        """Largest relative difference from what the members have after the same step one by one."""
        return max(self._error_of(row, state) for row, state in enumerate(states))

    def _error_of(self, row: int, state: State) -> float:
        gradients = [None if gradient is None else gradient[row] for gradient in self.gradients]
        buffers = [
            _relative(copy[row], own, _norm([own])) / _STATE_ERROR
            for own, copy in zip(state, self.state, strict=True)
            if not isinstance(own, nn.Parameter)
        ]
        return max(_gradient_error(gradients, [one.grad for one in state]), *buffers, 0.0)


class FusedPass:
    """Forward and backward of several sub-models with one training set, fused."""

    def __init__(self, program: StepProgram, learners: Sequence[EagerLearner], ignored: int | None, *, classes: bool):
        """Take the learner of each sub-model; `ignored` is a label that does not count, `classes` if there are any."""
        self._program, self._learners, self._ignored, self._classes = program, list(learners), ignored, classes
        self.module: nn.Module = nn.ModuleList([learner.module for learner in learners])
        self.trained = [parameter for learner in learners for parameter in learner.trained]
        self.states = [state_of(learner.module, learner.criterion) for learner in learners]

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Learn from one batch that holds those of all sub-models, equally long, one after another.

        Returns losses and correct predictions as tensors with one entry for each.
        """
        [together] = batches
        fused = fuse(self._program, self.states, self.fetch(together))
        fused.hand_out(self.states)
        return Learned(fused.losses, fused.correct(self._ignored) if self._classes else None)

    def fetch(self, together: Tensor) -> list[Pair]:
        """Copy the batch of each sub-model."""
        data = self.data()
        parts = zip(self._learners, together.chunk(len(self._learners)), strict=True)
        return [learner.pair(data, batch) for learner, batch in parts]

    def data(self) -> DataSource:
        """Return the training set on the device."""
        return self._learners[0].data()

    def drop_gradients(self) -> None:
        """Leave no gradients."""
        for learner in self._learners:
            learner.drop_gradients()


def fuse(program: StepProgram, states: Sequence[State], batches: Sequence[Pair]) -> Fused:
    """Do forward and backward of one batch for each member; raises `NoBatchedForm`, and what the operators raise."""
    count = len(states)
    stacks = [torch.stack([one.detach() for one in own]) for own in zip(*states, strict=True)]
    for stack, one in zip(stacks, states[0], strict=True):
        stack.requires_grad_(one.requires_grad)
    inputs = [given for given, _ in batches]
    wide = inputs[0].dim() > 3  # images, which a convolution takes most likely
    stacked = Stacked(torch.cat(inputs, 1), count, wide=True) if wide else Stacked(torch.stack(inputs), count)
    targets = torch.stack([target for _, target in batches])
    outputs, losses = batched.run(program, stacked, Stacked(targets, count), stacks)
    trained = [stack for stack in stacks if stack.requires_grad]
    found = iter(torch.autograd.grad(losses.sum(), trained, allow_unused=True))
    gradients = [next(found) if stack.requires_grad else None for stack in stacks]
    whole = [None if one is None else one.contiguous() for one in gradients]
    return Fused(outputs.detach(), targets, losses.detach(), whole, [stack.detach() for stack in stacks])


def double_error(
    program: StepProgram,
    modules: Sequence[tuple[nn.Module, nn.Module]],
    states: Sequence[State],
    batches: Sequence[Pair],
) -> float:
    """Largest relative difference of gradients in double precision; `modules` are the networks and their criteria.

    It tells a network that multiplies rounding errors (a ReLU whose input is almost 0) from a wrong operator.
    """
    batches = [(_double(inputs), _double(targets)) for inputs, targets in batches]
    errors = []
    with _in_double([one for state in states for one in state]):
        fused = fuse(program, states, batches)
        for row, ((module, criterion), state, (inputs, targets)) in enumerate(
            zip(modules, states, batches, strict=True)
        ):
            trained = [one for one in state if one.requires_grad]
            loss = criterion(module(inputs), targets)
            found = iter(torch.autograd.grad(loss, trained, allow_unused=True))
            alone = [next(found) if one.requires_grad else None for one in state]
            errors.append(_gradient_error([None if one is None else one[row] for one in fused.gradients], alone))
    return max(errors)


@contextmanager
def _in_double(state: State) -> Iterator[None]:
    """Let tensors hold double copies for a while; then they hold what they held, in the same memory."""
    before = [one.data for one in state]
    gradients = [one.grad for one in state]
    try:
        for one in state:
            one.grad = None
            one.data = _double(one.data).clone()
        yield
    finally:
        for one, data, gradient in zip(state, before, gradients, strict=True):
            one.data = data
            one.grad = gradient


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _gradient_error(found: Sequence[Tensor | None], alone: Sequence[Tensor | None]) -> float:
    """Largest relative difference of any tensor's gradient."""
    if [one is None for one in found] != [one is None for one in alone]:
        return float("inf")
    known = [one for one in alone if one is not None]
    least = _SMALL * _norm(known)
    pairs = zip((one for one in found if one is not None), known, strict=True)
    return max((_relative(one, other, max(_norm([other]), least)) for one, other in pairs), default=0.0)


def _relative(one: Tensor, other: Tensor, size: float) -> float:
    difference = _norm([one.double() - other.double()])
    return 0.0 if difference == 0.0 else difference / size if size else float("inf")


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([one.detach().double().norm() for one in tensors]).norm()) if tensors else 0.0
