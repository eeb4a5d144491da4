"""The format `module`: a whole network of torch layers, from `torch.save(network, path)`.

A pickle is a program, so this one never runs. A scan refuses every operation and name that no network of torch needs.
Then an inert record, which cannot be called and only keeps its state, replaces each class in the file, and `rebuild`
makes the network again with the constructors of torch.
"""

import pickle
import pickletools
import re
import types
from collections.abc import Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.base.units import abbreviated
from unifiednn_core.formats import base, pickles, tensor_files
from unifiednn_core.formats.base import Definition, Delivery
from unifiednn_core.formats.rebuild import KNOWN, Inert, Record, rebuild
from unifiednn_core.formats.tensor_files import PLAIN_NAMES, full_name
from unifiednn_core.spec.run import ArchitectureSpec

_TENSORS = ("torch._utils._rebuild", "torch._tensor._rebuild")
_LOAD_SCRIPT = """\
import torch

allowed = [{allowed}]
with torch.serialization.safe_globals(allowed):
    model = torch.load({file!r}, weights_only=True)
model.eval()
"""

_WRAPPERS = ("torch.nn.parallel.", "torch._dynamo.")
_LIBRARIES = ("torch.", "builtins.", "__builtin__.", "collections.", "numpy.")
_PYTHON_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_MOST_CHARACTERS = 200
_MOST_OPERATIONS = 100_000
_NEAR = 400  # operations of one layer
_KEPT = ("BINPUT", "LONG_BINPUT")
# The size that the first layer tells of a sample, and the sizes that its author knows.
_FIRST_LAYERS = {
    "torch.nn.modules.conv Conv1d": ("in_channels", "--input {size},LENGTH"),
    "torch.nn.modules.conv Conv2d": ("in_channels", "--input {size},HEIGHT,WIDTH"),
    "torch.nn.modules.conv Conv3d": ("in_channels", "--input {size},DEPTH,HEIGHT,WIDTH"),
    "torch.nn.modules.linear Linear": ("in_features", "--input {size}"),
    "torch.nn.modules.sparse Embedding": ("", "--input LENGTH --dtype int64"),
}


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
        raise _unknown(path, unknown, pack_remedy(content) or base.PACK)
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


def pack_remedy(content: bytes) -> str | None:
    """The command with which its owner packs the network of this pickle, which is scanned and never loaded.

    None if its names are not those of Python.
    """
    first = islice(pickletools.genops(content), _MOST_OPERATIONS)
    operations = [(operation.name, argument) for operation, argument, _ in first]
    classes = [str(argument) for name, argument in operations if name == "GLOBAL" and not _is_plain(str(argument))]
    own = [each for each in classes if not each.startswith(_LIBRARIES)]
    if not all(len(each) <= _MOST_CHARACTERS and _PYTHON_NAME.fullmatch(each.replace(" ", ".", 1)) for each in own):
        return None
    sample = _sample(operations)
    outermost = next((each for each in classes if not each.startswith(_WRAPPERS)), "")
    module, _, name = outermost.partition(" ") if outermost in own else ("", "", "")
    if module == "__main__":
        return f"On your own machine, run `unifiednn pack YOUR_SCRIPT.py:{name} {sample}`, and submit the .pt2 file."
    if any(each.startswith("__main__ ") for each in own):
        return None
    tops = ", ".join(sorted({f"'{each.partition(' ')[0].partition('.')[0]}'" for each in own}))
    place = f"On your own machine, in the folder that holds {tops}," if own else "On your own machine,"
    whole = f"`unifiednn pack FILE.pt {sample}` with the name of this file"
    if not module:
        return f"{place} run {whole}, and submit the .pt2 file."
    command = f"`unifiednn pack {module}:{name} {sample}`"
    return f"{place} run {command}, and submit the .pt2 file. To keep these weights, run {whole}."


def _is_plain(name: str) -> bool:
    return full_name(name) in PLAIN_NAMES


def _sample(operations: list[tuple[str, object]]) -> str:
    """The options for the input, as far as the first layer tells them."""
    layer = next(
        (at for at, (name, value) in enumerate(operations) if name == "GLOBAL" and value in _FIRST_LAYERS), None
    )
    if layer is None:
        return "--input SHAPE_OF_ONE_SAMPLE"
    key, option = _FIRST_LAYERS[str(operations[layer][1])]
    rest = [each for each in operations[layer : layer + _NEAR] if each[0] not in _KEPT]
    sizes = [value for (_, before), (kind, value) in pairwise(rest) if before == key and kind.startswith("BININT")]
    return option.format(size=sizes[0] if sizes else "SIZE")
