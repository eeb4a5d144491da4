"""One piece of memory for all tensors of a call, with guard zones that show who wrote or read beyond them."""

import numpy as np
import torch
from torch import Tensor

from tests.hostile.operators.values import T, contents

GUARD_BYTES = 4096
ARENA_BYTES = 8 * 1024**2
_ALIGNED = 64  # as torch's own blocks


class Arena:
    """Memory for the tensors of one call, with guard zones around each."""

    def __init__(self) -> None:
        unaligned = np.empty(ARENA_BYTES + _ALIGNED, dtype=np.uint8)
        self._memory = unaligned[-unaligned.ctypes.data % _ALIGNED :][:ARENA_BYTES]
        self._pattern, self._end = 0, 0
        self._last: Tensor | None = None
        self.pieces: list[tuple[int, int]] = []
        """Begin and end of each tensor."""

    def clear(self, pattern: int) -> None:
        """Forget everything, and fill the memory with a pattern."""
        self._memory[: self._end + 2 * GUARD_BYTES] = pattern
        self._pattern, self._end, self.pieces, self._last = pattern, 0, [], None

    def place(self, tensor: T, seed: int) -> Tensor:
        """Make a tensor."""
        values = contents(tensor, seed)
        if not len(values):
            return torch.empty_strided(tensor.shape, tensor.strides(), dtype=tensor.dtype)
        shared = self._part_of_last(tensor, values.nbytes)
        if shared is None:
            shift = tensor.dtype.itemsize if tensor.layout == "shifted" else 0
            shared = self._last = self._put(values, self._next() + shift)
        return shared.as_strided(tensor.shape, tensor.strides(), shared.storage_offset()).detach()

    def _part_of_last(self, tensor: T, size_bytes: int) -> Tensor | None:
        """Memory of the tensor before it, if it is to share that and fits into it."""
        if tensor.alias is None or self._last is None:
            return None
        whole = self._last.view(torch.uint8)
        begin = tensor.alias - tensor.alias % tensor.dtype.itemsize
        part = whole[begin : begin + size_bytes]
        return part.view(tensor.dtype) if len(part) == size_bytes else None

    def copy(self, tensor: Tensor) -> Tensor:
        """Make a contiguous tensor of the same numbers."""
        values = tensor.contiguous().view(-1)
        return self._put(values, self._next()).view(tensor.shape) if len(values) else tensor

    def touched(self) -> str:
        """Where a byte outside the tensors has changed; empty if none has."""
        at = 0
        for begin, end in [*sorted(self.pieces), (self._end + GUARD_BYTES, 0)]:
            changed = np.flatnonzero(self._memory[at:begin] != self._pattern)
            if len(changed):
                return f"byte {at + int(changed[0])}, the tensors are at {self.pieces}"
            at = max(at, end)
        return ""

    def holds(self, address: int) -> bool:
        """Whether this address is in the arena."""
        return 0 <= address - self._memory.ctypes.data < ARENA_BYTES

    def content(self) -> bytes:
        """All bytes of the tensors."""
        return b"".join(self._memory[begin:end].tobytes() for begin, end in self.pieces)

    def _next(self) -> int:
        begin = self._end + GUARD_BYTES
        return begin + -begin % _ALIGNED

    def _put(self, values: Tensor, begin: int) -> Tensor:
        """Store numbers at a place; the zone before it stays as it is."""
        end = begin + values.nbytes
        if end + GUARD_BYTES > ARENA_BYTES:
            raise MemoryError("too many tensors")
        if end > self._end:
            self._memory[self._end + GUARD_BYTES : end + GUARD_BYTES] = self._pattern
            self._end = end
        self.pieces.append((begin, end))
        self._memory[begin:end] = values.view(torch.uint8).numpy()
        return torch.frombuffer(self._memory, dtype=values.dtype, count=len(values), offset=begin)
