"""Normalisation: statistics and weights have one entry for each channel or place."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import each, require, rule
from unifiednn_core.formats.contracts.general import overlap_in_part
from unifiednn_core.formats.contracts.predicates import check_vector, finite, one_type, positive, tensor

_SHORT = (torch.float16, torch.bfloat16)


def _check_type(input: Tensor, parts: dict[str, Any]) -> None:
    """The parts have one type: that of the input, or float32 beside a shorter one."""
    types = {part.dtype for part in parts.values() if isinstance(part, Tensor)}
    fits = types <= {input.dtype} or (input.dtype in _SHORT and types == {torch.float32})
    require(fits, f"the weights are {' and '.join(sorted(map(str, types)))}, 'input' is {input.dtype}")


@rule(
    "input is [batch, channels, ...]; weight, bias, running_mean and running_var have one entry for each channel, are "
    "contiguous and of one type: that of input, or float32 beside a shorter one"
)
def _channels(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> None:
    given = tensor("input", input)
    require(given.dim() >= 2 and given.shape[1] > 0, f"'input' has the shape {list(given.shape)}")
    parts = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    for name, part in parts.items():
        check_vector(name, part, given.shape[1])
    _check_type(given, parts)


@rule("both running statistics are given or none; they are written to, and share memory with no other argument")
def _statistics(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any) -> None:
    require((running_mean is None) == (running_var is None), "one of the two running statistics is missing")
    if running_mean is not None:
        for mine, others in ((running_mean, (input, weight, bias, running_var)), (running_var, (input, weight, bias))):
            for other in others:
                shared = isinstance(other, Tensor) and (other is mine or _share(mine, other))
                require(not shared, "the running statistics share memory with another argument")


def _share(one: Tensor, two: Tensor) -> bool:
    same = one.data_ptr() == two.data_ptr() and one.numel() > 0
    return same or overlap_in_part(one, two)


@rule("outside of training the running statistics are given")
def _trained(running_mean: Any, training: bool) -> None:
    require(training or running_mean is not None, "there are no running statistics")


@rule("without use_input_stats the running statistics are given")
def _trained_instance(running_mean: Any, use_input_stats: bool) -> None:
    require(use_input_stats or running_mean is not None, "there are no running statistics")


def _check_tail(input: Any, normalized_shape: Sequence[int], parts: dict[str, Any]) -> None:
    given, wanted = tensor("input", input), tuple(normalized_shape)
    tail = tuple(given.shape[-len(wanted) :]) if wanted else None
    require(tail == wanted and 0 not in wanted, f"'input' has the shape {list(given.shape)} for {list(wanted)}")
    for name, part in parts.items():
        if part is not None:
            found = tuple(tensor(name, part).shape)
            require(found == wanted, f"'{name}' has the shape {list(found)} instead of {list(wanted)}")
    _check_type(given, parts)


_TAIL = (
    "normalized_shape is the end of the shape of input, without a 0; {} exactly that shape, and the type of input, or "
    "float32 beside a shorter one"
)


@rule(_TAIL.format("weight and bias have"))
def _layer(input: Any, normalized_shape: Any, weight: Any, bias: Any) -> None:
    _check_tail(input, normalized_shape, {"weight": weight, "bias": bias})


@rule(_TAIL.format("weight has"))
def _root_mean_square(input: Any, normalized_shape: Any, weight: Any) -> None:
    _check_tail(input, normalized_shape, {"weight": weight})


@rule(
    "input is [batch, channels, ...] with channels a multiple of num_groups; weight and bias have one entry for each "
    "channel, are contiguous and of the type of input, or float32 beside a shorter one"
)
def _groups(input: Any, num_groups: int, weight: Any, bias: Any) -> None:
    given = tensor("input", input)
    require(given.dim() >= 2 and given.shape[1] > 0, f"'input' has the shape {list(given.shape)}")
    require(num_groups > 0 and given.shape[1] % num_groups == 0, f"{given.shape[1]} channels, {num_groups} groups")
    for name, part in (("weight", weight), ("bias", bias)):
        check_vector(name, part, given.shape[1])
    _check_type(given, {"weight": weight, "bias": bias})


@rule(
    "v has the dimension dim; g has its size there and 1 elsewhere (with dim -1 it is a single number), and the type "
    "of v"
)
def _weight_norm(v: Any, g: Any, dim: int) -> None:
    """A fused kernel reads g by the sizes of v."""
    given, lengths = tensor("v", v), tensor("g", g)
    require(-1 <= dim < given.dim() and given.numel() > 0, f"'dim' is {dim}, 'v' has the shape {list(given.shape)}")
    wanted = tuple(size if place == dim else 1 for place, size in enumerate(given.shape)) if dim >= 0 else ()
    require(tuple(lengths.shape) == wanted, f"'g' has the shape {list(lengths.shape)} instead of {list(wanted)}")


_INPUT = one_type("input")
_EPS = positive("eps")
CONTRACTS = {
    **each("batch_norm", _INPUT, _channels, _statistics, _trained, _EPS, finite("momentum")),
    **each("instance_norm", _INPUT, _channels, _statistics, _trained_instance, _EPS, finite("momentum")),
    **each("layer_norm", _INPUT, _layer, _EPS),
    **each("rms_norm", _INPUT, _root_mean_square, _EPS),
    **each("group_norm", _INPUT, _groups, _EPS),
    **each("_weight_norm", one_type("v", "g"), _weight_norm),
}
