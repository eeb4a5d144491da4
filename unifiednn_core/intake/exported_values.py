"""The small parts of the export schema: names, sizes, tensors. Everything in a `.pt2` file is made of them.

Field names are torch's own (`torch/_export/serde/schema.py`).
"""

import keyword
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.intake.expressions import check_expression

HOSTILE = "hostile"
"""Type of the validation errors that no honest exporter causes."""


def _identifier(name: str) -> str:
    if keyword.iskeyword(name):
        raise PydanticCustomError(HOSTILE, "'{name}' is a word of Python and cannot name a value", {"name": name})
    return name


def _never_pickled(use_pickle: bool) -> bool:
    if use_pickle:
        raise PydanticCustomError(HOSTILE, "a tensor is stored as a pickle, which can run code when it is loaded")
    return use_pickle


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$"), AfterValidator(_identifier)]
QualifiedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", max_length=1000)]
Symbol = Annotated[str, StringConstraints(pattern=r"^[su][0-9]{1,9}$")]
Record = Annotated[str, StringConstraints(pattern=r"^(weight|tensor)_[0-9]{1,9}$")]
Target = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,255}$")]
Expression = Annotated[str, AfterValidator(check_expression)]
Real = float | Literal["Infinity", "-Infinity", "NaN"]
# Stack traces, guards and the like: nothing of them is needed, so nothing of them is kept.
DroppedDict = Annotated[dict[str, str], BeforeValidator(lambda _: {})]
DroppedList = Annotated[tuple[str, ...], BeforeValidator(lambda _: ())]


class Part(BaseModel):
    """A closed record: unknown entries and other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OneOf(Part):
    """A union as torch writes it: an object with one entry, whose key is the kind."""

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
    """Example value of a size."""

    as_int: int = 0
    as_bool: bool = False
    as_float: Real = 0.0


class SymbolicExpression(Part):
    """A size as a formula."""

    expr_str: Expression
    hint: Hint | None = None


class Size(OneOf):
    """A dimension, stride or offset."""

    as_expr: SymbolicExpression | None = None
    as_int: int = 0


class SymFloat(OneOf):
    """A number that follows from a size."""

    as_expr: SymbolicExpression | None = None
    as_float: Real = 0.0


class SymBool(OneOf):
    """A condition on a size."""

    as_expr: SymbolicExpression | None = None
    as_bool: bool = False


class Device(Part):
    """Where a tensor was at export."""

    type: Literal["cpu", "cuda"]
    index: int | None = None


class TensorMeta(Part):
    """Type, shape and layout of a tensor."""

    # bytes, integers, floating point and bool; neither complex nor quantised
    dtype: Literal[1, 2, 3, 4, 5, 6, 7, 8, 12, 13]
    sizes: Annotated[tuple[Size, ...], Field(max_length=64)]
    requires_grad: bool
    device: Device
    strides: Annotated[tuple[Size, ...], Field(max_length=64)]
    storage_offset: Size
    layout: Literal[7]  # strided


class Payload(Part):
    """Where in the archive a tensor is, and how its bytes are laid out."""

    path_name: Record
    is_param: bool
    use_pickle: Annotated[bool, AfterValidator(_never_pickled)]
    tensor_meta: TensorMeta


class Payloads(Part):
    """`*_config.json`: all tensors by qualified name."""

    config: dict[QualifiedName, Payload]
