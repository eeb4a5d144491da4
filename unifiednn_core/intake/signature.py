"""What goes into an exported graph and comes out of it: one input, one output, and the tensors that it holds."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from unifiednn_core.intake.exported_schema import InputSpec, Program
from unifiednn_core.intake.exported_values import Payloads, TensorMeta
from unifiednn_core.intake.expressions import plain_symbol

_LEAF: dict[str, object] = {"type": None, "context": None, "children_spec": []}
# Pytree of a call with one positional tensor, ((x,), {}), and of one tensor as its result.
_ONE_ARGUMENT = [
    1,
    {
        "type": "builtins.tuple",
        "context": "null",
        "children_spec": [
            {"type": "builtins.tuple", "context": "null", "children_spec": [_LEAF]},
            {"type": "builtins.dict", "context": "[]", "children_spec": []},
        ],
    },
]
_ONE_RESULT = [1, _LEAF]
Role = Literal["parameter", "buffer", "constant"]


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that the graph holds. A constant is also a buffer that the state dict leaves out."""

    value: str
    """Name in the graph."""
    name: str
    """Qualified name in the module."""
    role: Role


@dataclass(frozen=True, slots=True)
class GraphInterface:
    """Names and shapes at the border of a graph."""

    input_name: str
    output_name: str
    input_meta: TensorMeta
    held: tuple[Held, ...]


def read_interface(
    program: Program, weights: Payloads, constants: Payloads, refuse: Callable[[str], Exception]
) -> GraphInterface:
    """Hold signature, graph and stored tensors against each other; raises `refuse(message)` where they disagree."""
    graph, signature = program.graph_module.graph, program.graph_module.signature
    held = [_held(entry) for entry in signature.input_specs]
    inputs = [entry.user_input.arg.as_tensor for entry in signature.input_specs if entry.user_input is not None]
    outputs = [entry.user_output.arg.as_tensor for entry in signature.output_specs if entry.user_output is not None]
    root = next((call.signature for call in program.graph_module.module_call_graph if call.fqn == ""), None)
    if root is None or len(inputs) != 1 or inputs[0] is None or not _same_json(root.in_spec, _ONE_ARGUMENT):
        raise refuse("The network does not take exactly one tensor as its one positional argument.")
    if len(outputs) != 1 or outputs[0] is None or not _same_json(root.out_spec, _ONE_RESULT):
        raise refuse("The network does not return exactly one tensor.")
    names = [inputs[0].name if entry is None else entry.value for entry in held]
    given = [argument.as_tensor.name if argument.as_tensor else None for argument in graph.inputs]
    returned = [argument.as_tensor.name if argument.as_tensor else None for argument in graph.outputs]
    if names != given or returned != [outputs[0].name] or inputs[0].name not in graph.tensor_values:
        raise refuse("The signature and the graph differ.")
    tensors = tuple(entry for entry in held if entry is not None)
    for entry in tensors:
        stored = (constants if entry.role == "constant" else weights).config.get(entry.name)
        if stored is None or stored.is_param != (entry.role == "parameter"):
            raise refuse(f"The file holds no {entry.role} '{entry.name}'.")
    left = weights.config.keys() - {entry.name for entry in tensors}
    if left:
        raise refuse(f"The graph does not know the weight '{min(left)}'.")
    return GraphInterface(inputs[0].name, outputs[0].name, graph.tensor_values[inputs[0].name], tensors)


def min_batch(program: Program, input_meta: TensorMeta) -> int | None:
    """Smallest batch, or None where only one batch size was exported.

    Export notes at least 2 for every dynamic dimension; a graph that runs without export's guards takes 1 as well.
    """
    first = input_meta.sizes[0] if input_meta.sizes else None
    symbol = plain_symbol(first.as_expr.expr_str) if first is not None and first.as_expr else None
    if symbol is None:
        return None
    least = program.range_constraints[symbol].min_val if symbol in program.range_constraints else None
    return least if least is not None and least > 2 else 1


def _held(entry: InputSpec) -> Held | None:
    if entry.parameter is not None:
        return Held(entry.parameter.arg.name, entry.parameter.parameter_name, "parameter")
    if entry.buffer is not None:
        return Held(
            entry.buffer.arg.name, entry.buffer.buffer_name, "buffer" if entry.buffer.persistent else "constant"
        )
    if entry.tensor_constant is not None:
        return Held(entry.tensor_constant.arg.name, entry.tensor_constant.tensor_constant_name, "constant")
    return None


def _same_json(text: str, expected: object) -> bool:
    try:
        return bool(json.loads(text) == expected)
    except (ValueError, RecursionError):
        return False
