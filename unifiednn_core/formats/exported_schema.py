"""The content of a `.pt2` file: the export schema (version 8 of torch 2.13), narrowed to what a network needs.

Everything else is refused, and files are written from these models alone, so nothing unchecked can pass. The official
loader evaluates strings as Python; here each string has a pattern, and symbolic sizes such as
`Mul(Integer(2), Symbol('s77', integer=True))` are parsed. Field names are those of `torch/_export/serde/schema.py`.
"""

# ruff: noqa: D101 - classes have the names and fields of torch; pydantic copies defaults

import ast
import keyword
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

MAX_NODES = 20_000
MAX_EXPRESSION_LENGTH = 1000
HOSTILE = "hostile"  # type of the validation errors for content that no exporter writes
_FUNCTION_NAMES = """
Symbol Integer Rational Add Mul Max Min FloorDiv CleanDiv CeilDiv Mod PythonMod ModularIndexing IntTrueDiv ToFloat
CeilToInt FloorToInt Equality Unequality LessThan GreaterThan StrictLessThan StrictGreaterThan And Or Not
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_ASSUMPTIONS = frozenset({"positive", "nonnegative", "nonzero", "integer", "real", "finite", "evaluate"})
_SYMBOL = "[su][0-9]{1,9}"


def check_expression(text: str) -> str:
    """Return `text`. Raises a validation error of type `HOSTILE` for anything but a size."""
    try:
        tree = ast.parse(text, mode="eval") if len(text) <= MAX_EXPRESSION_LENGTH else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not _is_size(tree.body):
        message = "the size {text} is not plain arithmetic; torch would run it as code"
        raise PydanticCustomError(HOSTILE, message, {"text": repr(text[:80])})
    return text


def plain_symbol(text: str) -> str | None:
    """Return the name of the symbol if the expression is one symbol, else None."""
    match = re.fullmatch(rf"Symbol\('({_SYMBOL})'(, [a-z]+=True)*\)", text)
    return match[1] if match else None


def _is_size(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=keywords):
            return re.fullmatch(_SYMBOL, name) is not None and _are_assumptions(keywords)
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=keywords):
            return function in _FUNCTIONS and _are_assumptions(keywords) and all(_is_size(part) for part in arguments)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_size(operand)
        case ast.Constant(value=value):
            return isinstance(value, int) and abs(value) < 2**63
    return False


def _are_assumptions(keywords: list[ast.keyword]) -> bool:
    known = [given.value for given in keywords if given.arg in _ASSUMPTIONS]
    flags = [value for value in known if isinstance(value, ast.Constant) and isinstance(value.value, bool)]
    return len(flags) == len(keywords)


def _identifier(name: str) -> str:
    if keyword.iskeyword(name):
        raise PydanticCustomError(HOSTILE, "'{name}' is a Python keyword and cannot name a value", {"name": name})
    return name


def _never_pickled(use_pickle: bool) -> bool:
    if use_pickle:
        raise PydanticCustomError(HOSTILE, "a tensor is stored as a pickle, which can run code")
    return use_pickle


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$"), AfterValidator(_identifier)]
QualifiedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_ -]+(\.[A-Za-z0-9_ -]+)*$", max_length=1000)]
Symbol = Annotated[str, StringConstraints(pattern=f"^{_SYMBOL}$")]
Record = Annotated[str, StringConstraints(pattern=r"^(weight|tensor)_[0-9]{1,9}$")]
Target = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,255}$")]
Expression = Annotated[str, AfterValidator(check_expression)]
Real = float | Literal["Infinity", "-Infinity", "NaN"]
# Stack traces, guards and the like are dropped.
DroppedDict = Annotated[dict[str, str], BeforeValidator(lambda _: {})]
DroppedList = Annotated[tuple[str, ...], BeforeValidator(lambda _: ())]


class StrictModel(BaseModel):
    """A closed record, which refuses unknown entries and wrong types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OneOf(StrictModel):
    """A union as torch writes it: an object with one entry, under its kind as key."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError("one_of", "exactly one entry is expected here")
        return self

    @property
    def kind(self) -> str:
        """Key of the one entry."""
        (name,) = self.model_fields_set
        return name

    @property
    def value(self) -> Any:
        """Value of the one entry."""
        return getattr(self, self.kind)


class Hint(OneOf):
    as_int: int = 0
    as_bool: bool = False
    as_float: Real = 0.0


class SymbolicExpression(StrictModel):
    expr_str: Expression
    hint: Hint | None = None


class Size(OneOf):
    as_expr: SymbolicExpression | None = None
    as_int: int = 0


class SymFloat(OneOf):
    as_expr: SymbolicExpression | None = None
    as_float: Real = 0.0


class SymBool(OneOf):
    as_expr: SymbolicExpression | None = None
    as_bool: bool = False


class TorchDevice(StrictModel):
    type: Literal["cpu", "cuda"]
    index: int | None = None


class TensorMeta(StrictModel):
    # bytes, integers, floating point, complex and bool; nothing quantised
    dtype: Literal[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]
    sizes: Annotated[tuple[Size, ...], Field(max_length=64)]
    requires_grad: bool
    device: TorchDevice
    strides: Annotated[tuple[Size, ...], Field(max_length=64)]
    storage_offset: Size
    layout: Literal[7]  # strided


class Payload(StrictModel):
    path_name: Record
    is_param: bool
    use_pickle: Annotated[bool, AfterValidator(_never_pickled)]
    tensor_meta: TensorMeta

    @model_validator(mode="after")
    def _stored_complex(self) -> Self:
        if self.tensor_meta.dtype == 11 or (self.tensor_meta.dtype == 10 and self.is_param):
            message = (
                "a stored tensor is complex128, or a weight is complex; keep weights as pairs of real numbers and use "
                "torch.view_as_complex in forward, and buffers as complex64"
            )
            raise PydanticCustomError("complex", message)
        return self


class Payloads(StrictModel):
    config: dict[QualifiedName, Payload]


class NamedValue(StrictModel):
    name: Name


class SymArgument(OneOf):
    as_name: Name = ""
    as_int: int = 0
    as_float: Real = 0.0
    as_bool: bool = False


class OptionalTensor(OneOf):
    as_tensor: NamedValue | None = None
    as_none: bool = True


class NodeArgument(OneOf):
    """Argument of an operator; sub-graphs, script objects and operators as values are excluded on purpose."""

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
    as_scalar_type: Literal[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13] = 7
    as_memory_format: Literal[1, 2, 3, 4] = 1
    as_layout: Literal[7] = 7
    as_device: TorchDevice | None = None
    as_bool: bool = False
    as_bools: tuple[bool, ...] = ()
    as_optional_tensors: tuple[OptionalTensor, ...] = ()
    as_optional_tensor: OptionalTensor | None = None


class NamedArgument(StrictModel):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    arg: NodeArgument
    kind: Literal[1, 2]  # positional, keyword


class Node(StrictModel):
    target: Target
    inputs: tuple[NamedArgument, ...]
    outputs: tuple[NodeArgument, ...]
    metadata: DroppedDict = {}
    is_hop_single_tensor_return: None = None
    name: Name


class Graph(StrictModel):
    inputs: tuple[NodeArgument, ...]
    outputs: tuple[NodeArgument, ...]
    nodes: Annotated[tuple[Node, ...], Field(max_length=MAX_NODES)]
    tensor_values: dict[Name, TensorMeta]
    sym_int_values: dict[Name, Size]
    sym_bool_values: dict[Name, SymBool]
    sym_float_values: dict[Name, SymFloat] = {}
    is_single_tensor_return: Literal[False] = False
    custom_obj_values: Annotated[dict[str, str], Field(max_length=0)] = {}


class UserValue(StrictModel):
    arg: NodeArgument


class ParameterInput(StrictModel):
    arg: NamedValue
    parameter_name: QualifiedName


class BufferInput(StrictModel):
    arg: NamedValue
    buffer_name: QualifiedName
    persistent: bool


class ConstantInput(StrictModel):
    arg: NamedValue
    tensor_constant_name: QualifiedName


class InputSpec(OneOf):
    user_input: UserValue | None = None
    parameter: ParameterInput | None = None
    buffer: BufferInput | None = None
    tensor_constant: ConstantInput | None = None


class OutputSpec(OneOf):
    user_output: UserValue | None = None


class Signature(StrictModel):
    input_specs: tuple[InputSpec, ...]
    output_specs: tuple[OutputSpec, ...]


class CallSignature(StrictModel):
    inputs: DroppedList = ()
    outputs: DroppedList = ()
    in_spec: Annotated[str, Field(max_length=10_000)]
    out_spec: Annotated[str, Field(max_length=10_000)]
    forward_arg_names: tuple[Name, ...] | None = None


class CallEntry(StrictModel):
    fqn: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@ -]*$", max_length=1000)]
    signature: CallSignature | None = None


class GraphModule(StrictModel):
    graph: Graph
    signature: Signature
    module_call_graph: tuple[CallEntry, ...]
    metadata: DroppedDict = {}
    treespec_namedtuple_fields: Annotated[dict[str, str], Field(max_length=0)] = {}


class Range(StrictModel):
    min_val: int | None
    max_val: int | None


class SchemaVersion(StrictModel):
    major: Literal[8]
    minor: int


class Program(StrictModel):
    graph_module: GraphModule
    opset_version: dict[Literal["aten"], int]
    range_constraints: dict[Symbol, Range]
    schema_version: SchemaVersion
    verifiers: Annotated[tuple[Literal["TRAINING"], ...], Field(min_length=1, max_length=1)]
    torch_version: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+-]{1,64}$")]
    guards_code: DroppedList = ()
