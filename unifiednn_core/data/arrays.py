"""Finds inputs and targets among arrays by the names that people give them: `x_train`, `labels`, `X`, `arr_1`."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.data.opened import NO_NOTES, Opened, aligned
from unifiednn_core.data.parts import PART_NAMES, DataPart, Parts, Rows, in_order, opened_whole
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import tensor_files

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
