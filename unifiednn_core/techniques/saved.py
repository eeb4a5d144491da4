"""What autograd saves between forward and backward, and codecs that keep it in less memory.

`SavedTensors` surrounds forward and backward of a part of a batch. It sees each tensor that an operator saves, with the
name of the operator, and gives it to the first codec that takes it. What several operators save is packed once.
Weights and buffers, which stay on the device anyway, are left alone.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode


class Packed(Protocol):
    """A saved tensor in another form."""

    def unpack(self) -> Tensor:
        """Return the tensor, of the shape and the strides that it had."""


class Codec(Protocol):
    """One way to keep saved tensors in less memory."""

    def need(self, operator: str) -> str:
        """What an operator needs of a tensor that it saves; operators of equal need share one packed form."""

    def pack(self, saved: Tensor, operator: str) -> Packed | None:
        """Pack a tensor that an operator such as `conv2d` saves; None if it should stay as it is."""


class _Key(NamedTuple):
    """A tensor as it is at one moment; a change in place gives another key."""

    storage: int
    version: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    codec: int
    need: str


_UNKNOWN: tuple[Callable[[], object], None] = (lambda: None), None


class SavedTensors(TorchFunctionMode):
    """Codecs at work, for one part of a batch; a new one for each."""

    def __init__(self, codecs: Sequence[Codec], module: nn.Module):
        """The first codec that takes a tensor packs it. What `module` owns stays as it is."""
        super().__init__()
        self._codecs = codecs
        self._owned = {id(one.untyped_storage()) for one in (*module.parameters(), *module.buffers())}
        self._operator = ""
        self._known: dict[_Key, tuple[Callable[[], object], Packed]] = {}
        self._hooks = saved_tensors_hooks(self._pack, self._unpack)

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._known.clear()  # hooks and mode refer to each other, so both wait for the collector of cycles

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator; what it saves is seen under its name."""
        before, self._operator = self._operator, operator_name(func)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._operator = before

    def _pack(self, saved: Tensor) -> Tensor | Packed:
        storage = saved.untyped_storage()
        if id(storage) in self._owned:
            return saved
        form = storage.data_ptr(), saved._version, int(saved.storage_offset()), saved.shape, saved.stride(), saved.dtype
        for place, codec in enumerate(self._codecs):
            key = _Key(*form, codec=place, need=codec.need(self._operator))
            storage_of, known = self._known.get(key, _UNKNOWN)
            packed = known if storage_of() is storage else codec.pack(saved, self._operator)  # addresses come again
            if packed is not None:
                self._known[key] = weakref.ref(storage), packed
                return packed
        return saved

    @staticmethod
    def _unpack(kept: Tensor | Packed) -> Tensor:
        return kept if isinstance(kept, Tensor) else kept.unpack()


def operator_name(func: Callable[..., object]) -> str:
    """Name of an operator as torch's documentation has it: `conv2d` of a layer, and of `aten.conv2d.default`."""
    return str(getattr(func, "__name__", "")).split(".")[0]
