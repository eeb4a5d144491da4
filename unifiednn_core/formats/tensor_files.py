"""Files of named tensors alone: torch's zip of a pickle (`.pt`, `.pth`) and safetensors.

Both are mapped into memory. The sizes in a file are compared with its bytes before anything is allocated.
"""

import json
import math
import mmap
import pickle
import pickletools
import sys
import threading
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import zips

MAX_HEADER_BYTES = 100_000_000  # of safetensors, by the library
_METADATA = "__metadata__"
MAX_DOCUMENT_BYTES = 1024**2
WEIGHTS = "unifiednn_weights"  # entry of a delivered document: the file beside it that holds the trained weights
ALIGNMENT_BYTES = 64
FIRST_BYTES = 4096
DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.bool: "BOOL",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
}
"""Names of the types in safetensors."""
PLAIN_NAMES = frozenset(
    {
        "collections.OrderedDict",
        "builtins.set",
        "torch.Size",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_tensor_v2",
        "torch.FloatStorage",
        "torch.DoubleStorage",
        "torch.HalfStorage",
        "torch.BFloat16Storage",
        "torch.LongStorage",
        "torch.IntStorage",
        "torch.ShortStorage",
        "torch.CharStorage",
        "torch.ByteStorage",
        "torch.BoolStorage",
    }
)
"""Classes and functions in a pickle of tensors alone."""
_STORED: dict[str, torch.dtype] = {**torch.storage._storage_type_to_dtype_map(), "UntypedStorage": torch.uint8}
MAX_TUPLES = 2**16  # a key of 150,000 nested ones overflows the stack when it is hashed; a tensor needs four
_TUPLES = (b"t", b"\x85", b"\x86", b"\x87")  # the operations that make tuples
LOADING = threading.Lock()  # torch keeps the list of safe names for the whole process
DAMAGED = (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError)
_NOT_MAPPED = "Cannot allocate memory"  # torch and its library say so of a file that is larger than the memory
# Linux maps such a file only if it need not keep room for changed pages.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_DAMAGED_SAFETENSORS = (SafetensorError, ValueError, KeyError, RuntimeError)


def is_torch_file(path: Path) -> bool:
    """Whether `torch.save` wrote the file, and it is not a TorchScript program."""
    names = {name.partition("/")[2] for name in zips.names(path)}
    return "data.pkl" in names and "constants.pkl" not in names


def is_pickled_object(path: Path) -> bool:
    """Whether `torch.save` wrote the file and the first thing in it is an object, not a tensor or a collection."""
    if not is_torch_file(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive, archive.open(pickle_entry(archive)) as file:
            first = file.read(FIRST_BYTES)
        for operation, argument, _ in pickletools.genops(first):
            if operation.name not in ("PROTO", "FRAME"):
                return operation.name == "GLOBAL" and full_name(argument) not in PLAIN_NAMES
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, UnicodeDecodeError):
        return False
    return False


def pickle_entry(archive: zipfile.ZipFile) -> str:
    """Name of the pickle in what `torch.save` wrote."""
    return next(name for name in archive.namelist() if name.partition("/")[2] == "data.pkl")


def full_name(argument: object) -> str:
    """Full name of a class or function from the argument of a pickle's GLOBAL operation."""
    return str(argument).replace(" ", ".", 1).replace("__builtin__.", "builtins.", 1)


def is_safetensors(path: Path) -> bool:
    """Whether the file begins with the length of a JSON header that fits into it."""
    with path.open("rb") as file:
        head = file.read(9)
    length = int.from_bytes(head[:8], "little")
    return head[8:] == b"{" and 2 <= length <= min(MAX_HEADER_BYTES, path.stat().st_size - 8)


def load_torch_file(path: Path) -> object:
    """Map what `torch.save` wrote, without running code; raises `BadInput` or `HostileFile`."""
    try:
        return mapped(path)
    except pickle.UnpicklingError:
        raise more_than_tensors(path) from None


def mapped(path: Path) -> object:
    """Map what `torch.save` wrote; raises `BadInput`, `HostileFile`, or `UnpicklingError` for what is no tensor."""
    try:
        check_entries(path)
        loaded: object = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        check_storages(path)
        return loaded
    except (HostileFile, pickle.UnpicklingError):
        raise
    except DAMAGED as error:
        if _NOT_MAPPED in str(error):
            message = "The file is larger than the memory of this machine, and torch cannot map a .pt file then."
            remedy = "Save it as .safetensors or .npz, which are read in parts."
            raise bad_file(path, "Not mapped", message, remedy) from None
        raise damaged(path) from None


