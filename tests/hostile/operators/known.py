"""Calls that torch accepts and that read or write foreign memory or end the process: what contracts are for.

The fuzzer must find every one of them where nothing forbids it.
"""

from collections.abc import Mapping

import torch

from tests.hostile.operators.cases import Case
from tests.hostile.operators.values import Call, T, c, f

_ATEN = "torch.ops.aten."
_ATTENTION, _LSTM, _GRU = f"{_ATEN}scaled_dot_product_attention.default", f"{_ATEN}lstm.input", f"{_ATEN}gru.input"
_WEIGHTS = [f(20, 3), f(20, 5), f(20), f(20)]


def _lstm(states: list[T], weights: list[T], *, layers: int = 1) -> Call:
    return c(f(4, 2, 3), states, weights, True, layers, 0.0, *_PLAIN)


_PLAIN = (True, False, False)
_WINDOWS = T((2, 2, 5, 8), layout="overlapping")
_STATES = [f(1, 2, 5), f(1, 2, 5)]
_LEAST = T((40,), torch.int64, "min")
LEAKS: Mapping[str, tuple[str, Call, bool]] = {
    "a key with fewer rows than the value": (_ATTENTION, c(f(2, 2, 64, 16), f(2, 2, 33, 16), f(2, 2, 64, 16)), False),
    "gradients of a short key": (_ATTENTION, c(f(2, 2, 64, 16), f(2, 2, 17, 16), f(2, 2, 64, 16)), True),
    "a query whose rows overlap": (_ATTENTION, c(_WINDOWS, f(2, 2, 7, 8), f(2, 2, 7, 8)), False),
    "short biases": (_LSTM, _lstm(_STATES, [f(20, 3), f(20, 5), f(4), f(4)]), False),
    "short biases and gradients": (_LSTM, _lstm(_STATES, [f(20, 3), f(20, 5), f(20, 1), f(20)]), True),
    "states of a smaller batch": (_LSTM, _lstm([f(1, 1, 5), f(1, 2, 5)], _WEIGHTS), False),
    "states of a larger batch": (_LSTM, _lstm([f(1, 16, 5), f(1, 2, 5)], _WEIGHTS), False),
    "weights of another layer": (_LSTM, _lstm([f(4, 2, 5), f(4, 2, 5)], _WEIGHTS * 4, layers=2), True),
    "rows that no gate has": (_GRU, c(f(4, 2, 3), f(1, 2, 5), [f(4, 3), f(4, 5)], False, 1, 0.0, *_PLAIN), False),
    "the least number by -1": (f"{_ATEN}div.Scalar_mode", Call((_LEAST, -1), {"rounding_mode": "trunc"}), False),
}
"""Operator, call, and whether its gradients are computed, too."""


def leaks() -> list[Case]:
    """The known ones as cases."""
    return [Case(target, -1, call, gradients, seed) for seed, (target, call, gradients) in enumerate(LEAKS.values())]
