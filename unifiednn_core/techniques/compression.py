"""Activation compression: zeros, masks and indices that autograd saves, in less memory and without loss.

The idea of ZCOMP (MICRO 2019), which compresses the zeros of ReLU in hardware on their way to memory.

DropIT (ICLR 2023) keeps only the largest input elements of a layer for backward. Of all gradients only those of the
layer's weights need its inputs. So the gradients of inputs and biases stay exact, in the whole network. An element is
large by its size, among all of a batch.

Its published form packs what each layer saves by itself. Where another operator saves the same tensor, such as the ReLU
before a convolution, the tensor stays in memory and the packed form comes on top. The deduplicated form also packs what
ReLU and pooling need of it, exactly; it packs for all layers at once; and where an operator needs each bit, it leaves
the tensor to the layers, too.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.techniques.saved import INPUTS, SHAPE, BackwardNeed, Packed

_WEIGHTS = (1, 2, 4, 8, 16, 32, 64, 128)


def pack_bits(mask: Tensor) -> Tensor:
    """Pack a bool tensor of any shape into uint8 [ceil(count / 8)]."""
    flat = mask.reshape(-1)
    padding = -flat.numel() % 8
    if padding:
        flat = torch.cat([flat, flat.new_zeros(padding)])
    rows = flat.view(-1, 8).view(torch.uint8)
    packed = rows[:, 0].clone()
    for place in range(1, 8):
        packed |= rows[:, place] << place
    return packed


def unpack_bits(packed: Tensor, shape: torch.Size) -> Tensor:
    """Return the bool tensor of this shape that was packed."""
    weights = torch.tensor(_WEIGHTS, dtype=torch.uint8, device=packed.device)
    bits = (packed.unsqueeze(1) & weights).ne(0)
    return bits.view(-1)[: shape.numel()].view(shape)


def places_of(mask: Tensor) -> Tensor:
    """Return where a bool tensor [elements] is true, int64 [places]."""
    if mask.device.type == "cpu":  # a tenth of the time of torch
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.nonzero().view(-1)


LEAST_ELEMENTS = 256
"""Smaller tensors are not worth the time."""
MOST_SHARE = 0.9
"""Packed elements have to need less than this share of the memory."""
INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
"""Types that show the bits of numbers."""
_NARROW = (torch.uint8, torch.int16, torch.int32)
_SAMPLE = 4096
"""Elements that tell whether a look at all of them is worth while."""
_BLOCK = 2**21
"""Elements whose places are in memory at once, 8 bytes each."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The codec of DropIT."""

    bfloat16: bool = False
    """Whether what does not get smaller without loss is kept in bfloat16."""
    shared: ClassVar[bool] = True

    def pack(self, flat: Tensor, need: BackwardNeed) -> Packed | None:
        """Pack memory, [elements]; None if it would not get smaller."""
        if flat.numel() < LEAST_ELEMENTS:
            return None
        if (packed := pack_need(flat, need)) is not None:
            return packed
        if flat.dtype is torch.bool:
            return Two(
                pack_bits(flat), torch.tensor([0, 1], dtype=torch.uint8, device=flat.device), flat.dtype, len(flat)
            )
        if flat.dtype in (torch.int64, torch.int32):
            return _narrow(flat)
        if flat.dtype not in INTEGERS:
            return None
        packed = _pack_numbers(flat)
        if packed is None and self.bfloat16 and flat.dtype is torch.float32:
            return _Cast(flat.to(torch.bfloat16), flat.dtype)
        return packed


def pack_need(flat: Tensor, need: BackwardNeed) -> Packed | None:
    """Pack what a backward asks for, if that is not the elements themselves; its result keeps its bits."""
    if need == SHAPE:
        return _Nothing(flat.numel(), flat.dtype, flat.device)
    if need.kind != "range" or flat.dtype not in INTEGERS:
        return None
    outside = flat <= need.low
    if need.high < math.inf:
        outside |= flat >= need.high
    if not need.nan:
        outside |= flat.isnan()
    elements = flat.new_tensor([min(need.low + 1, (need.low + need.high) / 2), need.low])
    return Two(pack_bits(outside), elements.view(INTEGERS[flat.dtype]), flat.dtype, len(flat), complete=False)


