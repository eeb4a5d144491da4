"""Files in shared folders of the server, for import without an upload.

`UNIFIEDNN_FOLDERS` names the folders, separated as in PATH. Files outside are unreachable: each part of a path is
opened separately, without following symbolic links.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from unifiednn_core.base.errors import NotFound
from unifiednn_core.views.library import ServerFile

FOLDERS_VARIABLE = "UNIFIEDNN_FOLDERS"
LISTED = 2000
"""Most files that are listed."""
DEEPEST = 6


def folders() -> tuple[Path, ...]:
    """The shared folders, as named in the environment."""
    named = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    return tuple(Path(folder).expanduser().resolve() for folder in named if folder.strip())


def listing(suffixes: Sequence[str] = ()) -> tuple[ServerFile, ...]:
    """Files with these suffixes in all folders, by name, without links and hidden files."""
    wanted = tuple(f".{suffix.lower()}" for suffix in suffixes)
    found = [
        ServerFile(name=f"{place}/{below}", shown=f"{folder.name}/{below}", size_bytes=size_bytes)
        for place, folder in enumerate(folders())
        for below, size_bytes in _walk(folder, "", wanted, DEEPEST)
    ]
    return tuple(sorted(found, key=lambda file: file.shown)[:LISTED])


def open_file(name: str) -> BinaryIO:
    """Open a file of the listing; raises `NotFound` for any other."""
    place, _, below = name.partition("/")
    parts = below.split("/")
    known = folders()
    if not (place.isascii() and place.isdigit() and int(place) < len(known)):
        raise unknown()
    if any(part in ("", ".", "..") or part.startswith(".") or "\0" in part for part in parts):
        raise unknown()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not block
    try:
        handle = os.open(known[int(place)], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for at, part in enumerate(parts):
            kind = os.O_DIRECTORY if at < len(parts) - 1 else 0
            handle = _open_below(part, flags | kind, handle)
    except OSError:
        raise unknown() from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise unknown()
    return os.fdopen(handle, "rb")


def _open_below(part: str, flags: int, folder: int) -> int:
    try:
        return os.open(part, flags, dir_fd=folder)
    finally:
        os.close(folder)


def _walk(folder: Path, below: str, suffixes: tuple[str, ...], deep: int) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            if deep > 0:
                yield from _walk(Path(entry.path), f"{path}/", suffixes, deep - 1)
        elif entry.is_file(follow_symlinks=False) and (not suffixes or entry.name.lower().endswith(suffixes)):
            yield path, entry.stat(follow_symlinks=False).st_size


def unknown() -> NotFound:
    """The error for a file that is not in the listing."""
    return NotFound("There is no such file in the folders of the server. Choose one that is listed.")
