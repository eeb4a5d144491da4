"""The format `huggingface`: the `config.json` of a network of the transformers library, which must be installed.

The network starts untrained. For trained weights, submit their `.safetensors` with the architecture `huggingface` and
the config as its argument.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import described
from unifiednn_core.formats.architectures import huggingface, registry
from unifiednn_core.formats.base import Definition, Delivery, refuse_architecture
from unifiednn_core.spec.run import ArchitectureSpec

KEY = "unifiednn.huggingface"
SEED = 0
_REMEDY = (
    f"Networks: {', '.join(huggingface.FAMILIES)}, each with its head for classification. For any other, run "
    "`unifiednn pack` on your own machine, and submit the .pt2 file."
)
_LOAD_SCRIPT = """\
from safetensors.torch import load_file
from transformers import {config}, {head}

model = {head}({config}.from_json_file("config.json"))
model.load_state_dict(load_file({weights!r}))
model.eval()
"""


class HuggingFace:
    """Configurations of transformers, and the trained networks from them."""

    name: ClassVar[str] = "huggingface"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".safetensors")

    def sniff(self, path: Path) -> bool:
        """Whether the file names its type of model, and is not a description beside its weights."""
        document = described.document_of(path, KEY)
        return document is not None and "model_type" in document and described.WEIGHTS not in document

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the configuration; raises `BadInput`."""
        refuse_architecture(architecture, described.ARCHITECTURE_INSIDE)
        config = described.document_of(path, KEY) or {}
        try:
            return described.definition(
                self.name, path, lambda: registry.build("huggingface", {"config": config}), SEED
            )
        except BadInput as error:
            found = [
                finding.model_copy(update={"title": "Configuration", "field": path.name, "remedy": _REMEDY})
                if finding.field.startswith("architecture")
                else finding
                for finding in error.findings
            ]
            raise BadInput(found) from None

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the weights with the configuration inside, and `config.json`, as the library wants it."""
        config = described.document_of(definition.path, KEY) or {}
        weights = folder / f"{stem}.safetensors"
        described.write(config, KEY, state_dict, folder, (weights.name, "config.json"))
        settings, head = huggingface.classes_of(config)
        script = _LOAD_SCRIPT.format(config=settings, head=head, weights=weights.name)
        return Delivery(files=(weights, folder / "config.json"), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file, or the initial weights of a configuration alone."""
        return described.read_weights(self.read(path, None))
