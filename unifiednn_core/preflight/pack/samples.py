"""The first samples of a data set, as the inputs that a network is exported and compared with."""

import functools
from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data.containers import read_parts
from unifiednn_core.data.datasets import dtype_name
from unifiednn_core.data.values import AS_STORED
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
