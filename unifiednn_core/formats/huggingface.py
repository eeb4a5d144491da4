"""The format `huggingface`: the `config.json` of a transformers network; the library must be installed.

The network starts untrained. For trained weights, submit their `.safetensors` with the architecture `huggingface` and
the config as its argument.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import described, tensor_files
from unifiednn_core.formats.architectures import huggingface, registry
from unifiednn_core.formats.base import Definition, Delivery, refuse_architecture
from unifiednn_core.spec.run import ArchitectureSpec

KEY = "unifiednn.huggingface"
SEED = 0
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
        document = described.document_of(path, KEY)
        return document is not None and "model_type" in document and described.WEIGHTS not in document

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the configuration; raises `BadInput`."""
        refuse_architecture(architecture)
        args = {"config": described.document_of(path, KEY) or {}}
        try:
            return described.definition(self.name, path, lambda: registry.build("huggingface", args), SEED)
        except BadInput as error:
            finding = error.findings[0]
            if finding.field != "architecture.args":
                raise
            raise tensor_files.bad_file(path, "Configuration", finding.message, _REMEDY) from None

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the weights with the configuration inside, and `config.json` for the library."""
        config = described.document_of(definition.path, KEY) or {}
        weights = folder / f"{stem}.safetensors"
        described.write(config, KEY, state_dict, folder, (weights.name, "config.json"))
        settings, head = huggingface.classes_of(config)
        script = _LOAD_SCRIPT.format(config=settings, head=head, weights=weights.name)
        call = "model({0}).logits" if "Image" in head else _CALL_OF_TEXT
        return Delivery(files=(weights, folder / "config.json"), load_script=script, call=call)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file; a configuration alone has initial weights."""
        return described.read_weights(self.read(path, None))
