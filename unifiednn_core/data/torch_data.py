"""Reads data sets of `torch.save`: dicts, pairs and lists of tensors, and a `TensorDataset` as an inert record."""

import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.base.errors import HostileFile
from unifiednn_core.data.arrays import INPUTS, TARGETS, found_in
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.rebuild import Inert, Record

_TENSOR_DATASET = "torch.utils.data.dataset.TensorDataset"
_LOADED_OTHERWISE = "The file holds Python objects besides tensors, which could run code. Nothing of it was loaded."
_HOW_TO_SAVE = 'Save tensors alone: torch.save({"inputs": inputs, "targets": targets}, path).'


def is_tensor_dataset(path: Path) -> bool:
    """Whether `torch.save` wrote a `TensorDataset` into the file."""
    if not tensor_files.is_pickled_object(path):
        return False
    with zipfile.ZipFile(path) as archive, archive.open(tensor_files.pickle_entry(archive)) as file:
        first = file.read(tensor_files.FIRST_BYTES)
    named = (argument for operation, argument, _ in pickletools.genops(first) if operation.name == "GLOBAL")
    return tensor_files.full_name(next(named, "")) == _TENSOR_DATASET


def looks_like_data(loaded: object) -> bool:
    """Whether something that `torch.save` wrote is data rather than weights."""
    if isinstance(loaded, list | tuple):
        return True
    if not isinstance(loaded, Mapping):
        return False
    several = any(str(name).startswith(f"{INPUTS}.") for name in loaded)
    return several or bool({INPUTS, TARGETS} & loaded.keys()) or bool(found_in(loaded))


def is_dict(path: Path) -> bool:
    """Whether `torch.save` wrote a dict of tensors alone, not a pair or a list; raises `BadInput` or `HostileFile`."""
    return isinstance(tensor_files.load_torch_file(path), Mapping)


def load(path: Path) -> Mapping[str, Any]:
    """Map the tensors of a file by name; raises `BadInput` or `HostileFile`."""
    loaded = _tensor_dataset(path) if is_tensor_dataset(path) else tensor_files.load_torch_file(path)
    if isinstance(loaded, list | tuple) and len(loaded) > 1 and all(isinstance(one, Tensor) for one in loaded):
        return _of_tensors(loaded)
    if not isinstance(loaded, Mapping):
        message = f"The file holds a {type(loaded).__name__}; data are a dict or a pair of tensors."
        raise tensor_files.bad_file(path, "Not a data set", message, _HOW_TO_SAVE)
    several = loaded.get(INPUTS)
    if not isinstance(several, Mapping):
        return loaded
    rest = {name: one for name, one in loaded.items() if name != INPUTS}
    return {**{f"{INPUTS}.{name}": one for name, one in several.items()}, **rest}


def _of_tensors(tensors: "list[Tensor] | tuple[Tensor, ...]") -> dict[str, Any]:
    """Name the tensors of a pair or a `TensorDataset`: the last are the targets."""
    *inputs, targets = tensors
    if len(inputs) == 1:
        return {INPUTS: inputs[0], TARGETS: targets}
    return {**{f"{INPUTS}.{at}": one for at, one in enumerate(inputs)}, TARGETS: targets}


def _tensor_dataset(path: Path) -> object:
    """The tensors of a `TensorDataset`. Its class is replaced by a record that cannot be called."""
    stub: Any = Inert("TensorDataset", (Record,), {"name": _TENSOR_DATASET})
    try:
        tensor_files.check_entries(path)
        with tensor_files.LOADING, torch.serialization.safe_globals([(stub, _TENSOR_DATASET)]):
            loaded: object = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        tensor_files.check_storages(path)
    except HostileFile:
        raise
    except pickle.UnpicklingError:
        raise tensor_files.bad_file(path, "More than tensors", _LOADED_OTHERWISE, _HOW_TO_SAVE) from None
    except tensor_files.DAMAGED:
        raise tensor_files.damaged(path) from None
    tensors = loaded.__dict__.get("state", {}).get("tensors") if isinstance(loaded, Record) else None
    if not isinstance(tensors, list | tuple) or not all(isinstance(one, Tensor) for one in tensors):
        problem = "The TensorDataset holds no tensors."
        raise tensor_files.bad_file(path, "Not a data set", problem, _HOW_TO_SAVE)
    return tensors
