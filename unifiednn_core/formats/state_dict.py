"""Formats of weights alone; the spec names the network in the architecture registry.

A file may hold them inside of a dict, and under names with prefixes or, if the spec says so, under other names, alike
in shapes alone.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.units import abbreviated
from unifiednn_core.formats import pickles, tensor_files
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.base import Definition, Delivery, define, delivered_path
from unifiednn_core.formats.weights import host_copy, shapes_alone
from unifiednn_core.spec.run import ArchitectureSpec

ENTRIES = ("state_dict", "model_state_dict", "model", "net", "network", "weights")
"""Where training scripts put the state dict, the usual first."""
PREFIXES = ("module.", "model.", "_orig_mod.", "net.", "network.", "backbone.")
"""What DataParallel, Lightning, torch.compile and own wrappers put before every name."""
BY_SHAPE = "by_shape"
SHOWN_PAIRS = 24
_WRAPPERS = ("module", "_orig_mod")  # a part of the network may be wrapped, too
_FORMER = (("mlp.linear_1.", "mlp.0."), ("mlp.linear_2.", "mlp.3."))  # in torchvision's files of ViT
_COUNTER = "num_batches_tracked"  # files from before torch 0.4.1 lack it; torch then begins with 0
_ROLES = frozenset({"weight", "bias", "running_mean", "running_var", _COUNTER})


@dataclass(frozen=True, slots=True)
class FoundWeights:
    """The state dict that was found in a file."""

    weights: dict[str, Tensor]
    entry: str = ""
    """Entry of the file's dict that holds it; empty if it is the file itself."""
    others: tuple[str, ...] = ()
    """Further entries with a state dict."""

    def doubts(self, field: str) -> tuple[Finding, ...]:
        """A finding if the file holds several state dicts and none was asked for: an error if none is the usual one."""
        if not self.others:
            return ()
        usual, place = self.entry in ENTRIES, field.rpartition(".")[2]
        message = f"The file holds several state dicts: {_named((self.entry, *self.others))}."
        message += f" The weights were taken from '{self.entry}'." if usual else ""
        remedy = (
            f'To take {"others" if usual else "one"}, add its name to {place}, such as "entry": "{self.others[0]}".'
        )
        severity: Literal["warning", "error"] = "warning" if usual else "error"
        title = "Several state dicts"
        return (Finding(severity=severity, title=title, field=field, message=message, remedy=remedy),)


def held_in(loaded: object, entry: str | None, field: str) -> FoundWeights | None:
    """Find the state dict in the content of a file, at most one level deep; None if there is none.

    Raises `BadInput` on `field` if there is none under the `entry` that was asked for.
    """
    if entry is None and is_state_dict(loaded):
        return FoundWeights(dict(loaded))  # type: ignore[call-overload]
    inside = loaded.items() if isinstance(loaded, dict) else ()
    found = {key: value for key, value in inside if isinstance(key, str) and is_state_dict(value)}
    if entry is not None and entry not in found:
        message = f"The file has no state dict under '{entry[:60]}'."
        remedy = f"Name one of {_named(tuple(found))}." if found else "Remove this entry."
        raise BadInput.of("No such entry", field=f"{field}.entry", message=message, remedy=remedy)
    if not found:
        return None
    taken = entry or next((key for key in ENTRIES if key in found), next(iter(found)))
    return FoundWeights(dict(found[taken]), taken, () if entry else tuple(key for key in found if key != taken))


def is_state_dict(value: object) -> bool:
    """Whether a value maps names to tensors."""
    entries = value.items() if isinstance(value, dict) else ()
    return bool(entries) and all(isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in entries)


def fitted(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], names: str | None) -> dict[str, Tensor]:
    """Give weights the names of a network, by names or, if `names` says so, by shapes; unchanged if they do not fit."""
    pairs = pairs_by_name(weights, expected)
    if pairs is None and names == BY_SHAPE:
        pairs = pairs_by_shape(weights, expected)
    if pairs is None:
        return dict(weights)
    zero = torch.zeros((), dtype=torch.int64)
    return {key: weights[pairs[key]] if key in pairs else zero.clone() for key in expected}


def pairs_by_name(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, str] | None:
    """Map names of a network to names in a file that differ by prefixes alone, or not at all; None if some do not."""
    names = {name: name for name in weights}
    while not _cover(names, expected):
        shorter = _without_prefix(names)
        if shorter is None:
            names = {_unwrapped(name): own for name, own in names.items()}
            break
        names = shorter
    return names if _cover(names, expected) and len(names) == len(weights) else None


