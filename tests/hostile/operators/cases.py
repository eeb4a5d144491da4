"""Cases of the fuzzer: ordinary calls first, then calls with one to three hostile changes. Same number, same case."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from tests.hostile.operators import layers
from tests.hostile.operators.seeds import seeds
from tests.hostile.operators.values import ALL_DTYPES, FILLS, LAYOUTS, Call, T, mapped, tensors_in, with_size
from unifiednn_core.formats import operators

WHOLE = (0, -1, 1, 2, 3, 5, 7, 64, 1000, 2**20, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -2, -3, -(2**31), -(2**63))
REAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1.5, 1e-30, 1e38, -1e300, float("nan"), float("inf"), float("-inf"))
_WORDS = "constant reflect replicate circular valid same floor trunc ij xy none tanh i,j-> ii->i ij->ji ...i->..."
WORDS = _WORDS.split()
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 130)
HUGE = 2**20
PROGRAM = "program"
"""The target of cases that are many calls: see `programs`."""
_ANYTHING = (None, True, False, 0, 1, 2, 3, -1, 1000, 0.5, 2.0, "mean", "none", [2], [1, 2], [3, 0, 1], [])
_POSITIONS = ("index", "beyond", "negative", "min", "max", "extreme")


_GRADIENTS = {
    (False, False): "",
    (True, False): " and its gradients",
    (True, True): ", its numbers changed, and its gradients",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One call of one target; the seed is that of contents and of random numbers."""

    target: str
    number: int
    call: Call
    gradients: bool
    seed: int
    meddles: bool = False
    """Whether the network changes numbers between the call and its gradients."""

    def __str__(self) -> str:
        named = [*map(repr, self.call.args), *(f"{key}={value!r}" for key, value in self.call.kwargs.items())]
        return f"{self.target}({', '.join(named)}){_GRADIENTS[self.gradients, self.meddles]} [case {self.number}]"


@cache
def targets() -> dict[str, list[Call]]:
    """Ordinary calls of everything that is tried: operators, arithmetic on sizes, layers and criteria."""
    return seeds() | layers.layer_seeds()


def case(target: str, number: int) -> Case:
    """The case of this number: first every seed without and with gradients."""
    if target == PROGRAM:
        return Case(target, number, Call(), True, number)
    calls = targets()[target]
    if number < 2 * len(calls):
        return Case(target, number, calls[number // 2], number % 2 == 1, number)
    draw = random.Random(f"{target} {number}")
    call = mutated(draw.choice(calls), draw, optional(target))
    gradients = draw.random() < 0.6
    return Case(target, number, call, gradients, number, gradients and draw.random() < 0.1)


def mutated(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]] = ()) -> Call:
    """The call with one to three changes; tensors that would be too large are never made."""
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3))):
        for _ in range(8):
            changed = draw.choices(_CHANGES, _WEIGHTS)[0](call, draw, unset)
            if all(tensor.fits() for tensor in tensors_in(changed.args, changed.kwargs)):
                call = changed
                break
    return call


@cache
def optional(target: str) -> list[tuple[str, str]]:
    """Names and types of the arguments of an operator that have a default."""
    if target.startswith((layers.LAYER, layers.CRITERION)):
        return layers.optional(target)
    function = operators.resolve(target)
    if not isinstance(function, torch._ops.OpOverload):
        return []
    given = [part for part in function._schema.arguments if part.name not in ("generator", "layout", "device", "dtype")]
    return [(part.name, str(part.type)) for part in given if part.has_default_value() and part.kwarg_only]


_Change = Callable[[Call, random.Random, Sequence[tuple[str, str]]], Call]


def _one_value(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]]) -> Call:
    """Change one argument, or one entry of a list."""
    places = [*range(len(call.args)), *call.kwargs]
    return _at(call, draw.choice(places), lambda value: _other(value, draw)) if places else call


def _one_tensor(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]]) -> Call:
    found = tensors_in(call.args, call.kwargs)
    if not found:
        return call
    chosen = iter([place == chosen for chosen in [draw.randrange(len(found))] for place in range(len(found))])
    return _each(call, lambda tensor: _other_tensor(tensor, draw) if next(chosen) else tensor)


def _same_size_everywhere(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]]) -> Call:
    """Change all sizes of one value, so that shapes go on matching."""
    known = sorted({size for tensor in tensors_in(call.args, call.kwargs) for size in tensor.shape})
    if not known:
        return call
    old, new = draw.choice(known), draw.choice(SIZES)
    return _each(call, lambda tensor: replace(tensor, shape=tuple(new if s == old else s for s in tensor.shape)))


def _all_alike(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]]) -> Call:
    """Give all real tensors another dtype, layout or filling."""
    what, dtype, layout, fill = draw.randrange(3), draw.choice(ALL_DTYPES), draw.choice(LAYOUTS), draw.choice(FILLS)

    def change(tensor: T) -> T:
        if what == 0:
            return replace(tensor, dtype=dtype) if tensor.dtype == torch.float32 else tensor
        return replace(tensor, layout=layout) if what == 1 else replace(tensor, fill=fill)

    return _each(call, change)


