"""Makes networks from inert records, with the constructors of torch and the arguments in the records.

Each value that a constructor sets is compared with the record. So a file cannot describe a layer that no constructor
makes, and the network computes the same as the pickled one. Every layer that a file may name computes on tensors alone:
none opens files, starts processes or calls its arguments.
"""

import bisect
import inspect
import math
import pickle
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, Finding, HostileFile
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.weights import shapes_alone

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


MAX_DEPTH = 40
MAX_MODULES = 20_000
MAX_ENTRIES = 2_000_000  # of all layers together, each counted as often as it occurs
_OF_CHILDREN = (nn.Sequential, nn.ModuleList, nn.ModuleDict)  # all others make their children themselves
_QUANTIZABLE = nn.modules.linear.NonDynamicallyQuantizableLinear  # a Linear by another name, in attention
_KINDS: tuple[type[nn.Module], ...] = (*LAYERS.values(), *_OF_CHILDREN, nn.TransformerEncoder, _QUANTIZABLE)
_CLASSES = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _KINDS}
_ACTIVATIONS = {"torch.nn.functional.relu": "relu", "torch._C._nn.gelu": "gelu"}
KNOWN = frozenset(_CLASSES) | frozenset(_ACTIVATIONS)
"""Full names of the classes and functions that a pickled network may use."""
_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
_KEPT = frozenset({"training", "_non_persistent_buffers_set"})


class Inert(type):
    """Makes classes that cannot be called."""

    def __call__(cls, *args: object, **kwargs: object) -> object:  # noqa: D102
        raise pickle.UnpicklingError("a record cannot be called")


class Record(metaclass=Inert):
    """State of one object in a file."""

    name: ClassVar[str] = ""  # full name of its class or function
    state: dict[str, object]

    def __new__(cls, *args: object) -> "Record":
        """Make an empty record."""
        if args:
            raise pickle.UnpicklingError("a record takes no arguments")
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict) or "state" in self.__dict__ or not all(isinstance(key, str) for key in state):
            raise pickle.UnpicklingError("the state of a record is one dict")
        self.__dict__["state"] = state


@dataclass(frozen=True, slots=True)
class Described:
    """One module as the file describes it."""

    kind: type[nn.Module]
    place: str
    attributes: Mapping[str, object]
    parameters: Mapping[str, object]
    buffers: Mapping[str, object]
    modules: Mapping[str, object]

    def child(self, name: str) -> "Described":
        """Return the module of this name; raises `BadInput` if there is none."""
        return described(self.modules.get(name), f"{self.place}.{name}")


