"""Activation compression: zeros, masks and indices that autograd saves, in less memory and without loss.

The idea of ZCOMP (MICRO 2019), which compresses the zeros of ReLU in hardware on their way to memory.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unifiednn_core.techniques.bits import pack_bits, unpack_bits
from unifiednn_core.techniques.saved import Packed

LEAST_ELEMENTS = 1024
"""Smaller tensors are not worth the time."""
MOST_SHARE = 0.9
"""Packed elements have to need less than this share of the memory."""
_BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
_RELU = frozenset({"relu", "relu_"})
_NARROW = (torch.uint8, torch.int16, torch.int32)


@dataclass(frozen=True, slots=True)
class Packing:
    """The codec."""

    bfloat16: bool = False
    """Whether what does not get smaller without loss is kept in bfloat16."""

    def need(self, operator: str) -> str:
        """The backward of ReLU asks only where its result is above zero."""
        return "signs" if operator in _RELU else "all"

    def pack(self, saved: Tensor, operator: str) -> Packed | None:
        """Pack a tensor without gaps in memory; None if it would not get smaller."""
        if saved.numel() < LEAST_ELEMENTS or saved.layout is not torch.strided or not _dense(saved):
            return None
        if saved.dtype is torch.bool:
            return _Sparse.of(saved)
        if saved.dtype in (torch.int64, torch.int32):
            return _Narrow.of(saved)
        if saved.dtype not in _BITS:
            return None
        if self.need(operator) == "signs":
            return _Sparse.of(saved > 0, saved.dtype)
        packed = _Sparse.of(saved)
        if packed is None and self.bfloat16 and saved.dtype is torch.float32:
            return _Cast(saved.to(torch.bfloat16), saved.dtype)
        return packed


@dataclass(frozen=True, slots=True)
class _Sparse:
    """Elements whose bits are not all zero, so that -0.0 stays -0.0, and where they are."""

    places: Tensor
    values: Tensor | None
    """None if all are ones."""
    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]

    @classmethod
    def of(cls, saved: Tensor, dtype: torch.dtype | None = None) -> "_Sparse | None":
        """Pack true and false, which become zeros and ones of `dtype`, or numbers."""
        flat = torch.as_strided(saved, (saved.numel(),), (1,))
        shape, strides = saved.shape, saved.stride()
        if saved.dtype is torch.bool:
            return cls(pack_bits(flat), None, dtype or saved.dtype, shape, strides)
        places = flat.view(_BITS[saved.dtype]) != 0
        count = int(places.count_nonzero())
        if count * saved.element_size() + saved.numel() / 8 > MOST_SHARE * saved.nbytes:
            return None
        return cls(pack_bits(places), flat[places], saved.dtype, shape, strides)

    def unpack(self) -> Tensor:
        """Return the tensor."""
        places = unpack_bits(self.places, torch.Size((self.shape.numel(),)))
        if self.values is None:
            flat = places.to(self.dtype)
        else:
            flat = self.values.new_zeros(self.shape.numel())
            flat[places] = self.values
        return torch.as_strided(flat, self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """Whole numbers in the smallest type that has room for them."""

    values: Tensor
    dtype: torch.dtype

    @classmethod
    def of(cls, saved: Tensor) -> "_Narrow | None":
        """Pack whole numbers; None if they need their type."""
        low, high = (int(one) for one in torch.aminmax(saved))
        for narrow in _NARROW:
            info = torch.iinfo(narrow)
            if info.min <= low and high <= info.max and info.bits < torch.iinfo(saved.dtype).bits:
                return cls(saved.to(narrow), saved.dtype)
        return None

    def unpack(self) -> Tensor:
        """Return the tensor."""
        return self.values.to(self.dtype)


@dataclass(frozen=True, slots=True)
class _Cast:
    """Elements rounded to a smaller type."""

    values: Tensor
    dtype: torch.dtype

    def unpack(self) -> Tensor:
        """Return the rounded tensor."""
        return self.values.to(self.dtype)


def _dense(tensor: Tensor) -> bool:
    """Whether its elements lie side by side in memory, in any order of dimensions."""
    wanted = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != wanted:
                return False
            wanted *= size
    return True
