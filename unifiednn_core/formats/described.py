"""Networks that a JSON document describes, alone or in the header of a safetensors file with the weights.

A trained network is delivered as such a safetensors file, and as a separate document and weights for plain torch.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.base import Definition, define, size_bytes
from unifiednn_core.formats.shapes_alone import shapes_alone
from unifiednn_core.formats.weights import host_copy

MAX_DOCUMENT_BYTES = 1024**2
MAX_WEIGHTS_BYTES = 16 * 1024**3
WEIGHTS = "unifiednn_weights"  # entry of a delivered document: the file beside it that holds the trained weights
Document = dict[str, Any]


def document_of(path: Path, key: str) -> Document | None:
    """Read the document of a file: its JSON, or the text under `key` in a safetensors header; None if it has none."""
    try:
        if tensor_files.is_safetensors(path):
            text = tensor_files.safetensors_metadata(path).get(key, "")
        else:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= MAX_DOCUMENT_BYTES else ""
        found = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_described(path: Path) -> bool:
    """Whether a safetensors file describes its own network."""
    try:
        return any(key.startswith("unifiednn.") for key in tensor_files.safetensors_metadata(path))
    except BadInput:
        return False


def definition(name: str, path: Path, make: Callable[[], nn.Module], seed: int) -> Definition:
    """Define a described network; raises `BadInput` if its weights are too large or do not fit."""
    with shapes_alone():
        skeleton = make()
    weights_bytes = size_bytes(skeleton.state_dict())
    if weights_bytes > MAX_WEIGHTS_BYTES:
        sizes = f"{weights_bytes // 1024**2} MiB of weights; {MAX_WEIGHTS_BYTES // 1024**2} at most"
        message = f"The network would have {sizes}."
        raise tensor_files.bad_file(path, "Too large", message, "Describe a smaller network.")
    given = _weights(path)
    if given is not None:
        if _shapes(given) != _shapes(skeleton.state_dict()):
            message = "The weights in the file do not fit the network in its description."
            raise tensor_files.bad_file(path, "Weights differ", message, "Save both again, together.")
        tensor_files.check_numbers(path, given)

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # of the CPU alone: the GPU's generator may be in use
            module = make()
        weights = _weights(path)
        if weights is not None:
            module.load_state_dict(weights)
        return module.train()

    return define(name, path, build, skeleton)


def write(document: Document, key: str, state_dict: Mapping[str, Tensor], folder: Path, names: tuple[str, str]) -> None:
    """Write weights with their description, and the description alone, under two names in a folder."""
    weights, description = names
    plain = {entry: value for entry, value in document.items() if entry != WEIGHTS}
    save_file(host_copy(state_dict), folder / weights, {"format": "pt", key: json.dumps(plain)})
    text = json.dumps(plain | {WEIGHTS: weights}, indent=2)
    (folder / description).write_text(text + "\n", encoding="utf-8")


def read_weights(definition: Definition) -> dict[str, Tensor]:
    """Read the weights of a described network from its file, or make its initial ones."""
    weights = _weights(definition.path)
    return weights if weights is not None else dict(definition.build().state_dict())


def _shapes(state_dict: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {key: (tensor.shape, tensor.dtype) for key, tensor in state_dict.items()}


def _weights(path: Path) -> dict[str, Tensor] | None:
    if not tensor_files.is_safetensors(path):
        return None
    loaded = tensor_files.load_safetensors(path)
    for key, tensor in loaded.items():
        tensor_files.check_plain(key, tensor)
    return loaded
