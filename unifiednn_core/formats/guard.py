"""Checks the contract of each operator of a graph on the tensors that its kernel is about to get."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map_only

from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats.contracts import sizes
from unifiednn_core.formats.contracts.table import check_call

MOST_SIGNATURES = 256
# Operators whose arguments torch's autocast lowers on every device. All others get what the graph gives them, so that
# their contracts see it.
_ATEN = torch.ops.aten
LOWERED = frozenset(
    {
        _ATEN.conv1d,
        _ATEN.conv2d,
        _ATEN.conv3d,
        _ATEN.conv_transpose1d,
        _ATEN.conv_transpose2d,
        _ATEN.conv_transpose3d,
        _ATEN.linear,
        _ATEN.matmul,
        _ATEN.mm,
        _ATEN.bmm,
        _ATEN.addmm,
        _ATEN.baddbmm,
        _ATEN.addbmm,
        _ATEN.prelu,
        _ATEN.scaled_dot_product_attention,
    }
)
_NAMES = {function: name for name, function in sizes.FUNCTIONS.items()}


class GraphGuard:
    """Runs a graph as its `forward`, and checks it at every new kind of inputs; in evaluation another one, if given.

    Then the graph runs node by node, and each call is checked right before it happens. What a call gets depends on the
    inputs, the mode and whether gradients are recorded; the weights keep their shapes. So later inputs of the same kind
    run the compiled graph, unless the shape of a value inside depends on values.
    """

    def __init__(self, module: fx.GraphModule, evaluation: fx.GraphModule | None = None):
        self._module = module
        self._evaluation = module if evaluation is None else evaluation
        self._known: set[tuple[object, ...]] = set()

    @property
    def parts(self) -> tuple[fx.GraphModule, ...]:
        """The graph of training, and that of evaluation if it is another."""
        return (self._module,) if self._evaluation is self._module else (self._module, self._evaluation)

    def __call__(self, *inputs: Any) -> Any:
        """Run the graph; raises `ContractBroken` before the first call that is not allowed."""
        module = self._module if self._module.training else self._evaluation
        kind = (self._module.training, torch.is_grad_enabled(), _autocast(inputs), *map(_kind, inputs))
        if kind in self._known:
            return type(module).forward(module, *inputs)
        run = _Checked(module, _autocast(inputs))
        outputs = run.run(*inputs)
        if not run.depends_on_values and len(self._known) < MOST_SIGNATURES:
            self._known.add(kind)
        return outputs


class _Checked(fx.Interpreter):
    """Runs a graph node by node and checks each call."""

    def __init__(self, module: fx.GraphModule, autocast: torch.dtype | None):
        super().__init__(module)
        self._autocast = autocast
        self.extra_traceback = False
        self.depends_on_values = False

    def run_node(self, n: fx.Node) -> Any:
        """Run one node; names it in `ContractBroken`."""
        try:
            return super().run_node(n)
        except ContractBroken as broken:
            raise ContractBroken(broken.operator, broken.problem, n.name) from None

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check a call, then run it."""
        name = name_of(target)
        if self._autocast is not None and getattr(target, "overloadpacket", None) in LOWERED:
            args, kwargs = lowered((args, kwargs), self._autocast)
        if name is not None:
            self.depends_on_values |= check_call(name, args, kwargs)
        return target(*args, **kwargs)


def lowered(arguments: Any, dtype: torch.dtype) -> Any:
    """Arguments as autocast hands them to a kernel: floating point tensors, except for float64, in another type."""

    def cast(one: Tensor) -> Tensor:
        return one.to(dtype) if one.is_floating_point() and one.dtype is not torch.float64 else one

    return tree_map_only(Tensor, cast, arguments)


def _kind(given: Any) -> object:
    """What calls depend on, of an input: the sizes of a tensor, and plain values as they are."""
    if isinstance(given, Tensor):
        return given.shape, given.stride(), given.dtype, given.device
    return (type(given), tuple(map(_kind, given)) if isinstance(given, list | tuple) else given)


def _autocast(inputs: Sequence[Tensor]) -> torch.dtype | None:
    """Type in which autocast lets layers compute on the device of the inputs; None without autocast."""
    kind = next((given.device.type for given in inputs if isinstance(given, Tensor)), "cpu")
    known = torch.amp.is_autocast_available(kind)  # not for meta
    return torch.get_autocast_dtype(kind) if known and torch.is_autocast_enabled(kind) else None


def name_of(function: Callable[..., Any]) -> str | None:
    """Name a function of a graph as contracts do; None for what the reader of graphs itself put in."""
    operator = getattr(function, "operator", function)  # that of a form of `own_draws`
    if isinstance(operator, torch._ops.OpOverload):
        return f"torch.ops.{operator}"
    return _NAMES.get(function)
