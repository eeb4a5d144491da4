"""Determinants, inverses and factors of matrices."""

from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, require, rule
from unifiednn_core.formats.contracts.predicates import broadcast_shape, check_count, check_same_type, tensor, word

MOST_POWER = 2**10
_LONG = (torch.float32, torch.float64)


def _checked(name: str, value: Any, *, square: bool = True) -> Tensor:
    given = tensor(name, value)
    require(given.dtype in _LONG, f"'{name}' is {given.dtype}, not float32 or float64")
    fits = given.dim() >= 2 and given.numel() > 0 and (given.shape[-1] == given.shape[-2] or not square)
    require(fits, f"'{name}' has the shape {list(given.shape)}")
    return given


def _squares(name: str) -> Rule:
    def check(arguments: Arguments) -> None:
        _checked(name, arguments[name])

    return Rule(f"{name} is a square matrix, or several, not empty, float32 or float64", check)


@rule("n is from -1,024 to 1,024")
def _power(n: int) -> None:
    require(abs(n) <= MOST_POWER, f"'n' is {n}")


_SIDES = "B is a matrix, or several, of the type of {}, as many rows (columns with left off); batches can be broadcast"


@rule(_SIDES.format("A"))
def _sides(A: Any, B: Any, left: bool) -> None:  # noqa: N803 - named as in the schema
    _check_sides("A", A, B, left)


@rule(_SIDES.format("self"))
def _triangle_sides(self: Any, B: Any, left: bool) -> None:  # noqa: N803 - named as in the schema
    _check_sides("self", self, B, left)


def _check_sides(name: str, square: Any, other: Any, left: bool) -> None:
    one, two = _checked(name, square), _checked("B", other, square=False)
    check_same_type(name, one, "B", two)
    shapes = f"the shapes are {list(one.shape)} and {list(two.shape)}"
    require(two.shape[-2 if left else -1] == one.shape[-1], shapes)
    check_count(*broadcast_shape(one.shape[:-2], two.shape[:-2]), *two.shape[-2:])


@rule("A is a matrix, or several, not empty, float32 or float64")
def _any(A: Any) -> None:  # noqa: N803 - named as in the schema
    _checked("A", A, square=False)


@rule(
    "input is [..., m, n] with n not above m, not empty, float32 or float64; tau is [..., k] of its type, k not above n"
)
def _reflections(input: Any, tau: Any) -> None:
    given, factors = _checked("input", input, square=False), tensor("tau", tau)
    check_same_type("input", given, "tau", factors)
    fits = given.shape[-2] >= given.shape[-1] and factors.shape[:-1] == given.shape[:-2]
    fits = fits and factors.dim() >= 1 and factors.shape[-1] <= given.shape[-1]
    require(fits, f"'input' has the shape {list(given.shape)}, 'tau' {list(factors.shape)}")


_A, _SELF = _squares("A"), _squares("self")
CONTRACTS: dict[str, Contract] = {
    **each("linalg_det linalg_slogdet linalg_inv", _A),
    **each("det slogdet logdet inverse linalg_cholesky cholesky matrix_exp linalg_matrix_exp", _SELF),
    **each("linalg_matrix_power matrix_power", _SELF, _power),
    **each("linalg_solve", _A, _sides),
    **each("linalg_solve_triangular", _SELF, _triangle_sides),
    **each("linalg_qr", _any, word("mode", "reduced", "complete")),
    **each("linalg_householder_product", _reflections),
}
