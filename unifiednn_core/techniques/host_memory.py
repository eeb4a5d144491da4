"""Host memory for tensors of a device: pinned memory beside a GPU, and a pool apart from torch's where the CPU trains.

On a CPU the device is the host, so the pool saves nothing there: it makes device-resident bytes measurable, and every
move is a copy as on a GPU.
"""

from typing import Any, Protocol

import torch
from torch import Tensor


class Parcel(Protocol):
    """One tensor on the host."""

    def sent(self) -> None:
        """Make the current stream wait for the copy to the host, after which the memory of the device is free."""

    def fetch(self) -> Tensor:
        """Begin to copy it back; returns where it will be on the device, [elements]."""

    def wait(self) -> None:
        """Make the current stream wait for the copy back to the device."""


class HostMemory(Protocol):
    """Takes tensors for one part of a batch."""

    def send(self, flat: Tensor) -> Parcel:
        """Begin to copy memory, [elements], to the host. It has to live until `Parcel.sent`."""

    def close(self) -> None:
        """Make the current stream wait for all copies, prefetched ones included."""


def beside(device: torch.device) -> HostMemory:
    """The memory beside a device."""
    return PinnedMemory(device) if device.type == "cuda" else LogicalMemory()


class LogicalMemory:
    """Copies in memory that torch knows nothing of."""

    def send(self, flat: Tensor) -> Parcel:
        """Copy at once."""
        return _Copy(flat)

    def close(self) -> None:
        """All copies are done."""


class _Copy:
    def __init__(self, flat: Tensor):
        self._content: Any = flat.view(torch.uint8).numpy().copy()
        self._dtype = flat.dtype

    def sent(self) -> None:
        """It is done."""

    def fetch(self) -> Tensor:
        there = torch.empty(len(self._content), dtype=torch.uint8)
        there.numpy()[:] = self._content
        return there.view(self._dtype)

    def wait(self) -> None:
        """It is there."""


class PinnedMemory:
    """Copies beside a GPU, in a stream of their own.

    Memory of the GPU belongs to the stream that computes, which waits for a copy before it uses that memory for
    something else. So it is free in the order of that stream, however far ahead the CPU is.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, flat: Tensor) -> Parcel:
        """Begin to copy."""
        host = torch.empty(flat.numel(), dtype=flat.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            host.copy_(flat, non_blocking=True)
            return _Pinned(host, self._device, self._stream, self._stream.record_event())

    def close(self) -> None:
        """Make the current stream wait for all copies, prefetched ones included."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


class _Pinned:
    def __init__(self, host: Tensor, device: torch.device, stream: torch.cuda.Stream, done: torch.cuda.Event):
        self._host, self._device, self._stream, self._done = host, device, stream, done

    def sent(self) -> None:
        """Make the current stream wait for the copy to the host."""
        torch.cuda.current_stream(self._device).wait_event(self._done)

    def fetch(self) -> Tensor:
        """Copy in the other stream, into memory that belongs to the one that computes."""
        there = torch.empty_like(self._host, device=self._device, pin_memory=False)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            there.copy_(self._host, non_blocking=True)
            self._done = self._stream.record_event()
        return there

    def wait(self) -> None:
        """Make the current stream wait for the copy back."""
        torch.cuda.current_stream(self._device).wait_event(self._done)
