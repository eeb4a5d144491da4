"""Reads images with masks for segmentation: `images/a.jpg` with `masks/a.png`, maybe below `train/` and `val/`."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import pictures
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.parts import PART_NAMES, DataPart, Parts, in_order
from unifiednn_core.data.pictures import SUFFIXES, Pictures
from unifiednn_core.data.values import DataNotes, ImportOptions
from unifiednn_core.formats.predict import squared
from unifiednn_core.formats.tensor_files import bad_file

_IMAGES = frozenset({"images", "image", "imgs", "img", "jpegimages"})
_MASKS = frozenset({"masks", "mask", "labels", "annotations", "segmentation", "segmentationclass"})
_BOXES = (".json", ".txt", ".xml")  # COCO, YOLO, VOC
_MODES = ("1", "L", "P")
_ENDINGS = ("_mask", "-mask", "_label", "_seg")
_WHITE, _IGNORED = 255, -100  # what others, and what torch, use for pixels without a class
_LAYOUT = "Pack images/a.jpg with masks/a.png, of equal names; a mask holds the class number of each pixel."


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


def is_one(archive: Archive) -> bool:
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
            raise bad_file(archive.path, "Boxes", message, f"Draw masks from them. {_LAYOUT}")
        if entry.path.suffix.lower() not in SUFFIXES or not (is_mask or any(f in _IMAGES for f in folders)):
            raise _bad(archive, f"'{entry.name[:80]}' is neither an image nor a mask.")
        part = next((PART_NAMES[folder] for folder in folders if folder in PART_NAMES), "")
        stem = entry.path.stem
        if is_mask:
            stem = next((stem.removesuffix(end) for end in _ENDINGS if stem.endswith(end)), stem)
        known = masks if is_mask else images
        if known.setdefault((part, stem), entry) is not entry:
            raise _bad(archive, f"'{entry.name[:80]}' has the same name as another file.")
    alone = sorted(images.keys() ^ masks.keys())
    if alone:
        kind, other = ("image", "mask") if alone[0] in images else ("mask", "image")
        raise _bad(archive, f"The {kind} '{alone[0][1][:80]}' has no {other} ({len(alone):,} files have none).")
    groups: dict[str, list[Entry]] = {}
    for (part, _), entry in images.items():
        groups.setdefault(part, []).append(entry)
    found = pictures.pictures(archive, groups, options)
    of = {part: [masks[key] for key in images if key[0] == part] for part in groups}
    white = _meaning_of_white(found, of)
    dtype = torch.int16 if white == _IGNORED else torch.uint8
    return in_order({part: _part(Masks(found[part], of[part], white, dtype), options) for part in groups})


def _part(masks: Masks, options: ImportOptions) -> DataPart:
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


def _bad(archive: Archive, message: str) -> BadInput:
    return bad_file(archive.path, "Images and masks", message, _LAYOUT)
