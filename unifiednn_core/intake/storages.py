"""What a torch file says of the sizes of its storages, held against the bytes that lie in it.

A mapped storage is cut out of the file by the length that the pickle claims; a wrong one would be filled with whatever
lies behind it. The pickle is read once more for that, with nothing in it but names that do nothing.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any, ClassVar

from unifiednn_core.errors import HostileFile

_ELEMENT_BYTES = {
    f"{kind}Storage": size
    for size, kinds in {
        1: ("Untyped", "Byte", "Char", "Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4"),
        2: ("Half", "BFloat16", "Short"),
        4: ("Float", "Int", "QInt32"),
        8: ("Double", "Long", "ComplexFloat"),
        16: ("ComplexDouble",),
    }.items()
    for kind in kinds
}


class _Nothing:
    """Stands for every class and function that a pickle names: takes anything, does nothing."""

    name: ClassVar[str] = ""

    def __new__(cls, *args: object, **kwargs: object) -> "_Nothing":
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass


class _Storages(pickle.Unpickler):
    """Collects the storages that a pickle names; makes nothing."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.claimed_bytes: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> type[_Nothing]:
        return type("_Named", (_Nothing,), {"name": name if module == "torch" else ""})

    def persistent_load(self, pid: Any) -> _Nothing:
        _, kind, key, _, count = pid
        size_bytes = count * _element_bytes(kind.name)
        self.claimed_bytes[key] = max(size_bytes, self.claimed_bytes.get(key, 0))
        return _Nothing()


def check_storages(path: Path) -> None:
    """Hold the length of each storage against its record; raises `HostileFile`, or what a damaged pickle raises.

    Only for files that torch's own restricted reader has accepted.
    """
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.partition("/")[2]: info.file_size for info in archive.infolist()}
        entry = next(name for name in archive.namelist() if name.partition("/")[2] == "data.pkl")
        with archive.open(entry) as file:
            storages = _Storages(file)
            storages.load()
    for key, claimed_bytes in storages.claimed_bytes.items():
        if claimed_bytes != sizes.get(f"data/{key}"):
            raise HostileFile(f"A tensor claims {claimed_bytes} bytes, but its record in the file has another size.")


def _element_bytes(name: str) -> int:
    if name not in _ELEMENT_BYTES:
        raise HostileFile(f"The file holds a storage of the unknown kind '{name[:40]}'.")
    return _ELEMENT_BYTES[name]