def _pack_numbers(flat: Tensor) -> Packed | None:
    """Pack numbers bit by bit; a sample, for which a GPU is asked once, tells in which way, if in any."""
    few = sampled(flat.view(INTEGERS[flat.dtype]))
    counts = torch.stack([_two(few)[0].logical_not().count_nonzero(), few.count_nonzero()])
    others, nonzero = counts.tolist()
    packed: Packed | None = Two.of(flat) if others == 0 else None
    if packed is None and _worth(nonzero, len(few), flat.element_size()):
        packed = Places.of(flat)
    return packed


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Memory whose elements nobody reads."""

    count: int
    dtype: torch.dtype
    device: torch.device
    complete: bool = False

    def unpack(self) -> Tensor:
        """Return memory with any elements."""
        return torch.empty(self.count, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, slots=True)
class Two:
    """Memory with two different elements."""

    second: Tensor
    """Bits: where the second element is."""
    numbers: Tensor
    """[2], the bits of the elements as whole numbers."""
    dtype: torch.dtype
    count: int
    complete: bool = True

    @classmethod
    def of(cls, flat: Tensor) -> "Two | None":
        """Pack numbers, such as the noise of dropout; None if more than two differ in their bits."""
        either, second, both = _two(flat.view(INTEGERS[flat.dtype]))
        return cls(pack_bits(second), both, flat.dtype, len(flat)) if bool(either.all()) else None

    def unpack(self) -> Tensor:
        """Return the memory."""
        first, second = self.numbers
        places = unpack_bits(self.second, torch.Size((self.count,)))
        return places.to(self.numbers.dtype).mul_(second - first).add_(first).view(self.dtype)


def _two(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the smallest or the largest number is, where the largest is, and both."""
    low, high = torch.aminmax(numbers)
    second = numbers == high
    return second | (numbers == low), second, torch.stack([low, high])


@dataclass(frozen=True, slots=True)
class Places:
    """Memory with some elements; all others are zero."""

    places: Tensor
    """Bits."""
    values: tuple[Tensor, ...]
    """By blocks."""
    count: int
    complete: bool = True

    @classmethod
    def of(cls, flat: Tensor) -> "Places | None":
        """Pack what is not zero, bit by bit, so that -0.0 stays -0.0; None if that is not smaller."""
        places = flat.view(INTEGERS[flat.dtype]) != 0
        return cls.at(places, flat) if _worth(int(places.count_nonzero()), len(flat), flat.element_size()) else None

    @classmethod
    def at(cls, places: Tensor, flat: Tensor, *, complete: bool = True) -> "Places":
        """Pack what is where a bool tensor is true."""
        pairs = zip(torch.split(flat, _BLOCK), torch.split(places, _BLOCK), strict=True)
        return cls(
            pack_bits(places),
            tuple(block.index_select(0, places_of(where)) for block, where in pairs),
            flat.numel(),
            complete,
        )

    def unpack(self) -> Tensor:
        """Return the memory."""
        places = unpack_bits(self.places, torch.Size((self.count,)))
        flat = self.values[0].new_zeros(self.count)
        for block, where, values in zip(
            torch.split(flat, _BLOCK), torch.split(places, _BLOCK), self.values, strict=True
        ):
            block.index_copy_(0, places_of(where), values)
        return flat


def _worth(nonzero: int, count: int, element_bytes: int) -> bool:
    """Whether few enough of so many numbers differ from zero."""
    return nonzero * element_bytes + count / 8 <= MOST_SHARE * count * element_bytes


@dataclass(frozen=True, slots=True)
class _Cast:
    """Elements in a smaller type."""

    values: Tensor
    dtype: torch.dtype
    complete: bool = True

    def unpack(self) -> Tensor:
        """Return the memory, rounded if the smaller type has no room for each bit."""
        return self.values.to(self.dtype)


