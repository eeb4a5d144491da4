"""Networks that a JSON document describes: the document alone, or inside a safetensors file with the weights.

A trained network goes back as that one safetensors file, which can be handed in again, and as the document and the
weights apart, for plain torch.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.errors import BadInput
from unifiednn_core.intake import tensor_files
from unifiednn_core.intake.base import Definition, count_parameters, size_bytes
from unifiednn_core.weights import host_copy

MAX_DOCUMENT_BYTES = 1024**2
MAX_WEIGHTS_BYTES = 16 * 1024**3
WEIGHTS = "unifiednn_weights"
"""Entry of a document that was handed back: the file beside it that holds the trained weights."""
Document = dict[str, Any]


def document_of(path: Path, key: str) -> Document | None:
    """Document of a file: its JSON, or what stands under `key` in the header of its safetensors."""
    try:
        if tensor_files.is_safetensors(path):
            text = tensor_files.safetensors_metadata(path).get(key, "")
        else:
            text = _text(path)
        found = json.loads(text) if text else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_described(path: Path) -> bool:
    """Whether a safetensors file says itself what network it belongs to."""
    try:
        return any(key.startswith("unifiednn.") for key in tensor_files.safetensors_metadata(path))
    except BadInput:
        return False


def definition(name: str, path: Path, make: Callable[[], nn.Module], seed: int) -> Definition:
    """Definition of a described network; raises `BadInput` where its weights are too large or do not fit."""
    with torch.device("meta"):
        skeleton = make()
    weights_bytes = size_bytes(skeleton.state_dict())
    if weights_bytes > MAX_WEIGHTS_BYTES:
        message = (
            f"The network would have {weights_bytes // 1024**2} MiB of weights; {MAX_WEIGHTS_BYTES // 1024**2} at most."
        )
        raise BadInput.of("Too large", field=path.name, message=message, remedy="Describe a smaller network.")
    given = _weights(path)
    if given is not None:
        expected = {key: (tensor.shape, tensor.dtype) for key, tensor in skeleton.state_dict().items()}
        if {key: (tensor.shape, tensor.dtype) for key, tensor in given.items()} != expected:
            message = "The weights in the file do not fit the network that it describes."
            raise BadInput.of("Weights differ", field=path.name, message=message, remedy="Save both again, together.")
        tensor_files.check_numbers(path, given)

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # of the CPU alone: a GPU's is somebody's state
            module = make()
        weights = _weights(path)
        if weights is not None:
            module.load_state_dict(weights)
        return module.train()

    return Definition(
        format=name, path=path, build=build, parameters=count_parameters(skeleton), weights_bytes=weights_bytes
    )


def write(document: Document, key: str, state_dict: Mapping[str, Tensor], folder: Path, names: tuple[str, str]) -> None:
    """Write weights with their description, and the description alone, under two names in a folder."""
    weights, description = names
    plain = {entry: value for entry, value in document.items() if entry != WEIGHTS}
    save_file(host_copy(state_dict), folder / weights, {"format": "pt", key: json.dumps(plain)})
    text = json.dumps(plain | {WEIGHTS: weights}, indent=2)
    (folder / description).write_text(text + "\n", encoding="utf-8")


def read_weights(definition: Definition) -> dict[str, Tensor]:
    """Weights of a described network: those of the file, or the initial ones."""
    weights = _weights(definition.path)
    return weights if weights is not None else dict(definition.build().state_dict())


def refuse_architecture(given: object) -> None:
    """Raise `BadInput` where a spec names an architecture beside a file that holds its own."""
    if given is not None:
        raise BadInput.of(
            "Architecture given twice",
            field="architecture",
            message="The file describes its network itself.",
            remedy="Remove the entry 'architecture'.",
        )


def _weights(path: Path) -> dict[str, Tensor] | None:
    if not tensor_files.is_safetensors(path):
        return None
    loaded = tensor_files.load_safetensors(path)
    for key, tensor in loaded.items():
        tensor_files.check_plain(key, tensor)
    return loaded


def _text(path: Path) -> str:
    with path.open("rb") as file:
        if not file.read(64).lstrip().startswith(b"{") or path.stat().st_size > MAX_DOCUMENT_BYTES:
            return ""
    return path.read_text(encoding="utf-8")
