"""The format `huggingface`: the `config.json` of a transformers network; the library must be installed.

The network starts untrained. For trained weights, submit their `.safetensors` with the architecture `huggingface` and
the config as its argument.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.architectures import huggingface, registry
from unifiednn_core.formats.base import Definition, Delivery, define, refuse_architecture, size_bytes
from unifiednn_core.formats.weights import host_copy, shapes_alone, shapes_of
from unifiednn_core.spec.run import ArchitectureSpec

KEY = "unifiednn.huggingface"
SEED = 0
MAX_WEIGHTS_BYTES = 16 * 1024**3
_REMEDY = (
    f"Networks: {', '.join(huggingface.FAMILIES)}, each with its classification head. For any other, run "
    "`unifiednn pack` on your own machine, and submit the .pt2 file."
)
_LOAD_SCRIPT = """\
import torch
from safetensors.torch import load_file
from transformers import {config}, {head}

model = {head}({config}.from_json_file("config.json"))
model.load_state_dict(load_file({weights!r}))
model.eval()
"""
_CALL_OF_TEXT = """\
model(
        {0}, attention_mask=None if model.config.pad_token_id is None else {0}.ne(model.config.pad_token_id).long()
    ).logits"""


class HuggingFace:
    """Configurations of transformers, and the trained networks from them."""

    name: ClassVar[str] = "huggingface"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".safetensors")

    def sniff(self, path: Path) -> bool:
        """Whether the file names its type of model and is not a description beside its weights."""
        document = tensor_files.document_of(path, KEY)
        return document is not None and "model_type" in document and tensor_files.WEIGHTS not in document

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the configuration; raises `BadInput`."""
        refuse_architecture(architecture)
        args = {"config": tensor_files.document_of(path, KEY) or {}}
        try:
            return _definition(path, lambda: registry.build("huggingface", args))
        except BadInput as error:
            finding = error.findings[0]
            if finding.field != "architecture.args":
                raise
            raise tensor_files.bad_file(path, "Configuration", finding.message, _REMEDY) from None

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the weights with the configuration inside, and `config.json` for the library."""
        config = tensor_files.document_of(definition.path, KEY) or {}
        weights = folder / f"{stem}.safetensors"
        plain = {entry: value for entry, value in config.items() if entry != tensor_files.WEIGHTS}
        save_file(host_copy(state_dict), weights, {"format": "pt", KEY: json.dumps(plain)})
        text = json.dumps(plain | {tensor_files.WEIGHTS: weights.name}, indent=2)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")
        settings, head = huggingface.classes_of(config)
        script = _LOAD_SCRIPT.format(config=settings, head=head, weights=weights.name)
        call = "model({0}).logits" if "Image" in head else _CALL_OF_TEXT
        return Delivery(files=(weights, folder / "config.json"), load_script=script, call=call)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file; a configuration alone has initial weights."""
        definition = self.read(path, None)
        weights = _weights(path)
        return weights if weights is not None else dict(definition.build().state_dict())


def _definition(path: Path, make: Callable[[], nn.Module]) -> Definition:
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
        if shapes_of(given) != shapes_of(skeleton.state_dict()):
            message = "The weights in the file do not fit the network in its description."
            raise tensor_files.bad_file(path, "Weights differ", message, "Save both again, together.")
        tensor_files.check_numbers(path, given)

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(SEED)  # of the CPU alone: the GPU's generator may be in use
            module = make()
        if (weights := _weights(path)) is not None:
            module.load_state_dict(weights)
        return module.train()

    return define(HuggingFace.name, path, build, skeleton)


def _weights(path: Path) -> dict[str, Tensor] | None:
    if not tensor_files.is_safetensors(path):
        return None
    loaded = tensor_files.load_safetensors(path)
    for key, tensor in loaded.items():
        tensor_files.check_plain(key, tensor)
    return loaded
