"""Counts the bytes of all tensors that live at once: the need of a step on any device, without running it there."""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unifiednn_core.techniques.saved import packing


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside its block it follows every tensor that an operator takes, returns or makes larger.

    Each storage counts once, however many tensors are views of it, from its first use until torch frees it. Memory that
    an operator allocates and frees itself does not count.
    """

    def __init__(self, block_bytes: int = 1, device_type: str | None = None):
        """Round every storage up to blocks of `block_bytes`, like an allocator; count those of one type of device."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._block_bytes, self._device_type = block_bytes, device_type
        self._living: dict[int, tuple[int, weakref.ref[Any]]] = {}
        """Size of each living storage, by the identity of its Python object, which lives as long as it does."""
        self.current_bytes = 0
        self.timeline: list[int] = []
        """Bytes that were alive after each operator since a caller emptied the list.

        Operators of techniques that pack saved tensors raise the entry before: how many there are depends on the data.
        """

    def track(self, tensors: Iterable[Tensor]) -> int:
        """Count existing tensors; returns by how many bytes the count has grown."""
        before = self.current_bytes
        for tensor in tensors:
            self._see(tensor)
        return self.current_bytes - before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator, then count its arguments and its results."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor):
                self._see(leaf)
        if packing() and self.timeline:
            self.timeline[-1] = max(self.timeline[-1], self.current_bytes)
        else:
            self.timeline.append(self.current_bytes)
        return result

    def _see(self, tensor: Tensor) -> None:
        if self._device_type is not None and tensor.device.type != self._device_type:
            return
        storage = tensor.untyped_storage()
        key = id(storage)
        size_bytes = -(-storage.nbytes() // self._block_bytes) * self._block_bytes
        known_bytes, reference = self._living.get(key, (0, None))
        if size_bytes != known_bytes:
            self.current_bytes += size_bytes - known_bytes
            self._living[key] = size_bytes, reference or weakref.ref(storage, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self.current_bytes -= self._living.pop(key)[0]
