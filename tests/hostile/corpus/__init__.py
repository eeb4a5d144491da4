"""Hostile files by format. Each entry writes one file into a folder; its payload would leave a mark there."""

from collections.abc import Callable
from pathlib import Path

from tests.hostile.corpus import archives, data, documents, images, modules, pickles, readers, tables, texts, weights

Maker = Callable[[Path], Path]
"""Writes a hostile file into an empty folder and returns its path; its payload would make the folder's `CANARY`."""

CORPUS: dict[str, Maker] = {
    f"{room}/{name}": maker
    for room, makers in {
        "exported": archives.MAKERS,
        "pickle": pickles.MAKERS,
        "module": modules.MAKERS,
        "weights": weights.MAKERS,
        "data": data.MAKERS,
        "table": tables.MAKERS,
        "text": texts.MAKERS,
        "images": images.MAKERS,
        "readers": readers.MAKERS,
        "document": documents.MAKERS,
    }.items()
    for name, maker in makers.items()
}
HARMLESS: dict[str, Maker] = {
    f"{room}/{name}": maker
    for room, makers in {
        "exported": archives.HARMLESS,
        "document": documents.HARMLESS,
        "images": images.HARMLESS,
        "readers": readers.HARMLESS,
        "data": data.HARMLESS,
        "table": tables.HARMLESS,
    }.items()
    for name, maker in makers.items()
}
"""Accepted as what they are; the harmful part of them is never opened."""
