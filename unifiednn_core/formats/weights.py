"""Host copies of weights and their hash, and networks without memory for the names and shapes of their weights."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_PART_BYTES = 16 * 1024**2  # of a tensor on a GPU, hashed at once: the host needs no more memory


def host_copy(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy all tensors to the host, contiguous and in the same order."""
    return {key: tree_to_cpu(tensor) for key, tensor in state_dict.items()}


def tree_to_cpu(value: Any) -> Any:
    """Copy a tree of dicts, lists and tuples, with contiguous host copies of its tensors."""
    match value:
        case Tensor():
            return value.detach().to("cpu", copy=True).contiguous()
        case dict():
            copied = value.copy()  # keeps the type of the dict
            for key, entry in value.items():  # `update` of a Counter would add
                copied[key] = tree_to_cpu(entry)
            return copied
        case list() | tuple():
            return type(value)(tree_to_cpu(entry) for entry in value)
        case _:
            return value


def shapes_of(state_dict: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Shape and type of each tensor."""
    return {key: (tensor.shape, tensor.dtype) for key, tensor in state_dict.items()}


def state_sha256(state_dict: Mapping[str, Tensor]) -> str:
    """Compute the SHA-256 over all tensors in the order of their keys.

    For each: key (UTF-8), `str(dtype)`, `str(list(shape))`, raw little-endian bytes of the contiguous CPU tensor.
    """
    digest = hashlib.sha256()
    for key in sorted(state_dict):
        tensor = state_dict[key].detach()
        digest.update(f"{key}{tensor.dtype}{list(tensor.shape)}".encode())
        for part in torch.split(tensor.contiguous().reshape(-1).view(torch.uint8), _PART_BYTES):
            digest.update(part.cpu().numpy().data)
    return digest.hexdigest()


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Make every new tensor one without memory."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Skips drawing normal weights where there are none: torch does it in Python there, which loads sympy, 40 MiB."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call it, but for that one."""
        call: Callable[..., Any] = func
        return args[0] if call is Tensor.normal_ and args[0].is_meta else call(*args, **(kwargs or {}))
