"""The rules that hold for every operator, derived from its schema: types, memory, ranges, and what it writes to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, prod
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Broken, require

DTYPES = frozenset(
    {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
)
COMPLEX = frozenset({torch.complex64, torch.complex128})
MOST_DIMENSIONS = 16
MOST_ENTRIES = 2**40
LARGEST = 2**31
_SLICE_BOUNDS = frozenset({"start", "end"})  # `x[1:]` ends at the largest int64
_SIZES = frozenset({"size", "sizes", "shape", "output_size"})
_ANY_DEVICE = frozenset({"copy_", "to", "_to_copy", "type_as", "index", "index_put", "index_put_"})
_DEVICES = frozenset({"cpu", "cuda", "meta"})  # meta has no memory
_NEVER = ("sparse", "sparse_grad", "pin_memory")
_CASTS = frozenset({"copy_", "fill_"})
# Their contracts say which shapes and types fit.
_WRITE_TO_PLACES = """
embedding_renorm_ index_add_ index_copy_ index_fill_ index_put_ masked_scatter_ scatter_ scatter_add_ scatter_reduce_
"""
_PLACES = frozenset(_WRITE_TO_PLACES.split())

TEXTS = (
    "Every argument has the type that the schema of the operator declares; no tensor stands for a number.",
    f"Tensors are dense, at most {MOST_DIMENSIONS}-dimensional, on one device, and lie within their memory; "
    "a 0-dimensional one may lie on the CPU. They are real; which operators also "
    "take complex64 and complex128.",
    f"Whole numbers are below 2^{LARGEST.bit_length() - 1} (the bounds of a slice may be any), and a tensor has fewer "
    f"than 2^{MOST_ENTRIES.bit_length() - 1} entries.",
    "No random generator is given, and neither sparse gradients nor pinned memory are asked for.",
)
IN_PLACE = (
    "the target is a tensor whose entries do not overlap, and which overlaps no other argument in part",
    "the result has the shape of the target and can be stored in its type (where an index names places: see there)",
)


@dataclass(frozen=True, slots=True)
class Declared:
    """One argument as the schema declares it."""

    name: str
    kind: str
    """Such as `Tensor`, `int`, `List[int]`; without `Optional`."""
    optional: bool
    count: int | None
    """Length of a list of numbers, which may be given as one number for all."""
    has_default: bool
    default: Any
    keyword_only: bool
    written: bool


@cache
def overload(target: str) -> Any:
    """Return the operator of a full name, such as `torch.ops.aten.add.Tensor`."""
    name, kind = target.removeprefix("torch.ops.aten.").split(".")
    return getattr(getattr(torch.ops.aten, name), kind)


@cache
def parameters(target: str) -> tuple[Declared, ...]:
    """List the arguments of an operator."""
    return tuple(map(_declared, overload(target)._schema.arguments))


def _declared(argument: Any) -> Declared:
    kind = str(argument.real_type)
    optional = kind.startswith("Optional[")
    return Declared(
        name=argument.name,
        kind=kind.removeprefix("Optional[").removesuffix("]") if optional else kind,
        optional=optional,
        count=argument.N,
        has_default=argument.has_default_value(),
        default=argument.default_value,
        keyword_only=argument.kwarg_only,
        written=argument.alias_info is not None and argument.alias_info.is_write,
    )


def bind(target: str, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Give each argument its name, and the others their defaults; raises `Broken`."""
    declared = parameters(target)
    positional = [parameter for parameter in declared if not parameter.keyword_only]
    require(len(args) <= len(positional), f"it takes {len(positional)} arguments and got {len(args)}")
    given = {parameter.name: value for parameter, value in zip(positional, args, strict=False)}
    for name, value in kwargs.items():
        require(name not in given and any(name == one.name for one in declared), f"it takes no further '{name}'")
        given[name] = value
    for parameter in declared:
        require(parameter.name in given or parameter.has_default, f"the argument '{parameter.name}' is missing")
    return {one.name: _expanded(one, given.get(one.name, one.default)) for one in declared}


def check_general(target: str, arguments: Arguments, also_complex: bool = False) -> None:
    """Check types, memory, ranges and in-place targets; raises `Broken`."""
    declared = parameters(target)
    for parameter in declared:
        _check_type(parameter, arguments[parameter.name])
    tensors = list(tensors_in(arguments))
    for name, tensor in tensors:
        _check_tensor(name, tensor, DTYPES | COMPLEX if also_complex else DTYPES)
    if target.split(".")[3] not in _ANY_DEVICE:
        devices = {tensor.device for _, tensor in tensors if tensor.dim()}
        require(len(devices) <= 1, f"its tensors lie on {' and '.join(sorted(map(str, devices)))}")
    for name in _NEVER:
        require(not arguments.get(name), f"'{name}' is asked for")
    for parameter in declared:
        if parameter.written:
            _check_written(target, arguments, parameter.name)


def tensors_in(arguments: Arguments) -> Iterator[tuple[str, Tensor]]:
    """All tensors with the names of their arguments."""
    for name, value in arguments.items():
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, Tensor):
                yield name, part


def writes(target: str) -> bool:
    """Whether an operator writes to one of its arguments."""
    return any(parameter.written for parameter in parameters(target))


def _expanded(parameter: Declared, value: Any) -> Any:
    if parameter.kind == "List[int]" and parameter.count is not None:
        many = [value] if isinstance(value, int) else value
        return list(many) * parameter.count if isinstance(many, list | tuple) and len(many) == 1 else many
    return value


