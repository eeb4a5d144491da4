"""What TorchScript says about lists, numbers and sizes, in Python, so that `torch.export` sees it."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch


def _sizes(tensor: torch.Tensor, place: int | None = None) -> Any:
    return list(tensor.shape) if place is None else tensor.shape[place]


def _appended(items: list[Any], value: Any) -> list[Any]:
    items.append(value)
    return items


def _with_alpha(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda first, second, alpha=1: combine(first, second if alpha == 1 else second * alpha)


def _divided(first: Any, second: Any, rounding_mode: str | None = None) -> Any:
    return first / second if rounding_mode is None else first // second  # sizes are positive, so that both modes agree


def _convolution(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: list[int], padding: list[int],
    dilation: list[int], transposed: bool, output_padding: list[int], groups: int, *_: bool,
) -> torch.Tensor:  # fmt: skip
    """What a traced convolution was before torch looked for its kernel."""
    rank = f"{weight.dim() - 2}d"
    if transposed:
        build = getattr(torch.ops.aten, f"conv_transpose{rank}")
        result = build(inputs, weight, bias, stride, padding, output_padding, groups, dilation)
    else:
        result = getattr(torch.ops.aten, f"conv{rank}")(inputs, weight, bias, stride, padding, dilation, groups)
    return cast(torch.Tensor, result)


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "prim::ListConstruct": lambda *items: list(items),
    "prim::TupleConstruct": lambda *items: tuple(items),
    "prim::TupleIndex": operator.getitem,
    "prim::NumToTensor": lambda number: number,
    "prim::Uninitialized": lambda: None,
    "prim::unchecked_cast": lambda value: value,
    "prim::dtype": lambda tensor: tensor.dtype,
    "prim::device": lambda tensor: tensor.device,
    "prim::layout": lambda tensor: tensor.layout,
    "prim::is_cuda": lambda tensor: tensor.is_cuda,
    "prim::min": min,
    "prim::max": max,
    "aten::__getitem__": operator.getitem,
    "aten::len": len,
    "aten::dim": lambda tensor: tensor.dim(),
    "aten::size": _sizes,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__not__": operator.not_,
    "aten::Int": lambda value: value if isinstance(value, torch.SymInt) else int(value),
    "aten::Float": lambda value: value if isinstance(value, torch.SymFloat) else float(value),
    "aten::Bool": bool,
    "aten::ScalarImplicit": lambda value: value,
    "aten::IntImplicit": lambda value: value,
    "aten::FloatImplicit": lambda value: value,
    "aten::_convolution": _convolution,
    "aten::append": _appended,
    "aten::list": list,
    "aten::warn": lambda *_: None,
    "aten::format": lambda text, *_: text,
}
# The same names are operators on tensors, which export has to see as such.
ON_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "aten::add": _with_alpha(operator.add),
    "aten::sub": _with_alpha(operator.sub),
    "aten::mul": operator.mul,
    "aten::div": _divided,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::pow": operator.pow,
    "aten::neg": operator.neg,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__contains__": operator.contains,
    "aten::slice": lambda items, start, end, step: items[start:end:step],
}
