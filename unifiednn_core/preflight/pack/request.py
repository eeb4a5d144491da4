"""What to pack or convert, and the report, as values that pass between processes. No torch here."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from unifiednn_core.base.errors import BadInput, Finding

MAX_RANK = 8
MAX_BATCH = 65_536
MAX_SIZE = 2**31
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


class ExampleInput(BaseModel, frozen=True, extra="forbid"):
    """One input of a network; the values do not matter."""

    name: str = ""
    """Parameter of `forward`; empty: the one at that place."""
    shape: tuple[int, ...]
    """Of one sample."""
    dtype: str = "float32"
    free: frozenset[int] = frozenset()
    """Dimensions besides the batch whose size may vary; 1 is the first after the batch."""


class Example(BaseModel, frozen=True, extra="forbid"):
    """The inputs that a network is exported with; all of them have the batch as their first dimension."""

    inputs: Annotated[tuple[ExampleInput, ...], Field(min_length=1)]
    batch: int = 8


class Source(BaseModel, frozen=True, extra="forbid"):
    """A network as code: Python (`.py`); to convert, also TorchScript, or a full pickle with its Python file."""

    path: Path
    factory: str = ""
    """For Python: name of a class or function."""
    arguments: dict[str, Any] = {}
    """Keyword arguments of the factory."""
    companion: Path | None = None
    """For a pickle: the Python file with its classes."""


class PackRequest(BaseModel, frozen=True, extra="forbid"):
    """A call of `unifiednn pack` or `unifiednn convert`; `out` is the `.pt2` to write."""

    source: Source
    example: Example
    out: Path


class PackReport(BaseModel, frozen=True, extra="forbid"):
    """The files that were written; without `path` the findings say why."""

    path: Path | None = None
    hyperparameters: Path | None = None
    """A file of hyper-parameters, to be edited."""
    facts: dict[str, object] = {}
    findings: tuple[Finding, ...] = ()


def parse_source(text: str, arguments: Sequence[str] = ()) -> Source:
    """Read `module.py:factory` and `name=value` arguments; raises `BadInput`."""
    path, _, factory = text.rpartition(":")
    if not path or not factory.isidentifier():
        remedy = "Write FILE.py:NAME, such as model.py:Net."
        raise BadInput.of("Option", "network", f"'{text}' does not name a network.", remedy)
    return Source(path=Path(path), factory=factory, arguments=parse_arguments(arguments))


def parse_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Read `name=value`; a value is JSON if it can be, else text. Raises `BadInput`."""
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            remedy = "Write NAME=VALUE, such as --arg width=16."
            raise BadInput.of("Option", "--arg", f"'{text}' is not an argument.", remedy)
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


def parse_example(shape: str, dtype: str = "float32", batch: int = 8, free: Sequence[int] = ()) -> Example:
    """Read a shape such as `1,28,28` with its options; raises `BadInput`."""
    is_shape = re.fullmatch(r"(\d+(\s*,\s*\d+)*\s*,?)?", shape.strip()) is not None
    sizes = tuple(int(size) for size in shape.split(",") if size.strip()) if is_shape else ()
    small = len(sizes) <= MAX_RANK and all(1 <= size <= MAX_SIZE for size in sizes)
    numbered = all(1 <= place <= len(sizes) for place in free)
    for option, good, message, remedy in (
        ("--input", is_shape, f"'{shape}' is not a shape.", "Write the sizes of one sample, such as --input 1,28,28."),
        ("--input", small, f"'{shape}' is too large or has a size of 0.", f"Give at most {MAX_RANK} sizes from 1."),
        ("--dtype", dtype in DTYPES, f"'{dtype}' is not an input type.", f"Choose one of: {', '.join(DTYPES)}."),
        ("--batch", 2 <= batch <= MAX_BATCH, f"{batch} cannot be exported.", f"Give a number from 2 to {MAX_BATCH}."),
        ("--free", numbered, "No such dimension.", f"Number them from 1 to {len(sizes)}; 0 is the batch."),
    ):
        if not good:
            raise BadInput.of("Option", option, message, remedy)
    return Example(inputs=(ExampleInput(shape=sizes, dtype=dtype, free=frozenset(free)),), batch=batch)
