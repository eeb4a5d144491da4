"""The format `module`: a whole network of torch's own layers, from `torch.save(network, path)`.

A pickle is a program; this one is never run. It is read as inert records, from which torch's constructors make the
network again; see `records` and `rebuild`.
"""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from unifiednn_core.errors import BadInput
from unifiednn_core.intake import records, tensor_files
from unifiednn_core.intake.base import Definition, Delivery, count_parameters, size_bytes
from unifiednn_core.intake.rebuild import KNOWN, rebuild
from unifiednn_core.spec import ArchitectureSpec

_LOAD_SCRIPT = """\
import torch

allowed = [{allowed}]
with torch.serialization.safe_globals(allowed):
    model = torch.load({file!r}, weights_only=True)
model.eval()
"""


class PickledModule:
    """Networks from `torch.save(network, path)`, made of torch's own layers."""

    name: ClassVar[str] = "module"
    suffixes: ClassVar[tuple[str, ...]] = (".pt", ".pth")

    def sniff(self, path: Path) -> bool:
        """Whether `torch.save` wrote the file, and an object into it."""
        return records.is_pickled_object(path)

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the file and make its network once; raises `BadInput` or `HostileFile`."""
        if architecture is not None:
            raise BadInput.of(
                "Architecture given twice",
                field="architecture",
                message="The file holds a whole network, not its weights alone.",
                remedy="Remove the entry 'architecture'.",
            )
        module = _trainable(_rebuilt(path))
        tensor_files.check_numbers(path, module.state_dict())
        return Definition(
            format=self.name,
            path=path,
            build=lambda: _trainable(_rebuilt(path)),
            parameters=count_parameters(module),
            weights_bytes=size_bytes(module.state_dict()),
        )

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the network as `torch.save` does, each layer in the mode in which it came."""
        suffix = Path(definition.filename or definition.path.name).suffix
        path = folder / f"{stem}{suffix if suffix in self.suffixes else self.suffixes[0]}"
        module = _rebuilt(definition.path)
        module.load_state_dict(state_dict)
        torch.save(module, path)
        script = _LOAD_SCRIPT.format(allowed=", ".join(_names(module)), file=path.name)
        return Delivery(files=(path,), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Weights and buffers by their names in the network."""
        return dict(_rebuilt(path).state_dict())


def _rebuilt(path: Path) -> nn.Module:
    return rebuild(records.load(path, KNOWN), "network")


def _trainable(module: nn.Module) -> nn.Module:
    """Set a network to training; layers of it that were pickled in evaluation mode alone stay in it."""
    frozen = [part for part in module.modules() if not part.training] if module.training else []
    for part in frozen:
        part.__dict__["train"] = types.MethodType(_train_only_inside, part)
    return module.train()


def _train_only_inside(module: nn.Module, mode: bool = True) -> nn.Module:
    """Stand in for `train` of a frozen layer; layers inside it may be free."""
    for child in module.children():
        child.train(mode)
    return module


def _names(module: nn.Module) -> list[str]:
    """Classes and functions that plain torch must be told to load, as Python spells them."""
    kinds = {f"{type(part).__module__}.{type(part).__qualname__}" for part in module.modules()}
    activations = {
        f"{part.activation.__module__}.{part.activation.__name__}"
        for part in module.modules()
        if isinstance(part, nn.TransformerEncoderLayer)
    }
    return sorted(kinds | activations)
