"""Arrays of plain numbers in a file that is read forwards."""

import math
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.base.errors import HostileFile

Dtype = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class ArrayStream:
    """An array in C order, which begins at `offset` of an open file."""

    file: IO[bytes]
    offset: int
    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape and type without content. Raises `TypeError` if torch has no such type."""
        native = torch.from_numpy(np.empty(0, self.dtype.newbyteorder("="))).dtype
        return torch.empty(self.shape, dtype=native, device="meta")

    def rows(self, start: int, end: int) -> Tensor:
        """Read some rows; raises `EOFError` if the file ends before."""
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        self.file.seek(self.offset + start * row_bytes)
        content = bytearray(self.file.read((end - start) * row_bytes))
        if len(content) < (end - start) * row_bytes:
            raise EOFError("an array ends before its last sample")
        found = np.frombuffer(content, self.dtype).reshape(end - start, *self.shape[1:])
        return torch.from_numpy(found.astype(self.dtype.newbyteorder("="), copy=False))


def check_claim(name: str, shape: tuple[int, ...], dtype: Dtype, content_bytes: int) -> None:
    """Raise `HostileFile` if an array claims more bytes than there are."""
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize > content_bytes:
        raise HostileFile(f"The array '{name[:60]}' claims the shape {shape}, but the file has fewer bytes.")
