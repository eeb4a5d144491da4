"""Calls that torch accepts and that read or write foreign memory or end the process: what contracts are for.

And functions that do so on purpose. The fuzzer must find every one of them where nothing forbids it.
"""

import ctypes
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from tests.hostile.operators.cases import PROGRAM, Case, case
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


def _beyond(tensor: Tensor, place: int) -> Tensor:
    """One entry in front of a tensor or behind it, by its address."""
    address = tensor.data_ptr() + place * tensor.element_size()
    return torch.frombuffer((ctypes.c_char * tensor.element_size()).from_address(address), dtype=tensor.dtype)


class _Unwritten(torch.autograd.Function):
    """Returns its argument; the gradient is never written."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return torch.empty_like(gradients[0])


def _written_beyond(tensor: Tensor) -> Tensor:
    _beyond(tensor, tensor.numel())[0] = 0.25
    return tensor.clone()


def _after(tensor: Tensor, count: int) -> Tensor:
    """The entries behind it, too. A single one may lie in a block that both runs find alike."""
    return torch.cat([tensor.flatten(), *(_beyond(tensor, tensor.numel() + place) for place in range(count))])


def _filled(tensor: Tensor, count: int) -> Tensor:
    for place in range(count):
        _beyond(tensor, tensor.numel() + place)[0] = 0.25
    return tensor


def _freed_twice(tensor: Tensor) -> Tensor:
    block = ctypes.CDLL(None).malloc
    block.restype = ctypes.c_void_p
    address = ctypes.c_void_p(block(64))
    for _ in range(2):
        ctypes.CDLL(None).free(address)
    return tensor


def _endless(tensor: Tensor) -> Tensor:
    for _ in repeat(None):
        torch.relu(tensor.detach())
    return tensor


_SELECTS = "returns as many as are positive"
FAKES: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "returns fresh memory": ("differs", torch.empty_like),
    "reads behind its argument": ("differs", lambda tensor: tensor + _beyond(tensor, tensor.numel())),
    "reads in front of it": ("differs", lambda tensor: tensor + _beyond(tensor, -1)),
    "reads far behind it": ("differs", lambda tensor: tensor + _beyond(tensor, tensor.numel() + 800)),
    "writes behind it": ("canary", _written_beyond),
    "reads behind fresh memory": ("differs", lambda tensor: _after(torch.relu(tensor.expand(64, 7).contiguous()), 512)),
    "writes behind fresh memory": ("any", lambda tensor: _filled(torch.relu(tensor.expand(64, 7).contiguous()), 40)),
    "gives an unwritten gradient": ("differs", _Unwritten.apply),
    "frees a block twice": ("crash", _freed_twice),
    "writes to no address": ("crash", lambda tensor: ctypes.memset(8, 0, 1)),
    "never ends": ("slow", _endless),
    _SELECTS: ("moves", lambda tensor: tensor[tensor > 0]),
    "is sound": ("ran", torch.relu),
}
"""What the fuzzer must say (`any`: that it does harm), and the function."""


FAULTY = {f"{_ATEN}{name}.default": torch.empty_like for name in ("relu", "exp", "clone", "tanh", "sigmoid", "abs")}
"""Steps of programs that return fresh memory."""
_PROGRAMS = 12  # two of them come upon such a step


def fakes() -> list[Case]:
    """A call of each fake, with gradients where it has some; then programs."""
    calls = [Case(name, 0, c(f(7)), name != _SELECTS, seed) for seed, name in enumerate(FAKES)]
    return calls + [case(PROGRAM, number) for number in range(_PROGRAMS)]
