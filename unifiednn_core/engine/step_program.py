"""Records which operators a network and its criterion run in a training step, in order.

The record is made without gradients, where torch does not take operators apart, so a network of layers and the graph of
an exported file give the same names (`aten.conv2d.default`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from unifiednn_core.base.errors import NoBatchedForm

INPUTS, TARGETS = 0, 1
"""Places of the batch among the values of a program; the tensors of `state_of` follow."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a program, by its place."""

    place: int


@dataclass(frozen=True, slots=True)
class Call:
    """One operator: all its arguments in the order of its schema, each a constant, a `Ref`, or a tuple of them."""

    operator: Any
    """An overload, such as `torch.ops.aten.relu.default`."""
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    """Arguments that can only be named."""
    results: tuple[int, ...]
    """Places of the tensors that it returns."""
    last: tuple[int, ...]
    """Places that no later call reads."""

    @property
    def name(self) -> str:
        """Name of the operator without its overload, such as `relu`."""
        return str(self.operator.overloadpacket.__name__)


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The operators of a step up to the loss. Equal programs compute the same from equal values."""

    kinds: tuple[tuple[tuple[int, ...], torch.dtype, bool], ...]
    """Shape, type, and whether it is trained, of the batch and of each tensor of `state_of`."""
    calls: tuple[Call, ...]
    outputs: int
    """Place of the outputs of the network."""
    loss: int
    values: int
    """Number of places."""


def state_of(module: nn.Module, criterion: nn.Module) -> list[Tensor]:
    """All weights and buffers that a step can read or write, tied ones once."""
    return [*module.parameters(), *module.buffers(), *criterion.parameters(), *criterion.buffers()]


def record(module: nn.Module, criterion: nn.Module, inputs: Tensor, targets: Tensor) -> StepProgram:
    """Record a step on a batch; raises `NoBatchedForm` if it uses tensors from elsewhere.

    The network trains on nothing: its buffers are put back. It may draw from the default generators.
    """
    state = state_of(module, criterion)
    before = [tensor.detach().clone() for tensor in state]
    recorder = _Recorder([inputs, targets, *state])
    try:
        with torch.inference_mode():
            module(inputs.clone())  # a guarded graph checks its first batch, with operators of its own
            with recorder:
                outputs = module(inputs)
                loss = criterion(outputs, targets)
    finally:
        with torch.no_grad():
            for tensor, saved in zip(state, before, strict=True):
                tensor.copy_(saved)
    return recorder.program(outputs, loss)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, given: Sequence[Tensor]):
        super().__init__()  # type: ignore[no-untyped-call]
        self._kinds = tuple((tuple(one.shape), one.dtype, one.requires_grad) for one in given)
        self._seen = list(given)  # alive, so that no two have one id
        self._places = {id(tensor): place for place, tensor in enumerate(given)}
        self._count = len(given)
        self._calls: list[Call] = []
        self._refused: NoBatchedForm | None = None

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Record an operator and run it."""
        kwargs = kwargs or {}
        positional, named = _in_order(operator, args, kwargs)
        try:
            told = tuple(map(self._told, positional)), tuple((name, self._told(value)) for name, value in named)
        except NoBatchedForm as refused:
            self._refused = self._refused or NoBatchedForm(f"{operator} {refused}")
            return operator(*args, **kwargs)
        result = operator(*args, **kwargs)
        returned = result if isinstance(result, tuple | list) else (result,)
        results = tuple(self._place(one) for one in returned if isinstance(one, Tensor))
        self._calls.append(Call(operator, *told, results, ()))
        return result

    def program(self, outputs: Tensor, loss: Tensor) -> StepProgram:
        """The program; raises `NoBatchedForm`."""
        if self._refused is not None:
            raise self._refused
        ends = self._places[id(outputs)], self._places[id(loss)]
        calls, read = [], set(ends)
        for call in reversed(self._calls):
            touched = {*_refs((call.args, tuple(value for _, value in call.kwargs))), *call.results}
            calls.append(Call(call.operator, call.args, call.kwargs, call.results, tuple(sorted(touched - read))))
            read |= touched
        return StepProgram(self._kinds, tuple(reversed(calls)), *ends, self._count)

    def _place(self, tensor: Tensor) -> int:
        """A new place for a result; that of an operator in place takes over the name of its input."""
        self._seen.append(tensor)
        self._places[id(tensor)] = self._count
        self._count += 1
        return self._count - 1

    def _told(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in self._places:
                raise NoBatchedForm("reads a tensor that is neither a weight nor computed from the batch")
            return Ref(self._places[id(value)])
        return tuple(map(self._told, value)) if isinstance(value, tuple | list) else value


def filled(value: Any, find: Callable[[int], Any]) -> Any:
    """An argument of a call with `find(place)` for each `Ref`; tuples become lists, as operators take them."""
    if isinstance(value, Ref):
        return find(value.place)
    return [filled(one, find) for one in value] if isinstance(value, tuple) else value


def _refs(value: Any) -> set[int]:
    if isinstance(value, Ref):
        return {value.place}
    return set().union(*map(_refs, value)) if isinstance(value, tuple) else set()


def _in_order(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Arguments by position as far as any is given, and those that can only be named."""
    declared = [argument for argument in operator._schema.arguments if not argument.kwarg_only]
    count = max([len(args), *(place + 1 for place, one in enumerate(declared) if one.name in kwargs)])
    positional = [*args, *(kwargs.get(one.name, one.default_value) for one in declared[len(args) : count])]
    only_named = {one.name for one in operator._schema.arguments if one.kwarg_only}
    return positional, sorted((name, value) for name, value in kwargs.items() if name in only_named)
