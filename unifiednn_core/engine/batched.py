"""Batched forms of operators: one call computes for all members of a gang what one call each computes for one.

A table from the names of torch's operators to functions on `Stacked` values. Indexing is left out on purpose: an index
that is out of range for one member would read the weights of another.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.engine.step_program import INPUTS, TARGETS, StepProgram, filled

_MEAN = 1  # torch's code of the reduction


class Stacked:
    """One value of all members: `[members, *shape]`, or `wide`: `[batch, members * channels, ...]`, for convolutions.

    Only values whose shape begins with batch and channels can be wide.
    """

    __slots__ = ("members", "tensor", "wide")

    def __init__(self, tensor: Tensor, members: int, *, wide: bool = False):
        self.tensor, self.members, self.wide = tensor, members, wide

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one member's value."""
        shape = self.tensor.shape
        return (shape[0], shape[1] // self.members, *shape[2:]) if self.wide else tuple(shape[1:])

    @property
    def front(self) -> Tensor:
        """`[members, *shape]`; a view."""
        if not self.wide:
            return self.tensor
        batch, *rest = self.tensor.shape[0], *self.tensor.shape[2:]
        return self.tensor.view(batch, self.members, -1, *rest).transpose(0, 1)

    @property
    def side(self) -> Tensor:
        """`[batch, members * channels, ...]`."""
        return self.tensor if self.wide else self.tensor.transpose(0, 1).flatten(1, 2)

    def aligned(self, rank: int) -> Tensor:
        """`[members, *shape]` with ones behind the members, so that shapes of `rank` broadcast."""
        front = self.front
        return front.reshape(self.members, *[1] * (rank - front.dim() + 1), *front.shape[1:])

    def like(self, tensor: Tensor, *, wide: bool = False) -> "Stacked":
        """Another value of the same members."""
        return Stacked(tensor, self.members, wide=wide)


def require_batched(program: StepProgram) -> None:
    """Raise `NoBatchedForm` for the first operator of a program that the table lacks."""
    for call in program.calls:
        if call.name not in BATCHED:
            raise NoBatchedForm(f"{call.operator} has no batched form")


def run(program: StepProgram, inputs: Stacked, targets: Stacked, state: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Compute outputs `[members, ...]` and losses `[members]` from a batch and the stacked tensors of `state_of`.

    Raises `NoBatchedForm` for arguments that have none.
    """
    values: list[Stacked | None] = [None] * program.values
    values[INPUTS], values[TARGETS] = inputs, targets
    for place, tensor in enumerate(state, start=TARGETS + 1):
        values[place] = inputs.like(tensor)
    for call in program.calls:
        try:
            args, kwargs = filled(call.args, values.__getitem__), dict(filled(call.kwargs, values.__getitem__))
            result = BATCHED[call.name](call.operator, *args, **kwargs)
        except NoBatchedForm as refused:
            raise NoBatchedForm(f"{call.operator} {refused}") from None
        for place, one in zip(call.results, result if isinstance(result, tuple | list) else (result,), strict=True):
            values[place] = one
        del args, kwargs, result
        for place in call.last:
            values[place] = None
    outputs, loss = values[program.outputs], values[program.loss]
    if outputs is None or loss is None or loss.shape != ():
        raise NoBatchedForm("the loss is not one number")
    return outputs.front, loss.front


# -- operators with weights


def _convolution(op: Any, x: Stacked, weight: Stacked, bias: Stacked | None = None, *rest: Any) -> Stacked:
    """`rest` is stride, padding, dilation and groups; with groups, each member has its own."""
    if len(x.shape) != len(weight.shape):
        raise NoBatchedForm("has no batch dimension")
    groups = x.members * (rest[3] if len(rest) > 3 else 1)
    out = op(x.side, weight.front.flatten(0, 1), _flat(bias), *rest[:3], groups=groups)
    return x.like(out, wide=True)


def _transposed(op: Any, x: Stacked, weight: Stacked, bias: Stacked | None = None, *rest: Any) -> Stacked:
    """`rest` is stride, padding, output padding, groups and dilation."""
    if len(x.shape) != len(weight.shape):
        raise NoBatchedForm("has no batch dimension")
    groups, dilation = x.members * (rest[3] if len(rest) > 3 else 1), {"dilation": rest[4]} if len(rest) > 4 else {}
    out = op(x.side, weight.front.flatten(0, 1), _flat(bias), *rest[:3], groups=groups, **dilation)
    return x.like(out, wide=True)


def _batch_norm(
    op: Any,
    x: Stacked,
    weight: Stacked | None,
    bias: Stacked | None,
    mean: Stacked | None,
    var: Stacked | None,
    *rest: Any,
) -> Stacked:
    """Each channel of each member has its own statistics; the running ones are updated in place."""
    running = [None if one is None else one.tensor.view(-1) for one in (mean, var)]
    return x.like(op(x.side, _flat(weight), _flat(bias), *running, *rest), wide=True)


def _group_norm(
    op: Any, x: Stacked, groups: int, weight: Stacked | None = None, bias: Stacked | None = None, *rest: Any
) -> Stacked:
    return x.like(op(x.side, groups * x.members, _flat(weight), _flat(bias), *rest), wide=True)


def _layer_norm(
    op: Any, x: Stacked, shape: Any, weight: Stacked | None = None, bias: Stacked | None = None, *rest: Any
) -> Stacked:
    out, rank = op(x.front, shape, None, None, *rest), len(x.shape)
    out = out if weight is None else out * weight.aligned(rank)
    return x.like(out if bias is None else out + bias.aligned(rank))


def _linear(op: Any, x: Stacked, weight: Stacked, bias: Stacked | None = None) -> Stacked:
    front = x.front
    rows, matrix = front.reshape(x.members, -1, front.shape[-1]), weight.front.transpose(1, 2)
    out = torch.bmm(rows, matrix) if bias is None else torch.baddbmm(bias.front.unsqueeze(1), rows, matrix)
    return x.like(out.view(*front.shape[:-1], out.shape[-1]))


def _addmm(op: Any, bias: Stacked, x: Stacked, matrix: Stacked, **scales: Any) -> Stacked:
    return x.like(torch.baddbmm(bias.aligned(2), x.front, matrix.front, **scales))


def _matmul(op: Any, a: Stacked, b: Stacked) -> Stacked:
    if min(len(a.shape), len(b.shape)) < 2:
        raise NoBatchedForm("multiplies a vector")
    rank = max(len(a.shape), len(b.shape))
    return a.like(torch.matmul(a.aligned(rank), b.aligned(rank)))


def _attention(
    op: Any,
    q: Stacked,
    k: Stacked,
    v: Stacked,
    mask: Stacked | None = None,
    dropout: float = 0.0,
    *rest: Any,
    **named: Any,
) -> Stacked:
    _refuse_draws(dropout, on=True)
    if mask is not None:
        rank = len(q.shape)
        return q.like(op(q.front, k.front, v.front, mask.aligned(rank), 0.0, *rest, **named))
    out = op(q.front.flatten(0, 1), k.front.flatten(0, 1), v.front.flatten(0, 1), None, 0.0, *rest, **named)
    return q.like(out.unflatten(0, (q.members, -1)))


# -- operators without weights


def _pointwise(op: Any, x: Stacked, *rest: Any, **named: Any) -> Stacked:
    if any(isinstance(one, Stacked) for one in rest):
        raise NoBatchedForm("takes several tensors")
    return x.like(op(x.tensor, *rest, **named), wide=x.wide)


def _binary(op: Any, a: Any, b: Any, *rest: Any, **named: Any) -> Stacked:
    """Broadcasts the values of each member, as the operator does for one."""
    if not isinstance(b, Stacked):
        return _pointwise(op, a, b, *rest, **named)
    if not isinstance(a, Stacked):
        return b.like(op(a, b.tensor, *rest, **named), wide=b.wide)
    alike = len(a.shape) == len(b.shape) >= 2 and a.shape[1] == b.shape[1]
    if (a.wide or b.wide) and alike:
        return a.like(op(a.side, b.side, *rest, **named), wide=True)
    rank = max(len(a.shape), len(b.shape))
    return a.like(op(a.aligned(rank), b.aligned(rank), *rest, **named))


def _broadcast(op: Any, values: Sequence[Stacked]) -> list[Stacked]:
    rank = max(len(one.shape) for one in values)
    return [values[0].like(one) for one in op([one.aligned(rank) for one in values])]


def _dropout(op: Any, x: Stacked, share: float, train: bool) -> Stacked:
    _refuse_draws(share, on=train)
    return x


def _refuse_draws(share: float, *, on: bool) -> None:
    if on and share > 0:
        raise NoBatchedForm("draws random numbers")


def _of_places(dimensions: int) -> Callable[..., Stacked]:
    """An operator on the last `dimensions` of `[batch, channels, ...]`, each channel by itself."""

    def batched(op: Any, x: Stacked, *rest: Any, **named: Any) -> Stacked:
        if len(x.shape) != dimensions + 2:
            raise NoBatchedForm("has no batch dimension")
        if x.wide:
            return x.like(op(x.tensor, *rest, **named), wide=True)
        return x.like(op(x.tensor.flatten(0, 1), *rest, **named).unflatten(0, (x.members, -1)))

    return batched


def _pad(op: Any, x: Stacked, sizes: Sequence[int], *rest: Any) -> Stacked:
    wide = x.wide and len(sizes) // 2 <= len(x.shape) - 2
    return x.like(op(x.tensor if wide else x.front, sizes, *rest), wide=wide)


# -- shapes and reductions; dimension i of a member is dimension i + 1 of the stack


def _behind(dimension: int) -> int:
    return dimension + 1 if dimension >= 0 else dimension


def _along(*places: int, default: Mapping[int, int] | None = None) -> Callable[..., Any]:
    """An operator whose arguments at `places` are dimensions, and whose other arguments do not name any."""
    known = default or {}

    def batched(op: Any, x: Stacked, *rest: Any, **named: Any) -> Any:
        given = [*rest, *(known[place] for place in range(len(rest), 1 + max(places)) if place in known)]
        if len(given) <= max(places) or not all(isinstance(given[place], int) for place in places):
            raise NoBatchedForm("does not name one dimension")
        given = [_behind(one) if place in places else one for place, one in enumerate(given)]
        out = op(x.front, *given, **named)
        return [x.like(one) for one in out] if isinstance(out, tuple | list) else x.like(out)

    return batched


def _reduction(op: Any, x: Stacked, dims: Sequence[int] | None = None, *rest: Any, **named: Any) -> Stacked:
    every = range(len(x.shape))
    overload = op if dims is not None else getattr(op.overloadpacket, _OVER_DIMS[op.overloadpacket.__name__])
    return x.like(overload(x.front, [_behind(one) for one in (dims or every)], *rest, **named))


_OVER_DIMS = {"mean": "dim", "sum": "dim_IntList", "amax": "default", "amin": "default"}


def _reshape(op: Any, x: Stacked, sizes: Sequence[int]) -> Stacked:
    return x.like(x.front.reshape(x.members, *sizes))


def _permute(op: Any, x: Stacked, dims: Sequence[int]) -> Stacked:
    return x.like(op(x.front, [0, *(1 + one % len(x.shape) for one in dims)]))


def _expand(op: Any, x: Stacked, sizes: Sequence[int], **named: Any) -> Stacked:
    return x.like(op(x.aligned(len(sizes)), [x.members, *sizes], **named))


def _turned(op: Any, x: Stacked) -> Stacked:
    if len(x.shape) != 2:
        raise NoBatchedForm("turns what is no matrix")
    return x.like(x.front.transpose(1, 2))


def _joined(op: Any, parts: Sequence[Stacked], dimension: int = 0) -> Stacked:
    return parts[0].like(op([part.front for part in parts], _behind(dimension)))


# -- criteria: the mean over the batch of each member


def _mean_loss(op: Any, x: Stacked, target: Stacked, reduction: int = _MEAN, *rest: Any) -> Stacked:
    _require_mean(reduction)
    rank = max(len(x.shape), len(target.shape))
    return x.like(op(x.aligned(rank), target.aligned(rank), 0, *rest).flatten(1).mean(1))


def _weighted_mean_loss(places: int) -> Callable[..., Stacked]:
    """A criterion with so many optional weights before its reduction, none of which may be given."""

    def batched(op: Any, x: Stacked, target: Stacked, *rest: Any) -> Stacked:
        if any(one is not None for one in rest[:places]):
            raise NoBatchedForm("has weights of its own")
        _require_mean(rest[places] if len(rest) > places else _MEAN)
        return x.like(op(x.front, target.front, *[None] * places, 0).flatten(1).mean(1))

    return batched


def _of_classes(
    op: Any,
    x: Stacked,
    target: Stacked,
    weight: Stacked | None = None,
    reduction: int = _MEAN,
    ignored: int = -100,
    *smoothing: float,
) -> Stacked:
    """Cross entropy, or its second half: the mean over the labels that count."""
    _require_mean(reduction)
    if weight is not None:
        raise NoBatchedForm("has weights of its own")
    if len(x.shape) < 2:
        raise NoBatchedForm("has no batch dimension")
    labels = target.front
    each = op(x.front.flatten(0, 1), labels.flatten(0, 1), None, 0, ignored, *smoothing)
    each = each.view(x.members, -1)
    if labels.is_floating_point():
        return x.like(each.mean(1))
    return x.like(each.sum(1) / (labels != ignored).flatten(1).sum(1))


def _require_mean(reduction: int) -> None:
    if reduction != _MEAN:
        raise NoBatchedForm("is not the mean over its batch")


def _flat(value: Stacked | None) -> Tensor | None:
    """`[members * channels]` of a value with one entry for each channel."""
    return None if value is None else value.front.flatten(0, 1)


_POINTWISE = (
    "relu relu_ relu6 relu6_ gelu silu silu_ mish mish_ elu elu_ celu selu selu_ leaky_relu leaky_relu_"
    " hardtanh hardtanh_ hardswish hardswish_ hardsigmoid hardsigmoid_ sigmoid sigmoid_ tanh tanh_ softplus log_sigmoid"
    " exp log log1p sqrt rsqrt square abs neg sin cos erf clamp clamp_ clamp_min clamp_max pow reciprocal clone"
    " contiguous detach softsign tanhshrink softshrink hardshrink threshold threshold_ alias to lift_fresh_copy"
)
_BINARY = "add add_ sub sub_ rsub mul mul_ div div_ maximum minimum"
BATCHED: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(_POINTWISE.split(), _pointwise),
    **dict.fromkeys(_BINARY.split(), _binary),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **{f"{kind}_pool{n}d": _of_places(n) for n in (1, 2, 3) for kind in ("max", "avg", "adaptive_avg")},
    **{f"upsample_nearest{n}d": _of_places(n) for n in (1, 2, 3)},
    "upsample_bilinear2d": _of_places(2),
    "constant_pad_nd": _pad,
    "pad": _pad,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("dropout", "dropout_", "feature_dropout", "alpha_dropout"), _dropout),
    **dict.fromkeys(("mean", "sum", "amax", "amin"), _reduction),
    **dict.fromkeys(("softmax", "log_softmax"), _along(0)),
    "flatten": _along(0, 1, default={0: 0, 1: -1}),
    "transpose": _along(0, 1),
    "unflatten": _along(0),
    "unsqueeze": _along(0),
    "squeeze": _along(0),
    "select": _along(0),
    "slice": _along(0, default={0: 0}),
    "unbind": _along(0, default={0: 0}),
    **dict.fromkeys(("chunk", "split"), _along(1, default={1: 0})),
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), _reshape),
    "permute": _permute,
    "expand": _expand,
    "t": _turned,
    "broadcast_tensors": _broadcast,
    **dict.fromkeys(("cat", "stack"), _joined),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"), _mean_loss),
    "binary_cross_entropy_with_logits": _weighted_mean_loss(2),
    "binary_cross_entropy": _weighted_mean_loss(1),
    **dict.fromkeys(("cross_entropy_loss", "nll_loss", "nll_loss_nd"), _of_classes),
}
