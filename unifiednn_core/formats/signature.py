"""Inputs, outputs and held tensors of a graph, under the names that the signature in the file gives them."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import exported_schema as schema
from unifiednn_core.formats.tensor_files import bad_file

HOW_TO_EXPORT = (
    "Make the file with `unifiednn pack`, or with torch 2.10 or newer: torch.export.export(network.train(), (x,), "
    'dynamic_shapes=({0: torch.export.Dim("batch")},)), then torch.export.save.'
)
THE_OUTPUT = "outputs"  # name of an output that has none: forward returns one tensor
_NO_CALL = "The file does not say how forward is called."
_DIFFER = "The signature and the graph differ."
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,255}")
_SEQUENCES = ("builtins.tuple", "builtins.list")
_MAPPINGS = ("builtins.dict", "collections.OrderedDict")
Role = Literal["parameter", "buffer", "constant"]


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor that goes into a network, or comes out of it."""

    value: str  # name in the graph
    name: str  # parameter of forward, or place in what forward returns, such as `logits` or `past.0`


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that the graph holds. A constant is also a buffer that the state dict leaves out."""

    value: str  # name in the graph
    name: str  # qualified name in the module
    role: Role
    stored: str = ""  # name in the file
    is_buffer: bool = True  # whether a constant is a buffer


def refused(path: Path, message: str, remedy: str = HOW_TO_EXPORT) -> BadInput:
    """A finding about a file that cannot be trained."""
    return bad_file(path, "Not a network to train", message, remedy)


def inputs_of(path: Path, program: schema.Program) -> tuple[Port, ...]:
    """Name the inputs in the order of a call; raises `BadInput`."""
    given = [entry.user_input.arg.as_tensor for entry in _signature(program).input_specs if entry.user_input]
    values = [tensor.name for tensor in given if tensor is not None]
    if not values or len(values) < len(given):
        message = "An input of the network is a fixed value, or it has none; every input must be a tensor."
        raise refused(
            path, message, "Leave such values out of the example: forward's defaults, or a wrapper, give them."
        )
    root = _root_call(path, program)
    tree = _tree(path, root.in_spec)
    if sum(1 for _ in _leaves(path, tree, "")) != len(values):
        raise refused(path, _DIFFER)
    places, keywords = tree["children_spec"] if len(tree["children_spec"]) == 2 else ({}, {})
    if (places.get("type"), keywords.get("type")) != ("builtins.tuple", "builtins.dict"):
        raise refused(path, _NO_CALL)
    trees, by_name = [*places["children_spec"], *keywords["children_spec"]], json.loads(keywords["context"])
    known = [*(root.forward_arg_names or ())]
    if len(known) != len(trees):
        known = values if len(trees) == len(values) else [str(place) for place in range(len(trees))]
        known = [*known[: len(trees) - len(by_name)], *map(str, by_name)]
    if known[len(trees) - len(by_name) :] != by_name:
        raise refused(path, _DIFFER)
    return _ports(
        path, values, [name for top, part in zip(known, trees, strict=True) for name in _leaves(path, part, top)]
    )


def call_text(program: schema.Program, names: Sequence[str], values: Sequence[str]) -> str:
    """The call of a checked program as code, with the `names` of its parameters: `model(src, mask=mask)`."""
    root = next(call.signature for call in program.graph_module.module_call_graph if call.signature is not None)
    places, _ = json.loads(root.in_spec)[1]["children_spec"]
    first = len(places["children_spec"])
    named = [f"{name}={value}" for name, value in zip(names, values, strict=True)]
    return f"model({', '.join([*values[:first], *named[first:]])})"


def outputs_of(path: Path, program: schema.Program) -> tuple[Port, ...]:
    """Name the tensors that forward returns, in order; what is no tensor is left out. Raises `BadInput`."""
    returned = [entry.user_output.arg.as_tensor for entry in _signature(program).output_specs if entry.user_output]
    tree = _tree(path, _root_call(path, program).out_spec)
    names = [*_leaves(path, tree, "")]
    if len(names) != len(returned):
        raise refused(path, _DIFFER)
    tensors = [(tensor.name, name or THE_OUTPUT) for tensor, name in zip(returned, names, strict=True) if tensor]
    if not tensors:
        raise refused(path, "The network returns no tensor.")
    return _ports(path, *map(list, zip(*tensors, strict=True)))


def in_the_place_of(wanted: Sequence[str], found: Sequence[str]) -> list[str | None]:
    """For each of the `wanted` outputs, the one of `found` that stands for it: of the same name, or the only one.

    Many networks return several outputs in training, and the first of them alone in evaluation.
    """
    if [*found] == [THE_OUTPUT]:
        return [found[0], *[None] * (len(wanted) - 1)]
    return [name if name in found else None for name in wanted]


def held_by(
    path: Path, program: schema.Program, weights: schema.Payloads, constants: schema.Payloads
) -> tuple[Held, ...]:
    """List the tensors that a graph holds; raises `BadInput` if signature, graph and stored tensors disagree."""
    graph, signature = program.graph_module.graph, _signature(program)
    held = [_held(entry) for entry in signature.input_specs]
    inputs = iter(inputs_of(path, program))
    names = [next(inputs).value if entry is None else entry.value for entry in held]
    given = [argument.as_tensor.name if argument.as_tensor else None for argument in graph.inputs]
    returned = tuple(entry.user_output.arg for entry in signature.output_specs if entry.user_output)
    if names != given or returned != graph.outputs or not graph.tensor_values.keys() >= {*names}:
        raise refused(path, _DIFFER)
    tensors = tuple(entry for entry in held if entry is not None)
    for entry in tensors:
        stored = (constants if entry.role == "constant" else weights).config.get(entry.stored)
        if stored is None or stored.is_param != (entry.role == "parameter"):
            raise refused(path, f"The file holds no {entry.role} '{entry.name}'.")
    left = weights.config.keys() - {entry.name for entry in tensors}
    if left:
        raise refused(path, f"The graph does not know the weight '{min(left)}'.")
    return tensors


def min_batch(path: Path, program: schema.Program, inputs: Sequence[Port]) -> int:
    """Smallest batch; raises `BadInput` unless the first dimension of every input is the batch.

    Export records at least 2 for every dynamic dimension, but without the guards of export a graph accepts 1 as well.
    """
    least = 1
    for port in inputs:
        first = next(iter(program.graph_module.graph.tensor_values[port.value].sizes), None)
        symbol = schema.plain_symbol(first.as_expr.expr_str) if first is not None and first.as_expr else None
        if symbol is None:
            message = "The network was exported for one batch size only."
            if len(inputs) > 1:
                message = f"The first dimension of the input '{port.name}' is not the batch, or has one size only."
            raise bad_file(path, "Fixed batch size", message, f"Make the first dimension dynamic. {HOW_TO_EXPORT}")
        allowed = program.range_constraints.get(symbol)
        if allowed is not None and (allowed.min_val or 0) > 2:
            least = max(least, allowed.min_val or 0)
    return least


def _signature(program: schema.Program) -> schema.Signature:
    return program.graph_module.signature


def _root_call(path: Path, program: schema.Program) -> schema.CallSignature:
    root = next((call.signature for call in program.graph_module.module_call_graph if call.fqn == ""), None)
    if root is None:
        raise refused(path, _NO_CALL)
    return root


def _ports(path: Path, values: Sequence[str], names: Sequence[str]) -> tuple[Port, ...]:
    if len(values) != len(names):
        raise refused(path, _DIFFER)
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            message = f"An input or output is called {name!r}: twice, or not by letters, digits, '_', '-' and blanks."
            raise refused(path, message, "Give it another name in forward.")
    return tuple(Port(value, name) for value, name in zip(values, names, strict=True))


def _tree(path: Path, text: str) -> dict[str, Any]:
    try:
        version, tree = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        version, tree = None, None
    if version != 1 or not isinstance(tree, dict):
        raise refused(path, _NO_CALL)
    return tree


def _leaves(path: Path, tree: Any, name: str) -> Iterator[str]:
    """Names of the leaves of a tree as torch writes it, in order, below `name`."""
    match tree:
        case {"type": None, "context": None, "children_spec": []} if len(tree) == 3:
            yield name
            return
        case {"type": str(kind), "context": str(context), "children_spec": list(parts)} if len(tree) == 3:
            keys = _keys(kind, context, len(parts))
        case _:
            keys, kind = None, "structure of its own"
    if keys is None:
        message = f"forward takes or returns a {kind!r}."
        raise refused(path, message, "Use tensors, tuples, lists and dicts, or `unifiednn pack`, which does so itself.")
    for key, part in zip(keys, parts, strict=True):
        yield from _leaves(path, part, f"{name}.{key}" if name else key)


def _keys(kind: str, context: str, size: int) -> list[str] | None:
    if kind in _SEQUENCES and context == "null":
        return [str(place) for place in range(size)]
    try:
        keys = json.loads(context) if kind in _MAPPINGS else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(keys, list) or len(keys) != size or not all(type(key) in (str, int) for key in keys):
        return None
    return [str(key) for key in keys]


def _held(entry: schema.InputSpec) -> Held | None:
    match entry.value:
        case schema.ParameterInput() as given:
            return Held(given.arg.name, given.parameter_name, "parameter", given.parameter_name)
        case schema.BufferInput() as given:
            role: Role = "buffer" if given.persistent else "constant"
            return Held(given.arg.name, given.buffer_name, role, given.buffer_name)
        case schema.ConstantInput() as given:
            return Held(given.arg.name, given.tensor_constant_name, "constant", given.tensor_constant_name, False)
    return None