def _aliases(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]]) -> Call:
    """Let a tensor share the memory of the one before it, a few elements further or not."""
    count = len(tensors_in(call.args, call.kwargs))
    if count < 2:
        return call
    places, chosen = iter(range(count)), draw.randrange(1, count)
    step = draw.choice((0, 0, 1, 3))
    return _each(call, lambda t: replace(t, alias=step * t.dtype.itemsize) if next(places) == chosen else t)


def _an_option(call: Call, draw: random.Random, unset: Sequence[tuple[str, str]]) -> Call:
    """Give an argument that was left to its default, or leave out the last."""
    if not unset or draw.random() < 0.2:
        return Call(call.args[:-1], call.kwargs) if call.args else call
    name, kind = draw.choice(unset)
    return Call(call.args, {**call.kwargs, name: _of_kind(kind, draw)})


def _of_kind(kind: str, draw: random.Random) -> Any:
    if "Tensor" in kind:
        return T(tuple(draw.choice(SIZES[1:6]) for _ in range(draw.randrange(3))))
    if "List" in kind or "numbers" in kind or "integers" in kind:
        return [draw.choice(WHOLE[:8]) for _ in range(draw.randrange(4))]
    if "bool" in kind or "flag" in kind:
        return draw.random() < 0.5
    if "str" in kind or "word" in kind:
        return draw.choice(WORDS)
    if kind == "object":
        return draw.choice(_ANYTHING)
    return draw.choice(WHOLE if "int" in kind else REAL)


_CHANGES: tuple[_Change, ...] = (_one_value, _one_tensor, _same_size_everywhere, _all_alike, _aliases, _an_option)
_WEIGHTS = (30, 35, 12, 10, 6, 7)


def _each(call: Call, change: Callable[[T], Any]) -> Call:
    args = mapped(call.args, change)
    return Call(args, mapped(dict(call.kwargs), change))


def _at(call: Call, place: int | str, change: Callable[[Any], Any]) -> Call:
    if isinstance(place, str):
        return Call(call.args, {**call.kwargs, place: change(call.kwargs[place])})
    return Call((*call.args[:place], change(call.args[place]), *call.args[place + 1 :]), call.kwargs)


def _other(value: Any, draw: random.Random) -> Any:
    """Another value, mostly of the same kind."""
    if draw.random() < 0.04:
        return draw.choice((None, 0, 1.5, True, [], [1, 2], T((2, 3)), T((4,), torch.int64, "index")))
    match value:
        case T():
            return _other_tensor(value, draw) if draw.random() < 0.9 else None
        case bool():
            return not value
        case int():
            return draw.choice((*WHOLE, value + 1, value - 1, 2 * value, -value))
        case float():
            return draw.choice(REAL)
        case str():
            return draw.choice(WORDS)
        case torch.dtype():
            return draw.choice(ALL_DTYPES)
        case list():
            return _other_list(value, draw)
        case None:
            return draw.choice((None, 0, 1, -1, 0.5, True, [2], [1, 1], [], T((4,)), T((5,)), T(()), "floor"))
    return value


def _other_list(value: list[Any], draw: random.Random) -> list[Any]:
    place = draw.randrange(len(value)) if value else 0
    match draw.randrange(6) if value else 5:
        case 0:
            return value[:place] + value[place + 1 :]
        case 1:
            return [*value, value[place]]
        case 5:
            return draw.choice(([], [1], [0], [2, 2], [1, 1, 1, 1], [-1]))
    return [*value[:place], _other(value[place], draw), *value[place + 1 :]]


def _other_tensor(tensor: T, draw: random.Random) -> T:
    shape = tensor.shape
    match draw.randrange(10):
        case 0 | 1 | 2 if shape:
            place = draw.randrange(len(shape))
            size = draw.choice((*SIZES, shape[place] + 1, max(shape[place] - 1, 0), 2 * shape[place], HUGE))
            layout = "constant" if size == HUGE else tensor.layout
            return replace(with_size(tensor, place, size), layout=layout)
        case 3 if shape:
            place = draw.randrange(len(shape))
            return replace(tensor, shape=shape[:place] + shape[place + 1 :])
        case 4:
            place = draw.randrange(len(shape) + 1)
            return replace(tensor, shape=(*shape[:place], draw.choice((1, 1, 2, 3, 0)), *shape[place:]))
        case 5 | 6:
            return replace(tensor, layout=draw.choice(LAYOUTS))
        case 7:
            return replace(tensor, dtype=draw.choice(ALL_DTYPES))
        case 8 if tensor.dtype.is_floating_point:
            return replace(tensor, fill=draw.choice(FILLS))
        case _:
            high = draw.choice((1, 2, tensor.high, tensor.high + 1, 2 * tensor.high, 1000))
            return replace(tensor, fill=draw.choice(_POSITIONS), high=high)
