"""Contracts allow ordinary calls, and refuse each change that would let a kernel read or write too much."""

import pytest
import torch

from tests.unit.formats.contracts.calls import CALLS, REFUSED, f, i
from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats import operators
from unifiednn_core.formats.contracts.contract import full_name
from unifiednn_core.formats.contracts.general import overload, parameters
from unifiednn_core.formats.contracts.table import check_call


def operator(entry: str) -> str:
    return full_name(entry.partition(" ")[0])


@pytest.mark.parametrize("entry", CALLS)
def test_an_ordinary_call_is_allowed_and_runs(entry: str) -> None:
    target, good = operator(entry), CALLS[entry]
    declared = parameters(target)
    check_call(target, (), good)
    count = next((at for at, one in enumerate(declared) if one.name not in good), len(declared))
    positional = [one.name for one in declared[:count] if not one.keyword_only]
    rest = {name: value for name, value in good.items() if name not in positional}
    check_call(target, tuple(good[name] for name in positional), rest)
    overload(target)(**good)


@pytest.mark.parametrize("entry", REFUSED)
def test_a_call_that_reaches_too_far_is_refused_in_words(entry: str) -> None:
    for word, changes in REFUSED[entry].items():
        for change in changes:
            with pytest.raises(ContractBroken, match="does not allow this call") as caught:
                check_call(operator(entry), (), {**CALLS[entry], **change})
            assert word in caught.value.problem, (change, caught.value.problem)
            assert caught.value.operator in str(caught.value)


def test_types_are_those_of_the_schema() -> None:
    """torch itself would take a tensor for a size, and so let values decide shapes."""
    for name, args in (
        ("select.int", (f(3), 0, torch.tensor(1))),
        ("view", (f(4), [torch.tensor(2), 2])),
        ("dropout", (f(3), torch.tensor(0.5), True)),
        ("relu", ([f(3)],)),
        ("to.dtype", (f(3), 6)),
        ("to.device", (f(3), "meta", torch.float32)),
        ("relu", ()),
        ("relu", (f(3), 1)),
        ("sum.dim_IntList", (f(3), [0.0])),
    ):
        with pytest.raises(ContractBroken):
            check_call(full_name(name), args, {})
    with pytest.raises(ContractBroken, match="no further"):
        check_call(full_name("relu"), (f(3),), {"self": f(3)})


@pytest.mark.parametrize("name", ["relu", "add_.Tensor", "cat"])
def test_a_tensor_lies_within_its_memory(name: str) -> None:
    beyond = f(8)
    beyond.untyped_storage().resize_(16)
    args = {"relu": (beyond,), "add_.Tensor": (f(8), beyond), "cat": ([f(8), beyond],)}[name]
    with pytest.raises(ContractBroken, match="16 bytes beyond its memory"):
        check_call(full_name(name), args, {})


def test_kinds_of_tensors_that_no_network_here_has_are_refused() -> None:
    for tensor in (f(3).to_sparse(), f(3).to(torch.complex64), f(*[1] * 17), torch.zeros(1).expand(2**40)):
        with pytest.raises(ContractBroken):
            check_call(full_name("relu"), (tensor,), {})


def test_sizes_are_plain_numbers() -> None:
    """`_operator.mul` of lists would make one of any length, of tensors a call without a contract."""
    check_call("_operator.mul", (3, 4), {})
    for args in (([0], 2**40), (f(3), 2), (2**63, 2), ("x", 2), (1, None)):
        with pytest.raises(ContractBroken):
            check_call("_operator.mul", args, {})


def test_what_an_unsafe_view_hides_from_autograd_stays_visible() -> None:
    """The backward pass of pooling writes to the saved positions without a check."""
    images = f(1, 1, 4, 4).requires_grad_()
    best, places = operators.resolve(full_name("max_pool2d_with_indices"))(images, [2, 2])
    operators.resolve(full_name("_unsafe_view"))(places, [4]).add_(2**20)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        best.sum().backward()


def test_whole_numbers_are_divided_by_constants() -> None:
    """`INT64_MIN // -1` ends the process where the quotient is cut off; the other modes are safe."""
    least = torch.full((9,), -(2**63))
    for name in ("div.Tensor_mode", "div.Scalar_mode"):
        check_call(full_name(name), (i(4), 2), {"rounding_mode": "trunc"})
        check_call(full_name(name), (f(4), -1), {"rounding_mode": "trunc"})
        with pytest.raises(ContractBroken, match="0 or -1"):
            check_call(full_name(name), (least, -1), {"rounding_mode": "trunc"})
    assert overload(full_name("floor_divide"))(least, torch.full((9,), -1)).shape == (9,)