def mapped_bytes(path: Path) -> mmap.mmap:
    """Map a file of any size; what is written there stays in this process. Raises `OSError`."""
    flags, prot = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, flags=flags, prot=prot)


def more_than_tensors(path: Path) -> BadInput:
    """Make the exception for a file with objects that only their own code could read."""
    message = "The file holds Python objects, which could run code. Nothing of it was loaded."
    remedy = "Save tensors alone: torch.save(network.state_dict(), path)."
    return bad_file(path, "More than tensors", message, remedy)


def check_entries(path: Path) -> None:
    """Compare the directory of what `torch.save` wrote with the file; raises `HostileFile` or `BadZipFile`."""
    infos = zips.members(path)
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise HostileFile("Entries of the file are compressed, which torch.save never does.")
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise HostileFile("The file claims to hold more bytes than it has.")
    with zipfile.ZipFile(path) as archive:
        for info in infos:
            if info.filename.endswith("/data.pkl") and _has_many_tuples(archive.read(info)):
                raise HostileFile(f"The pickle has more than {MAX_TUPLES:,} tuples.")


def _has_many_tuples(content: bytes) -> bool:
    if sum(map(content.count, _TUPLES)) <= MAX_TUPLES:  # most of these bytes are letters of names
        return False
    named = (operation.name for operation, _, _ in pickletools.genops(content))
    return sum(name.startswith("TUPLE") for name in named) > MAX_TUPLES


class Nothing:
    """Replaces every class and function that a pickle names: accepts anything, does nothing."""

    name: ClassVar[str] = ""

    def __new__(cls, *args: object, **kwargs: object) -> "Nothing":
        """Take any arguments."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass


class _Storages(pickle.Unpickler):
    """Collects the storages that a pickle names."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.claimed_bytes: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> type[Nothing]:
        return type("_Named", (Nothing,), {"name": name if module == "torch" else ""})

    def persistent_load(self, pid: Any) -> Nothing:
        _, kind, key, _, count = pid
        if kind.name not in _STORED:
            raise HostileFile(f"The file holds a storage of the unknown kind '{kind.name[:40]}'.")
        self.claimed_bytes[key] = max(count * _STORED[kind.name].itemsize, self.claimed_bytes.get(key, 0))
        return Nothing()


def check_storages(path: Path) -> None:
    """Compare the length of each storage with its record; raises `HostileFile`, or the errors of a damaged pickle.

    Torch maps a storage by the length in the pickle, so a wrong length would expose the bytes behind the record. Call
    this only for files that torch's restricted reader has accepted.
    """
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.partition("/")[2]: info.file_size for info in archive.infolist()}
        with archive.open(pickle_entry(archive)) as file:
            storages = _Storages(file)
            storages.load()
    for key, claimed_bytes in storages.claimed_bytes.items():
        if claimed_bytes != sizes.get(f"data/{key}"):
            raise HostileFile(f"A tensor claims {claimed_bytes} bytes, but its record in the file has another size.")


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """Map all tensors of a safetensors file; raises `BadInput` if it is damaged."""
    try:
        return load_file(path)
    except _DAMAGED_SAFETENSORS as error:
        if _NOT_MAPPED not in str(error):
            raise damaged(path) from None
    try:
        return _load_large_safetensors(path)
    except (*_DAMAGED_SAFETENSORS, TypeError):
        raise damaged(path) from None


def _load_large_safetensors(path: Path) -> dict[str, Tensor]:
    """Map all tensors of a file that the library cannot map, by its rules: they follow each other without gaps."""
    document, place = _safetensors_header(path)
    entries, mapping = {name: said for name, said in document.items() if name != _METADATA}, mapped_bytes(path)
    dtypes = {name: dtype for dtype, name in DTYPE_NAMES.items()}
    found, begin = {}, place
    for name, said in sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"]):
        dtype, shape, count = dtypes[said["dtype"]], said["shape"], math.prod(said["shape"])
        end = begin + count * dtype.itemsize
        if min(shape, default=0) < 0 or said["data_offsets"] != [begin - place, end - place] or end > len(mapping):
            raise ValueError("a tensor claims other bytes than it has")
        flat = torch.frombuffer(mapping, dtype=dtype, count=count, offset=begin) if count else torch.empty(0).to(dtype)
        found[name], begin = flat.view(shape), end
    if begin != len(mapping):
        raise ValueError("the file has bytes of no tensor")
    return found


