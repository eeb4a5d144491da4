"""How a user's network is called with example inputs, and what it returns as named tensors."""

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils import _pytree

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.signature import THE_OUTPUT
from unifiednn_core.preflight.pack.request import Example

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
