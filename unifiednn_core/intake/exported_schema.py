"""What a `.pt2` file may say: the export schema (version 8 of torch 2.13), narrowed to what a network needs.

Everything that is not described here is refused, and everything that is written again is written from these models,
so nothing that was not looked at can pass. The official loader evaluates strings; here each one has a pattern.
Field names are torch's own (`torch/_export/serde/schema.py`).
"""

# ruff: noqa: RUF012 - these are pydantic models, which copy their defaults

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from unifiednn_core.intake.exported_values import (
    Device,
    DroppedDict,
    DroppedList,
    Name,
    OneOf,
    Part,
    QualifiedName,
    Real,
    Size,
    Symbol,
    SymBool,
    SymFloat,
    Target,
    TensorMeta,
)

MAX_NODES = 20_000


class NamedValue(Part):
    """A tensor of the graph, by name."""

    name: Name


class SymArgument(OneOf):
    """A number, given or by name."""

    as_name: Name = ""
    as_int: int = 0
    as_float: Real = 0.0
    as_bool: bool = False


class OptionalTensor(OneOf):
    """A tensor or nothing."""

    as_tensor: NamedValue | None = None
    as_none: bool = True


class Argument(OneOf):
    """Argument of an operator; sub-graphs, script objects and operators as values are left out on purpose."""

    as_none: bool = True
    as_tensor: NamedValue | None = None
    as_tensors: tuple[NamedValue, ...] = ()
    as_int: int = 0
    as_ints: tuple[int, ...] = ()
    as_float: Real = 0.0
    as_floats: tuple[Real, ...] = ()
    as_string: Annotated[str, Field(max_length=200)] = ""
    as_sym_int: SymArgument | None = None
    as_sym_ints: tuple[SymArgument, ...] = ()
    as_sym_float: SymArgument | None = None
    as_sym_bool: SymArgument | None = None
    as_scalar_type: Literal[1, 2, 3, 4, 5, 6, 7, 8, 12, 13] = 7
    as_memory_format: Literal[1, 2, 3, 4] = 1
    as_layout: Literal[7] = 7
    as_device: Device | None = None
    as_bool: bool = False
    as_bools: tuple[bool, ...] = ()
    as_optional_tensors: tuple[OptionalTensor, ...] = ()
    as_optional_tensor: OptionalTensor | None = None


class NamedArgument(Part):
    """An argument of an operator with its name."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    arg: Argument
    kind: Literal[1, 2]  # positional, keyword


class Node(Part):
    """One call of an operator."""

    target: Target
    inputs: tuple[NamedArgument, ...]
    outputs: tuple[Argument, ...]
    metadata: DroppedDict = {}
    is_hop_single_tensor_return: None = None
    name: Name


class Graph(Part):
    """Calls in order, and what is known of each value."""

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    nodes: Annotated[tuple[Node, ...], Field(max_length=MAX_NODES)]
    tensor_values: dict[Name, TensorMeta]
    sym_int_values: dict[Name, Size]
    sym_bool_values: dict[Name, SymBool]
    sym_float_values: dict[Name, SymFloat] = {}
    is_single_tensor_return: Literal[False] = False
    custom_obj_values: Annotated[dict[str, str], Field(max_length=0)] = {}


class UserValue(Part):
    """What the caller gives or gets."""

    arg: Argument


class ParameterInput(Part):
    """A parameter that the graph reads."""

    arg: NamedValue
    parameter_name: QualifiedName


class BufferInput(Part):
    """A buffer that the graph reads."""

    arg: NamedValue
    buffer_name: QualifiedName
    persistent: bool


class ConstantInput(Part):
    """A constant tensor that the graph reads."""

    arg: NamedValue
    tensor_constant_name: QualifiedName


class InputSpec(OneOf):
    """What one input of the graph stands for."""

    user_input: UserValue | None = None
    parameter: ParameterInput | None = None
    buffer: BufferInput | None = None
    tensor_constant: ConstantInput | None = None


class OutputSpec(OneOf):
    """What one output of the graph stands for."""

    user_output: UserValue | None = None


class Signature(Part):
    """What all inputs and outputs stand for."""

    input_specs: tuple[InputSpec, ...]
    output_specs: tuple[OutputSpec, ...]


class CallSignature(Part):
    """How the module is called, as pytrees."""

    inputs: DroppedList = ()
    outputs: DroppedList = ()
    in_spec: Annotated[str, Field(max_length=10_000)]
    out_spec: Annotated[str, Field(max_length=10_000)]
    forward_arg_names: tuple[Name, ...] | None = None


class CallEntry(Part):
    """A module of the source network."""

    fqn: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@]*$", max_length=1000)]
    signature: CallSignature | None = None


class GraphModule(Part):
    """A graph with its signature."""

    graph: Graph
    signature: Signature
    module_call_graph: tuple[CallEntry, ...]
    metadata: DroppedDict = {}
    treespec_namedtuple_fields: Annotated[dict[str, str], Field(max_length=0)] = {}


class Range(Part):
    """Limits of a symbol."""

    min_val: int | None
    max_val: int | None


class SchemaVersion(Part):
    """Version of the export schema."""

    major: Literal[8]
    minor: int


class Program(Part):
    """`models/model.json`: the graph of one network."""

    graph_module: GraphModule
    opset_version: dict[Literal["aten"], int]
    range_constraints: dict[Symbol, Range]
    schema_version: SchemaVersion
    verifiers: Annotated[tuple[Literal["TRAINING"], ...], Field(min_length=1, max_length=1)]
    torch_version: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+-]{1,64}$")]
    guards_code: DroppedList = ()
