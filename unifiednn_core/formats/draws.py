"""Which networks draw random numbers: by the operators of a graph, by the layers of a Python module.

What is unknown may draw: a layer of somebody else, a layer with hooks, a `forward` of its own.
"""

from typing import Any, TypeGuard

import torch
from torch import fx, nn
from torch.nn import functional

from unifiednn_core.formats.architectures import huggingface
from unifiednn_core.formats.architectures.transformer import SelfAttention
from unifiednn_core.formats.contracts.general import bind
from unifiednn_core.formats.guard import GraphGuard, name_of
from unifiednn_core.formats.torch_layers import LAYERS

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
