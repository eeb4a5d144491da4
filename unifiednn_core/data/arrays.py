"""Finds inputs and targets among arrays by the names that people give them: `x_train`, `labels`, `X`, `arr_1`.

Reads those of `torch.save`: dicts, pairs and lists of tensors, and a `TensorDataset` as an inert record.
"""

import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.base.errors import HostileFile
from unifiednn_core.data.parts import (
    NO_NOTES,
    PART_NAMES,
    DataPart,
    Opened,
    Parts,
    Rows,
    aligned,
    in_order,
    opened_whole,
)
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.rebuild import Inert, Record

INPUTS, TARGETS = "inputs", "targets"
MEANINGS = {
    **dict.fromkeys(("inputs", "input", "x", "data", "features", "feature", "images", "image", "imgs"), INPUTS),
    **dict.fromkeys(("targets", "target", "y", "labels", "label"), TARGETS),
}
_UNNAMED = {"arr_0": INPUTS, "arr_1": TARGETS}  # numpy.savez(path, x, y)
_WORDS = re.compile(r"[^a-z0-9]+")
_PLAIN = re.compile(r"[A-Za-z0-9_./ -]+")
_MAX_NAMES = 16
MOST_COPIED_BYTES = 2**24
"""Of a mapped tensor that is copied because its bytes begin at an odd place, as those of `numpy.savez` may do."""
Load = Callable[[], Mapping[str, Any]]
"""Maps or loads the arrays of a file by their names in it."""
Names = Mapping[str, str]
"""Names of arrays in a file by their entries in a data set."""


def found_in(names: Iterable[object]) -> dict[str, Names]:
    """Name the arrays of each part; empty if their names do not say which are inputs and targets."""
    named = list(names)
    if not 0 < len(named) <= _MAX_NAMES or not all(isinstance(name, str) for name in named):
        return {}
    parts: dict[str, dict[str, str]] = {}
    for name in map(str, named):
        part, meaning = ("", _UNNAMED.get(name)) if len(named) == 2 and name in _UNNAMED else _said(name)
        if meaning is None or parts.setdefault(part, {}).setdefault(meaning, name) is not name:
            return {}
    if any(len(entries) != 2 for entries in parts.values()):
        return {}
    return {**parts} if len(parts) > 1 else {"": next(iter(parts.values()))}


def _said(name: str) -> tuple[str, str | None]:
    """Part and entry that a name says, such as `X_train`, `train_images` or `ytest`."""
    if not _PLAIN.fullmatch(name):
        return "", None
    words = [piece for word in _WORDS.split(PurePosixPath(name).name.lower()) for piece in _pieces(word)]
    parts = [PART_NAMES[word] for word in words if word in PART_NAMES]
    meanings = [MEANINGS.get(word) for word in words if word not in PART_NAMES]
    return (parts[0] if parts else ""), (meanings[0] if len(meanings) == 1 and len(parts) < 2 else None)


def _pieces(word: str) -> tuple[str, ...]:
    for part in PART_NAMES:
        for rest in (word.removeprefix(part), word.removesuffix(part)):
            if rest != word and rest in MEANINGS:
                return part, rest
    return (word,) if word else ()


def parts_of(path: Path, like: Mapping[str, Any], rows: Rows, notes: DataNotes = NO_NOTES) -> Parts:
    """Make parts of arrays under their names in a file; raises `BadInput` for what is no array."""
    groups = found_in(like) or {"": {name: name for name in like}}
    return in_order({part: _part(path, names, like, rows, notes) for part, names in groups.items()})


def _part(path: Path, names: Names, like: Mapping[str, Any], rows: Rows, notes: DataNotes) -> DataPart:
    shapes = {entry: _shape_of(path, name, like[name]) for entry, name in names.items()}
    column = TARGETS in names and is_column(shapes[TARGETS])

    def read(entry: str, start: int, end: int) -> Tensor:
        found = rows(names[entry], start, end)
        return found.squeeze(1) if column and entry == TARGETS else found

    if column:
        shapes[TARGETS] = shapes[TARGETS].squeeze(1)
    if len({len(entry) for entry in shapes.values()}) > 1:
        lengths = ", ".join(f"'{names[entry][:60]}' has {len(found):,}" for entry, found in shapes.items())
        raise _bad(path, "Lengths differ", f"The numbers of samples differ: {lengths}.", "Give one target for each.")
    return DataPart(shapes, read, notes)


def is_column(targets: Tensor) -> bool:
    """Whether targets are class numbers [samples, 1], as Keras has them; they are taken as [samples]."""
    whole = not targets.is_floating_point() and not targets.is_complex()
    return targets.dim() == 2 and targets.shape[1] == 1 and whole


