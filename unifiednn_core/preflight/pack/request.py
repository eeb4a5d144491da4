"""What to pack, and the report, as values that pass between processes. No torch here."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from unifiednn_core.base.errors import BadInput, Finding

MAX_RANK = 8
MAX_BATCH = 65_536
MAX_SIZE = 2**31
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")

PICKLES = (".pt", ".pth", ".pkl")
"""Suffixes of networks that `torch.save` pickled whole."""


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

    inputs: tuple[ExampleInput, ...] = ()
    """In any order where they are named; none: those of `data`."""
    batch: int = 8
    data: Path | None = None
    """A data set whose first samples are the values; without one they are drawn."""
    dtype: str = ""
    """Where `data` gives the inputs: the type of them all; by default their own."""
    free: tuple[str, ...] = ()
    """Where `data` gives the inputs: their sizes that may vary, as `1` or `NAME:1`."""


class Source(BaseModel, frozen=True, extra="forbid"):
    """A network as code: a Python file or module, or a whole network that its owner pickled."""

    path: Path
    """A file; for a module that is imported by its name, the file that it would have in the current folder."""
    module: str = ""
    """Full name of a module, to import it as Python does; empty for a file."""
    factory: str = ""
    """For Python: name of a class, function or network."""
    arguments: dict[str, Any] = {}
    """Keyword arguments of the factory."""

    @property
    def title(self) -> str:
        """The network as findings name it."""
        return f"{self.module or self.path.name}:{self.factory}".removesuffix(":")


class PackRequest(BaseModel, frozen=True, extra="forbid"):
    """A call of `unifiednn pack`; `out` is the `.pt2` to write."""

    source: Source
    example: Example
    out: Path
    seed: int = 0
    """Of the initial weights."""


class PackReport(BaseModel, frozen=True, extra="forbid"):
    """The files that were written; without `path` the findings say why."""

    path: Path | None = None
    hyperparameters: Path | None = None
    """A file of hyper-parameters, to be edited."""
    facts: dict[str, object] = {}
    findings: tuple[Finding, ...] = ()


def parse_source(text: str, arguments: Sequence[str] = ()) -> Source:
    """Read `file.py:NAME`, `package.module:NAME` or `file.pt`, and `name=value` arguments; raises `BadInput`."""
    if Path(text).suffix in PICKLES:
        return Source(path=Path(text))
    place, _, factory = text.rpartition(":")
    is_module = all(part.isidentifier() for part in place.split(".")) and not place.endswith(".py")
    if not place or not factory.isidentifier():
        remedy = "Write FILE.py:NAME or MODULE:NAME, such as model.py:Net or package.model:Net."
        raise BadInput.of("Option", "network", f"'{text}' does not name a network.", remedy)
    path, module = (Path(*place.split(".")).with_suffix(".py"), place) if is_module else (Path(place), "")
    return Source(path=path, module=module, factory=factory, arguments=parse_arguments(arguments))


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


def parse_example(
    inputs: Sequence[str], *, dtype: str = "", batch: int = 8, free: Sequence[str] = (), data: Path | None = None
) -> Example:
    """Read shapes such as `1,28,28` or `ids=64:int64`, and sizes that vary such as `1` or `ids:1`.

    Raises `BadInput`.
    """
    if not inputs and data is None:
        remedy = "Give --input, such as --input 1,28,28, or a data file with --example."
        raise BadInput.of("Option", "--input", "The shape of a sample is not known.", remedy)
    if not 2 <= batch <= MAX_BATCH:
        raise BadInput.of("Option", "--batch", f"{batch} cannot be exported.", f"Give a number from 2 to {MAX_BATCH}.")
    if not inputs:
        if dtype and dtype not in DTYPES:
            raise _bad_dtype(dtype)
        return Example(batch=batch, data=data, dtype=dtype, free=tuple(free))
    read = [_input(text, dtype) for text in inputs]
    names = [one.name for one in read]
    if len(set(names)) < len(names) or ("" in names and len(names) > 1):
        remedy = "Name each one as forward does: --input src=12:int64 --input tgt=12:int64."
        raise BadInput.of("Option", "--input", "Several inputs need different names.", remedy)
    return Example(inputs=with_free(read, free), batch=batch, data=data)


def with_free(inputs: Sequence[ExampleInput], free: Sequence[str]) -> tuple[ExampleInput, ...]:
    """Let sizes of inputs vary, each given as `NAME:1`, or as `1` if there is one input; raises `BadInput`."""
    places: dict[str, set[int]] = {one.name: set() for one in inputs}
    for text in free:
        name, colon, place = text.rpartition(":")
        meant = [one for one in inputs if one.name == name or (not colon and len(inputs) == 1)]
        if not meant or not place.isdecimal() or not 1 <= int(place) <= len(meant[0].shape):
            example = f"{inputs[0].name}:1" if len(inputs) > 1 else "1"
            remedy = f"Number the sizes of a sample from 1, such as --free {example}; 0 is the batch."
            raise BadInput.of("Option", "--free", f"'{text}' is no size of an input.", remedy)
        places[meant[0].name].add(int(place))
    return tuple(one.model_copy(update={"free": frozenset(places[one.name])}) for one in inputs)


def _input(text: str, dtype: str) -> ExampleInput:
    """Read `[NAME=]SIZES[:DTYPE]`; raises `BadInput`."""
    name, equals, rest = text.strip().rpartition("=")
    shape, _, own = rest.partition(":")
    is_shape = re.fullmatch(r"(\d+(\s*,\s*\d+)*\s*,?)?", shape.strip()) is not None
    sizes = tuple(int(size) for size in shape.split(",") if size.strip()) if is_shape else ()
    small = len(sizes) <= MAX_RANK and all(1 <= size <= MAX_SIZE for size in sizes)
    kind = own.strip() or dtype or "float32"
    for option, good, message, remedy in (
        ("--input", not equals or name.isidentifier(), f"'{name}' is not a name.", "Name an argument of forward."),
        ("--input", is_shape, f"'{shape}' is not a shape.", "Write the sizes of one sample, such as --input 1,28,28."),
        ("--input", small, f"'{shape}' is too large or has a size of 0.", f"Give at most {MAX_RANK} sizes from 1."),
    ):
        if not good:
            raise BadInput.of("Option", option, message, remedy)
    if kind not in DTYPES:
        raise _bad_dtype(kind)
    return ExampleInput(name=name, shape=sizes, dtype=kind)


def _bad_dtype(dtype: str) -> BadInput:
    return BadInput.of("Option", "--dtype", f"'{dtype}' is not an input type.", f"Choose one of: {', '.join(DTYPES)}.")
