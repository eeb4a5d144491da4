"""Arguments as values: a tensor is described by shape, dtype, layout and filling, and made where the caller says.

Descriptions are plain Python, so cases are cheap to make, repeatable, and printed as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.archive import DTYPES

ALL_DTYPES = tuple(DTYPES.values())
_FILLS = "normal unit zero nan inf mixed extreme large tiny negative positive beyond min max"
FILLS = tuple(_FILLS.split())
LAYOUTS = ("plain", "transposed", "strided", "expanded", "constant", "overlapping", "channels_last", "odd", "shifted")
"""How a tensor lies in memory: `constant` has no stride at all, `odd` has wild strides where a size is 1."""
MOST_ELEMENTS = 2**16
LARGEST_VIEW = 2**22
"""Elements that an expanded tensor may have; it holds few of them."""


@dataclass(frozen=True, slots=True)
class T:
    """A tensor to be made."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    fill: str = "normal"
    high: int = 3
    """Bound of indices."""
    layout: str = "plain"
    alias: int | None = None
    """Bytes behind the begin of the tensor before it, whose memory it shares."""

    def strides(self) -> tuple[int, ...]:
        """Steps in elements."""
        return _strides(self.shape, self.layout)

    def span(self) -> int:
        """Elements of memory from the first to the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides(), strict=True))

    def fits(self) -> bool:
        """Whether it is small enough to be made."""
        return prod(self.shape) <= LARGEST_VIEW and self.span() <= MOST_ELEMENTS and len(self.shape) <= 12

    def __repr__(self) -> str:
        more = [str(self.dtype).removeprefix("torch."), self.fill, self.layout]
        usual = ("float32", "normal", "plain")
        said = [part for part, plain in zip(more, usual, strict=True) if part != plain]
        if self.fill in ("index", "beyond", "rising"):
            said.append(f"below {self.high}")
        if self.alias is not None:
            said.append(f"alias+{self.alias}")
        return " ".join(["x".join(map(str, self.shape)) or "scalar", *said])


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def f(*shape: int, fill: str = "normal") -> T:
    """Real numbers."""
    return T(shape, fill=fill)


def i(*shape: int, high: int = 3) -> T:
    """Whole numbers from 0 to below `high`."""
    return T(shape, torch.int64, "index", high)


def z(*shape: int) -> T:
    """Complex numbers."""
    return T(shape, torch.complex64)


def b(*shape: int) -> T:
    """Truth values."""
    return T(shape, torch.bool, "index", 2)


def c(*args: Any, **kwargs: Any) -> Call:
    """Arguments of a call."""
    return Call(args, kwargs)


def mapped(value: Any, change: Callable[[T], Any]) -> Any:
    """The same value with each tensor changed, in order."""
    match value:
        case T():
            return change(value)
        case list() | tuple():
            return type(value)([mapped(part, change) for part in value])
        case dict():
            return {key: mapped(part, change) for key, part in value.items()}
    return value


def tensors_in(*values: Any) -> list[T]:
    """All descriptions of tensors, in order."""
    found: list[T] = []
    mapped(list(values), lambda tensor: found.append(tensor))
    return found


def _strides(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    order = list(range(len(shape)))
    plain = [prod(max(size, 1) for size in shape[place + 1 :]) for place in order]
    match layout:
        case "transposed":
            return tuple(prod(max(size, 1) for size in shape[:place]) for place in order)
        case "strided":
            return tuple(2 * stride for stride in plain)
        case "expanded":
            inner = _strides(shape[1:], "plain")
            return (0, *inner) if shape else ()
        case "constant":
            return (0,) * len(shape)
        case "overlapping":
            return (1,) * len(shape)
        case "channels_last" if len(shape) in (4, 5):
            last = (shape[0], *shape[2:], shape[1])
            steps = _strides(last, "plain")
            return (steps[0], steps[-1], *steps[1:-1])
        case "odd":
            return tuple(12_345 if size == 1 else stride for size, stride in zip(shape, plain, strict=True))
    return tuple(plain)


def contents(tensor: T, seed: int) -> Tensor:
    """Numbers for the memory of a tensor, one after the other."""
    count, dtype, draw = tensor.span(), tensor.dtype, torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        pairs = _reals(tensor, 2 * count, draw).view(count, 2)
        return torch.view_as_complex(pairs.to(torch.float64)).to(dtype)
    if dtype.is_floating_point:
        return _reals(tensor, count, draw).to(dtype)
    match tensor.fill:
        case "min" | "max":
            limits = torch.iinfo(dtype) if dtype != torch.bool else torch.iinfo(torch.uint8)
            whole = torch.full((count,), getattr(limits, tensor.fill), dtype=torch.int64)
        case "nan" | "inf" | "mixed" | "extreme":
            limits = torch.iinfo(dtype) if dtype != torch.bool else torch.iinfo(torch.uint8)
            choices = torch.tensor([limits.min, limits.max, -1, 1, 2, limits.min + 1, limits.max - 1, 0])
            choices = choices[: 7 + seed % 2]  # division by zero is refused before anything else
            whole = choices[torch.randint(len(choices), (count,), generator=draw)]
        case "rising":
            whole = torch.linspace(0, tensor.high, count).long()
        case "zero":
            whole = torch.zeros(count, dtype=torch.int64)
        case "negative":
            whole = torch.randint(-max(tensor.high, 1), 0, (count,), generator=draw)
        case "positive":
            whole = torch.randint(1, max(tensor.high, 1) + 1, (count,), generator=draw)
        case "beyond":
            whole = torch.randint(0, max(tensor.high, 1) + 1, (count,), generator=draw)
        case _:
            whole = torch.randint(0, max(tensor.high, 1), (count,), generator=draw)
    return whole.to(dtype) if dtype != torch.bool else whole % 2 == 1


def _reals(tensor: T, count: int, draw: torch.Generator) -> Tensor:
    normal = torch.randn(count, generator=draw)
    match tensor.fill:
        case "unit":
            return torch.rand(count, generator=draw)
        case "zero":
            return torch.zeros(count)
        case "nan":
            return torch.full((count,), torch.nan)
        case "inf":
            return torch.full((count,), torch.inf)
        case "mixed" | "extreme":
            odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-45, 3e38, -3e38])
            drawn = odd[torch.randint(8, (count,), generator=draw)]
            return torch.where(torch.rand(count, generator=draw) < 0.3, drawn, normal)
        case "large" | "max":
            return normal * 1e38
        case "min":
            return -normal.abs() * 1e38
        case "tiny":
            return normal * 1e-40
        case "negative" | "positive":
            return normal.abs() * (1 if tensor.fill == "positive" else -1)
        case "index" | "beyond":
            return torch.randint(0, max(tensor.high, 1) + (tensor.fill == "beyond"), (count,), generator=draw).float()
    return normal


def with_size(tensor: T, place: int, size: int) -> T:
    """The tensor with one size changed."""
    return replace(tensor, shape=(*tensor.shape[:place], size, *tensor.shape[place + 1 :]))


def flat(value: Any) -> Iterator[Any]:
    """All that lies in lists and tuples."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value
