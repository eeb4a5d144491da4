"""Example inputs, such as the first samples of a data set, how a user's network is called, and its named outputs."""

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data.containers import read_parts
from unifiednn_core.data.datasets import dtype_name
from unifiednn_core.data.values import AS_STORED
from unifiednn_core.formats.signature import THE_OUTPUT
from unifiednn_core.preflight.pack.request import DTYPES, Example, ExampleInput, with_free

_LARGEST_BYTE = 255


def with_data(example: Example) -> Example:
    """The same example with the inputs of its data set, if none are given; raises `BadInput`.

    Bytes become numbers from 0 to 1, as `"scale"` in a spec makes them, unless another type is asked for.
    """
    if example.data is None:
        return example
    columns = _columns(example.data, example.batch + 1)
    if not example.inputs:
        found = {name: column for name, column in columns.items() if name != "targets"}
        inputs = [
            ExampleInput(
                name=name if len(found) > 1 else "",
                shape=tuple(column.shape[1:]),
                dtype=example.dtype or ("float32" if column.dtype is torch.uint8 else dtype_name(column.dtype)),
            )
            for name, column in found.items()
        ]
        return example.model_copy(update={"inputs": with_free(inputs, example.free)})
    for one in example.inputs:
        column = _column(example, one)
        if column is not None and tuple(column.shape[1:]) != one.shape:
            message = f"Samples of {example.data.name} are {list(column.shape[1:])}, not {list(one.shape)}."
            raise BadInput.of("Option", "--input", message, "Leave --input out: the file says the shape.")
    return example


def stored(example: Example, one: ExampleInput, batch: int) -> Tensor | None:
    """The first samples of an input, again from the start if there are too few; None if the data set has none of it."""
    column = _column(example, one)
    if column is None:
        return None
    samples, dtype = column[torch.arange(batch) % len(column)], getattr(torch, one.dtype)
    if samples.dtype is torch.uint8 and dtype.is_floating_point:
        return samples.to(dtype) / _LARGEST_BYTE
    return samples.to(dtype)


def _column(example: Example, one: ExampleInput) -> Tensor | None:
    columns = {} if example.data is None else _columns(example.data, example.batch + 1)
    inputs = [name for name in columns if name != "targets"]
    alone = len(inputs) == 1 and [given.name for given in example.inputs if given.name != "targets"] == [one.name]
    return columns.get(inputs[0] if alone else one.name)


@functools.cache
def _columns(path: Path, most: int) -> dict[str, Tensor]:
    """The first samples of the inputs of a data set, and of its targets, by name; those of its training part first."""
    if not path.is_file():
        raise BadInput.of("File not found", "--example", f"{path} does not exist.", "Correct the path.")
    try:
        with read_parts(path, AS_STORED) as parts:
            first = next(iter(parts.values()))
            entries = {name: first.rows(name, 0, min(most, first.samples)) for name in first.like}
    except HostileFile as error:
        raise BadInput.of("File refused", "--example", str(error), "Save the file again in the usual way.") from error
    columns = {name.removeprefix("inputs."): entry for name, entry in entries.items()}
    if not columns.keys() - {"targets"} or not all(len(entry) for entry in columns.values()):
        message = f"{path.name} holds no inputs."
        raise BadInput.of("Option", "--example", message, "Give a data file that can be trained on.")
    if odd := [dtype_name(entry.dtype) for entry in columns.values() if dtype_name(entry.dtype) not in DTYPES]:
        raise BadInput.of("Option", "--example", f"{path.name} holds {odd[0]}.", f"Choose one of: {', '.join(DTYPES)}.")
    return columns


Outputs = dict[str, Tensor]
Value = TypeVar("Value")
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def in_order(network: nn.Module, example: Example) -> Example:
    """The same example with all inputs named, in the order of forward's parameters; one unnamed input stays as it is.

    Raises `BadInput` for a name that forward does not have.
    """
    if not any(given.name for given in example.inputs) and len(example.inputs) == 1:
        return example
    parameters = inspect.signature(network.forward).parameters
    places = [name for name, parameter in parameters.items() if parameter.kind in _BY_PLACE]
    if not any(given.name for given in example.inputs) and len(places) < len(example.inputs):
        return example  # forward(*inputs)
    named = [
        given if given.name or place is None else given.model_copy(update={"name": place})
        for given, place in zip_longest(example.inputs, places[: len(example.inputs)])
    ]
    names = [given.name for given in named]
    unknown = [name for name in names if name not in parameters]
    if unknown or len({*names}) < len(names):
        message = f"forward has no input '{unknown[0]}'." if unknown else "An input is given twice."
        raise BadInput.of("Option", "--input", message, f"The parameters of forward: {', '.join(parameters)}.")
    named.sort(key=lambda given: [*parameters].index(given.name))
    return example.model_copy(update={"inputs": tuple(named)})


def arguments_of(
    network: nn.Module, example: Example, values: Sequence[Value]
) -> tuple[tuple[Value, ...], dict[str, Value]]:
    """Arguments of a call, one for each input: by place where these are forward's first parameters, else by name."""
    names = [given.name for given in example.inputs]
    if any(names):
        parameters = inspect.signature(network.forward).parameters
        if names != [name for name, known in parameters.items() if known.kind in _BY_PLACE][: len(names)]:
            return (), dict(zip(names, values, strict=True))
    return tuple(values), {}


def call(network: nn.Module, example: Example, inputs: Sequence[Tensor]) -> Outputs:
    """Call a user's network with these inputs, and name its outputs."""
    args, kwargs = arguments_of(network, example, inputs)
    return named(network(*args, **kwargs))


def plain(value: object) -> Any:
    """What forward returned, in tensors, tuples, lists and dicts alone; everything else becomes None."""
    match value:
        case Tensor():
            return value
        case Mapping():
            return {str(key): plain(part) for key, part in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return {key: plain(part) for key, part in value._asdict().items()}
        case tuple():
            return tuple(map(plain, value))
        case list():
            return [*map(plain, value)]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return None


def named(value: object) -> Outputs:
    """Name all tensors of what forward returned."""
    places = _pytree.tree_flatten_with_path(plain(value))[0]
    return {
        ".".join(str(getattr(key, "idx", getattr(key, "key", ""))) for key in path) or THE_OUTPUT: tensor
        for path, tensor in places
        if isinstance(tensor, Tensor)
    }


@contextmanager
def plain_outputs(network: nn.Module) -> Iterator[None]:
    """Let a network return what torch's own loader knows, without dataclasses and caches of other libraries."""
    forward, own = network.forward, network.__dict__.get("forward")

    @functools.wraps(forward)
    def plainly(*args: Any, **kwargs: Any) -> Any:
        return plain(forward(*args, **kwargs))

    network.__dict__["forward"] = plainly
    try:
        yield
    finally:
        del network.__dict__["forward"]
        if own is not None:
            network.__dict__["forward"] = own
