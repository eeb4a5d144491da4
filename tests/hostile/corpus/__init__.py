"""Files that mean harm, by format. Each entry makes one file into a folder; what it would do leaves a mark there."""

from collections.abc import Callable
from pathlib import Path

from tests.hostile.corpus import archives, data, documents, images, modules, pickles, tables, weights

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
        "images": images.MAKERS,
        "document": documents.MAKERS,
    }.items()
    for name, maker in makers.items()
}
HARMLESS: dict[str, Maker] = {**archives.HARMLESS, **documents.HARMLESS, **images.HARMLESS, **data.HARMLESS}
"""Taken for what they are; what would do harm in them is never looked at."""
