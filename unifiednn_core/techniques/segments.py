"""Where a network of layers is cut into segments: children of a Sequential, and blocks that it repeats."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Run:
    """Layers of a Sequential, one after the other, or a single block."""

    owner: nn.Module
    layers: tuple[nn.Module, ...]
    """Empty for a block."""

    @property
    def units(self) -> int:
        """Of how many pieces segments can be made."""
        return len(self.layers) or 1


@dataclass(frozen=True, slots=True)
class Segmented:
    """A run with its layers in groups; those of a block are none."""

    owner: nn.Module
    groups: tuple[tuple[nn.Module, ...], ...]


def segmented(network: nn.Module, segments: int | None) -> list[Segmented]:
    """Cut a network into about so many segments; by default each block is one, and single layers are grouped.

    Of n layers in a Sequential the root of n is best: as much is between segments as inside of one. A block outside of
    a Sequential is always one. Empty if there is neither a Sequential of two layers or more nor a class of blocks.
    """
    runs = list(_runs(network, Counter(type(one) for one in network.modules())))
    total = sum(run.units for run in runs)
    if total < 2:
        return []

    def count(run: Run) -> int:
        if segments is not None:
            return max(1, round(segments * run.units / total))
        blocks = sum(1 for layer in run.layers if next(layer.children(), None) is not None)
        return run.units if 2 * blocks > run.units else max(2, isqrt(run.units))

    return [Segmented(run.owner, _groups(run.layers, count(run))) for run in runs]


def _runs(module: nn.Module, counts: Counter[type[nn.Module]]) -> Iterator[Run]:
    for child in _parts(module) if not _is_plain(module) else [module]:
        if _is_plain(child):
            layers = tuple(_flat(child))
            if len(layers) > 1:
                yield Run(child, layers)
        elif counts[type(child)] > 1 and sum(1 for _ in child.children()) > 1 and not isinstance(child, _LISTS):
            yield Run(child, ())
        else:
            yield from _runs(child, counts)


_LISTS = (nn.ModuleList, nn.ModuleDict)


def _parts(module: nn.Module) -> list[nn.Module]:
    return list(module.children())


def _is_plain(module: nn.Module) -> bool:
    """Whether it calls its children one after the other, and nothing else happens."""
    is_sequential = type(module).forward is nn.Sequential.forward and isinstance(module, nn.Sequential)
    return is_sequential and "forward" not in module.__dict__ and not any(getattr(module, name) for name in _HOOKS)


def _flat(run: nn.Module) -> Iterator[nn.Module]:
    for layer in run.children():
        if _is_plain(layer):
            yield from _flat(layer)
        else:
            yield layer


def _groups(layers: Sequence[nn.Module], count: int) -> tuple[tuple[nn.Module, ...], ...]:
    """Cut layers into groups of similar length; none begins with a layer that writes into its input."""
    cuts = even_cuts([place for place in range(1, len(layers)) if not _writes(layers[place])], len(layers), count)
    ends = [*cuts, len(layers)]
    return tuple(tuple(layers[begin:end]) for begin, end in zip([0, *cuts], ends, strict=True)) if layers else ()


def even_cuts(allowed: Sequence[int], length: int, count: int) -> list[int]:
    """Choose cuts for `count` segments of a chain of this length, each the allowed one next to an even cut."""
    if not allowed:
        return []
    wanted = (length * place / count for place in range(1, count))
    return sorted({min(allowed, key=lambda cut: abs(cut - ideal)) for ideal in wanted})


def _writes(layer: nn.Module) -> bool:
    """Whether a layer says that it works in place."""
    return bool(getattr(layer, "inplace", False))


Wrapped = Callable[[Callable[..., Any], Sequence[nn.Module]], Callable[..., Any]]
"""Makes of the forward of layers one that computes it again in backward."""


def forward_of(one: Segmented, wrapped: Wrapped, *, last: bool) -> Callable[..., Any]:
    """Make the forward of a run; with `last` its last group stays as it is: backward would need it at once."""
    if not one.groups:
        return wrapped(one.owner.forward, [one.owner])
    chains = [_chain(group) for group in one.groups]
    steps = [wrapped(chain, group) for chain, group in zip(chains, one.groups, strict=True)]
    if last:
        steps[-1] = chains[-1]

    def forward(inputs: Any) -> Any:
        for step in steps:
            inputs = step(inputs)
        return inputs

    return forward


def _chain(layers: Sequence[nn.Module]) -> Callable[[Any], Any]:
    def chain(inputs: Any) -> Any:
        for layer in layers:
            inputs = layer(inputs)
        return inputs

    return chain