@dataclass(slots=True)
class _Rebuilding:
    """Modules and tensors made so far; shared modules and tied weights stay shared."""

    modules: dict[int, nn.Module] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    memory: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By storage: start and end of the bytes of each weight, in order."""


def rebuild(root: object, name: str) -> nn.Module:
    """Make the network of a file, each layer in its mode; raises `BadInput` or `HostileFile` on the place `name`."""
    whole = described(root, name)
    if whole.kind in (nn.ModuleList, nn.ModuleDict):
        message = f"A {whole.kind.__name__} holds networks but computes nothing itself."
        raise BadInput([finding(name, message, "Save the network that uses it.")])
    _check_size(whole, Counter(), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns the author of the network
        return _module(root, whole, _Rebuilding())


def described(record: object, place: str) -> Described:
    """Take a record apart; raises `BadInput` if it is not a known module."""
    kind = _CLASSES.get(type(record).name) if isinstance(record, Record) else None
    if not isinstance(record, Record) or kind is None:
        raise BadInput([finding(place, "The file does not hold a layer here.", "Save the network itself.")])
    state = record.__dict__.get("state", {})
    hooks = [
        key for key, value in state.items() if "hook" in key and isinstance(value, dict | list | tuple | set) and value
    ]
    if hooks:
        message = f"{kind.__name__} has hooks ({', '.join(hooks)[:80]}); their code is not in the file."
        raise BadInput([finding(place, message, "Remove the hooks, then save it again.")])
    parts = [state.get(key, {}) for key in ("_parameters", "_buffers", "_modules")]
    if not all(isinstance(part, dict) and all(isinstance(key, str) for key in part) for part in parts):
        raise HostileFile(f"The parts of {place} have no names.")
    attributes = {key: value for key, value in state.items() if key not in _OF_EVERY_MODULE or key in _KEPT}
    return Described(kind, place, attributes, *parts)


def _check_size(part: Described, count: Counter[str], depth: int) -> None:
    """Walk every path, so that a few records that contain each other very often are refused too."""
    count["layers"] += 1
    count["entries"] += sum(map(len, (part.attributes, part.parameters, part.buffers)))
    if depth > MAX_DEPTH or count["layers"] > MAX_MODULES:
        raise HostileFile(f"The network has more than {MAX_MODULES} layers, or is nested deeper than {MAX_DEPTH}.")
    if count["entries"] > MAX_ENTRIES:
        raise HostileFile(f"The layers of the network have more than {MAX_ENTRIES:,} notes and weights.")
    for name, record in part.modules.items():
        if record is not None:
            _check_size(part.child(name), count, depth + 1)


def _module(record: object, part: Described, work: _Rebuilding) -> nn.Module:
    if id(record) in work.modules:
        return work.modules[id(record)]
    name = part.kind.__name__
    with shapes_alone():
        if part.kind in _OF_CHILDREN:
            module = attempt(name, lambda: _container(part, work), part.place)
        elif part.kind is nn.TransformerEncoder:
            module = attempt(name, lambda: _encoder(part), part.place)
        else:
            module = _constructed(part)
    work.modules[id(record)] = module
    _fill(module, part, work, children_too=part.kind not in _OF_CHILDREN)
    return module


def _container(part: Described, work: _Rebuilding) -> nn.Module:
    children = OrderedDict(
        (name, _module(record, part.child(name), work)) for name, record in part.modules.items() if record is not None
    )
    if part.kind is nn.Sequential:
        return nn.Sequential(children)
    if part.kind is nn.ModuleDict:
        return nn.ModuleDict(children)
    if list(children) != [str(place) for place in range(len(children))]:
        raise ValueError("the entries of a ModuleList are not numbered")
    return nn.ModuleList(children.values())


def _encoder(part: Described) -> nn.Module:
    layers = part.child("layers")
    if not 1 <= len(layers.modules) <= MOST_REPEATED:
        raise ValueError(f"a TransformerEncoder has 1 to {MOST_REPEATED} layers")
    layer = _constructed(layers.child("0"))
    if not isinstance(layer, nn.TransformerEncoderLayer):
        raise TypeError("its layers are no TransformerEncoderLayer")
    norm = _constructed(part.child("norm")) if part.modules.get("norm") is not None else None
    nested, check = (part.attributes.get(key, True) is True for key in ("enable_nested_tensor", "mask_check"))
    return nn.TransformerEncoder(layer, len(layers.modules), norm, nested, check)


def _constructed(part: Described) -> nn.Module:
    return construct(part.kind, _arguments(part), part.place)


def _arguments(part: Described) -> dict[str, object]:
    """Infer the arguments of the constructor from the record."""
    if part.kind is nn.TransformerEncoderLayer:
        return _layer_arguments(part)
    inferred: dict[str, object] = {}
    for argument in parameters(part.kind):
        if part.kind is nn.MultiheadAttention and argument in ("bias", "add_bias_kv"):
            inferred[argument] = part.parameters.get({"bias": "in_proj_bias"}.get(argument, "bias_k")) is not None
        elif argument in part.attributes:
            inferred[argument] = part.attributes[argument]
        elif argument == "bias":
            inferred[argument] = part.parameters.get("bias") is not None
    return inferred


def _layer_arguments(part: Described) -> dict[str, object]:
    attention, first, norm = part.child("self_attn"), part.child("linear1"), part.child("norm1")
    name = _name_of(part.attributes.get("activation"))
    if name not in _ACTIVATIONS:
        message = "Only relu and gelu, given by name, are known as activations of a TransformerEncoderLayer."
        raise BadInput([finding(part.place, message, 'Make the layer with activation="relu" or "gelu".')])
    return {
        "d_model": attention.attributes.get("embed_dim"),
        "nhead": attention.attributes.get("num_heads"),
        "dim_feedforward": first.attributes.get("out_features"),
        "dropout": part.child("dropout").attributes.get("p"),
        "activation": _ACTIVATIONS[name],
        "layer_norm_eps": norm.attributes.get("eps"),
        "batch_first": attention.attributes.get("batch_first", False),
        "norm_first": part.attributes.get("norm_first", False),
        "bias": first.parameters.get("bias") is not None,
    }


def _fill(module: nn.Module, part: Described, work: _Rebuilding, *, children_too: bool) -> None:
    """Compare a module with its record, and give it the tensors of the file."""
    if type(module) is not part.kind:
        raise _differs(part, "its class")
    _check_attributes(module, part)
    for names, given, what in (
        (module._parameters, part.parameters, "parameters"),
        (module._buffers, part.buffers, "buffers"),
        (module._modules, part.modules, "layers"),
    ):
        if {k for k, v in names.items() if v is not None} != {k for k, v in given.items() if v is not None}:
            raise _differs(part, f"the names of its {what}")
    given_tensors = {**part.parameters, **part.buffers}
    for name, expected in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        setattr(module, name, _tensor(part, name, given_tensors[name], expected, work))
    types = {
        tensor.dtype for tensor in given_tensors.values() if isinstance(tensor, Tensor) and tensor.is_floating_point()
    }
    if len(types) > 1:  # kernels may take the type of one weight for that of all
        message = f"The weights of this {part.kind.__name__} have several types: {', '.join(sorted(map(str, types)))}."
        raise BadInput([finding(part.place, message, "Convert the network to one type, then save it again.")])
    for name, child in module.named_children() if children_too else ():
        _fill(child, part.child(name), work, children_too=True)
    if part.attributes.get("_non_persistent_buffers_set") not in (None, set()):
        raise _differs(part, "a buffer that is kept out of the state dict")
    module.training = part.attributes.get("training", True) is True


def _check_attributes(module: nn.Module, part: Described) -> None:
    made = module.__dict__
    for key, value in part.attributes.items():
        if key in _KEPT:
            continue
        if key in part.parameters or key in part.buffers or key in part.modules:
            raise HostileFile(f"In {part.place}, the file hides '{key}' of {part.kind.__name__} behind a note.")
        if key not in made:
            if hasattr(type(module), key):
                raise HostileFile(f"In {part.place}, the file replaces the method '{key}' of {part.kind.__name__}.")
            continue  # the user added it, and no layer of torch reads it
        expected = made[key]
        if callable(expected):
            if _name_of(value) != f"{expected.__module__}.{expected.__name__}":
                raise _differs(part, f"'{key}'")
        elif _comparable(expected) and not (_comparable(value) and _as_tuple(value) == _as_tuple(expected)):
            raise _differs(part, f"'{key}'")


def _name_of(value: object) -> str:
    """Full name of the function that a record replaces."""
    return value.name if isinstance(value, type) and issubclass(value, Record) else ""


def _comparable(value: object) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= 8 * MOST_REPEATED and all(_comparable(entry) for entry in value)
    return is_plain(value)


def _as_tuple(value: object) -> object:
    return tuple(_as_tuple(entry) for entry in value) if isinstance(value, list | tuple) else value


def _tensor(part: Described, name: str, given: object, expected: Tensor, work: _Rebuilding) -> Tensor:
    place = f"{part.place}.{name}"
    if not isinstance(given, Tensor):
        raise HostileFile(f"The entry '{place}' is not a tensor.")
    tensor_files.check_plain(place, given)
    if given.shape != expected.shape or given.is_floating_point() != expected.is_floating_point():
        raise _differs(part, f"the shape or type of '{name}'")
    if id(given) in work.tensors:
        return work.tensors[id(given)]
    start = int(given.storage_offset()) * given.element_size()
    end = start + int(given.nbytes)
    taken = work.memory.setdefault(given.untyped_storage().data_ptr(), [])
    at = bisect.bisect(taken, (start, end))
    if any(begin < end and start < stop for begin, stop in taken[max(0, at - 1) : at + 1]):
        message = f"'{name}' shares memory with another weight without being the same one."
        raise BadInput([finding(part.place, message, "Tie weights by assigning the parameter itself.")])
    taken.insert(at, (start, end))
    own = given.detach().clone()
    if isinstance(expected, nn.Parameter):
        own = nn.Parameter(own, requires_grad=given.requires_grad)
    work.tensors[id(given)] = own
    return own


def _differs(part: Described, what: str) -> BadInput:
    message = f"The file describes a {part.kind.__name__} that torch does not make; it differs in {what}."
    return BadInput([finding(part.place, message, "Save the network with the version of torch that made it.")])
