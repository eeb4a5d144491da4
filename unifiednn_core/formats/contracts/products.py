"""Products, inverses and factors of matrices."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Rule, each, require, rule
from unifiednn_core.formats.contracts.predicates import (
    broadcast_shape,
    check_count,
    check_dim,
    check_same_type,
    check_vector,
    finite,
    listed,
    one_type,
    shape_of,
    tensor,
    word,
)

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


def _same_types(*names: str) -> Rule:
    def check(arguments: Any) -> None:
        first = tensor(names[0], arguments[names[0]])
        for name in names[1:]:
            other = tensor(name, arguments[name])
            require(other.dtype == first.dtype, f"'{name}' is {other.dtype}, '{names[0]}' is {first.dtype}")

    return Rule(f"{listed(names)} have one type", check)


def _check_inner(one: Tensor, two: Tensor) -> None:
    inner = two.shape[-2] if two.dim() > 1 else two.shape[0]
    require(one.shape[-1] == inner, f"the shapes are {list(one.shape)} and {list(two.shape)}")


@rule("input ends with the width of weight, which is [outputs, width]; bias is [outputs], contiguous")
def _linear(input: Any, weight: Any, bias: Any) -> None:
    given, matrix = tensor("input", input), tensor("weight", weight, 2)
    require(given.dim() >= 1, "'input' is a single number")
    shapes = f"'input' has the shape {list(given.shape)}, 'weight' {list(matrix.shape)}"
    require(given.shape[-1] == matrix.shape[1], shapes)
    check_vector("bias", bias, matrix.shape[0])
    check_count(*given.shape[:-1], matrix.shape[0])


@rule("input1 and input2 are equal but for their last sizes a and b; weight is [outputs, a, b]; bias is [outputs]")
def _bilinear(input1: Any, input2: Any, weight: Any, bias: Any) -> None:
    one, two, matrix = tensor("input1", input1), tensor("input2", input2), tensor("weight", weight, 3)
    require(one.dim() == two.dim() >= 1 and one.shape[:-1] == two.shape[:-1], "the inputs have different shapes")
    wanted = (matrix.shape[0], *one.shape[-1:], *two.shape[-1:])
    require(tuple(matrix.shape) == wanted, f"'weight' has the shape {list(matrix.shape)} instead of {list(wanted)}")
    check_vector("bias", bias, matrix.shape[0])
    check_count(*one.shape, matrix.shape[0], *two.shape[-1:])


@rule(
    "the last size of self is the last but one of other (the only one of a vector); the sizes before can be broadcast"
)
def _matmul(self: Any, other: Any) -> None:
    one, two = tensor("self", self), tensor("other", other)
    require(one.dim() >= 1 and two.dim() >= 1, "one of both is a single number")
    _check_inner(one, two)
    check_count(*broadcast_shape(one.shape[:-2], two.shape[:-2]), *one.shape[-2:-1], *two.shape[-1:])


@rule("self is [n, k] and mat2 is [k, m]")
def _mm(self: Any, mat2: Any) -> None:
    one, two = tensor("self", self, 2), tensor("mat2", mat2, 2)
    _check_inner(one, two)
    check_count(one.shape[0], two.shape[1])


def _check_batches(one: Tensor, two: Tensor) -> tuple[int, int, int]:
    _check_inner(one, two)
    require(one.shape[0] == two.shape[0], f"there are {one.shape[0]} and {two.shape[0]} matrices")
    check_count(one.shape[0], one.shape[1], two.shape[2])
    return one.shape[0], one.shape[1], two.shape[2]


@rule("self is [b, n, k] and mat2 is [b, k, m]")
def _bmm(self: Any, mat2: Any) -> None:
    _check_batches(tensor("self", self, 3), tensor("mat2", mat2, 3))


@rule("mat1 is [n, k] and mat2 is [k, m]; self can be broadcast to [n, m]")
def _addmm(self: Any, mat1: Any, mat2: Any) -> None:
    one, two = tensor("mat1", mat1, 2), tensor("mat2", mat2, 2)
    _check_inner(one, two)
    _check_added(self, (one.shape[0], two.shape[1]))


@rule("batch1 is [b, n, k] and batch2 is [b, k, m]; self can be broadcast to [b, n, m]")
def _baddbmm(self: Any, batch1: Any, batch2: Any) -> None:
    _check_added(self, _check_batches(tensor("batch1", batch1, 3), tensor("batch2", batch2, 3)))


def _check_added(value: Any, wanted: Sequence[int]) -> None:
    given = tensor("self", value)
    check_count(*wanted)
    fits = broadcast_shape(given.shape, wanted) == tuple(wanted)
    require(fits, f"'self' has the shape {list(given.shape)} for {list(wanted)}")


@rule(
    "the equation names the sizes of each tensor by letters, each letter one size (`...`: those that are broadcast); "
    "the tensors have one type; path names tensors that there are"
)
def _einsum(equation: str, tensors: Sequence[Any], path: Sequence[int] | None) -> None:
    text = equation.replace(" ", "")
    terms = text.partition("->")[0].split(",")
    require(len(terms) == len(tensors) >= 1, f"the equation has {len(terms)} terms for {len(tensors)} tensors")
    sizes: dict[str, int] = {}
    ellipses: list[Sequence[int]] = []
    for term, part in zip(terms, tensors, strict=True):
        given, (before, dots, after) = tensor("tensors", part), term.partition("...")
        letters = before + after
        require(letters.isalpha() or not letters, f"the equation is {equation!r}")
        hidden = given.dim() - len(letters)
        require(hidden >= 0 and (bool(dots) or not hidden), f"'{term}' names not all of {list(given.shape)}")
        named = [*given.shape[: len(before)], *given.shape[len(before) + hidden :]]
        ellipses.append(given.shape[len(before) : len(before) + hidden])
        for letter, size in zip(letters, named, strict=True):
            known = sizes.get(letter, 1)
            require(1 in (known, size) or known == size, f"'{letter}' is {known} and {size}")
            sizes[letter] = size if known == 1 else known
        require(given.dtype == tensors[0].dtype, f"its tensors are {tensors[0].dtype} and {given.dtype}")
    check_count(*broadcast_shape(*ellipses), *sizes.values())
    left, pairs = len(tensors), path or []
    require(path is None or len(pairs) == max(1, 2 * (left - 1)), f"'path' is {path}")
    for one, two in zip(pairs[::2], pairs[1::2], strict=False):
        require(one != two and min(one, two) >= 0 and max(one, two) < left, f"'path' is {path}")
        left -= 1


@rule("x1 and x2 can be broadcast to one shape; dim is a dimension of it")
def _similar(x1: Any, x2: Any, dim: int) -> None:
    shape = broadcast_shape(tensor("x1", x1).shape, tensor("x2", x2).shape)
    check_count(*shape)
    check_dim(dim, len(shape))


@rule("self is [n, k] and vec is [k]")
def _mv(self: Any, vec: Any) -> None:
    _check_inner(tensor("self", self, 2), tensor("vec", vec, 1))


@rule("mat is [n, k] and vec is [k]; self can be broadcast to [n]")
def _addmv(self: Any, mat: Any, vec: Any) -> None:
    matrix = tensor("mat", mat, 2)
    _check_inner(matrix, tensor("vec", vec, 1))
    _check_added(self, matrix.shape[:1])


def _vectors(other: str) -> Rule:
    def check(arguments: Any) -> None:
        one, two = tensor("self", arguments["self"], 1), tensor(other, arguments[other], 1)
        require(other == "vec2" or one.shape == two.shape, f"the shapes are {list(one.shape)} and {list(two.shape)}")
        check_count(one.numel(), two.numel())

    return Rule(f"self and {other} are vectors{'' if other == 'vec2' else ', of one size'}", check)


@rule("dims_self and dims_other are as many dimensions, and those that belong together have one size")
def _contracted(self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]) -> None:
    shapes = [list(shape_of(self)), list(shape_of(other))]
    require(len(dims_self) == len(dims_other), f"it sums over {list(dims_self)} and {list(dims_other)}")
    for shape, dims in zip(shapes, (dims_self, dims_other), strict=True):
        require(len({check_dim(dim, len(shape)) for dim in dims}) == len(dims), f"a dimension of {list(dims)} twice")
    for one, two in zip(dims_self, dims_other, strict=True):
        require(bool(shapes[0] and shapes[1]) and shapes[0][one] == shapes[1][two], f"the shapes are {shapes}")
    check_count(
        *(
            size
            for shape, dims in zip(shapes, (dims_self, dims_other), strict=True)
            for place, size in enumerate(shape)
            if place not in {check_dim(dim, len(shape)) for dim in dims}
        )
    )


@rule("the last sizes of both are equal, or one is a single number")
def _inner(self: Any, other: Any) -> None:
    one, two = shape_of(self), shape_of(other)
    require(not one or not two or one[-1] == two[-1], f"the shapes are {list(one)} and {list(two)}")
    check_count(*one[:-1], *two[:-1])


@rule("the sizes of the result are the products of those of both")
def _kron(self: Any, other: Any) -> None:
    check_count(*shape_of(self), *shape_of(other))


@rule("self and other have as many dimensions and can be broadcast to one shape, of size 3 along dim, which is given")
def _cross(self: Any, other: Any, dim: int | None) -> None:
    one, two = tensor("self", self), tensor("other", other)
    shape = broadcast_shape(one.shape, two.shape)
    fits = dim is not None and one.dim() == two.dim() > 0 and shape[check_dim(dim, len(shape))] == 3
    require(fits, f"the shapes are {list(one.shape)} and {list(two.shape)}, 'dim' is {dim}")
    check_count(*shape)


CONTRACTS = {
    **each("linear", one_type("input", "weight", "bias"), _linear),
    **each("bilinear", one_type("input1", "input2", "weight", "bias"), _bilinear),
    **each("matmul", _same_types("self", "other"), _matmul),
    **each("mm", _same_types("self", "mat2"), _mm),
    **each("bmm", _same_types("self", "mat2"), _bmm),
    **each("addmm", _same_types("self", "mat1", "mat2"), _addmm),
    **each("baddbmm", _same_types("self", "batch1", "batch2"), _baddbmm),
    **each("einsum", _einsum),
    **each("mv", _same_types("self", "vec"), _mv),
    **each("addmv", _same_types("self", "mat", "vec"), _addmv),
    **each("dot", _same_types("self", "tensor"), _vectors("tensor")),
    **each("vdot", _same_types("self", "other"), _vectors("other")),
    **each("outer", _vectors("vec2")),
    **each("tensordot", _same_types("self", "other"), _contracted),
    **each("inner", _same_types("self", "other"), _inner),
    **each("kron", _kron),
    **each("cross linalg_cross", one_type("self", "other"), _cross),
    **each("cosine_similarity", one_type("x1", "x2"), _similar, finite("eps")),
    **each("linalg_det linalg_slogdet linalg_inv", _A),
    **each("det slogdet logdet inverse linalg_cholesky cholesky matrix_exp linalg_matrix_exp", _SELF),
    **each("linalg_matrix_power matrix_power", _SELF, _power),
    **each("linalg_solve", _A, _sides),
    **each("linalg_solve_triangular", _SELF, _triangle_sides),
    **each("linalg_qr", _any, word("mode", "reduced", "complete")),
    **each("linalg_householder_product", _reflections),
}
