"""DropIT (ICLR 2023): keeps only the largest input elements of a layer for backward.

Of all gradients only those of the layer's weights need its inputs. So the gradients of inputs and biases stay exact, in
the whole network. An element is large by its size, among all of a batch.

The published form packs what each layer saves by itself. Where another operator saves the same tensor, such as the ReLU
before a convolution, the tensor stays in memory and the packed form comes on top. The deduplicated form also packs what
ReLU and pooling need of it, exactly; it packs for all layers at once; and where an operator needs each bit, it leaves
the tensor to the layers, too.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unifiednn_core.techniques.compression import (
    INTEGERS,
    LEAST_ELEMENTS,
    MOST_SHARE,
    Places,
    pack_need,
    places_of,
    sampled,
)
from unifiednn_core.techniques.saved import INPUTS, BackwardNeed, Packed

_INDEX_BYTES = 4
_MOST_INDEXED = 2**31


@dataclass(frozen=True, slots=True)
class Dropping:
    """The codec."""

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
