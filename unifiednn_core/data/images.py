"""Reads a zip with one folder of images per class as uint8 inputs [samples, channels, height, width].

Nothing is unpacked to the file system: images are decoded from the archive, one at a time.
"""

import io
import stat
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data.opened import Opened
from unifiednn_core.data.values import MAX_CLASS_NAMES, DataNotes
from unifiednn_core.formats import zips
from unifiednn_core.formats.base import some
from unifiednn_core.formats.tensor_files import bad_file

SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_IMAGE_BYTES = 64 * 1024**2
MAX_PIXELS = 2**24
MAX_DECODED_BYTES = 2 * 1024**3
_GREY = ("1", "L", "LA")
_COLOUR = ("P", "RGB", "RGBA", "CMYK", "YCbCr")
_DAMAGED = (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, struct.error, zlib.error)
_LAYOUT = "Pack one folder for each class, with PNG or JPEG images in it: cat/1.png, dog/1.png."


def holds_images(path: Path) -> bool:
    """Whether the file is a zip with images in it."""
    return any(name.lower().endswith(SUFFIXES) for name in zips.names(path))


def read_images(path: Path) -> Opened:
    """Decode all images; raises `BadInput` or `HostileFile`."""
    try:
        members = zips.members(path)
        zips.check_expansion(members, path.stat().st_size)
        _check_apart(members)
        listed = [info for info in members if not _is_litter(info)]
        for info in listed:
            _check_entry(path, info)
        classes = _classes(path, [info.filename for info in listed])
        names = sorted(set(classes))
        if len(names) > MAX_CLASS_NAMES:
            raise _bad(path, "Classes", f"There are {len(names):,} folders; {MAX_CLASS_NAMES:,} are read.")
        with zipfile.ZipFile(path) as archive:
            inputs = _decoded(path, archive, listed)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise _bad(path, "File damaged", f"The archive cannot be read: {str(error)[:120]}.") from None
    numbers = {name: number for number, name in enumerate(names)}
    targets = torch.tensor([numbers[name] for name in classes], dtype=torch.int64)
    return Opened({"inputs": inputs, "targets": targets}, DataNotes(origin="images", class_names=tuple(names)))


def _is_litter(info: zipfile.ZipInfo) -> bool:
    """Whether an entry is a folder or a leftover of a file manager."""
    path = PurePosixPath(info.filename)
    return info.is_dir() or "__MACOSX" in path.parts or path.name in (".DS_Store", "Thumbs.db")


def _check_apart(infos: list[zipfile.ZipInfo]) -> None:
    """Refuse entries that share a name or overlap: a few bytes would be read very often."""
    end, names = 0, {info.filename for info in infos}
    if len(names) != len(infos):
        raise HostileFile("The archive holds two files of the same name.")
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise HostileFile("Entries of the archive overlap.")
        end = info.header_offset + info.compress_size


def _check_entry(path: Path, info: zipfile.ZipInfo) -> None:
    shown = info.filename[:80]
    parts = info.orig_filename.replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts or ":" in parts[0]:
        raise HostileFile(f"The entry '{shown}' has a name that leads outside its folder.")
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        raise HostileFile(f"The entry '{shown}' is a link or a device, not a file.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise HostileFile(f"The entry '{shown}' is packed in an unusual way. Pack the folder with an ordinary zip.")
    if info.file_size > MAX_IMAGE_BYTES:
        raise HostileFile(f"The entry '{shown}' would unpack to {info.file_size} bytes; {MAX_IMAGE_BYTES} are read.")
    if not info.filename.lower().endswith(SUFFIXES):
        raise _bad(path, "No image", f"'{shown}' is neither PNG nor JPEG; other files and archives are not read.")


def _classes(path: Path, names: Sequence[str]) -> list[str]:
    """Return the folder of each image, its class. A single folder around all of them is ignored."""
    parts = [PurePosixPath(name).parts for name in names]
    if parts and all(len(part) == 3 and part[0] == parts[0][0] for part in parts):
        parts = [part[1:] for part in parts]
    for name, part in zip(names, parts, strict=True):
        if len(part) != 2:
            message = f"'{name[:80]}' is in no class folder, or too deep. Pack training and test images separately."
            raise _bad(path, "Folders", message)
        if len(part[0]) > 200:
            raise _bad(path, "Folders", "A folder has a name of more than 200 characters.")
    return [part[0] for part in parts]


def _decoded(path: Path, archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo]) -> torch.Tensor:
    """Decode all images into one tensor; all headers are checked before it is allocated."""
    kinds = []
    for info in infos:
        with _opened(path, archive, info) as image:
            kinds.append((image.height, image.width, image.mode))
    height, width = Counter(kind[:2] for kind in kinds).most_common(1)[0][0]
    others = [
        f"'{info.filename[:80]}' ({h}x{w})"
        for info, (h, w, _) in zip(infos, kinds, strict=True)
        if (h, w) != (height, width)
    ]
    if others:
        message = f"Images are {height}x{width} (height x width), but {some(others, 3)}."
        raise _bad(path, "Sizes differ", message, "Resize all images to one size.")
    channels = 1 if all(mode in _GREY for _, _, mode in kinds) else 3
    if len(kinds) * channels * height * width > MAX_DECODED_BYTES:
        message = f"{len(kinds):,} images of {height}x{width} need more than {MAX_DECODED_BYTES // 1024**3} GiB."
        raise _bad(path, "Too large", message, "Give smaller or fewer images, or a .safetensors data set.")
    inputs = torch.empty(len(kinds), channels, height, width, dtype=torch.uint8)
    for at, info in enumerate(infos):
        with _opened(path, archive, info) as image:
            try:
                pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
            except _DAMAGED:
                message = f"'{info.filename[:80]}' is cut short or damaged."
                raise _bad(path, "No image", message, "Save the image again.") from None
        inputs[at] = torch.from_numpy(pixels.reshape(height, width, channels)).permute(2, 0, 1)
    return inputs


def _opened(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """Open an image and read its header alone; raises `BadInput` or `HostileFile`."""
    from PIL import Image

    giant = HostileFile(f"The image '{info.filename[:80]}' has more than {MAX_PIXELS:,} pixels.")
    try:
        content = io.BytesIO(archive.read(info))
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(content, formats=("PNG", "JPEG"))
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise giant from None
    except _DAMAGED:
        message = f"'{info.filename[:80]}' is damaged, or not a PNG or JPEG image."
        raise _bad(path, "No image", message) from None
    if image.width * image.height > MAX_PIXELS:
        raise giant
    if image.mode not in (*_GREY, *_COLOUR):
        message = f"'{info.filename[:80]}' has pixels of the kind {image.mode}, not 8 bits per channel."
        raise _bad(path, "Kind of image", message, "Save it with 8 bits per channel.")
    return image


def _bad(path: Path, title: str, message: str, remedy: str = _LAYOUT) -> BadInput:
    return bad_file(path, title, message, remedy)
