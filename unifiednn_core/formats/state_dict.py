"""Formats of weights alone; the spec names the network in the architecture registry.

A file may hold them one level deep, and under names with prefixes or, if the spec says so, under other names.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.units import abbreviated
from unifiednn_core.formats import fitting, pickles, tensor_files
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.base import Definition, Delivery, define, delivered_path
from unifiednn_core.formats.weights import host_copy, shapes_alone
from unifiednn_core.spec.run import ArchitectureSpec

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
        weights = fitting.fitted(held.weights, known, architecture.names)
        findings = _mismatches(path, weights, known)
        other_names = fitting.other_names(held.weights, known, _PLACE)
        if findings:
            raise BadInput([other_names] if other_names else findings)
        tensor_files.check_numbers(path, weights)

        def build() -> nn.Module:
            with torch.random.fork_rng(devices=[]):  # initial weights are drawn, then overwritten
                module = registry.build(architecture.name, architecture.args)
            found = self.held(path, architecture.entry, _PLACE).weights
            module.load_state_dict(fitting.fitted(found, module.state_dict(), architecture.names))
            return module

        doubts += (fitting.confirmed(other_names),) if other_names else ()
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
        pairs = fitting.pairs_by_name(given, weights) or fitting.pairs_by_shape(given, weights) or {}
        if any(ours != theirs for ours, theirs in pairs.items()):
            files.append(folder / "names.json")
            files[-1].write_text(json.dumps(pairs, indent=2) + "\n", encoding="utf-8")
            script += _OWN_NAMES
        return Delivery(files=tuple(dict.fromkeys(files)), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file; raises `BadInput` or `HostileFile`."""
        return self.held(path, None, path.name).weights

    def held(self, path: Path, entry: str | None, field: str) -> fitting.FoundWeights:
        """Find the weights of a file, under `entry` if that is given; raises `BadInput` or `HostileFile`."""
        loaded = self.load(path)
        held = fitting.held_in(loaded, entry, field)
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
        key, value = next(pair for pair in loaded.items() if not fitting.is_state_dict(dict([pair])))
        found = f"under {str(key)[:60]!r} a {_kind_of(value)}"
    message = f"A state dict maps names to tensors; the file holds {found}."
    remedy = "Save the state dict alone: torch.save(network.state_dict(), path)."
    return tensor_files.bad_file(path, "Not a state dict", message, remedy)


def _kind_of(value: object) -> str:
    return "Python object" if isinstance(value, tensor_files.Nothing) else type(value).__name__
