"""Reads a pickled network as inert records: what its file says of each object, and nothing that could act.

Every class that the file names is replaced by a record of its name, which cannot be called, takes no arguments and
only keeps the state that it is given. Before that, the pickle is scanned: an operation or a name that no network of
torch needs is refused before anything is built.
"""

import io
import pickle
import pickletools
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch

from unifiednn_core.errors import BadInput, HostileFile
from unifiednn_core.intake import storages, tensor_files, zips
from unifiednn_core.intake.remedies import pack_or_convert

MAX_PICKLE_BYTES = 32 * 1024**2
MAX_OPERATIONS = 2_000_000
_FIRST_BYTES = 4096
_TENSORS = ("torch._utils._rebuild", "torch._tensor._rebuild")
_PLAIN = frozenset(
    {
        "collections.OrderedDict", "builtins.set", "torch.Size", "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_tensor_v2",
        *(f"torch.{kind}Storage" for kind in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char",
                                              "Byte", "Bool")),
    }
)  # fmt: skip
# What `torch.save` writes; everything else, such as EXT, INST, OBJ or STACK_GLOBAL, is refused.
_WRITTEN = """
PROTO GLOBAL NEWOBJ REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWFALSE
NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET BINPERSID BININT BININT1 BININT2 BINFLOAT BINGET LONG_BINGET
BINPUT LONG_BINPUT BINUNICODE LONG1 STOP
"""
_OPERATIONS = frozenset(_WRITTEN.split())
_LOADING = threading.Lock()  # torch keeps the names that it lets pass for the whole process


class _Inert(type):
    def __call__(cls, *args: object, **kwargs: object) -> object:
        raise pickle.UnpicklingError("a record cannot be called")


class Record(metaclass=_Inert):
    """What a file says of one object."""

    name: ClassVar[str] = ""
    """Full name of its class or function."""
    state: dict[str, object]

    def __new__(cls, *args: object) -> "Record":
        """Make an empty record."""
        if args:
            raise pickle.UnpicklingError("a record takes no arguments")
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict) or "state" in self.__dict__ or not all(isinstance(key, str) for key in state):
            raise pickle.UnpicklingError("the state of a record is one dict")
        self.__dict__["state"] = state


def is_pickled_object(path: Path) -> bool:
    """Whether `torch.save` wrote the file, and the first thing in it is an object, not tensors or a collection."""
    if not tensor_files.is_torch_file(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_pickle_entry(archive)) as file:
            first = file.read(_FIRST_BYTES)
        for operation, argument, _ in pickletools.genops(first):
            if operation.name not in ("PROTO", "FRAME"):
                return operation.name == "GLOBAL" and _full_name(argument) not in _PLAIN
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, UnicodeDecodeError):
        return False
    return False


def load(path: Path, known: frozenset[str]) -> object:
    """Records of a file whose classes are all among the `known`; raises `BadInput` or `HostileFile`."""
    unknown = sorted(name for name in _scanned(path) if name not in known and name not in _PLAIN)
    if unknown:
        raise _unknown(path, unknown)
    stubs: list[Any] = [(_Inert(name, (Record,), {"name": name}), name) for name in known]
    with _LOADING, torch.serialization.safe_globals(stubs):
        try:
            loaded: object = torch.load(path, map_location="cpu", weights_only=True)
            storages.check_storages(path)
            return loaded
        except HostileFile:
            raise
        except pickle.UnpicklingError:
            raise HostileFile("The pickled network asks for something that no network needs.") from None
        except (EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise tensor_files.damaged(path) from None


def _scanned(path: Path) -> frozenset[str]:
    """Names of all classes and functions in the pickle; raises `HostileFile` for what `torch.save` does not write."""
    try:
        _check_entries(zips.members(path), path.stat().st_size)
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(_pickle_entry(archive))
            if entry.file_size > MAX_PICKLE_BYTES:
                raise HostileFile(f"The pickle has {entry.file_size} bytes; at most {MAX_PICKLE_BYTES} are read.")
            content = archive.read(entry)
        return frozenset(_names(content))
    except HostileFile:
        raise
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, KeyError, UnicodeDecodeError):
        raise tensor_files.damaged(path) from None


def _check_entries(infos: list[zipfile.ZipInfo], size_bytes: int) -> None:
    if len({info.filename for info in infos}) != len(infos):
        raise HostileFile("The file holds two entries of the same name.")
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise HostileFile("Entries of the file are compressed, which torch.save never does.")
    if sum(info.file_size for info in infos) > size_bytes:
        raise HostileFile("The file claims to hold more bytes than it has.")


def _names(content: bytes) -> Iterator[str]:
    for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if operation.name not in _OPERATIONS or count > MAX_OPERATIONS:
            raise HostileFile(f"The pickle has an operation that torch.save does not write: {operation.name}.")
        if operation.name == "GLOBAL":
            yield _full_name(argument)


def _full_name(argument: object) -> str:
    return str(argument).replace(" ", ".", 1).replace("__builtin__.", "builtins.", 1)


def _unknown(path: Path, names: list[str]) -> BadInput:
    tensors = [name for name in names if name.startswith(_TENSORS) or name.endswith("Storage")]
    if len(tensors) == len(names):
        return BadInput.of(
            "Kind of tensor",
            field=path.name,
            message=f"A weight of the network is no plain dense tensor of real numbers ('{tensors[0][:80]}').",
            remedy="Make all weights dense, real and not quantized, on the CPU, then save the network again.",
        )
    foreign = [name for name in names if not name.startswith("torch.")]
    if not foreign:
        return BadInput.of(
            "Layer not rebuilt",
            field=path.name,
            message=f"The network uses what is torch's, but is not made again here: '{names[0][:80]}'. Such are layers "
            "of two inputs (Transformer, TransformerDecoder, Bilinear), lazy ones, and what changes other layers "
            "(weight_norm).",
            remedy="On your own machine, run `unifiednn pack your_module.py:make_network` and hand in the .pt2 file.",
        )
    names = foreign
    named = ", ".join(f"'{name[:80]}'" for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return BadInput.of(
        "Unknown class",
        field=path.name,
        message="The network is pickled with classes of its own, whose code is not in the file. "
        f"They are {named}{more}; nothing of the file was loaded.",
        remedy=f"{pack_or_convert('--code YOUR_MODULE.py')} "
        "Or hand in the state dict of a network that the registry has.",
    )


def _pickle_entry(archive: zipfile.ZipFile) -> str:
    return next(name for name in archive.namelist() if name.partition("/")[2] == "data.pkl")