def _check_type(parameter: Declared, value: object) -> None:
    name, kind = parameter.name, parameter.kind
    entries: Sequence[Any]
    if (value is None and parameter.optional) or (parameter.has_default and value is parameter.default):
        return
    if kind == "Generator":
        raise Broken("a random generator is given")
    if kind.startswith("List["):
        entries = value if isinstance(value, list | tuple) else [...]
        inner = kind.removeprefix("List[").removesuffix("]")
    else:
        entries, inner = [value], kind
    wanted = _TYPES[inner]
    require(all(isinstance(entry, wanted) for entry in entries), f"'{name}' is no {kind}")
    if inner == "int" and name not in _SLICE_BOUNDS:
        require(all(-LARGEST < entry < LARGEST for entry in entries), f"'{name}' is {value}")
    if inner in ("int", "number"):
        fits = all(not isinstance(entry, int) or -(2**63) <= entry < 2**63 for entry in entries)
        require(fits, f"'{name}' does not fit 64 bits")
    if name in _SIZES and kind == "List[int]":
        require(prod(max(entry, 1) for entry in entries) < MOST_ENTRIES, f"'{name}' is {value}")


_TYPES: dict[str, Any] = {
    "Tensor": Tensor | int | float,
    "Optional[Tensor]": Tensor | None,
    "int": int,
    "bool": bool | int,
    "float": float | int,
    "number": int | float,
    "str": str,
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "Device": torch.device,
    "MemoryFormat": torch.memory_format,
}


def _check_tensor(name: str, tensor: Tensor, dtypes: frozenset[torch.dtype]) -> None:
    plain = tensor.layout is torch.strided and tensor.dtype in dtypes and tensor.device.type in _DEVICES
    marked = tensor.is_neg() or tensor.is_conj()
    require(plain and not marked, f"'{name}' is {tensor.layout}, {tensor.dtype} on {tensor.device}")
    require(tensor.dim() <= MOST_DIMENSIONS, f"'{name}' has {tensor.dim()} dimensions")
    require(tensor.numel() < MOST_ENTRIES, f"'{name}' has the shape {list(tensor.shape)}")
    if tensor.numel():
        end_bytes = span(tensor)[1] * tensor.element_size()
        held_bytes = tensor.untyped_storage().nbytes()
        require(end_bytes <= held_bytes, f"'{name}' reaches {end_bytes - held_bytes} bytes beyond its memory")


def _check_written(target: str, arguments: Arguments, name: str) -> None:
    mine = arguments[name]
    if not isinstance(mine, Tensor):
        raise Broken(f"'{name}' is written to, but it is no tensor")
    require(not overlaps_itself(mine), f"'{name}' is written to, but several of its entries are the same memory")
    others = [(other, tensor) for other, tensor in tensors_in(arguments) if other != name]
    for other, tensor in others:
        require(not overlap_in_part(mine, tensor), f"'{name}' is written to and overlaps '{other}' in part")
        if target.split(".")[3] in _PLACES:
            continue
        try:
            shape: object = torch.broadcast_shapes(mine.shape, tensor.shape)  # type: ignore[no-untyped-call]
        except RuntimeError:
            shape = None
        shapes = f"{list(mine.shape)} and {list(tensor.shape)}"
        require(shape == mine.shape, f"the result of the shapes {shapes} does not fit into '{name}'")
        if target.split(".")[3] not in _CASTS and other != "mask":
            found = torch.result_type(mine, tensor)
            require(torch.can_cast(found, mine.dtype), f"a result of {found} does not fit into '{name}', {mine.dtype}")


def span(tensor: Tensor) -> tuple[int, int]:
    """Start and end in the storage, in entries."""
    start = int(tensor.storage_offset())
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + reach + 1


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two entries may be the same memory: each stride must pass all that the smaller ones reach."""
    reach = 0
    for stride, size in sorted(pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if pair[1] > 1):
        if stride <= reach:
            return tensor.numel() > 0
        reach += (size - 1) * stride
    return False


def overlap_in_part(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors may share some memory, but not all of it in the same order."""
    if not one.numel() or not two.numel():
        return False
    if one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr():
        return False
    if one.element_size() != two.element_size():
        return True
    (start, end), (other_start, other_end) = span(one), span(two)
    same = (one.shape, one.stride(), start) == (two.shape, two.stride(), other_start)
    apart = start >= other_end or other_start >= end
    return not (same or apart or _disjoint(one, two, other_start - start))


def _disjoint(one: Tensor, two: Tensor, distance: int) -> bool:
    """Whether the strides show that two tensors never meet: they are interleaved, or columns beside each other."""
    if distance % gcd(*one.stride(), *two.stride(), 0):
        return True
    if one.stride() != two.stride() or overlaps_itself(one) or overlaps_itself(two):
        return False
    if distance < 0:
        one, two, distance = two, one, -distance
    beyond, room = False, None  # room: entries until the next larger stride
    for stride, mine, other in sorted(zip(one.stride(), one.shape, two.shape, strict=True), reverse=True):
        if mine == other == 1 or not stride:
            continue
        steps, distance = divmod(distance, stride)
        if room is not None and (steps + other) * stride > room:
            return False  # it goes on in the next row
        beyond, room = beyond or steps >= mine, stride
    return beyond or distance > 0
