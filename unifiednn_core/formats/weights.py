"""Weights as values: host copies and the hash that names them."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def host_copy(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Independent contiguous copies of all tensors on the host, in the same order."""
    return {key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in state_dict.items()}


def tree_to_cpu(value: Any) -> Any:
    """Copy a tree of dicts, lists and tuples, with independent contiguous host copies of its tensors."""
    match value:
        case Tensor():
            return value.detach().to("cpu", copy=True).contiguous()
        case dict():
            copied = value.copy()  # keeps what kind of dict it is
            for key, entry in value.items():  # a Counter's update would add
                copied[key] = tree_to_cpu(entry)
            return copied
        case list() | tuple():
            return type(value)(tree_to_cpu(entry) for entry in value)
        case _:
            return value


def state_sha256(state_dict: Mapping[str, Tensor]) -> str:
    """SHA-256 over all tensors in the order of their keys.

    For each: key (UTF-8), `str(dtype)`, `str(list(shape))`, raw little-endian bytes of the contiguous CPU tensor.
    """
    digest = hashlib.sha256()
    for key in sorted(state_dict):
        tensor = state_dict[key].detach().cpu().contiguous()
        digest.update(key.encode())
        digest.update(str(tensor.dtype).encode())
        digest.update(str(list(tensor.shape)).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
