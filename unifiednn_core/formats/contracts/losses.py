"""Losses inside of a network: scores against targets that the graph has or gets."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, require, rule
from unifiednn_core.formats.contracts.predicates import (
    between,
    broadcast,
    broadcast_shape,
    check_count,
    check_same_type,
    check_vector,
    finite,
    listed,
    one_type,
    positive,
    shape_of,
    tensor,
)

_REDUCTION = between("reduction", 0, 2)


def _alike(*names: str) -> Rule:
    """These arguments have one shape."""

    def check(arguments: Arguments) -> None:
        first = shape_of(arguments[names[0]])
        for name in names[1:]:
            found = shape_of(arguments[name])
            require(found == first, f"'{name}' has the shape {list(found)}, '{names[0]}' {list(first)}")

    return Rule(f"{listed(names)} have one shape", check)


def _check_classes(scores: Any, target: Any, weight: Any) -> None:
    """A class for each row of scores [classes], [batch, classes] or [batch, classes, ...]."""
    given, classes = tensor("self", scores), tensor("target", target)
    require(given.dim() >= 1, "'self' is a single number")
    place = min(given.dim() - 1, 1)
    wanted = (*given.shape[:place], *given.shape[place + 1 :])
    shapes = f"'self' has the shape {list(given.shape)}, 'target' {list(classes.shape)}"
    require(tuple(classes.shape) == wanted and given.shape[place] > 0, shapes)
    check_vector("weight", weight, given.shape[place])


@rule(
    "self is [classes], [batch, classes] or [batch, classes, ...]; target has its shape without the classes and is "
    "int64; weight has one entry for each class and is contiguous; the kernel checks the range of the classes at every "
    "call"
)
def _classes(self: Any, target: Any, weight: Any) -> None:
    _check_classes(self, target, weight)
    require(target.dtype is torch.int64, f"'target' is {target.dtype}")


@rule(
    "self is [classes], [batch, classes] or [batch, classes, ...]; target has its shape and type (shares), or its "
    "shape without the classes and is int64, and then the kernel checks the range of the classes at every call; weight "
    "has one entry for each class and is contiguous"
)
def _classes_or_shares(self: Any, target: Any, weight: Any) -> None:
    if isinstance(target, Tensor) and target.is_floating_point():
        given = tensor("self", self)
        require(given.dim() >= 1 and given.shape == target.shape, f"{list(given.shape)} and {list(target.shape)}")
        check_same_type("self", given, "target", target)
        classes = given.shape[min(given.dim() - 1, 1)]
        require(classes > 0, f"'self' has the shape {list(given.shape)}")
        check_vector("weight", weight, classes)
    else:
        _check_classes(self, target, weight)
        require(target.dtype is torch.int64, f"'target' is {target.dtype}")


@rule("self is [classes] or [batch, classes], not empty, and contiguous")
def _rows(self: Any) -> None:
    given = tensor("self", self, 1, 2)
    require(given.numel() > 0 and given.is_contiguous(), f"'self' has the shape {list(given.shape)}")


@rule("target is int64, [batch], contiguous; p is 1 or 2; weight is [classes]; the kernel checks the range of target")
def _margins(self: Any, target: Any, p: float, weight: Any) -> None:
    classes = tensor("target", target, 0, 1)
    rows = self.shape[0] if self.dim() > 1 else 1
    fits = classes.dtype is torch.int64 and classes.numel() == rows and (self.dim() == 1 or classes.dim() == 1)
    require(fits and classes.is_contiguous(), f"'target' is {classes.dtype} {list(classes.shape)}")
    require(p in (1, 2), f"'p' is {p}")
    check_vector("weight", weight, self.shape[-1])
    check_same_type("self", self, "weight", weight)


@rule("target is int64, has the shape of self, and is contiguous; the kernel checks the range of target at every call")
def _labels(self: Any, target: Any) -> None:
    given = tensor("target", target)
    fits = given.dtype is torch.int64 and given.shape == self.shape and given.is_contiguous()
    require(fits, f"'target' is {given.dtype} {list(given.shape)} for {list(self.shape)}")


@rule("input1 and input2 are [width] or [batch, width], of one shape; target is [] or [batch]")
def _pairs(input1: Any, input2: Any, target: Any) -> None:
    one, two, signs = tensor("input1", input1, 1, 2), tensor("input2", input2, 1, 2), tensor("target", target)
    shapes = f"the shapes are {list(one.shape)}, {list(two.shape)} and {list(signs.shape)}"
    require(one.shape == two.shape and tuple(signs.shape) == tuple(one.shape[:-1]), shapes)


@rule("anchor, positive and negative have as many dimensions and can be broadcast to one shape")
def _triplets(anchor: Any, positive: Any, negative: Any) -> None:
    shapes: list[Sequence[int]] = [tensor("anchor", part).shape for part in (anchor, positive, negative)]
    require(len({len(shape) for shape in shapes}) == 1 and len(shapes[0]) > 0, f"the shapes are {shapes}")
    check_count(*broadcast_shape(*shapes))


@rule("x1 and x2 can be broadcast to one shape with dimensions")
def _distances(x1: Any, x2: Any) -> None:
    shape = broadcast_shape(shape_of(x1), shape_of(x2))
    require(len(shape) > 0, "both are single numbers")
    check_count(*shape)


@rule("x1 is [..., n, width] and x2 is [..., m, width]; the sizes before can be broadcast")
def _all_pairs(x1: Any, x2: Any) -> None:
    one, two = tensor("x1", x1), tensor("x2", x2)
    shapes = f"the shapes are {list(one.shape)} and {list(two.shape)}"
    require(min(one.dim(), two.dim()) >= 2 and one.shape[-1] == two.shape[-1], shapes)
    check_count(*broadcast_shape(one.shape[:-2], two.shape[:-2]), one.shape[-2], two.shape[-2])


@rule("compute_mode is from 0 to 2, or not given")
def _mode(compute_mode: int | None) -> None:
    require(compute_mode in (None, 0, 1, 2), f"'compute_mode' is {compute_mode}")


_PAIR = (one_type("self", "target"), broadcast("self", "target"), _REDUCTION)
_INPUTS = one_type("input1", "input2")
CONTRACTS: dict[str, Contract] = {
    **each(
        "cross_entropy_loss",
        one_type("self", "weight"),
        _classes_or_shares,
        _REDUCTION,
        between("label_smoothing", 0, 1),
    ),
    **each("nll_loss_nd", one_type("self", "weight"), _classes, _REDUCTION),
    **each("mse_loss l1_loss kl_div soft_margin_loss", *_PAIR),
    **each("hinge_embedding_loss", *_PAIR, finite("margin")),
    **each("smooth_l1_loss", *_PAIR, between("beta", 0, 1e30)),
    **each("huber_loss", *_PAIR, positive("delta")),
    **each(
        "binary_cross_entropy",
        one_type("self", "target", "weight"),
        _alike("self", "target"),
        broadcast("target", "weight"),
        _REDUCTION,
    ),
    **each(
        "binary_cross_entropy_with_logits",
        one_type("self", "target", "weight", "pos_weight"),
        _alike("self", "target"),
        broadcast("target", "weight", "pos_weight"),
        _REDUCTION,
    ),
    **each("poisson_nll_loss", one_type("input", "target"), broadcast("input", "target"), finite("eps"), _REDUCTION),
    **each("multi_margin_loss", one_type("self"), _rows, _margins, finite("margin"), _REDUCTION),
    **each("multilabel_margin_loss", one_type("self"), _rows, _labels, _REDUCTION),
    **each(
        "margin_ranking_loss",
        one_type("input1", "input2", "target"),
        broadcast("input1", "input2", "target"),
        finite("margin"),
        _REDUCTION,
    ),
    **each("cosine_embedding_loss", _INPUTS, _pairs, finite("margin"), _REDUCTION),
    **each(
        "triplet_margin_loss",
        one_type("anchor", "positive", "negative"),
        _triplets,
        finite("margin", "eps"),
        between("p", 0, 1e30),
        _REDUCTION,
    ),
    **each("pairwise_distance", one_type("x1", "x2"), _distances, finite("p", "eps")),
    **each("cdist", one_type("x1", "x2"), _all_pairs, between("p", 0, float("inf")), _mode),
    **each("dist", one_type("self", "other"), broadcast("self", "other")),
}