def _narrow(flat: Tensor) -> _Cast | None:
    """Pack whole numbers in the smallest type that has room for them; None if they need their own."""
    low, high = torch.stack(torch.aminmax(flat)).tolist()
    for narrow in _NARROW:
        info = torch.iinfo(narrow)
        if info.min <= low and high <= info.max and info.bits < torch.iinfo(flat.dtype).bits:
            return _Cast(flat.to(narrow), flat.dtype)
    return None


def sampled(flat: Tensor) -> Tensor:
    """Elements at equal distances; all of a few."""
    return flat[:: max(1, flat.numel() // _SAMPLE) | 1]  # odd: rows have even lengths


_INDEX_BYTES = 4
_MOST_INDEXED = 2**31


@dataclass(frozen=True, slots=True)
class Dropping:
    """The codec of DropIT."""

    keep: float
    """Share of the elements, above 0 and up to 1."""
    shared: bool
    """Whether in the deduplicated form."""

    def pack(self, flat: Tensor, need: BackwardNeed) -> Packed | None:
        """Pack memory, [elements]; None if an operator needs each bit, and in the shared form if nothing is saved."""
        if flat.numel() < LEAST_ELEMENTS or flat.dtype not in INTEGERS:
            return None
        if self.shared and (packed := pack_need(flat, need)) is not None:
            return packed
        if need != INPUTS or self.keep == 1:
            return None
        count, size_bytes = max(1, int(flat.numel() * self.keep)), flat.element_size()
        by_index = count * _INDEX_BYTES < flat.numel() / 8 and flat.numel() < _MOST_INDEXED
        if not self.shared:
            return _Indexed.at(_sizes(flat).topk(count, sorted=False).indices, flat)
        if by_index:
            return _Indexed.at(places_of(largest(flat, count)), flat)
        if count * size_bytes + flat.numel() / 8 > MOST_SHARE * flat.nbytes:
            return None
        return Places.at(largest(flat, count), flat, complete=False)


def largest(flat: Tensor, count: int) -> Tensor:
    """Where the `count` largest elements are, by absolute value; of equal ones the first, and no zeros. Bool."""
    sizes = _sizes(flat)
    if int(sizes.count_nonzero()) <= count:
        return sizes > 0
    least = _least(sizes, count)
    places = sizes > least
    equal = places_of(sizes == least)
    places[equal[: count - int(places.count_nonzero())]] = True
    return places


def _least(sizes: Tensor, count: int) -> Tensor:
    """Return the smallest of the `count` largest numbers; a sample tells between which two it is."""
    if sizes.device.type != "cpu":  # fast, and torch warns of kthvalue there
        return sizes.topk(count, sorted=False).values.amin()
    few = sampled(sizes).sort(descending=True).values
    rank, margin = count * len(few) // len(sizes), 2 * math.isqrt(len(few))
    high, low = few[max(0, rank - margin)], few[min(len(few) - 1, rank + margin)]
    near = sizes.index_select(0, places_of((sizes >= low) & (sizes <= high)))
    wanted = count - int((sizes > high).count_nonzero())
    if not 0 < wanted <= len(near):
        near, wanted = sizes, count
    return torch.kthvalue(near, len(near) - wanted + 1).values


def _sizes(flat: Tensor) -> Tensor:
    """Whole numbers in the order of the absolute values; NaN is the largest."""
    whole = INTEGERS[flat.dtype]
    return flat.view(whole) & torch.iinfo(whole).max


@dataclass(frozen=True, slots=True)
class _Indexed:
    """Some elements and their indices; all others count as zero."""

    places: Tensor
    """int32, or int64 where that is too small."""
    values: Tensor
    count: int
    complete: bool = False

    @classmethod
    def at(cls, places: Tensor, flat: Tensor) -> "_Indexed":
        values = flat[places]
        return cls(places.to(torch.int32) if flat.numel() < _MOST_INDEXED else places, values, flat.numel())

    def unpack(self) -> Tensor:
        """Return the memory."""
        flat = self.values.new_zeros(self.count)
        flat[self.places.long()] = self.values
        return flat
