"""A forward that keeps only its inputs: backward computes the rest again, with the same bits.

What torch's own `checkpoint` does without reentry, and more: it restores random numbers of any generator, and buffers
such as running statistics, which are updated once. Torch's loads its compiler, which a worker has no use for.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.graph import saved_tensors_hooks

from unifiednn_core.base.errors import NotApplicable

_KINDS = ("cpu", "cuda")
Keep = Callable[[Tensor], Callable[[], Tensor]]
"""Keeps a tensor until backward, which gets it by a call."""


def keep_as_it_is(tensor: Tensor) -> Callable[[], Tensor]:
    """Keep a tensor where it is."""
    return lambda: tensor


def recomputed(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    given: dict[str, Any],
    *,
    generators: Sequence[Generator],
    buffers: Sequence[Tensor],
    keep: Keep = keep_as_it_is,
) -> Any:
    """Call `function(*inputs, **given)`; what it saves for backward is computed again there.

    It may draw from `generators` and write into `buffers`. Raises `NotApplicable` if it writes into an input.
    """
    if not torch.is_grad_enabled():
        return function(*inputs, **given)
    versions = [one._version if isinstance(one, Tensor) else 0 for one in inputs]
    call = _Call(function, inputs, given, _State.of(generators, buffers), keep)
    with saved_tensors_hooks(call.pack, call.unpack):
        outputs = function(*inputs, **given)
    if versions != [one._version if isinstance(one, Tensor) else 0 for one in inputs]:
        raise NotApplicable("checkpointing", "a segment writes into its input, so it cannot be computed again")
    call.state.drop_unchanged()
    return outputs


class _Enough(Exception):
    """All that backward needs is there."""


class _Holder:
    """The place of one saved tensor; it lives as long as backward may ask for it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: Tensor | None = None


class _Call:
    """One pass through a segment. What autograd saves holds it."""

    def __init__(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], given: dict[str, Any], state: "_State", keep: Keep
    ):
        self._function, self._given, self.state = function, given, state
        self._inputs = [_kept(one, keep) for one in inputs]
        self._autocast = [_Autocast.of(kind) for kind in _KINDS]
        self._holders: list[weakref.ref[_Holder]] = []

    def pack(self, _: Tensor) -> _Holder:
        holder = _Holder()
        self._holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        if holder.tensor is None:
            self._again()
        if holder.tensor is None:
            raise NotApplicable("checkpointing", "a segment computed something else when it ran again")
        return holder.tensor

    def _again(self) -> None:
        place = 0

        def pack(saved: Tensor) -> None:
            nonlocal place
            if place < len(self._holders) and (holder := self._holders[place]()) is not None:
                holder.tensor = saved.detach()
            place += 1
            if place >= len(self._holders):
                raise _Enough

        inputs = [get() for get in self._inputs]
        with ExitStack() as stack:
            stack.enter_context(saved_tensors_hooks(pack, _never))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(self.state.again())
            for autocast in self._autocast:
                stack.enter_context(autocast.again())
            try:
                self._function(*inputs, **self._given)
            except _Enough:
                return


def _never(_: None) -> Tensor:
    raise RuntimeError("backward was called on a recomputed forward")


def _kept(one: Any, keep: Keep) -> Callable[[], Any]:
    """Keep an argument without its history; a tensor that gets a gradient gets one again."""
    if not isinstance(one, Tensor):
        return lambda: one
    get, wants = keep(one.detach()), one.requires_grad
    return lambda: get().detach().requires_grad_(wants)


@dataclass(slots=True)
class _Buffer:
    """A buffer as it was, and its version."""

    tensor: Tensor
    before: Tensor
    version: int


@dataclass(slots=True)
class _State:
    """What a forward depends on besides weights and inputs, as it was before it."""

    generators: Sequence[Generator]
    states: list[Tensor]
    buffers: list[_Buffer]

    @classmethod
    def of(cls, generators: Sequence[Generator], buffers: Sequence[Tensor]) -> "_State":
        """The present state."""
        copies = [_Buffer(one, one.detach().clone(), one._version) for one in buffers]
        return cls(generators, [one.get_state() for one in generators], copies)

    def drop_unchanged(self) -> None:
        """Forget whole numbers that nobody has written; kernels of normalisation write floating point ones unseen."""
        self.buffers = [
            one for one in self.buffers if one.tensor.is_floating_point() or one.tensor._version != one.version
        ]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Go back to it for a while."""
        states = [one.get_state() for one in self.generators]
        after = [one.tensor.detach().clone() for one in self.buffers]
        try:
            for generator, state in zip(self.generators, self.states, strict=True):
                generator.set_state(state)
            for buffer in self.buffers:
                buffer.tensor.data.copy_(buffer.before)  # `data`: what autograd saved has the version of before
            yield
        finally:
            for generator, state in zip(self.generators, states, strict=True):
                generator.set_state(state)
            for buffer, value in zip(self.buffers, after, strict=True):
                buffer.tensor.data.copy_(value)


@dataclass(frozen=True, slots=True)
class _Autocast:
    """Torch's autocast on one kind of device, as it was."""

    kind: str
    dtype: torch.dtype | None
    """None if it was off."""

    @classmethod
    def of(cls, kind: str) -> "_Autocast":
        return cls(kind, torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None)

    def again(self) -> torch.autocast:
        return torch.autocast(self.kind, self.dtype, enabled=self.dtype is not None, cache_enabled=False)
