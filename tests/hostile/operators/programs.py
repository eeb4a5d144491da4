"""Graphs of random operators: what one returns is argument of others, written in place, and led back by autograd.

Choices depend on the number of the program and on shapes alone, so it is the same program whatever lies around it.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from tests.hostile.operators.cases import mutated
from tests.hostile.operators.seeds import seeds
from tests.hostile.operators.values import Call, T, mapped

STEPS = 12
_FIRST = (T((2, 3, 4)), T((4, 5, 6)), T((3, 4)))
Make = Callable[[T], Tensor]
Run = Callable[[str, list[Any], dict[str, Any]], list[Any] | None]
"""Runs an operator; None if it was refused."""


def run(number: int, make: Make, call: Run) -> Iterator[Any]:
    """Every result of a program, in order."""
    draw, names = random.Random(f"program {number}"), sorted(name for name in seeds() if name.startswith("torch.ops"))
    values = [make(tensor).clone() for tensor in _FIRST]  # nobody writes to a leaf
    for _ in range(STEPS):
        name = draw.choice(names)
        chosen = draw.choice(seeds()[name])
        if draw.random() < 0.2:
            chosen = mutated(chosen, draw)
        args, kwargs = _filled(chosen, values, make, draw)
        results = call(name, args, kwargs)
        for result in results or ():
            yield result
            if isinstance(result, Tensor):
                values.append(result)


def _filled(call: Call, values: list[Tensor], make: Make, draw: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, with values that there are wherever one fits."""

    def tensor(wanted: T) -> Tensor:
        fitting = [one for one in values if one.shape == wanted.shape and one.dtype == wanted.dtype]
        return draw.choice(fitting) if fitting and draw.random() < 0.9 else make(wanted)

    return [mapped(value, tensor) for value in call.args], mapped(dict(call.kwargs), tensor)
