"""What to pack, and the report, as values that pass between processes. No torch here."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from unifiednn_core.base.errors import BadInput, Finding

MAX_RANK = 8
Dtype = Literal["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
DTYPES = get_args(Dtype)
Size = Annotated[int, Field(ge=1, le=2**31)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Example(_Part):
    """The inputs that a network is exported with; their values do not matter."""

    shape: Annotated[tuple[Size, ...], Field(max_length=MAX_RANK)]
    """Of one sample."""
    dtype: Dtype = "float32"
    batch: Annotated[int, Field(ge=2, le=65_536)] = 8
    free: frozenset[Annotated[int, Field(ge=1, le=MAX_RANK)]] = frozenset()
    """Dimensions beside the batch whose size may vary; 1 is the first after the batch."""


class Source(_Part):
    """A network in Python: a file, and what in it makes the network."""

    path: Path
    factory: str
    """Name of a class or function."""
    arguments: dict[str, Any] = {}
    """Keyword arguments that it is called with."""


class PackRequest(_Part):
    """A call of `unifiednn pack`."""

    source: Source
    example: Example
    out: Path


class PackReport(_Part):
    """The files that were written; without `path` the findings say why."""

    path: Path | None = None
    hyperparameters: Path | None = None
    """A file of hyper-parameters beside it, to be edited."""
    facts: dict[str, object] = {}
    findings: tuple[Finding, ...] = ()


def parse_source(text: str, arguments: Sequence[str] = ()) -> Source:
    """Read `module.py:factory` and `name=value` arguments; raises `BadInput`."""
    path, _, factory = text.rpartition(":")
    if not path or not factory.isidentifier():
        raise _wrong("network", f"'{text}' does not name a network.", "Write FILE.py:NAME, such as model.py:Net.")
    return Source(path=Path(path), factory=factory, arguments=parse_arguments(arguments))


def parse_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Read `name=value`; a value is JSON where it can be, else text. Raises `BadInput`."""
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise _wrong("--arg", f"'{text}' is not an argument.", "Write NAME=VALUE, such as --arg width=16.")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


def parse_example(shape: str, dtype: str = "float32", batch: int = 8, free: Sequence[int] = ()) -> Example:
    """Read a shape such as `1,28,28` and what goes with it; raises `BadInput`."""
    text = shape.strip()
    if text and re.fullmatch(r"\d+(\s*,\s*\d+)*\s*,?", text) is None:
        raise _wrong("--input", f"'{shape}' is not a shape.", "Write the sizes of one sample, such as --input 1,28,28.")
    sizes = tuple(int(size) for size in text.split(",") if size.strip())
    if len(sizes) > MAX_RANK or not all(1 <= size <= 2**31 for size in sizes):
        raise _wrong("--input", f"'{shape}' is too large or has a size of 0.", f"Give at most {MAX_RANK} sizes from 1.")
    if dtype not in DTYPES:
        raise _wrong("--dtype", f"'{dtype}' is not an input type.", f"Choose one of: {', '.join(DTYPES)}.")
    if not 2 <= batch <= 65_536:
        raise _wrong("--batch", f"A batch of {batch} cannot be exported.", "Give a number from 2 to 65536.")
    if not all(1 <= place <= len(sizes) for place in free):
        raise _wrong("--free", "No such dimension.", f"Number them from 1 to {len(sizes)}; 0 is the batch.")
    return Example.model_validate({"shape": sizes, "dtype": dtype, "batch": batch, "free": frozenset(free)})


def _wrong(field: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Option", field=field, message=message, remedy=remedy)