def pairs_by_shape(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, str] | None:
    """Map names of a network to names in a file by type, shape and order; None if these differ, or roles do."""
    ours, theirs = (_split(tensors) for tensors in (expected, weights))
    kinds = [[_kind(tensors[name]) for name in names] for tensors, (names, _) in ((expected, ours), (weights, theirs))]
    if kinds[0] != kinds[1] or len(theirs[1]) not in (0, len(ours[1])):
        return None
    pairs = dict(zip(ours[0], theirs[0], strict=True)) | dict(zip(ours[1], theirs[1], strict=False))
    roles = ((_role(one), _role(other)) for one, other in pairs.items())
    crossed = any(one != other and {one, other} <= _ROLES for one, other in roles)
    return None if crossed else pairs


def other_names(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], field: str) -> Finding | None:
    """Finding on weights that fit by shapes alone, with the pairs: an error that says how to confirm; None if none."""
    pairs = None if pairs_by_name(weights, expected) else pairs_by_shape(weights, expected)
    if pairs is None:
        return None
    names = {name: name for name in weights}
    while (shorter := _without_prefix(names)) is not None:
        names = shorter
    plain = {own: name for name, own in names.items()}
    renamed = {one: other for one, other in pairs.items() if one not in (other, plain[other])}
    shown = [f"'{one}' = '{other}'" for one, other in renamed.items()]
    message = (
        "The names in the file are not those of the network; shapes and types are the same, in the same order. Network "
        f"= file: {abbreviated(shown, SHOWN_PAIRS)}."
    )
    if doubtful := _doubtful(renamed, expected):
        message += f" Order alone tells these apart, for their shapes are equal: {abbreviated(doubtful)}."
    remedy = f'If these pairs are right, add "names": "{BY_SHAPE}" to {field.rpartition(".")[2]}.'
    return Finding(title="Other names of weights", field=field, message=message, remedy=remedy)


def confirmed(finding: Finding) -> Finding:
    """The same as a warning, after a person has confirmed it."""
    remedy = "You confirmed these pairs; if one is wrong, the network begins with weights in the wrong places."
    return finding.model_copy(update={"severity": "warning", "remedy": remedy})


def _doubtful(renamed: Mapping[str, str], expected: Mapping[str, Tensor]) -> list[str]:
    """Names in the file that could also go elsewhere: another renamed weight has the same shape and role."""
    groups = {ours: (_kind(expected[ours]), _role(theirs)) for ours, theirs in renamed.items()}
    sizes = Counter(groups.values())
    return [f"'{renamed[ours]}'" for ours, group in groups.items() if sizes[group] > 1 and _role(ours) != _COUNTER]


def _without_prefix(names: Mapping[str, str]) -> dict[str, str] | None:
    """The names without the prefix that all of them have; None if they have none."""
    found = (prefix for prefix in PREFIXES if names and all(name.startswith(prefix) for name in names))
    prefix = next(found, None)
    return None if prefix is None else {name.removeprefix(prefix): own for name, own in names.items()}


def _cover(names: Mapping[str, str], expected: Mapping[str, Tensor]) -> bool:
    lacking = expected.keys() - names.keys()
    return not names.keys() - expected.keys() and all(_role(name) == _COUNTER for name in lacking)


def _unwrapped(name: str) -> str:
    plain = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    for former, now in _FORMER:
        plain = plain.replace(former, now)
    return plain


