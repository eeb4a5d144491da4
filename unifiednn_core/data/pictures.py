"""Decodes PNG and JPEG images of an archive, some at a time. Headers are checked before anything is decoded."""

import io
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.values import ImportOptions
from unifiednn_core.formats import zips
from unifiednn_core.formats.predict import COLOUR, GREY, pixels_of
from unifiednn_core.formats.tensor_files import bad_file

SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_IMAGE_BYTES = 64 * 1024**2
MAX_PIXELS = 2**24
FREE_DECODED_BYTES = 2 * 1024**3
"""Decoded bytes of which any archive may have as many."""
DAMAGED = (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, struct.error, zlib.error)
REPACK = "Give PNG or JPEG images, each whole."
CHOOSE_SIZE = "Choose one size for all where you add the file: 'Size of images', or --size 224 on the command line."


@dataclass(frozen=True, slots=True)
class Pictures:
    """Images of an archive as uint8 [samples, channels, height, width], decoded when they are asked for."""

    archive: Archive
    entries: Sequence[Entry]
    channels: int
    height: int
    width: int
    resized: bool
    sizes: Mapping[str, tuple[int, int]]  # height and width of each file, by its name

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape and type without content."""
        shape = (len(self.entries), self.channels, self.height, self.width)
        return torch.empty(shape, dtype=torch.uint8, device="meta")

    def rows(self, start: int, end: int) -> Tensor:
        """Decode some images; raises `BadInput` or `HostileFile`."""
        found = torch.empty(end - start, *self.like.shape[1:], dtype=torch.uint8)
        for at, entry in enumerate(self.entries[start:end]):
            found[at] = self._decoded(entry)
        return found

    def _decoded(self, entry: Entry) -> Tensor:
        image = header_of(self.archive, entry)
        with undamaged(self.archive.path, entry.name[:80]):
            pixels = pixels_of(image, self.channels, self.height if self.resized else None)
        return torch.from_numpy(pixels)


@contextmanager
def undamaged(path: Path, shown: str) -> Iterator[None]:
    """Turn errors of a decoder into the finding for a damaged image."""
    try:
        yield
    except (BadInput, HostileFile):
        raise
    except DAMAGED:
        message = f"'{shown}' is cut short or damaged."
        raise bad_file(path, "No image", message, "Save the image again.") from None


def pictures(archive: Archive, groups: Mapping[str, Sequence[Entry]], options: ImportOptions) -> dict[str, Pictures]:
    """Check the headers of all images; returns those of each group, all of one size and kind.

    Raises `BadInput`, or `HostileFile` for images that are far larger than images are.
    """
    wanted = {entry.name for group in groups.values() for entry in group}
    kinds = {}
    for entry in archive.entries:
        if entry.name in wanted:
            image = header_of(archive, entry)
            kinds[entry.name] = (image.height, image.width, image.mode)
    height, width = _size(archive.path, kinds, options)
    channels = 1 if all(mode in GREY for _, _, mode in kinds.values()) else 3
    check_decoded(archive.path, len(kinds), channels * height * width)
    resized = options.size is not None
    sizes = {name: kind[:2] for name, kind in kinds.items()}
    return {
        name: Pictures(archive, list(group), channels, height, width, resized, sizes) for name, group in groups.items()
    }


def _size(path: Path, kinds: Mapping[str, tuple[int, int, str]], options: ImportOptions) -> tuple[int, int]:
    if options.size is not None:
        return options.size, options.size
    sizes = Counter((height, width) for height, width, _ in kinds.values())
    height, width = sizes.most_common(1)[0][0]
    if len(sizes) > 1:
        others = [f"'{name[:80]}' ({h}x{w})" for name, (h, w, _) in kinds.items() if (h, w) != (height, width)]
        shorter = [min(size) for size in sizes]
        message = (
            f"Images are {height}x{width} (height x width), but {abbreviated(others, 3)}. Shorter sides are from "
            f"{min(shorter)} to {max(shorter)} pixels."
        )
        raise bad_file(path, "Sizes differ", message, CHOOSE_SIZE)
    return height, width


def check_decoded(path: Path, samples: int, sample_bytes: int) -> None:
    """Refuse images that decode to far more than images do; raises `BadInput`."""
    most_bytes = max(FREE_DECODED_BYTES, zips.MAX_UNPACKED_RATIO * path.stat().st_size)
    if samples * sample_bytes > most_bytes:
        message = f"{samples:,} images of {sample_bytes:,} bytes each need more than {most_bytes / 1024**3:.3g} GiB."
        raise bad_file(path, "Too large", message, f"Give smaller or fewer images. {CHOOSE_SIZE}")


def header_of(archive: Archive, entry: Entry) -> Any:
    """Open an image and read its header alone; raises `BadInput` or `HostileFile`."""
    return header(archive.path, entry.name[:80], archive.read(entry, MAX_IMAGE_BYTES))


def header(path: Path, shown: str, content: bytes, modes: Sequence[str] = (*GREY, *COLOUR)) -> Any:
    """Open the bytes of an image that is `shown` to people; raises `BadInput` or `HostileFile`."""
    from PIL import Image

    giant = HostileFile(f"The image '{shown}' has more than {MAX_PIXELS:,} pixels.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(content), formats=("PNG", "JPEG"))
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise giant from None
    except DAMAGED:
        message = f"'{shown}' is damaged, or not a PNG or JPEG image."
        raise bad_file(path, "No image", message, REPACK) from None
    if image.width * image.height > MAX_PIXELS:
        raise giant
    if image.mode not in modes:
        message = f"'{shown}' has pixels of the kind {image.mode}; {', '.join(modes)} are read."
        raise bad_file(path, "Kind of image", message, "Save it with 8 bits per channel.")
    return image


def remarks(options: ImportOptions) -> tuple[str, ...]:
    """What was done to the images, in sentences."""
    if options.size is None:
        return ()
    return (f"Images: the square in the middle was resized to {options.size}x{options.size} (Pillow, bilinear).",)
