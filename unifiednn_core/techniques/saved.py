"""What autograd saves between forward and backward, and codecs that keep it in less memory.

`SavedTensors` surrounds forward and backward of a part of a batch. It sees each tensor that an operator saves, with the
call of the operator, and gives the memory behind it to the first codec that takes it. What several operators save is
packed once, views of it included. What stays in memory anyway, such as weights, is left alone. `need_of` says what a
backward asks of it: often less than each bit.
"""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode


class OperatorCall(NamedTuple):
    """An operator at work."""

    name: str = ""
    """As torch's documentation has it, such as `conv2d`; empty outside of operators."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    def argument(self, place: int, name: str) -> Any:
        """An argument; None if it is left out."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


class BackwardNeed(NamedTuple):
    """What a backward asks of a saved tensor."""

    kind: str
    """`all` its bits; its `shape`; whether its elements lie in a `range`; `inputs`, for the gradient of weights."""
    low: float = 0.0
    high: float = math.inf
    nan: bool = False
    """Whether NaN counts as inside of the range."""


ALL, SHAPE, INPUTS = BackwardNeed("all"), BackwardNeed("shape"), BackwardNeed("inputs")
# relu: 0 if result <= 0, else the gradient, so also for NaN. leaky_relu: the gradient if x > 0.
_RANGES = {
    "relu": BackwardNeed("range", nan=True),
    "leaky_relu": BackwardNeed("range"),
    "relu6": BackwardNeed("range", high=6.0, nan=True),
}
# Their kernels for CPU and CUDA read no element of what went in, for the result and the indices say everything.
_POOLS = frozenset(f"{kind}_pool{rank}d" for kind in ("max", "adaptive_max", "avg", "adaptive_avg") for rank in "123")
# Place and name of the inputs and of the weight.
_LAYERS = {
    "linear": ((0, "input"), (1, "weight")),
    "conv1d": ((0, "input"), (1, "weight")),
    "conv2d": ((0, "input"), (1, "weight")),
    "addmm": ((1, "mat1"), (2, "mat2")),  # a Conv1D of Hugging Face
}


def operator_name(func: Callable[..., object]) -> str:
    """Name of an operator as torch's documentation has it: `conv2d` of a layer, and of `aten.conv2d.default`."""
    return str(getattr(func, "__name__", "")).split(".")[0]


def need_of(call: OperatorCall, saved: Tensor, owns: Callable[[Tensor], bool]) -> BackwardNeed:
    """What the backward of an operator asks of a tensor that it saves; `owns` tells weights of the network."""
    if not saved.is_floating_point():
        return ALL
    name = call.name.removesuffix("_").removesuffix("_with_indices")
    if name in _RANGES:
        return _RANGES[name]
    if name in _POOLS:
        return SHAPE
    if name in _LAYERS:
        (inputs, weight) = (call.argument(*place) for place in _LAYERS[name])
        trained = isinstance(weight, Tensor) and weight.requires_grad and owns(weight)
        if trained and isinstance(inputs, Tensor) and _is(saved, inputs, weight):
            return INPUTS
    return ALL


def _is(saved: Tensor, inputs: Tensor, weight: Tensor) -> bool:
    """Whether it is all inputs of a layer, or their copy in another type or padded, and not such a copy of weights."""
    storage = saved.untyped_storage()
    whole = storage.nbytes() == saved.nbytes
    return whole and (storage is inputs.untyped_storage() or saved.numel() != weight.numel())


class Packed(Protocol):
    """Saved memory in another form: a dataclass, whose tensors a technique may take elsewhere."""

    @property
    def complete(self) -> bool:
        """Whether it serves every operator that saves this memory, not only those of the need it was packed for."""

    def unpack(self) -> Tensor:
        """Return the memory, [elements]."""


class Codec(Protocol):
    """One way to keep saved tensors in less memory."""

    @property
    def shared(self) -> bool:
        """Whether operators share what it packed; otherwise it packs for each by itself."""

    def pack(self, flat: Tensor, need: BackwardNeed) -> Packed | None:
        """Pack memory, [elements], for operators that need no more of it than `need`; None if it should stay.

        `flat` is a view: what the result keeps of it has to be a copy.
        """


class _Key(NamedTuple):
    """Memory as it is at one moment; a change in place gives another key."""

    storage: int
    version: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """Memory that no codec has taken."""

    tensor: Tensor
    """Any view of it, detached: an operator that saves its result would otherwise keep itself alive."""
    version: int
    complete: bool = True

    def unpack(self) -> Tensor:
        """Return the memory itself."""
        self.require_unchanged()
        return _memory(self.tensor)

    def require_unchanged(self) -> None:
        """Torch does not check what hooks return."""
        if self.tensor._version != self.version:
            shape = list(self.tensor.shape)
            raise RuntimeError(
                f"A tensor {shape} that backward needs was changed in place: version {self.version} was saved, "
                f"{self.tensor._version} is there."
            )