def _split(tensors: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
    """Names of all but the counters of batches, and those of the counters."""
    counters = [name for name in tensors if _role(name) == _COUNTER]
    return [name for name in tensors if _role(name) != _COUNTER], counters


def _role(name: str) -> str:
    return name.rpartition(".")[2]


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _named(names: tuple[str, ...]) -> str:
    return abbreviated([f"'{name[:60]}'" for name in names])


_LOAD_SCRIPT = """\
import torch
from architecture import build

model = build(**{args!r})
model.load_state_dict(torch.load({file!r}, weights_only=True))
model.eval()
"""
_OWN_NAMES = """\

# The submitted file has other names for these weights. To write them under its own names:
# import json, pathlib
# own = json.loads(pathlib.Path("names.json").read_text())
# torch.save({own.get(key, key): value for key, value in model.state_dict().items()}, "own_names.pt")
"""
_PLACE = "architecture"


@dataclass(frozen=True, slots=True)
class WeightsFormat:
    """Weights alone; the two formats differ in how tensors are stored."""

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Path], bool]
    load: Callable[[Path], object]  # maps the content of the file; raises `BadInput` or `HostileFile`
    save: Callable[[dict[str, Tensor], Path], None]  # writes contiguous tensors on the host

    def sniff(self, path: Path) -> bool:
        """Whether the file holds tensors alone, stored in this way."""
        return self.recognises(path)

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Compare the weights with the architecture; raises `BadInput` with a finding for each mistake."""
        if architecture is None:
            message = "The file holds weights alone and does not name their network."
            remedy = f"Set 'architecture' to {{\"name\": ...}} with one of: {', '.join(registry.names())}."
            raise BadInput.of("Architecture missing", field="architecture", message=message, remedy=remedy)
        with shapes_alone():
            expected = registry.build(architecture.name, architecture.args)
        held = self.held(path, architecture.entry, _PLACE)
        doubts = held.doubts(_PLACE)
        if any(finding.severity == "error" for finding in doubts):
            raise BadInput(doubts)
        known = expected.state_dict()
        weights = fitted(held.weights, known, architecture.names)
        findings = _mismatches(path, weights, known)
        others = other_names(held.weights, known, _PLACE)
        if findings:
            raise BadInput([others] if others else findings)
        tensor_files.check_numbers(path, weights)

        def build() -> nn.Module:
            with torch.random.fork_rng(devices=[]):  # initial weights are drawn, then overwritten
                module = registry.build(architecture.name, architecture.args)
            found = self.held(path, architecture.entry, _PLACE).weights
            module.load_state_dict(fitted(found, module.state_dict(), architecture.names))
            return module

        doubts += (confirmed(others),) if others else ()
        return define(self.name, path, build, expected, architecture=architecture, doubts=doubts)

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the weights, the source of the architecture, and a `.pt` if plain torch cannot load the first."""
        if definition.architecture is None:
            raise ValueError("a definition of this format names its architecture")
        path = delivered_path(definition, self.suffixes, folder, stem)
        source = folder / "architecture.py"
        asked = definition.architecture
        with shapes_alone():
            weights = registry.build(asked.name, asked.args).state_dict()
        weights.update(host_copy(state_dict))  # keeps the versions of layers, `_metadata`, for layers that look at them
        self.save(weights, path)
        shutil.copyfile(registry.source_file(asked.name), source)
        plain = path
        if path.suffix not in STATE_DICT.suffixes:
            plain = folder / f"{stem}.pt"
            torch.save(weights, plain)
        script = _LOAD_SCRIPT.format(args=registry.arguments(asked.name, asked.args), file=plain.name)
        files = [path, source, plain]
        given = self.held(definition.path, asked.entry, _PLACE).weights
        pairs = pairs_by_name(given, weights) or pairs_by_shape(given, weights) or {}
        if any(ours != theirs for ours, theirs in pairs.items()):
            files.append(folder / "names.json")
            files[-1].write_text(json.dumps(pairs, indent=2) + "\n", encoding="utf-8")
            script += _OWN_NAMES
        return Delivery(files=tuple(dict.fromkeys(files)), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file; raises `BadInput` or `HostileFile`."""
        return self.held(path, None, path.name).weights

    def held(self, path: Path, entry: str | None, field: str) -> FoundWeights:
        """Find the weights of a file, under `entry` if that is given; raises `BadInput` or `HostileFile`."""
        loaded = self.load(path)
        held = held_in(loaded, entry, field)
        if held is None:
            raise _no_state_dict(path, loaded)
        for key, value in held.weights.items():
            tensor_files.check_plain(key, value)
        return replace(held, weights={key: value.detach() for key, value in held.weights.items()})


STATE_DICT = WeightsFormat(
    "state_dict",
    (".pt", ".pth", ".ckpt"),
    lambda path: tensor_files.is_torch_file(path) and not tensor_files.is_pickled_object(path),
    pickles.load_checkpoint,
    torch.save,
)
"""`torch.save(network.state_dict(), path)`."""
SAFETENSORS = WeightsFormat(
    "safetensors",
    (".safetensors",),
    lambda path: tensor_files.is_safetensors(path) and not tensor_files.is_described(path),
    tensor_files.load_safetensors,
    save_file,
)
"""`safetensors.torch.save_file(network.state_dict(), path)`."""


def _mismatches(path: Path, given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[Finding]:
    ours, theirs = (
        {key: f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}" for key, one in tensors.items()}
        for tensors in (expected, given)
    )
    groups = {
        "Weights missing": [f"'{key}'" for key in ours if key not in theirs],
        "Weights unknown": [f"'{key}'" for key in theirs if key not in ours],
        "Weights differ": [
            f"'{key}' is {theirs[key]}, not {kind}" for key, kind in ours.items() if theirs.get(key, kind) != kind
        ],
    }
    remedy = "Name the architecture and arguments that the weights were trained with."
    said = {
        title: f"{title} compared with the architecture: {abbreviated(keys)}." for title, keys in groups.items() if keys
    }
    return [Finding(title=title, field=path.name, message=text, remedy=remedy) for title, text in said.items()]


def _no_state_dict(path: Path, loaded: object) -> BadInput:
    found = f"an empty file or a {type(loaded).__name__}"
    if isinstance(loaded, dict) and loaded:
        key, value = next(pair for pair in loaded.items() if not is_state_dict(dict([pair])))
        found = f"under {str(key)[:60]!r} a {_kind_of(value)}"
    message = f"A state dict maps names to tensors; the file holds {found}."
    remedy = "Save the state dict alone: torch.save(network.state_dict(), path)."
    return tensor_files.bad_file(path, "Not a state dict", message, remedy)


def _kind_of(value: object) -> str:
    return "Python object" if isinstance(value, tensor_files.Nothing) else type(value).__name__
