"""Counts the bytes of all tensors that live at once: what a step takes on any device, without being run there."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, it follows every tensor that an operator takes, returns or makes larger.

    Each storage counts once, however many tensors are views of it, from its first sight until torch frees it. What an
    operator allocates and frees within itself is not seen.
    """

    def __init__(self, block_bytes: int = 1):
        """`block_bytes` is what the allocator rounds up to."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._block_bytes = block_bytes
        self._living: dict[int, tuple[int, weakref.ref[Any]]] = {}
        """Size of each living storage, by the identity of its Python object, which lives as long as it does."""
        self.current_bytes = 0
        self.timeline: list[int] = []
        """What was alive after each operator since `restart`."""

    def track(self, tensors: Iterable[Tensor]) -> int:
        """Count tensors that are there already; returns by how many bytes the count has grown."""
        before = self.current_bytes
        for tensor in tensors:
            self._see(tensor)
        return self.current_bytes - before

    def restart(self) -> None:
        """Begin a new timeline."""
        self.timeline = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let an operator run, then look at what it took and what it returned."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor):
                self._see(leaf)
        self.timeline.append(self.current_bytes)
        return result

    def _see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        size_bytes = -(-storage.nbytes() // self._block_bytes) * self._block_bytes
        known_bytes, reference = self._living.get(key, (0, None))
        if size_bytes != known_bytes:
            self.current_bytes += size_bytes - known_bytes
            self._living[key] = size_bytes, reference or weakref.ref(storage, self._forgetting(key))

    def _forgetting(self, key: int) -> Callable[[object], None]:
        def forget(_storage: object) -> None:
            self.current_bytes -= self._living.pop(key)[0]

        return forget
