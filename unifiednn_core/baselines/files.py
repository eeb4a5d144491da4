"""Files of the plain script: the network, the data, and the weights at the end.

All were checked when they were handed in and lie under the hash of their bytes, so that they are read here as anyone
would read them; only a `.pt2`, whose official loader runs what the file says, goes through this project's own reader.
"""

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unifiednn_core.baselines.job import Job
from unifiednn_core.weights import state_sha256

_ZIP = b"PK\x03\x04"


def read_network(job: Job) -> nn.Module:
    """Make the network with the weights of the file, on the host."""
    if job.architecture_source is None:
        from unifiednn_core.intake.registry import format_named  # loads more than a network of torch alone needs

        return format_named(job.model_format).read(Path(job.model), None).build()
    spec = importlib.util.spec_from_file_location("architecture", job.architecture_source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{job.architecture_source} is no Python source.")
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    module: nn.Module = source.build(**job.architecture_args)
    module.load_state_dict(_tensors(Path(job.model)))
    return module


def read_data(path: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets, both [samples, ...]; targets are int64, or float32 at most, as torch's criteria want them."""
    tensors = _tensors(Path(path))
    inputs, targets = tensors["inputs"].contiguous(), tensors["targets"].contiguous()
    if not targets.is_floating_point():
        return inputs, targets.to(torch.int64)
    return inputs, targets.to(torch.float32) if targets.dtype is torch.float64 else targets


def write_weights(module: nn.Module, path: Path) -> str:
    """Write all weights and buffers of a network as safetensors, whole or not at all; returns their hash."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:  # safetensors refuses tied weights
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        tensors[key] = tensor
    temporary = path.with_name(f".{path.name}.part")
    save_file(tensors, temporary)
    temporary.replace(path)
    return state_sha256(tensors)


def _tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a `.pt`, `.npz` or `.safetensors` file, judged by its bytes: files by content have no suffix."""
    with path.open("rb") as file:
        zipped = file.read(len(_ZIP)) == _ZIP
    if not zipped:
        return dict(load_file(path))
    with zipfile.ZipFile(path) as archive:
        arrays = all(name.endswith(".npy") for name in archive.namelist())
    if arrays:
        with np.load(path, allow_pickle=False) as loaded:
            return {name: torch.from_numpy(loaded[name]) for name in loaded.files}
    return dict(torch.load(path, map_location="cpu", weights_only=True))
