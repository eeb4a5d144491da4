"""What operators need of the tensors that they save for their backward: often less than each bit."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor


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
