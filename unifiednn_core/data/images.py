"""Reads archives of images, maybe below `train/` and `val/` or `test/`.

Their targets are one folder for each class; masks for segmentation (`images/a.jpg` with `masks/a.png`); or, as
WebDataset has it, a file of the same name beside each image (`000.jpg` with `000.cls` or `000.json`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data import pictures
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.parts import PART_NAMES, DataPart, Parts, in_order
from unifiednn_core.data.pictures import SUFFIXES, Pictures
from unifiednn_core.data.values import MAX_CLASS_NAMES, DataNotes, ImportOptions
from unifiednn_core.formats.predict import squared
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


LABELS = (".cls", ".json")
_KEYS = ("label", "cls", "class", "target", "y")
_MAX_LABEL_BYTES = 2**20
_SAMPLE_LAYOUT = (
    "Each sample needs an image (.png, .jpg) and a .cls or .json with its 'label', under one name: 000.jpg, 000.cls."
)


def has_labels(archive: Archive) -> bool:
    """Whether an archive has labels beside its images."""
    return any(entry.path.suffix.lower() in LABELS for entry in archive.entries)


def samples(archive: Archive, options: ImportOptions) -> Parts:
    """Images and classes in file order; raises `BadInput` or `HostileFile`."""
    found: dict[str, tuple[Entry | None, Any]] = {}
    for entry in archive.entries:
        key, suffix = str(entry.path.with_suffix("")), entry.path.suffix.lower()
        image, label = found.get(key, (None, None))
        if suffix in SUFFIXES:
            if image is not None:
                raise _bad_sample(archive, f"The sample '{key[:80]}' has two images.")
            image = entry
        elif suffix in LABELS and label is None:
            label = _label(archive, entry)
        found[key] = image, label
    listed, labels = [], []
    for key, (image, label) in found.items():
        if image is None or label is None:
            missing = "image" if image is None else "class"
            raise _bad_sample(archive, f"The sample '{key[:80]}' has no {missing}.")
        listed.append(image)
        labels.append(label)
    if not listed:
        raise _bad_sample(archive, "The archive has no samples.")
    names, targets = _numbered(archive, labels)
    part = pictures.pictures(archive, {"": listed}, options)[""]
    return {"": labelled(part, targets, names, "webdataset", options)}


def _label(archive: Archive, entry: Entry) -> int | str | None:
    """Class of a sample, None if the file names none."""
    content = archive.read(entry, _MAX_LABEL_BYTES)
    try:
        text = content.decode("utf-8")
        if entry.path.suffix.lower() == ".json":
            document = json.loads(text)
            found = next((document[key] for key in _KEYS if key in document), None) if _is_dict(document) else document
        else:
            found = text.strip()
    except (ValueError, RecursionError):
        raise _bad_sample(archive, f"'{entry.name[:80]}' is not a label in UTF-8.") from None
    if isinstance(found, bool) or not isinstance(found, int | str) or found == "":
        return None
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 10:
        return int(found)
    if isinstance(found, int) and not 0 <= found < MAX_CLASS_NAMES**2:
        raise _bad_sample(archive, f"'{entry.name[:80]}' holds the class number {str(found)[:20]}.")
    return found if isinstance(found, int) else found[:_MAX_NAME]


def _is_dict(document: object) -> bool:
    return isinstance(document, Mapping)


def _numbered(archive: Archive, labels: list[int | str]) -> tuple[list[str], list[int]]:
    """Names of the classes, none if they are numbers, and the class number of each sample."""
    numbers = [label for label in labels if isinstance(label, int)]
    if len(numbers) == len(labels):
        return [], numbers
    names = sorted({str(label) for label in labels})
    if len(names) > MAX_CLASS_NAMES:
        raise _bad_sample(archive, f"There are {len(names):,} different labels; {MAX_CLASS_NAMES:,} are read.")
    of = {name: number for number, name in enumerate(names)}
    return names, [of[str(label)] for label in labels]


def _bad_sample(archive: Archive, message: str) -> BadInput:
    return bad_file(archive.path, "Samples", message, _SAMPLE_LAYOUT)


_IMAGES = frozenset({"images", "image", "imgs", "img", "jpegimages"})
_MASKS = frozenset({"masks", "mask", "labels", "annotations", "segmentation", "segmentationclass"})
_BOXES = (".json", ".txt", ".xml")  # COCO, YOLO, VOC
_MODES = ("1", "L", "P")
_ENDINGS = ("_mask", "-mask", "_label", "_seg")
_WHITE, _IGNORED = 255, -100  # what others, and what torch, use for pixels without a class
_PAIR_LAYOUT = "Pack images/a.jpg with masks/a.png, of equal names; a mask holds the class number of each pixel."


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks of the images of a part: class numbers [samples, height, width]."""

    images: Pictures
    entries: list[Entry]
    white: int  # class number of the value 255
    dtype: torch.dtype

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape and type without content."""
        shape = (len(self.entries), self.images.height, self.images.width)
        return torch.empty(shape, dtype=self.dtype, device="meta")

    def rows(self, start: int, end: int) -> Tensor:
        """Decode some masks; raises `BadInput` or `HostileFile`."""
        found = torch.empty(end - start, *self.like.shape[1:], dtype=self.dtype)
        for at in range(start, end):
            values = torch.from_numpy(_values(self.images, self.images.entries[at], self.entries[at])).to(self.dtype)
            found[at - start] = values.masked_fill(values == _WHITE, self.white) if self.white != _WHITE else values
        return found


def has_masks(archive: Archive) -> bool:
    """Whether an archive has a folder of images and one of masks."""
    folders = {part.lower() for entry in archive.entries for part in entry.path.parts[:-1]}
    return bool(folders & _IMAGES) and bool(folders & _MASKS)


def pairs(archive: Archive, options: ImportOptions) -> Parts:
    """Images as uint8 [samples, channels, height, width] and the masks of each; raises `BadInput` or `HostileFile`."""
    images: dict[tuple[str, str], Entry] = {}
    masks: dict[tuple[str, str], Entry] = {}
    for entry in archive.entries:
        folders = [part.lower() for part in entry.path.parts[:-1]]
        is_mask = any(folder in _MASKS for folder in folders)
        if is_mask and entry.path.suffix.lower() in _BOXES:
            message = f"'{entry.name[:80]}' describes boxes or outlines; targets are a class, numbers or a mask each."
            raise bad_file(archive.path, "Boxes", message, f"Draw masks from them. {_PAIR_LAYOUT}")
        if entry.path.suffix.lower() not in SUFFIXES or not (is_mask or any(f in _IMAGES for f in folders)):
            raise _bad_pair(archive, f"'{entry.name[:80]}' is neither an image nor a mask.")
        part = next((PART_NAMES[folder] for folder in folders if folder in PART_NAMES), "")
        stem = entry.path.stem
        if is_mask:
            stem = next((stem.removesuffix(end) for end in _ENDINGS if stem.endswith(end)), stem)
        known = masks if is_mask else images
        if known.setdefault((part, stem), entry) is not entry:
            raise _bad_pair(archive, f"'{entry.name[:80]}' has the same name as another file.")
    alone = sorted(images.keys() ^ masks.keys())
    if alone:
        kind, other = ("image", "mask") if alone[0] in images else ("mask", "image")
        raise _bad_pair(archive, f"The {kind} '{alone[0][1][:80]}' has no {other} ({len(alone):,} files have none).")
    groups: dict[str, list[Entry]] = {}
    for (part, _), entry in images.items():
        groups.setdefault(part, []).append(entry)
    found = pictures.pictures(archive, groups, options)
    of = {part: [masks[key] for key in images if key[0] == part] for part in groups}
    white = _meaning_of_white(found, of)
    dtype = torch.int16 if white == _IGNORED else torch.uint8
    return in_order({part: _masked_part(Masks(found[part], of[part], white, dtype), options) for part in groups})


def _masked_part(masks: Masks, options: ImportOptions) -> DataPart:
    told = {
        _WHITE: (),
        1: ("Masks: the value 255 is class 1.",),
        _IGNORED: ("Masks: pixels of the value 255 have no class; they are -100, which criteria ignore.",),
    }
    resized = (f"Masks: resized to {options.size}x{options.size} (Pillow, nearest).",) if options.size else ()
    notes = DataNotes(origin="masks", remarks=(*pictures.remarks(options), *resized, *told[masks.white]))

    def rows(name: str, start: int, end: int) -> Tensor:
        return masks.rows(start, end) if name == "targets" else masks.images.rows(start, end)

    return DataPart({"inputs": masks.images.like, "targets": masks.like}, rows, notes)


def _meaning_of_white(images: dict[str, Pictures], masks: dict[str, list[Entry]]) -> int:
    """Class number of the value 255: 1 if there are only 0 and 255, else none; reads all masks once."""
    seen = np.zeros(256, bool)
    for part, entries in masks.items():
        for image, mask in zip(images[part].entries, entries, strict=True):
            seen[np.unique(_values(images[part], image, mask))] = True
    if not seen[_WHITE]:
        return _WHITE
    return _IGNORED if seen[1:_WHITE].any() else 1


def _values(images: Pictures, of: Entry, entry: Entry) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """The class number of each pixel of the mask of an image, [height, width]."""
    from PIL import Image

    path = images.archive.path
    image = pictures.header_of(images.archive, entry)
    if image.mode not in _MODES:
        message = f"The mask '{entry.name[:80]}' has colours ({image.mode}), not a class number for each pixel."
        raise bad_file(path, "Masks", message, "Save masks as grey or palette PNG: the value of a pixel is its class.")
    if (image.height, image.width) != images.sizes[of.name]:
        message = f"The mask '{entry.name[:80]}' is {image.height}x{image.width}, but its image has another size."
        raise bad_file(path, "Sizes differ", message, "Give each mask the size of its image.")
    with pictures.undamaged(path, entry.name[:80]):
        if images.resized:
            image = squared(image, images.height, Image.Resampling.NEAREST)
        return np.array(image).astype(np.uint8)


def _bad_pair(archive: Archive, message: str) -> BadInput:
    return bad_file(archive.path, "Images and masks", message, _PAIR_LAYOUT)
