"""Files that outlive a power cut."""

import os
import secrets
import shutil
from pathlib import Path

from unifiednn_core import failpoints


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on disk; raises `OSError`."""
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk: a rename lasts only from then on; raises `OSError`."""
    _sync(folder)


def copy_into(source: Path, folder: Path, name: str | None = None) -> Path:
    """Copy a file into a folder, by default under its own name; there it is whole or not at all. Raises `OSError`."""
    failpoints.passing("download.before_copy")
    target = folder / (name or source.name)
    temporary = folder / f".{target.name}.{secrets.token_hex(4)}.part"
    try:
        shutil.copyfile(source, temporary)
        sync_file(temporary)
        failpoints.passing("download.before_rename")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_text(path: Path, text: str) -> None:
    """Write a file; it is there whole or not at all. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        sync_file(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
