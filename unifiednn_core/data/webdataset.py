"""Reads WebDataset: files of one sample follow each other and share a name (`000.jpg` with `000.cls` or `000.json`)."""

import json
from collections.abc import Mapping
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import images, pictures
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.parts import Parts
from unifiednn_core.data.pictures import SUFFIXES
from unifiednn_core.data.values import MAX_CLASS_NAMES, ImportOptions
from unifiednn_core.formats.tensor_files import bad_file

LABELS = (".cls", ".json")
_KEYS = ("label", "cls", "class", "target", "y")
_MAX_LABEL_BYTES = 2**20
_MAX_NAME = 200
_LAYOUT = (
    "Each sample needs an image (.png, .jpg) and a .cls or .json with its 'label', under one name: 000.jpg, 000.cls."
)


def is_one(archive: Archive) -> bool:
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
                raise _bad(archive, f"The sample '{key[:80]}' has two images.")
            image = entry
        elif suffix in LABELS and label is None:
            label = _label(archive, entry)
        found[key] = image, label
    listed, labels = [], []
    for key, (image, label) in found.items():
        if image is None or label is None:
            missing = "image" if image is None else "class"
            raise _bad(archive, f"The sample '{key[:80]}' has no {missing}.")
        listed.append(image)
        labels.append(label)
    if not listed:
        raise _bad(archive, "The archive has no samples.")
    names, targets = _numbered(archive, labels)
    part = pictures.pictures(archive, {"": listed}, options)[""]
    return {"": images.labelled(part, targets, names, "webdataset", options)}


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
        raise _bad(archive, f"'{entry.name[:80]}' is not a label in UTF-8.") from None
    if isinstance(found, bool) or not isinstance(found, int | str) or found == "":
        return None
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 10:
        return int(found)
    if isinstance(found, int) and not 0 <= found < MAX_CLASS_NAMES**2:
        raise _bad(archive, f"'{entry.name[:80]}' holds the class number {str(found)[:20]}.")
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
        raise _bad(archive, f"There are {len(names):,} different labels; {MAX_CLASS_NAMES:,} are read.")
    of = {name: number for number, name in enumerate(names)}
    return names, [of[str(label)] for label in labels]


def _bad(archive: Archive, message: str) -> BadInput:
    return bad_file(archive.path, "Samples", message, _LAYOUT)
