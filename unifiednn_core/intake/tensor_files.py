"""Files that hold nothing but named tensors: torch's zip of a pickle (`.pt`, `.pth`) and safetensors.

Both are mapped into memory, not read. Sizes that a file declares are held against the bytes that are there before
anything is allocated.
"""

import math
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from unifiednn_core.errors import BadInput, HostileFile
from unifiednn_core.intake import storages, zips

MAX_HEADER_BYTES = 100_000_000
_TORCHSCRIPT = "constants.pkl"


def is_torch_file(path: Path) -> bool:
    """Whether the file is what `torch.save` writes, and no TorchScript program."""
    names = {name.partition("/")[2] for name in zips.names(path)}
    return "data.pkl" in names and _TORCHSCRIPT not in names


def is_safetensors(path: Path) -> bool:
    """Whether the file begins with the length of a JSON header that fits into it."""
    with path.open("rb") as file:
        head = file.read(9)
    length = int.from_bytes(head[:8], "little")
    return head[8:] == b"{" and 2 <= length <= min(MAX_HEADER_BYTES, path.stat().st_size - 8)


def load_torch_file(path: Path) -> object:
    """What `torch.save` wrote, mapped without running code; raises `BadInput` or `HostileFile`."""
    try:
        _check_entries(zips.members(path), path.stat().st_size)
        loaded: object = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        storages.check_storages(path)
        return loaded
    except HostileFile:
        raise
    except pickle.UnpicklingError:
        raise BadInput.of(
            "More than tensors",
            field=path.name,
            message="The file holds Python objects, which could run code; nothing of it was loaded.",
            remedy="Save tensors alone: torch.save(network.state_dict(), path).",
        ) from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise damaged(path) from None


def _check_entries(infos: list[zipfile.ZipInfo], size_bytes: int) -> None:
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise HostileFile("Entries of the file are compressed, which torch.save never does.")
    if sum(info.file_size for info in infos) > size_bytes:
        raise HostileFile("The file claims to hold more bytes than it has.")


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, mapped; raises `BadInput` where it is damaged."""
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        raise damaged(path) from None


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Texts in the header of a safetensors file; raises `BadInput` where it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        raise damaged(path) from None


def check_plain(name: str, tensor: Tensor) -> None:
    """Refuse what is no ordinary tensor; raises `HostileFile`."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.is_quantized:
        raise HostileFile(f"The entry '{name}' is no plain dense tensor.")
    if tensor.device.type != "cpu" or tensor.is_complex():
        raise HostileFile(f"The entry '{name}' is {tensor.dtype} on {tensor.device.type}, which is not supported.")
    if tensor.is_neg():
        raise HostileFile(f"The entry '{name}' is marked as the negative of its bytes, which no network needs.")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise HostileFile(f"The entry '{name}' claims the shape {list(tensor.shape)}, but the file has fewer bytes.")


def check_numbers(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights with NaN or +inf in them; -inf is what masks are made of. Raises `BadInput`."""
    for name, tensor in weights.items():
        values = tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()  # float8 has no maximum
        if tensor.is_floating_point() and tensor.numel() and not values.max().item() < math.inf:
            raise BadInput.of(
                "Weights not finite",
                field=path.name,
                message=f"'{name[:80]}' has values that are NaN or infinite; nothing can be learnt from there.",
                remedy="Hand in weights of a step before they diverged, or make the network anew.",
            )


def damaged(path: Path) -> BadInput:
    """Finding for a file that is cut short or garbled."""
    return BadInput.of(
        "File damaged",
        field=path.name,
        message="The file cannot be read: it is cut short or damaged.",
        remedy="Save it again, and copy it whole.",
    )
