"""Which networks draw random numbers; draws from a generator of their own, with the bits of the default one, on a CPU.

What is unknown may draw: a layer of somebody else, a layer with hooks, a `forward` of its own.

Two networks that draw from the default generator cannot step at once. Where torch takes no generator, the operator is
written in parts that do: dropout is a product with noise, and attention with dropout is what torch computes on a CPU.
A network gets all its draws this way, or none: they are one stream, in order. On CUDA the kernel of dropout takes no
generator.
"""

import math
import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeGuard

import torch
from torch import Generator, Tensor, fx, nn
from torch.nn import functional

from unifiednn_core.formats.architectures import huggingface
from unifiednn_core.formats.architectures.transformer import SelfAttention
from unifiednn_core.formats.contracts.general import bind
from unifiednn_core.formats.guard import GraphGuard, name_of
from unifiednn_core.formats.rebuild import LAYERS

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
_ATTENTION = (nn.MultiheadAttention, SelfAttention)
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.TransformerEncoder)
_PROJECTION = nn.modules.linear.NonDynamicallyQuantizableLinear  # a Linear by another name, in attention
_QUIET = frozenset({*LAYERS.values(), *_CONTAINERS, _PROJECTION}) - {*_DROPOUTS, *_RECURRENT, *_ATTENTION, nn.RReLU}
_ARCHITECTURES = SelfAttention.__module__.rpartition(".")[0] + "."  # the other layers there draw nothing themselves
_HEADS = frozenset(head for _, head in huggingface.FAMILIES.values())
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def draws(network: nn.Module) -> bool:
    """Whether a call of this network may draw from the default generators, in training or in evaluation."""
    if is_of_file(network):
        return any(operator_draws(node) for part in graphs_of(network) for node in part.graph.nodes)
    judge = is_changed if _is_transformer_without_dropout(network) else layer_draws
    return any(map(judge, network.modules()))


def is_of_file(network: nn.Module) -> TypeGuard[fx.GraphModule]:
    """Whether this is the graph of an exported file, so that its operators are all that runs."""
    return isinstance(network, fx.GraphModule) and isinstance(network.__dict__.get("forward"), GraphGuard)


def graphs_of(network: fx.GraphModule) -> tuple[fx.GraphModule, ...]:
    """The graphs of an exported file: that of training, and that of evaluation if it is another."""
    guard: GraphGuard = network.__dict__["forward"]
    return guard.parts


def operator_draws(node: fx.Node) -> bool:
    """Whether a node of a graph may draw; by the tag that torch gives its operators, unless it is switched off."""
    operator: Any = node.target
    if not isinstance(operator, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    given = bind(str(name_of(operator)), node.args, node.kwargs)
    if "dropout" in operator._schema.name and given["p"] in (0, 1):
        return False
    off = given.get("train", given.get("training")) is False or 0 in (given.get("dropout"), given.get("dropout_p"))
    return not off and given.get("num_layers") != 1  # recurrent dropout is between layers


def layer_draws(layer: nn.Module) -> bool:
    """Whether a layer itself, without the layers inside it, may draw."""
    kind = type(layer)
    if is_changed(layer):
        return True
    if isinstance(layer, _DROPOUTS) and kind in _DROPOUTS:
        return 0 < layer.p < 1
    if isinstance(layer, _ATTENTION) and kind in _ATTENTION:
        return layer.dropout != 0
    if isinstance(layer, _RECURRENT) and kind in _RECURRENT:
        return layer.dropout != 0 and layer.num_layers > 1
    if isinstance(layer, nn.TransformerEncoderLayer) and layer.activation not in (functional.relu, functional.gelu):
        return True
    return kind not in _QUIET and not kind.__module__.startswith(_ARCHITECTURES)


def is_changed(layer: nn.Module) -> bool:
    """Whether a layer has hooks or a `forward` of its own."""
    return "forward" in layer.__dict__ or any(getattr(layer, hooks) for hooks in _HOOKS)


def _is_transformer_without_dropout(network: nn.Module) -> bool:
    """Whether the format of transformers makes such networks, and its config has every share of dropout at 0."""
    kind = type(network)
    known = kind.__module__.startswith("transformers.models.") and kind.__name__ in _HEADS
    config: Any = network.config if known else None
    return known and not any(value for name, value in config.to_dict().items() if "drop" in name)


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
