"""Layers that a file may name, and criteria, each as one call: they do not go through the guard of graphs.

The positional arguments are the input of a layer (outputs and targets of a criterion), the named ones are those of its
constructor.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.hostile.operators.values import Call, c, f, i
from unifiednn_core.engine.optimizers import build_criterion
from unifiednn_core.formats.rebuild import LAYERS, construct, parameters
from unifiednn_core.spec.choices import CRITERIA
from unifiednn_core.spec.run import Hyperparameters

LAYER, CRITERION = "layer.", "criterion."
Own = Callable[[Tensor], Tensor]
"""Moves a tensor into the arena."""
_PLAIN = (
    "Identity Flatten ReLU ReLU6 LeakyReLU PReLU RReLU ELU SELU CELU GELU SiLU Mish Hardtanh Hardswish Hardsigmoid "
    "Hardshrink Softplus Softshrink Softsign LogSigmoid Sigmoid Tanh Tanhshrink Dropout Dropout1d AlphaDropout "
    "FeatureAlphaDropout"
)


def run(target: str, own: Own, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[list[Any], list[Tensor]]:
    """Results in training and of the evaluation afterwards, and the weights; the result of a criterion is its loss."""
    if target.startswith(CRITERION):
        name = target.removeprefix(CRITERION)
        if not inputs[1].numel():
            raise ValueError("the targets of a batch are never empty")
        given = {"criterion": name, "criterion_args": arguments, "epochs": 1, "batch_size": 1, "learning_rate": 0.1}
        return [build_criterion(Hyperparameters.model_validate(given))(*inputs)], []
    name = target.removeprefix(LAYER)
    module = construct(LAYERS[name], arguments, name)
    for part in module.modules():
        for key, parameter in part._parameters.items():
            part._parameters[key] = None if parameter is None else nn.Parameter(own(parameter.detach()))
        for key, buffer in part._buffers.items():
            part._buffers[key] = None if buffer is None else own(buffer)
    trained = module.train()(*inputs)
    with torch.no_grad():
        evaluated = pytree.tree_map_only(Tensor, Tensor.detach, module.eval()(*inputs))
    return [trained, evaluated], list(module.parameters())


def optional(target: str) -> list[tuple[str, str]]:
    """Arguments of the constructor with their types."""
    if target.startswith(LAYER):
        known = parameters(LAYERS[target.removeprefix(LAYER)])
        return [(name, kind.__name__ if isinstance(kind, type) else "object") for name, kind in known.items()]
    return [(one.name, one.kind) for one in CRITERIA[target.removeprefix(CRITERION)].arguments]


def _images() -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for n in (1, 2, 3):
        x, conv = f(2, 4, *(6,) * n), {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 1}
        found[f"Conv{n}d"] = [c(x, **conv, bias=False), c(x, **conv, stride=2)]
        found[f"Conv{n}d"] += [c(x, **conv, padding_mode=mode) for mode in ("reflect", "circular", "replicate")]
        found[f"ConvTranspose{n}d"] = [c(x, **conv, stride=2, output_padding=1), c(x, **conv)]
        found[f"BatchNorm{n}d"] = [c(x, num_features=4), c(x, num_features=4, track_running_stats=False)]
        found[f"InstanceNorm{n}d"] = [c(x, num_features=4), c(x, num_features=4, track_running_stats=True)]
        for kind in ("MaxPool", "AvgPool"):
            found[f"{kind}{n}d"] = [c(x, kernel_size=2), c(x, kernel_size=3, stride=2, padding=1, ceil_mode=True)]
        found[f"LPPool{n}d"] = [c(x, norm_type=2, kernel_size=2)]
        for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool"):
            found[f"{kind}{n}d"] = [c(x, output_size=2), c(x, output_size=1)]
        for kind in ("ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"):
            found[f"{kind}{n}d"] = [c(x, padding=2), c(x, padding=[1, 2] * n)]
        found[f"ConstantPad{n}d"] = [c(x, padding=2, value=1.5)]
    return found


def _sequences() -> dict[str, list[Call]]:
    x, small = f(2, 5, 8), {"input_size": 8, "hidden_size": 5}
    recurrent = [
        c(x, **small),
        c(f(5, 8), **small, bias=False),
        c(x, **small, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2),
    ]
    layer = {"d_model": 8, "nhead": 2, "dim_feedforward": 6, "batch_first": True}
    heads, others = {"embed_dim": 8, "num_heads": 2}, {"kdim": 3, "vdim": 4, "add_bias_kv": True, "add_zero_attn": True}
    words, table = i(2, 5, high=7), {"num_embeddings": 7, "embedding_dim": 4}
    return {
        "LSTM": [*recurrent, c(x, **small, proj_size=3)],
        "GRU": recurrent,
        "RNN": [*recurrent, c(x, **small, nonlinearity="relu")],
        "MultiheadAttention": [c(x, x, x, **heads), c(x, f(2, 7, 3), f(2, 7, 4), **heads, **others, batch_first=True)],
        "TransformerEncoderLayer": [c(x, **layer), c(x, **layer, norm_first=True, activation="gelu")],
        "Embedding": [c(words, **table), c(words, **table, padding_idx=1, max_norm=0.5, scale_grad_by_freq=True)],
        "EmbeddingBag": [c(words, **table, mode=mode) for mode in ("mean", "sum", "max")],
    }


def _others() -> dict[str, list[Call]]:
    x, image = f(3, 4, 5), f(2, 4, 6, 6)
    sized = c(image, size=[9, 4], mode="bilinear", align_corners=True)
    return {
        _PLAIN: [c(x)],
        "Linear": [c(x, in_features=5, out_features=3), c(f(5), in_features=5, out_features=3, bias=False)],
        "Unflatten": [c(x, dim=1, unflattened_size=[2, 2])],
        "GroupNorm": [c(x, num_groups=2, num_channels=4)],
        "LayerNorm RMSNorm": [c(x, normalized_shape=5), c(x, normalized_shape=[4, 5], elementwise_affine=False)],
        "LocalResponseNorm": [c(image, size=2)],
        "Threshold": [c(x, threshold=0.1, value=2.0)],
        "GLU": [c(x, dim=1)],
        "Softmax LogSoftmax Softmin": [c(x, dim=1), c(x, dim=-1)],
        "Softmax2d Dropout2d": [c(image)],
        "Dropout3d": [c(f(2, 3, 4, 4, 4))],
        "Upsample": [c(image, scale_factor=2.0), c(image, scale_factor=1.5, mode="bicubic"), sized],
        "UpsamplingNearest2d UpsamplingBilinear2d": [c(image, scale_factor=2), c(image, size=9)],
        "PixelShuffle": [c(image, upscale_factor=2)],
        "PixelUnshuffle": [c(image, downscale_factor=2)],
        "ChannelShuffle": [c(image, groups=2)],
        "Fold": [c(f(2, 27, 9), output_size=6, kernel_size=3, padding=1, stride=2)],
        "Unfold": [c(image, kernel_size=3, padding=1, stride=2)],
    }


def _criteria() -> dict[str, list[Call]]:
    scores, shares, classes = f(5, 4), f(5, 4, fill="unit"), i(5, high=4)
    images, places = f(2, 4, 3, 3), i(2, 3, 3, high=4)
    weight = {"weight": [1.0, 2.0, 0.5, 1.0]}
    return {
        "cross_entropy": [
            c(scores, classes),
            c(scores, classes, **weight, label_smoothing=0.1),
            c(images, places, ignore_index=1),
            c(scores, shares),
        ],
        "nll": [c(scores, classes), c(images, places, **weight, ignore_index=0)],
        "multi_margin": [c(scores, classes), c(scores, classes, **weight, p=2, margin=0.5)],
        "multi_label_margin": [c(scores, i(5, 4, high=4))],
        "multi_label_soft_margin bce": [c(shares, shares), c(shares, shares, **weight)],
        "bce_with_logits": [c(scores, shares), c(scores, shares, **weight, pos_weight=weight["weight"])],
        "mse l1 smooth_l1 huber": [c(scores, scores), c(f(5, 1), f(5, 1))],
        "hinge_embedding soft_margin": [c(scores, scores)],
        "kl_div": [c(scores, shares), c(scores, shares, reduction="batchmean", log_target=True)],
        "poisson_nll": [c(scores, shares), c(shares, shares, log_input=False, full=True)],
    }


@cache
def layer_seeds() -> dict[str, list[Call]]:
    """Ordinary calls of all layers and criteria, by `layer.NAME` and `criterion.NAME`."""
    groups = {LAYER: _images() | _sequences() | _others(), CRITERION: _criteria()}
    return {
        f"{prefix}{name}": calls
        for prefix, group in groups.items()
        for names, calls in group.items()
        for name in names.split()
    }
