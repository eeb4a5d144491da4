"""The format `module`: a whole network of torch's own layers, from `torch.save(network, path)`.

A pickle is a program, so this one never runs. First a scan refuses every operation and name that no network of torch
needs. Then each class in the file is replaced by an inert record, which cannot be called and only keeps its state, and
`rebuild` makes the network again with torch's constructors.
"""

import io
import pickle
import pickletools
import threading
import types
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import tensor_files, zips
from unifiednn_core.formats.base import (
    PACK,
    Definition,
    Delivery,
    define,
    delivered_path,
    pack_or_convert,
    refuse_architecture,
)
from unifiednn_core.formats.rebuild import KNOWN, Inert, Record, rebuild
from unifiednn_core.spec.run import ArchitectureSpec

MAX_PICKLE_BYTES = 32 * 1024**2
MAX_OPERATIONS = 2_000_000
_TENSORS = ("torch._utils._rebuild", "torch._tensor._rebuild")
# What `torch.save` writes; everything else, such as EXT, INST, OBJ or STACK_GLOBAL, is refused.
_WRITTEN = """
PROTO GLOBAL NEWOBJ REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWFALSE
NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET BINPERSID BININT BININT1 BININT2 BINFLOAT BINGET LONG_BINGET
BINPUT LONG_BINPUT BINUNICODE LONG1 STOP
"""
_OPERATIONS = frozenset(_WRITTEN.split())
_LOADING = threading.Lock()  # torch keeps the names that it lets pass for the whole process
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
        return tensor_files.is_pickled_object(path)

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the file and make its network once; raises `BadInput` or `HostileFile`."""
        refuse_architecture(architecture, "The file holds a whole network, not its weights alone.")
        module = _trainable(_rebuilt(path))
        tensor_files.check_numbers(path, module.state_dict())
        return define(self.name, path, lambda: _trainable(_rebuilt(path)), module)

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the network as `torch.save` does, each layer in its original mode."""
        path = delivered_path(definition, self.suffixes, folder, stem)
        module = _rebuilt(definition.path)
        module.load_state_dict(state_dict)
        torch.save(module, path)
        script = _LOAD_SCRIPT.format(allowed=", ".join(_names(module)), file=path.name)
        return Delivery(files=(path,), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Weights and buffers by their names in the network."""
        return dict(_rebuilt(path).state_dict())


def _rebuilt(path: Path) -> nn.Module:
    return rebuild(_records(path), "network")


def _trainable(module: nn.Module) -> nn.Module:
    """Set a network to training; single layers that were pickled in evaluation mode stay in it."""
    frozen = [part for part in module.modules() if not part.training] if module.training else []
    for part in frozen:
        part.__dict__["train"] = types.MethodType(_train_only_inside, part)
    return module.train()


def _train_only_inside(module: nn.Module, mode: bool = True) -> nn.Module:
    """Replace `train` of a frozen layer; the layers inside it may be free."""
    for child in module.children():
        child.train(mode)
    return module


def _names(module: nn.Module) -> list[str]:
    """List the classes and functions that plain torch must be allowed to load."""
    kinds = {f"{type(part).__module__}.{type(part).__qualname__}" for part in module.modules()}
    activations = {
        f"{part.activation.__module__}.{part.activation.__name__}"
        for part in module.modules()
        if isinstance(part, nn.TransformerEncoderLayer)
    }
    return sorted(kinds | activations)


def _records(path: Path) -> object:
    """Load a file of known classes as records; raises `BadInput` or `HostileFile`."""
    unknown = sorted(_scanned(path) - KNOWN - tensor_files.PLAIN_NAMES)
    if unknown:
        raise _unknown(path, unknown)
    stubs: list[Any] = [(Inert(name, (Record,), {"name": name}), name) for name in KNOWN]
    with _LOADING, torch.serialization.safe_globals(stubs):
        try:
            loaded: object = torch.load(path, map_location="cpu", weights_only=True)
            tensor_files.check_storages(path)
            return loaded
        except HostileFile:
            raise
        except pickle.UnpicklingError:
            raise HostileFile("The pickled network contains something that no network needs.") from None
        except (EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise tensor_files.damaged(path) from None


def _scanned(path: Path) -> frozenset[str]:
    """List all classes and functions in the pickle; raises `HostileFile` for what `torch.save` never writes."""
    try:
        tensor_files.check_entries(path)
        if len(set(zips.names(path))) != len(zips.names(path)):
            raise HostileFile("The file holds two entries of the same name.")
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(tensor_files.pickle_entry(archive))
            if entry.file_size > MAX_PICKLE_BYTES:
                raise HostileFile(f"The pickle has {entry.file_size} bytes; at most {MAX_PICKLE_BYTES} are read.")
            content = archive.read(entry)
        return frozenset(_names_in(content))
    except HostileFile:
        raise
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, KeyError, UnicodeDecodeError):
        raise tensor_files.damaged(path) from None


def _names_in(content: bytes) -> Iterator[str]:
    for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if operation.name not in _OPERATIONS or count > MAX_OPERATIONS:
            raise HostileFile(f"The pickle has an operation that torch.save does not write: {operation.name}.")
        if operation.name == "GLOBAL":
            yield tensor_files.full_name(argument)


def _unknown(path: Path, names: list[str]) -> BadInput:
    tensors = [name for name in names if name.startswith(_TENSORS) or name.endswith("Storage")]
    if len(tensors) == len(names):
        message = f"A weight of the network is not a plain dense tensor of real numbers ('{tensors[0][:80]}')."
        remedy = "Make all weights dense, real and not quantized, on the CPU, then save the network again."
        return tensor_files.bad_file(path, "Kind of tensor", message, remedy)
    foreign = [name for name in names if not name.startswith("torch.")]
    if not foreign:
        message = (
            f"The network uses '{names[0][:80]}', which is not supported in a pickled network. Neither are "
            "layers of two inputs (Transformer, TransformerDecoder, Bilinear), lazy layers, or weight_norm."
        )
        return tensor_files.bad_file(path, "Layer not rebuilt", message, PACK)
    named = ", ".join(f"'{name[:80]}'" for name in foreign[:5])
    more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
    message = f"The network uses classes whose code is not in the file. They are {named}{more}. "
    remedy = f"{pack_or_convert('--code YOUR_MODULE.py')} Or submit the state dict of a network that the registry has."
    return tensor_files.bad_file(path, "Unknown class", f"{message}Nothing of the file was loaded.", remedy)
