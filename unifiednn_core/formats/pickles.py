"""Pickles of `torch.save` that name classes: they are scanned, and read with inert things in place of the classes."""

import io
import pickle
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from unifiednn_core.base.errors import HostileFile
from unifiednn_core.formats import tensor_files, zips

MAX_PICKLE_BYTES = 32 * 1024**2
MAX_OPERATIONS = 2_000_000
# The operations that `torch.save` writes; all others, such as EXT, INST, OBJ or STACK_GLOBAL, are refused.
_WRITTEN = """
PROTO GLOBAL NEWOBJ REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWFALSE
NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET BINPERSID BININT BININT1 BININT2 BINFLOAT BINGET LONG_BINGET
BINPUT LONG_BINPUT BINUNICODE LONG1 STOP
"""
_OPERATIONS = frozenset(_WRITTEN.split())


def load_checkpoint(path: Path) -> object:
    """Map what `torch.save` wrote; objects beside the tensors, such as settings and callbacks, become inert things.

    No code of the file runs. Raises `BadInput` or `HostileFile`.
    """
    try:
        return tensor_files.mapped(path)
    except pickle.UnpicklingError:
        stubs: list[Any] = [(_stub(name), name) for name in scanned(path)[0] - tensor_files.PLAIN_NAMES]
    try:
        with tensor_files.LOADING, torch.serialization.safe_globals(stubs):
            return tensor_files.mapped(path)
    except pickle.UnpicklingError:
        raise tensor_files.more_than_tensors(path) from None


def scanned(path: Path) -> tuple[frozenset[str], bytes]:
    """All classes and functions in the pickle, and its bytes.

    Raises `HostileFile` for operations unknown to `torch.save`.
    """
    try:
        tensor_files.check_entries(path)
        if len(set(zips.names(path))) != len(zips.names(path)):
            raise HostileFile("The file holds two entries of the same name.")
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(tensor_files.pickle_entry(archive))
            if entry.file_size > MAX_PICKLE_BYTES:
                raise HostileFile(f"The pickle has {entry.file_size} bytes; at most {MAX_PICKLE_BYTES} are read.")
            content = archive.read(entry)
        return frozenset(_names_in(content)), content
    except HostileFile:
        raise
    except tensor_files.DAMAGED:
        raise tensor_files.damaged(path) from None


def _names_in(content: bytes) -> Iterator[str]:
    for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if operation.name not in _OPERATIONS or count > MAX_OPERATIONS:
            raise HostileFile(f"The pickle has an operation that torch.save does not write: {operation.name}.")
        if operation.name == "GLOBAL":
            yield tensor_files.full_name(argument)


def _stub(name: str) -> type:
    """Replace a class or function of a file; what it makes is inert, for a kind of dict an empty dict."""
    return type("_Dict", (_Dict,), {}) if name.lower().endswith("dict") else type("_Named", (tensor_files.Nothing,), {})


class _Dict:
    """Makes plain dicts: torch's reader puts entries into nothing else."""

    def __new__(cls, *args: object) -> dict[object, object]:  # type: ignore[misc]
        return {}
