"""Runs a TorchScript program operator by operator, as a plain module that `torch.export` can trace.

torch's own interpreter hides sizes from export, so it would export every network for one batch size only. Use this in
the sandbox only: a program may call any operator.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from unifiednn_core.base.errors import BadInput

_LOOP_LIMIT = 10_000


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
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *_: bool,
) -> torch.Tensor:
    """The convolution before torch chose its kernel."""
    rank = f"{weight.dim() - 2}d"
    if transposed:
        build = getattr(torch.ops.aten, f"conv_transpose{rank}")
        result = build(inputs, weight, bias, stride, padding, output_padding, groups, dilation)
    else:
        result = getattr(torch.ops.aten, f"conv{rank}")(inputs, weight, bias, stride, padding, dilation, groups)
    return cast(torch.Tensor, result)


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("prim::NumToTensor", "prim::unchecked_cast"), lambda value: value),
    **{f"aten::{kind}Implicit": lambda value: value for kind in ("Scalar", "Int", "Float")},
    **{f"prim::{name}": operator.attrgetter(name) for name in ("dtype", "device", "layout", "is_cuda")},
    "prim::ListConstruct": lambda *items: list(items),
    "prim::TupleConstruct": lambda *items: tuple(items),
    "prim::TupleIndex": operator.getitem,
    "prim::Uninitialized": lambda: None,
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
    "aten::_convolution": _convolution,
    # In the overload by which the reader of .pt2 files knows the counter of a normalisation.
    "aten::add_": lambda tensor, other, alpha=1: tensor.add_(other, alpha=alpha),
    "aten::append": _appended,
    "aten::list": list,
    "aten::warn": lambda *_: None,
    "aten::format": lambda text, *_: text,
}
_SAME_NAMES = ("mul", "floordiv", "pow", "neg", "eq", "ne", "lt", "le", "gt", "ge", "__and__", "__or__", "__contains__")
# The same names are operators on tensors, which export has to see as such.
ON_NUMBERS: Mapping[str, Callable[..., Any]] = {
    **{f"aten::{name}": getattr(operator, name) for name in _SAME_NAMES},
    "aten::add": _with_alpha(operator.add),
    "aten::sub": _with_alpha(operator.sub),
    "aten::div": _divided,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::slice": lambda items, start, end, step: items[start:end:step],
}


class Script(nn.Module):
    """A TorchScript module with its tensors under their own names. Train and evaluation mode have separate programs."""

    def __init__(self, script: torch.jit.ScriptModule):
        super().__init__()
        _copy(script, self, {})
        # Not registered: the tensors of this module are the ones that count.
        object.__setattr__(self, "_script", script)

    def forward(self, inputs: torch.Tensor) -> Any:
        """Run the program on one input."""
        script: Any = self._script
        script.train(self.training)
        graph = script.inlined_graph
        given = list(graph.inputs())
        if len(given) != 2:
            raise _refused(f"its forward takes {len(given) - 1} inputs; it must take exactly one")
        values: dict[str, Any] = {given[0].debugName(): _Place(self, script), given[1].debugName(): inputs}
        [result] = _run(graph, values)
        return result


class _Place:
    """A module of the program: tensors come from the plain module, everything else from the script."""

    def __init__(self, module: nn.Module, script: Any):
        self.module, self.script = module, script

    def attribute(self, name: str) -> Any:
        if name in self.module._modules:
            return _Place(self.module._modules[name] or nn.Module(), getattr(self.script, name))
        if name in self.module._parameters or name in self.module._buffers:
            return getattr(self.module, name)
        value = getattr(self.script, name)
        if isinstance(value, list) and value and all(isinstance(item, torch.Tensor) for item in value):
            return [self._own(item) for item in value]  # recurrent layers hold their weights in a list, too
        return value

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        names = dict(self.script.named_parameters(recurse=False)) | dict(self.script.named_buffers(recurse=False))
        place = _place(tensor)
        return next((getattr(self.module, name) for name, held in names.items() if _place(held) == place), tensor)

    def set_attribute(self, name: str, value: Any) -> None:
        if name not in self.module._buffers:
            raise _refused(f"it changes its attribute '{name}', which is not a buffer")
        setattr(self.module, name, value)


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    """Equal for two tensors of the same memory; an empty tensor has none."""
    return (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (object(),)


def _copy(script: Any, into: nn.Module, seen: dict[object, Any]) -> None:
    """Copy tensors and structure; tensors that are tied stay tied."""

    def once(tensor: torch.Tensor, make: Any) -> Any:
        place = _place(tensor)
        if place not in seen:
            seen[place] = make(tensor.detach().clone())
        return seen[place]

    for name, parameter in script.named_parameters(recurse=False):
        trainable = parameter.requires_grad
        into.register_parameter(name, once(parameter, lambda values, own=trainable: nn.Parameter(values, own)))
    for name, buffer in script.named_buffers(recurse=False):
        into.register_buffer(name, once(buffer, lambda values: values))
    for name, child in script.named_children():
        module = nn.Module()
        _copy(child, module, seen)
        into.add_module(name, module)


def _run(block: Any, values: dict[str, Any]) -> list[Any]:
    """Run the nodes of a graph or block in order; returns its results."""
    for node in block.nodes():
        results = _node(node, values)
        for output, value in zip(node.outputs(), results, strict=True):
            values[output.debugName()] = value
    results = block.outputs() if hasattr(block, "outputs") else ()
    return [values[result.debugName()] for result in results]


def _node(node: Any, values: dict[str, Any]) -> Sequence[Any]:
    kind = node.kind()
    arguments = [values[value.debugName()] for value in node.inputs()]
    if kind == "prim::If":
        first, second = node.blocks()
        return _run(first if arguments[0] else second, values)
    if kind == "prim::Loop":
        return _loop(node, arguments, values)
    if kind == "prim::Constant":
        return [_constant(node)]
    if kind == "prim::GetAttr":
        return [arguments[0].attribute(node.s("name"))]
    if kind == "prim::SetAttr":
        arguments[0].set_attribute(node.s("name"), arguments[1])
        return []
    if kind == "prim::RaiseException":
        raise _refused(f"it raises: {str(arguments[0])[:200]}")
    if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
        return list(arguments[0])
    if (simple := PRIMITIVES.get(kind)) is not None:
        return [simple(*arguments)]
    if (simple := ON_NUMBERS.get(kind)) is not None and not any(isinstance(a, torch.Tensor) for a in arguments):
        return [simple(*arguments)]
    return _operator(node, kind, arguments)


def _constant(node: Any) -> Any:
    value = node.output().toIValue()
    if isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_floating_point():
        with _disable_current_modes():  # sizes are tensors in traced programs, and numbers for export
            return value.item()
    return value


def _operator(node: Any, kind: str, arguments: list[Any]) -> Sequence[Any]:
    namespace, _, name = kind.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None) if namespace == "aten" else None
    if packet is None:
        raise _refused(f"it uses '{kind}', which a network for export cannot have")
    schema = torch._C.parse_schema(node.schema())
    # Operators may take some arguments only by name.
    positional = [value for value, place in zip(arguments, schema.arguments, strict=True) if not place.kwarg_only]
    named = {place.name: value for value, place in zip(arguments, schema.arguments, strict=True) if place.kwarg_only}
    overload = getattr(packet, schema.overload_name or "default", None)
    result = (overload or packet)(*positional, **named)
    outputs = list(node.outputs())
    return [] if not outputs else [result] if len(outputs) == 1 else list(result)


def _loop(node: Any, arguments: list[Any], values: dict[str, Any]) -> Sequence[Any]:
    [body] = node.blocks()
    count, goes_on, *carried = arguments
    names = [value.debugName() for value in body.inputs()]
    turn = 0
    while goes_on and turn < count:
        if turn >= _LOOP_LIMIT:
            raise _refused(f"it has a loop of more than {_LOOP_LIMIT} turns")
        values.update(zip(names, [turn, *carried], strict=True))
        goes_on, *carried = _run(body, values)
        turn += 1
    return carried


def _refused(reason: str) -> BadInput:
    message = f"The TorchScript program cannot be exported: {reason}."
    remedy = "Export the network from its Python code instead: unifiednn pack."
    return BadInput.of("TorchScript", field="model", message=message, remedy=remedy)
