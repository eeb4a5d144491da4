"""The layers of torch that a file may name, and their arguments as the constructors declare them.

Every class here computes on tensors alone: none opens files, starts processes or calls its arguments.
"""

import inspect
import math
from collections.abc import Callable, Mapping

from torch import nn

from unifiednn_core.base.errors import BadInput, Finding, HostileFile

_NAMES = """
Linear Identity Flatten Unflatten
Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d
GroupNorm LayerNorm RMSNorm LocalResponseNorm
MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
ReLU ReLU6 LeakyReLU PReLU RReLU ELU SELU CELU GELU SiLU Mish Hardtanh Hardswish Hardsigmoid Hardshrink
Softplus Softshrink Softsign LogSigmoid Sigmoid Tanh Tanhshrink Threshold GLU Softmax LogSoftmax Softmin Softmax2d
Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
Embedding EmbeddingBag LSTM GRU RNN MultiheadAttention TransformerEncoderLayer
Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle PixelUnshuffle ChannelShuffle Fold Unfold
ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d
ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d
"""
LAYERS: dict[str, type[nn.Module]] = {name: getattr(nn, name) for name in _NAMES.split()}

# A file names no devices and no given weights; the last two are old names.
_NOT_FOR_FILES = frozenset({"self", "device", "dtype", "_weight", "_freeze", "min_value", "max_value"})
_ATTENTION = {
    "embed_dim": int,
    "num_heads": int,
    "dropout": float,
    "bias": bool,
    "add_bias_kv": bool,
    "add_zero_attn": bool,
    "kdim": object,
    "vdim": object,
    "batch_first": bool,
}
_RECURRENT = {
    "input_size": int,
    "hidden_size": int,
    "num_layers": int,
    "bias": bool,
    "batch_first": bool,
    "dropout": float,
    "bidirectional": bool,
}
_DECLARED_HERE: dict[str, dict[str, type]] = {
    "MultiheadAttention": _ATTENTION,
    "LSTM": _RECURRENT | {"proj_size": int},
    "GRU": _RECURRENT,
    "RNN": _RECURRENT | {"nonlinearity": str},
}
_REPEATED = frozenset({"num_layers"})
MOST_REPEATED = 200
MOST_DIMENSIONS = 8
LARGEST = 2**31
_SHOWN: dict[object, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
_TORCH_ERRORS = (RuntimeError, ValueError, TypeError, OverflowError, ZeroDivisionError, AssertionError, IndexError)


def parameters(kind: type[nn.Module]) -> Mapping[str, object]:
    """List the arguments of a layer with their types; `object` for a number, several, a word or nothing."""
    if kind.__name__ in _DECLARED_HERE:
        return _DECLARED_HERE[kind.__name__]
    declared = inspect.signature(kind.__init__).parameters.values()
    return {
        entry.name: entry.annotation if entry.annotation in (bool, int, float, str) else object
        for entry in declared
        if entry.name not in _NOT_FOR_FILES and entry.kind is entry.POSITIONAL_OR_KEYWORD
    }


def _check_arguments(kind: type[nn.Module], args: Mapping[str, object], place: str) -> list[Finding]:
    """Findings on values that are not plain numbers or words."""
    name, known = kind.__name__, parameters(kind)
    findings = []
    for key, value in args.items():
        if not _fits(known[key], value) or (key in _REPEATED and isinstance(value, int) and value > MOST_REPEATED):
            wanted = _SHOWN.get(known[key], "a number, several or a word")
            message = f"{name} does not take {key} = {repr(value)[:60]}."
            findings.append(finding(place, message, f"Give {wanted} of a reasonable size."))
    return findings


def attempt(name: str, make: Callable[[], nn.Module], place: str) -> nn.Module:
    """Make a layer; an error of torch about its arguments becomes `BadInput`."""
    try:
        return make()
    except (BadInput, HostileFile):
        raise
    except _TORCH_ERRORS as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise BadInput([finding(place, f"{name}: {reason}.", "Correct the arguments.")]) from None


def construct(kind: type[nn.Module], args: Mapping[str, object], place: str) -> nn.Module:
    """Make one layer; raises `BadInput` with findings on `place`."""
    findings = _check_arguments(kind, args, place)
    if findings:
        raise BadInput(findings)
    return attempt(kind.__name__, lambda: kind(**args), place)


def finding(place: str, message: str, remedy: str) -> Finding:
    """Make an error finding that names the place of a layer in its text, too: a library shows the name of the file."""
    return Finding(title="Layer", field=place, message=f"{place}: {message}", remedy=remedy)


def is_plain(value: object) -> bool:
    """Whether a value is None, a number of a reasonable size, a short word, or a few numbers."""
    match value:
        case None | bool():
            return True
        case int():
            return abs(value) < LARGEST
        case float():
            return math.isfinite(value)
        case str():
            return len(value) <= 40
        case tuple() | list():
            plain = (isinstance(entry, int | float | None) and is_plain(entry) for entry in value)
            return len(value) <= MOST_DIMENSIONS and all(plain)
    return False


def _fits(wanted: object, value: object) -> bool:
    return is_plain(value) and (wanted in (type(value), object) or (wanted is float and type(value) is int))
