"""Reads an archive with one folder of images for each class, maybe below `train/` and `val/` or `test/`."""

from collections.abc import Sequence

import torch

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data import pictures
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.parts import PART_NAMES, DataPart, Parts, in_order
from unifiednn_core.data.pictures import SUFFIXES
from unifiednn_core.data.values import MAX_CLASS_NAMES, DataNotes, ImportOptions
from unifiednn_core.formats.tensor_files import bad_file

_LAYOUT = (
    "Pack one folder for each class, with PNG or JPEG images in it: cat/1.png, dog/1.png. Folders train/ and val/ (or "
    "test/) around them make two data sets."
)
_MAX_NAME = 200


def folders(archive: Archive, options: ImportOptions) -> Parts:
    """Folders of classes as uint8 inputs [samples, channels, height, width]; raises `BadInput` or `HostileFile`."""
    for entry in archive.entries:
        if entry.path.suffix.lower() not in SUFFIXES:
            raise _bad(archive, f"'{entry.name[:80]}' is neither PNG nor JPEG; other files and archives are not read.")
    placed = _placed(archive)
    names = sorted({name for _, name in placed})
    if len(names) > MAX_CLASS_NAMES:
        raise _bad(archive, f"There are {len(names):,} folders; {MAX_CLASS_NAMES:,} are read.")
    numbers = {name: number for number, name in enumerate(names)}
    groups: dict[str, list[Entry]] = {}
    targets: dict[str, list[int]] = {}
    for entry, (part, name) in zip(archive.entries, placed, strict=True):
        groups.setdefault(part, []).append(entry)
        targets.setdefault(part, []).append(numbers[name])
    found = pictures.pictures(archive, groups, options)
    return in_order({part: labelled(each, targets[part], names, "images", options) for part, each in found.items()})


def labelled(
    images: pictures.Pictures, targets: Sequence[int], names: Sequence[str], origin: str, options: ImportOptions
) -> DataPart:
    """A part of images with class numbers; its notes tell named classes that it lacks."""
    numbers = torch.tensor(targets, dtype=torch.int64)
    absent = sorted(set(range(len(names))) - set(targets))
    remarks = pictures.remarks(options)
    if absent:
        remarks += (f"This part has no sample of {abbreviated([repr(names[number][:60]) for number in absent], 3)}.",)
    notes = DataNotes(origin=origin, class_names=tuple(names), remarks=remarks)

    def rows(name: str, start: int, end: int) -> torch.Tensor:
        return numbers[start:end] if name == "targets" else images.rows(start, end)

    return DataPart({"inputs": images.like, "targets": numbers}, rows, notes)


def _placed(archive: Archive) -> list[tuple[str, str]]:
    """Part and class of each image, from its folders. A single folder around all of them is ignored."""
    parts = [entry.path.parts for entry in archive.entries]
    if all(len(part) >= 3 and part[0] == parts[0][0] for part in parts):
        parts = [part[1:] for part in parts]
    if all(len(part) == 3 and part[0].lower() in PART_NAMES for part in parts):
        placed = [(PART_NAMES[part[0].lower()], part[1:]) for part in parts]
    else:
        placed = [("", part) for part in parts]
    for entry, (_, rest) in zip(archive.entries, placed, strict=True):
        if len(rest) != 2:
            raise _bad(archive, f"'{entry.name[:80]}' is in no class folder, or too deep.")
        if len(rest[0]) > _MAX_NAME:
            raise _bad(archive, f"A folder has a name of more than {_MAX_NAME} characters.")
    return [(part, rest[0]) for part, rest in placed]


def _bad(archive: Archive, message: str) -> BadInput:
    return bad_file(archive.path, "Folders of images", message, _LAYOUT)