@dataclass(slots=True, weakref_slot=True)
class _Form:
    """One form of memory, shared by all who save it. A complete form takes the place of others."""

    packed: Packed


@dataclass(frozen=True, slots=True)
class _View:
    """What one operator saves: a view of memory that is kept in some form."""

    form: _Form
    shape: torch.Size
    strides: tuple[int, ...]
    offset: int

    def unpack(self) -> Tensor:
        return torch.as_strided(self.form.packed.unpack(), self.shape, self.strides, self.offset)


_PACKING: ContextVar[bool] = ContextVar("packing", default=False)


def packing() -> bool:
    """Whether the operator at work packs or unpacks a saved tensor. How many such there are depends on the data."""
    return _PACKING.get()


class SavedTensors(TorchFunctionMode):
    """Codecs at work, for one part of a batch; a new one for each."""

    def __init__(
        self,
        codecs: Sequence[Codec],
        module: nn.Module,
        held: Iterable[Tensor] = (),
        moved: Callable[[Packed], Packed] = lambda packed: packed,
    ):
        """The first codec that takes memory packs it. What `module` owns and what is `held` anyway stays as it is.

        All other memory, packed or not, is `moved`.
        """
        super().__init__()
        self._codecs, self._moved = codecs, moved
        self._weights = {id(one.untyped_storage()) for one in (*module.parameters(), *module.buffers())}
        self._left = self._weights | {id(one.untyped_storage()) for one in held if _plain(one)}
        self._call = OperatorCall()
        self._known: dict[_Key, tuple[Callable[[], object], dict[BackwardNeed, weakref.ref[_Form]]]] = {}
        self._hooks: saved_tensors_hooks

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._hooks = saved_tensors_hooks(self._pack, self._unpack)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        del self._hooks  # a cycle would outlive the part
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._known.clear()  # hooks and mode refer to each other, so both wait for the collector of cycles

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator; what it saves is seen under its name."""
        before, self._call = self._call, OperatorCall(operator_name(func), args, kwargs or {})
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._call = before

    def keep(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Keep a tensor as if an operator saved it, until backward gets it by a call."""
        saved = self._pack(tensor)
        return lambda: self._unpack(saved)

    def _owns(self, tensor: Tensor) -> bool:
        return id(tensor.untyped_storage()) in self._weights

    def _pack(self, saved: Tensor) -> KeptMemory | _View:
        with _at_work():
            if not _plain(saved) or id(saved.untyped_storage()) in self._left:
                return KeptMemory(saved.detach(), saved._version)
            need = need_of(self._call, saved, self._owns)
            form = self._alone(saved, need) or self._form(saved, need)
            return _View(form, saved.shape, saved.stride(), int(saved.storage_offset()))

    def _alone(self, saved: Tensor, need: BackwardNeed) -> _Form | None:
        """The form of a codec that packs for each operator by itself."""
        packed = (codec.pack(_memory(saved), need) for codec in self._codecs if not codec.shared)
        return next((_Form(self._moved(one)) for one in packed if one is not None), None)

    def _form(self, saved: Tensor, need: BackwardNeed) -> _Form:
        """A form that serves the need, known or new."""
        storage = saved.untyped_storage()
        key = _Key(id(storage), saved._version, saved.dtype)
        storage_of, forms = self._known.get(key, (lambda: None, {}))
        if storage_of() is not storage:  # identities come again
            forms = {}
            self._known[key] = weakref.ref(storage), forms
        living = {known: form for known, of in forms.items() if (form := of()) is not None}
        if (form := living.get(ALL) or living.get(need)) is not None:
            return form
        packed = (codec.pack(_memory(saved), need) for codec in self._codecs if codec.shared)
        found = next((one for one in packed if one is not None), KeptMemory(saved.detach(), saved._version))
        form = _Form(self._moved(found))
        if form.packed.complete:
            for other in living.values():
                other.packed = form.packed
            need = ALL
        forms[need] = weakref.ref(form)
        return form

    @staticmethod
    def _unpack(saved: KeptMemory | _View) -> Tensor:
        with _at_work():
            if isinstance(saved, _View):
                return saved.unpack()
            saved.require_unchanged()
            return saved.tensor


@contextmanager
def _at_work() -> Iterator[None]:
    token = _PACKING.set(True)
    try:
        yield
    finally:
        _PACKING.reset(token)


def _plain(tensor: Tensor) -> bool:
    """Whether its elements lie in memory as they are."""
    if type(tensor) not in (Tensor, nn.Parameter) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    if tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda") or tensor.is_nested:
        return False
    return not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)


def _memory(tensor: Tensor) -> Tensor:
    """All the memory behind a tensor, [elements], which any view of it keeps alive."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor.detach(), (count,), (1,), 0)
