"""Arithmetic on sizes, which are plain numbers when the graph runs."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from unifiednn_core.formats.contracts.contract import Contract, Rule, require

_ARITHMETIC = "add sub mul floordiv truediv mod neg eq ne lt le gt ge and_ or_ not_"
_SYMBOLIC = "sym_float sym_int sym_max sym_min sym_not"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _ARITHMETIC.split()},
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc")},
    **{f"torch.{name}": getattr(torch, name) for name in _SYMBOLIC.split()},
}
LARGEST = 2**63


def check(args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Check that the function gets plain numbers of a sane size; raises `Broken`."""
    for value in args:
        require(isinstance(value, int | float), f"it gets a {type(value).__name__}")
        require(not isinstance(value, int) or abs(value) < LARGEST, "a number does not fit 64 bits")
    require(not kwargs, "it takes no named arguments")


_RULE = Rule("it gets plain numbers, whole ones below 2^63", lambda arguments: check(tuple(arguments.values()), {}))
CONTRACTS = {name: Contract((_RULE,)) for name in FUNCTIONS}