def _shape_of(path: Path, name: str, value: object) -> Tensor:
    """A tensor of the shape of an entry, maybe without content; raises `BadInput`."""
    if isinstance(value, list | tuple) and value and all(isinstance(one, Tensor) for one in value):
        shapes = {tuple(one.shape): at for at, one in reversed(list(enumerate(value)))}
        if len(shapes) > 1 or len({one.dtype for one in value}) > 1:
            (first, _), (other, at) = sorted(shapes.items(), key=lambda item: item[1])[:2]
            message = f"'{name[:60]}' is a list of samples of several shapes: {list(first)}, but {list(other)} at {at}."
            raise _bad(path, "Samples differ", message, "Pad or cut all samples to one shape, then stack them.")
        return torch.empty(len(value), *value[0].shape, dtype=value[0].dtype, device="meta")
    if not isinstance(value, Tensor) or not value.dim():
        kind = f"a {type(value).__name__}" if not isinstance(value, Tensor) else "a single number"
        message = f"'{name[:60]}' is {kind}, not a tensor of samples."
        raise _bad(path, "Not a tensor", message, _HOW_TO_SAVE)
    return value


def parts_of_file(path: Path, load: Load, notes: DataNotes = NO_NOTES) -> Parts:
    """Make parts of what a file maps; raises `BadInput`."""

    def rows(name: str, start: int, end: int) -> Tensor:
        found = load()[name][start:end]
        return aligned(found if isinstance(found, Tensor) else torch.stack(list(found)))

    like = load()
    for name, value in like.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Tensor):
                tensor_files.check_plain(name, one)
    return parts_of(path, like, rows, notes)


def opened(path: Path, load: Load, notes: DataNotes = NO_NOTES) -> Opened:
    """Open what a file maps, under the names of entries. Raises `BadInput` if it holds several data sets."""
    found = load()
    groups = found_in(found)
    if needs_conversion(found):
        return opened_whole(path, parts_of_file(path, load, notes))
    if not renames(found):
        return Opened(found, notes, load)

    def again() -> dict[str, Any]:
        there = load()
        entries = {entry: there[name] for entry, name in groups[""].items()}
        targets = entries[TARGETS]
        if isinstance(targets, Tensor) and is_column(targets):
            entries[TARGETS] = targets.squeeze(1)
        return entries

    return Opened(again(), notes, again)


def needs_conversion(found: Mapping[str, Any]) -> bool:
    """Whether arrays cannot be mapped as they are: several parts, lists of samples, or samples in no rows of memory."""
    groups = found_in(found)
    entries = {name: found[name] for names in groups.values() for name in names.values()} or found
    return len(groups) > 1 or any(
        not _is_rows(value) if isinstance(value, Tensor) else isinstance(value, list | tuple)
        for value in entries.values()
    )


def _is_rows(tensor: Tensor) -> bool:
    """Whether samples lie one after the other, where their type may lie if there is much that would be copied."""
    few = tensor.nbytes <= MOST_COPIED_BYTES
    return tensor.is_contiguous() and (few or tensor.data_ptr() % tensor.element_size() == 0)


def renames(found: Iterable[object]) -> bool:
    """Whether arrays are known by other names than those of entries, which readers of plain files do not know."""
    groups = found_in(found)
    return any(names.keys() != set(names.values()) for names in groups.values())


_HOW_TO_SAVE = 'Save a dict: torch.save({"inputs": inputs, "targets": targets}, path).'


def _bad(path: Path, title: str, message: str, remedy: str) -> Exception:
    return tensor_files.bad_file(path, title, message, remedy)


_TENSOR_DATASET = "torch.utils.data.dataset.TensorDataset"
_LOADED_OTHERWISE = "The file holds Python objects besides tensors, which could run code. Nothing of it was loaded."
_TENSORS_ALONE = 'Save tensors alone: torch.save({"inputs": inputs, "targets": targets}, path).'


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


def load_saved(path: Path) -> Mapping[str, Any]:
    """Map the tensors of a file by name; raises `BadInput` or `HostileFile`."""
    loaded = _tensor_dataset(path) if is_tensor_dataset(path) else tensor_files.load_torch_file(path)
    if isinstance(loaded, list | tuple) and len(loaded) > 1 and all(isinstance(one, Tensor) for one in loaded):
        return _of_tensors(loaded)
    if not isinstance(loaded, Mapping):
        message = f"The file holds a {type(loaded).__name__}; data are a dict or a pair of tensors."
        raise tensor_files.bad_file(path, "Not a data set", message, _TENSORS_ALONE)
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
        raise tensor_files.bad_file(path, "More than tensors", _LOADED_OTHERWISE, _TENSORS_ALONE) from None
    except tensor_files.DAMAGED:
        raise tensor_files.damaged(path) from None
    tensors = loaded.__dict__.get("state", {}).get("tensors") if isinstance(loaded, Record) else None
    if not isinstance(tensors, list | tuple) or not all(isinstance(one, Tensor) for one in tensors):
        problem = "The TensorDataset holds no tensors."
        raise tensor_files.bad_file(path, "Not a data set", problem, _TENSORS_ALONE)
    return tensors
