"""The format `layers`: a network as a list of layers in JSON, such as

{"format": "unifiednn-layers", "seed": 0, "layers": [["Flatten"], ["Linear", {"in_features": 64, "out_features": 10}]]}

Layers are those of torch, by name and arguments, and a few blocks of `layer_list`. The initial weights are drawn after
`torch.manual_seed(seed)`.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.formats import described, layer_list
from unifiednn_core.formats.base import Definition, Delivery, refuse_architecture
from unifiednn_core.formats.shapes_alone import shapes_alone
from unifiednn_core.formats.torch_layers import LAYERS, attempt, construct, finding
from unifiednn_core.formats.weights import host_copy
from unifiednn_core.spec.run import ArchitectureSpec

SCHEMA = "unifiednn-layers"
KEY = "unifiednn.layers"
MAX_LAYERS, MAX_DEPTH = 5_000, 30
MAX_SEED = 2**63
_ENTRIES = {"format", "seed", "layers"}
_KINDS: dict[str, type[nn.Module]] = {**layer_list.BLOCKS, **LAYERS}
_EXAMPLE = 'Write each layer as ["Linear", {"in_features": 64, "out_features": 10}], or ["ReLU"].'
_LOAD_SCRIPT = """\
import json

import torch
from layer_list import build

model = build(json.load(open({document!r}))["layers"])
model.load_state_dict(torch.load({weights!r}, weights_only=True))
model.eval()
"""


class LayerList:
    """Lists of layers in JSON, and the trained networks from them."""

    name: ClassVar[str] = "layers"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".safetensors")

    def sniff(self, path: Path) -> bool:
        """Whether the file is such a list, and not a description beside its weights."""
        document = described.document_of(path, KEY)
        return document is not None and document.get("format") == SCHEMA and described.WEIGHTS not in document

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the list; raises `BadInput` with a finding for each layer that is wrong."""
        refuse_architecture(architecture)
        document = described.document_of(path, KEY) or {}
        findings = _check(document)
        if findings:
            raise BadInput(findings)
        layers: list[object] = document["layers"]

        def make() -> nn.Module:
            return attempt("The list", lambda: layer_list.build(layers), path.name)

        return described.definition(self.name, path, make, document.get("seed", 0))

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the weights with the list inside, and for plain torch the list, the weights and the builder."""
        paths = [folder / f"{stem}{suffix}" for suffix in (".safetensors", ".json", ".pt")]
        document = described.document_of(definition.path, KEY) or {}
        described.write(document, KEY, state_dict, folder, (paths[0].name, paths[1].name))
        torch.save(host_copy(state_dict), paths[2])
        paths.append(folder / "layer_list.py")
        shutil.copyfile(Path(layer_list.__file__), paths[3])
        script = _LOAD_SCRIPT.format(document=paths[1].name, weights=paths[2].name)
        return Delivery(files=tuple(paths), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file; a list alone has initial weights."""
        return described.read_weights(self.read(path, None))


def _check(document: described.Document) -> list[Finding]:
    unknown, remedy = [key[:40] for key in document if key not in _ENTRIES], "Entries: format, layers, seed."
    findings = [finding(key, f"A list of layers has no entry '{key}'.", remedy) for key in unknown]
    seed = document.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < MAX_SEED:
        findings.append(finding("seed", "The seed is not a whole number from 0.", "Give one, such as 0."))
    return findings + _check_layers(document.get("layers"), "layers", [0], 0)


def _check_layers(layers: object, place: str, count: list[int], depth: int) -> list[Finding]:
    if not isinstance(layers, list) or not layers:
        return [finding(place, "A list of layers is missing.", _EXAMPLE)]
    if depth > MAX_DEPTH or count[0] + len(layers) > MAX_LAYERS:
        message = f"The network has more than {MAX_LAYERS} layers, or is nested deeper than {MAX_DEPTH}."
        return [finding(place, message, "Describe a smaller one.")]
    count[0] += len(layers)
    places = (f"{place}[{number}]" for number in range(len(layers)))
    return [found for entry, at in zip(layers, places, strict=True) for found in _check_layer(entry, at, count, depth)]


def _check_layer(entry: object, place: str, count: list[int], depth: int) -> list[Finding]:
    if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
        return [finding(place, "A layer is a list of its name and its arguments.", _EXAMPLE)]
    name, inside = entry[0], entry[1] if len(entry) > 1 else None
    if len(entry) > (3 if name == "Residual" else 2):
        return [finding(place, f"{name[:40]} has too many parts.", _EXAMPLE)]
    if name in layer_list.NESTED:
        parts = [(inside, name), *((shortcut, "shortcut") for shortcut in entry[2:])]
        return [said for part, what in parts for said in _check_layers(part, f"{place}.{what}", count, depth + 1)]
    args = {} if inside is None else inside
    if not isinstance(args, dict):
        return [finding(place, f"The arguments of {name[:40]} are not an object of names and values.", _EXAMPLE)]
    if name not in _KINDS:
        known = ", ".join((*layer_list.NESTED, *_KINDS))
        return [finding(place, f"Unknown layer '{name[:40]}'.", f"Choose from: {known}.")]
    try:
        with shapes_alone():
            construct(_KINDS[name], args, place)
    except BadInput as error:
        return list(error.findings)
    return []
