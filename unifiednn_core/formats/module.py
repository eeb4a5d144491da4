"""The format `module`: a whole network of torch layers, from `torch.save(network, path)`.

A pickle is a program, so this one never runs. A scan refuses every operation and name that no network of torch needs.
Then an inert record, which cannot be called and only keeps its state, replaces each class in the file, and `rebuild`
makes the network again with the constructors of torch.
"""

import pickle
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.base.units import abbreviated
from unifiednn_core.formats import base, own_classes, pickles, tensor_files
from unifiednn_core.formats.base import Definition, Delivery
from unifiednn_core.formats.rebuild import KNOWN, Inert, Record, rebuild
from unifiednn_core.spec.run import ArchitectureSpec

_TENSORS = ("torch._utils._rebuild", "torch._tensor._rebuild")
_LOAD_SCRIPT = """\
import torch

allowed = [{allowed}]
with torch.serialization.safe_globals(allowed):
    model = torch.load({file!r}, weights_only=True)
model.eval()
"""


class PickledModule:
    """Networks of torch layers from `torch.save(network, path)`."""

    name: ClassVar[str] = "module"
    suffixes: ClassVar[tuple[str, ...]] = (".pt", ".pth")

    def sniff(self, path: Path) -> bool:
        """Whether `torch.save` wrote an object into the file."""
        return tensor_files.is_pickled_object(path)

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the file and make its network once; raises `BadInput` or `HostileFile`."""
        base.refuse_architecture(architecture)
        module = _trainable(_rebuilt(path))
        tensor_files.check_numbers(path, module.state_dict())
        return base.define(self.name, path, lambda: _trainable(_rebuilt(path)), module)

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the network as `torch.save` does, each layer in its original mode."""
        path = base.delivered_path(definition, self.suffixes, folder, stem)
        module = _rebuilt(definition.path)
        module.load_state_dict(state_dict)
        torch.save(module, path)
        script = _LOAD_SCRIPT.format(allowed=", ".join(_names(module)), file=path.name)
        return Delivery(files=(path,), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read weights and buffers by their names in the network."""
        return dict(_rebuilt(path).state_dict())


def _rebuilt(path: Path) -> nn.Module:
    return rebuild(_records(path), "network")


def _trainable(module: nn.Module) -> nn.Module:
    """Set a network to train mode, except for layers that were pickled in evaluation mode."""
    frozen = [part for part in module.modules() if not part.training] if module.training else []
    for part in frozen:
        part.__dict__["train"] = types.MethodType(_train_children, part)
    return module.train()


def _train_children(module: nn.Module, mode: bool = True) -> nn.Module:
    """Replace `train` of a frozen layer; the layers inside it may not be frozen."""
    for child in module.children():
        child.train(mode)
    return module


def _names(module: nn.Module) -> list[str]:
    """List the classes and functions that plain torch must be allowed to load."""
    layers = list(module.modules())
    activations = [layer.activation for layer in layers if isinstance(layer, nn.TransformerEncoderLayer)]
    used: list[Any] = [*map(type, layers), *activations]
    return sorted({f"{one.__module__}.{one.__name__}" for one in used})


def _records(path: Path) -> object:
    """Load a file of known classes as records; raises `BadInput` or `HostileFile`."""
    names, content = pickles.scanned(path)
    unknown = sorted(names - KNOWN - tensor_files.PLAIN_NAMES)
    if unknown:
        raise _unknown(path, unknown, own_classes.pack_remedy(content) or base.PACK)
    stubs: list[Any] = [(Inert(name, (Record,), {"name": name}), name) for name in KNOWN]
    try:
        with tensor_files.LOADING, torch.serialization.safe_globals(stubs):
            loaded: object = torch.load(path, map_location="cpu", weights_only=True)
        tensor_files.check_storages(path)
        return loaded
    except HostileFile:
        raise
    except pickle.UnpicklingError:
        raise HostileFile("The pickled network contains something that no network needs.") from None
    except tensor_files.DAMAGED:
        raise tensor_files.damaged(path) from None


def _unknown(path: Path, names: list[str], pack: str) -> BadInput:
    tensors = [name for name in names if name.startswith(_TENSORS) or name.endswith("Storage")]
    if len(tensors) == len(names):
        message = f"A weight of the network is not a plain dense tensor of real numbers ('{tensors[0][:80]}')."
        remedy = "Make all weights dense, real and not quantized, on the CPU, then save the network again."
        return tensor_files.bad_file(path, "Kind of tensor", message, remedy)
    foreign = [f"'{name[:80]}'" for name in names if not name.startswith("torch.")]
    if not foreign:
        message = (
            f"The network uses '{names[0][:80]}', which is not supported in a pickled network. Neither are "
            "layers of two inputs (Transformer, TransformerDecoder, Bilinear), lazy layers, or weight_norm."
        )
        return tensor_files.bad_file(path, "Layer not rebuilt", message, pack)
    message = f"The code of some classes is not in the file. They are {abbreviated(foreign)}. Nothing was loaded."
    remedy = f"{pack} Or submit the state dict of a network that the registry has."
    return tensor_files.bad_file(path, "Unknown class", message, remedy)
