"""Draws from a generator of the network's own, with the bits that torch draws from its default one, on a CPU.

Two networks that draw from the default generator cannot step at once. Where torch takes no generator, the operator is
written in parts that do: dropout is a product with noise, and attention with dropout is what torch computes on a CPU.
A network gets all its draws this way, or none: they are one stream, in order. On CUDA the kernel of dropout takes no
generator.
"""

import math
import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import Generator, Tensor, fx, nn

from unifiednn_core.formats.architectures.transformer import SelfAttention
from unifiednn_core.formats.draws import graphs_of, is_changed, is_of_file, layer_draws, operator_draws

_Function = Callable[..., Any]


class OwnDraws:
    """The draws of one network: from `generator` between `begin` and `end`, else from torch's default one."""

    def __init__(self) -> None:
        self.generator = Generator()
        self._now: Generator | None = None
        self._replaced: list[tuple[nn.Module, str, _Function]] = []

    def begin(self) -> None:
        """Draw from the own generator."""
        self._now = self.generator
        for layer, name, function in self._replaced:
            layer.__dict__[name] = function

    def end(self) -> None:
        """Make every layer the submitted one again."""
        self._now = None
        for layer, name, _ in self._replaced:
            layer.__dict__.pop(name, None)

    def replace(self, layer: nn.Module, name: str, function: _Function) -> None:
        """Give a layer another method for the time between `begin` and `end`."""
        self._replaced.append((layer, name, function))

    def form_of(self, operator: Any) -> _Function:
        """Make the function that runs in the place of an operator; contracts and drawings see that operator."""
        form = _FORMS[operator]

        def drawn(*args: Any, **kwargs: Any) -> Any:
            return form(*args, **kwargs, generator=self._now)

        drawn.__name__ = str(operator._schema.name).removeprefix("aten::")
        drawn.__dict__["operator"] = operator
        return drawn


def own_draws(network: nn.Module) -> OwnDraws | None:
    """Prepare a network that draws on a CPU; None, with nothing changed, if not all its draws take a generator."""
    own = OwnDraws()
    if is_of_file(network):
        parts = graphs_of(network)
        nodes = [node for part in parts for node in part.graph.nodes if operator_draws(node)]
        if not all(map(_has_form, nodes)):
            return None
        forms = {operator: own.form_of(operator) for operator in {node.target for node in nodes}}
        for node in nodes:
            node.target = forms[node.target]
        for part in parts:
            part.recompile()
        return own
    drawing = [layer for layer in network.modules() if layer_draws(layer)]
    if any(type(layer) not in _LAYERS or is_changed(layer) for layer in drawing):
        return None
    for layer in drawing:
        _LAYERS[type(layer)](own, layer)
    return own


def _has_form(node: fx.Node) -> bool:
    operator: Any = node.target
    given = [argument.name for argument in operator._schema.arguments[: len(node.args)]] + [*node.kwargs]
    return operator in _FORMS and "generator" not in given and not node.kwargs.get("enable_gqa")


# -- operators; where torch's draws nothing, neither does the form


def _of_channels(input: Tensor) -> Tensor:
    return input.new_empty([*input.shape[:2], *[1] * (input.dim() - 2)])


def _dropout_form(plain: _Function, noise_of: _Function, product: _Function) -> _Function:
    """A form of dropout: a product of the input with noise of its shape, or of one number for each channel."""

    def form(input: Tensor, p: float, train: bool, *, generator: Generator | None) -> Any:
        if not train or not 0 < p < 1 or not input.numel():
            return plain(input, p, train)
        return product(input, noise_of(input).bernoulli_(1 - p, generator=generator).div_(1 - p))

    return form


_dropout = _dropout_form(torch.dropout, torch.empty_like, torch.mul)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    generator: Generator | None,
) -> Tensor:
    """Attend as torch does on a CPU when there is dropout: half precision as float32, the scale on both factors."""
    if not dropout_p:
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )
    kind, mask = query.dtype, attn_mask
    if kind in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=kind).masked_fill_(mask.logical_not(), -math.inf)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    root = math.sqrt(abs(scale))
    weights = torch.matmul(query * (-root if scale < 0 else root), key.transpose(-2, -1) * root)
    if mask is not None:
        weights = weights.add_(mask)
    weights = _dropout(torch._safe_softmax(weights, -1), dropout_p, True, generator=generator)
    return torch.matmul(weights, value).to(kind)


_aten = torch.ops.aten
_FORMS: Mapping[Any, _Function] = {
    _aten.dropout.default: _dropout,
    _aten.dropout_.default: _dropout_form(torch.dropout_, torch.empty_like, Tensor.mul_),
    _aten.feature_dropout.default: _dropout_form(torch.feature_dropout, _of_channels, torch.mul),
    _aten.feature_dropout_.default: _dropout_form(torch.feature_dropout_, _of_channels, Tensor.mul_),
    _aten.scaled_dot_product_attention.default: _attention,
    **{
        operator: operator
        for operator in (
            _aten.bernoulli.default,
            _aten.bernoulli.p,
            _aten.bernoulli_.float,
            _aten.rrelu.default,
            _aten.rrelu_.default,
            _aten.uniform_.default,
            _aten.normal_.default,
            _aten.exponential_.default,
            _aten.normal.Tensor_float,
            _aten.normal.float_Tensor,
            _aten.normal.Tensor_Tensor,
            _aten.multinomial.default,
        )
    },
    _aten.rand.default: _aten.rand.generator,
    _aten.randn.default: _aten.randn.generator,
    _aten.rand_like.default: _aten.rand_like.generator,
    _aten.randn_like.default: _aten.randn_like.generator,
    _aten.randint.default: _aten.randint.generator,
    _aten.randint.low: _aten.randint.low_generator,
    _aten.randint_like.default: _aten.randint_like.generator,
    _aten.randint_like.low_dtype: _aten.randint_like.low_generator_dtype,
    _aten.randperm.default: _aten.randperm.generator,
}


# -- layers


def _layer(plain: Any, in_place: Any, *names: str) -> Callable[[OwnDraws, nn.Module], None]:
    """Make a layer call the form of one of two operators with these of its attributes."""
    arguments = attrgetter(*names)

    def prepare(own: OwnDraws, layer: nn.Module) -> None:
        function = own.form_of(in_place if layer.inplace else plain)
        own.replace(layer, "forward", types.MethodType(lambda self, inputs: function(inputs, *arguments(self)), layer))

    return prepare


_LAYERS: Mapping[type[nn.Module], Callable[[OwnDraws, Any], None]] = {
    nn.Dropout: _layer(_aten.dropout.default, _aten.dropout_.default, "p", "training"),
    nn.Dropout2d: _layer(_aten.feature_dropout.default, _aten.feature_dropout_.default, "p", "training"),
    nn.RReLU: _layer(_aten.rrelu.default, _aten.rrelu_.default, "lower", "upper", "training"),
    SelfAttention: lambda own, layer: own.replace(
        layer, "attend", own.form_of(_aten.scaled_dot_product_attention.default)
    ),
}