def _safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the first tensor begins; raises `ValueError`."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(MAX_HEADER_BYTES, path.stat().st_size - 8):
            raise ValueError("the header is longer than the file")
        document = json.loads(file.read(length))
    if not isinstance(document, dict):
        raise ValueError("the header is no object")
    return document, 8 + length


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Texts in the header of a safetensors file; raises `BadInput` if it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except _DAMAGED_SAFETENSORS as error:
        if _NOT_MAPPED not in str(error):
            raise damaged(path) from None
    try:
        return {str(name): str(text) for name, text in _safetensors_header(path)[0].get(_METADATA, {}).items()}
    except (ValueError, AttributeError):
        raise damaged(path) from None


def safetensors_header(
    layout: Mapping[str, tuple[torch.dtype, Sequence[int]]], metadata: Mapping[str, str], align: int = 8
) -> bytes:
    """Make the first bytes of a safetensors file; the tensors follow in this order, without gaps, from an aligned byte.

    The library writes only tensors that are all in memory, renames a temporary file over the target, and hides errno
    when the disk is full. Data sets are streamed and checkpoints report a full disk, so both write with this header.
    Raises `ValueError` if the header would be too long to read.
    """
    header: dict[str, object] = {_METADATA: dict(metadata)}
    end = 0
    for name, (dtype, shape) in layout.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    document = json.dumps(header, separators=(",", ":")).encode()
    document += b" " * (-(len(document) + 8) % align)
    if len(document) > MAX_HEADER_BYTES:
        raise ValueError(f"The header has {len(document)} bytes; at most {MAX_HEADER_BYTES} can be read.")
    return len(document).to_bytes(8, "little") + document


def raw(tensor: Tensor) -> memoryview:
    """View the bytes of a contiguous tensor on the host."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def check_plain(name: str, tensor: Tensor) -> None:
    """Raise `HostileFile` for anything but an ordinary dense tensor on the host."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.is_quantized:
        raise HostileFile(f"The entry '{name}' is not a plain dense tensor.")
    if tensor.device.type != "cpu" or tensor.is_complex():
        raise HostileFile(f"The entry '{name}' is {tensor.dtype} on {tensor.device.type}, which is not supported.")
    if tensor.is_neg():
        raise HostileFile(f"The entry '{name}' is marked as the negative of its bytes; no network needs that.")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise HostileFile(f"The entry '{name}' claims the shape {list(tensor.shape)}, but the file has fewer bytes.")


def check_numbers(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights with NaN or +inf, but not -inf, which masks use; raises `BadInput`."""
    for name, tensor in weights.items():
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        values = tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()  # float8 has no maximum
        if tensor.is_floating_point() and tensor.numel() and not values.max().item() < math.inf:
            message = f"'{name[:80]}' has values that are NaN or infinite; training cannot start from them."
            remedy = "Use weights from before they diverged, or create the network again."
            raise bad_file(path, "Weights not finite", message, remedy)


def bad_file(path: Path, title: str, message: str, remedy: str) -> BadInput:
    """Make the exception with one finding on a file."""
    return BadInput.of(title, field=path.name, message=message, remedy=remedy)


def damaged(path: Path) -> BadInput:
    """Make the exception for a file that is cut short or garbled."""
    message = "The file cannot be read: it is cut short or damaged."
    return bad_file(path, "File damaged", message, "Save it again, and copy it completely.")


def document_of(path: Path, key: str) -> dict[str, Any] | None:
    """Read the document of a file: its JSON, or the text under `key` in a safetensors header; None if it has none."""
    try:
        if is_safetensors(path):
            text = safetensors_metadata(path).get(key, "")
        else:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= MAX_DOCUMENT_BYTES else ""
        found = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_described(path: Path) -> bool:
    """Whether a safetensors file describes its own network."""
    try:
        return any(key.startswith("unifiednn.") for key in safetensors_metadata(path))
    except BadInput:
        return False
