"""Durable and private files, and safe file names."""

import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.visible import is_visible

LONGEST_NAME = 160


@functools.cache
def set_private_umask() -> int:
    """From now on, make files and folders of this process and its children for their user alone.

    For the entry points of processes that write into the home. Returns the umask of the user, also at later calls.
    """
    return os.umask(0o077)


def apply_user_umask(path: Path) -> None:
    """Give a file that leaves the home the permissions that the user's umask asks for. Raises `OSError`."""
    path.chmod(0o666 & ~set_private_umask())


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, which makes a rename durable, to disk; raises `OSError`."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_replace(target: Path) -> Iterator[Path]:
    """Yield a temporary file beside the target; it replaces the target at the end, and an error leaves no trace."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def copy_into(source: Path, folder: Path, name: str | None = None) -> Path:
    """Copy a file into a folder atomically, by default under its own name. Raises `OSError`."""
    failpoints.passing("download.before_copy")
    target = folder / (name or source.name)
    with atomic_replace(target) as temporary:
        shutil.copyfile(source, temporary)
        failpoints.passing("download.before_rename")
    return target


def move(source: Path, target: Path) -> None:
    """Rename a file of the same disk; once this returns, its content and its name are on disk. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sync(source)
    source.replace(target)
    sync(target.parent)
    sync(target.parent.parent)  # `target.parent` may be new


def file_sha256(path: Path) -> str:
    """SHA-256 of the bytes of a file, in hex. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Raises `OSError`."""
    with atomic_replace(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def plain_folder(folder: Path, *names: str, make: bool = False) -> Iterator[int]:
    """Descriptor of a folder in a folder in which a confined worker may write; no name may be a link. Raises `OSError`.

    With `make`, missing ones are made.
    """
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=place)
            outer, own = place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            place = os.open(name, own, dir_fd=outer)
            os.close(outer)
        yield place
    finally:
        os.close(place)


def open_plain(folder: Path, name: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file in a folder in which a confined worker may write; returns its descriptor. Raises `OSError`.

    No part of `name` may be a link, which could lead to what the worker cannot read; a pipe blocks nobody.
    """
    with plain_folder(folder, *Path(name).parts[:-1]) as place:
        last = Path(name).name
        handle = os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=place)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "This is no regular file", str(folder / name))
    return handle


def is_plain(folder: Path, name: str) -> bool:
    """Whether no part of `name` is a link, for who needs a path; there may be nothing at all."""
    real = folder.resolve()
    return (real / name).resolve() == real / name


def last_lines(folder: Path, name: str, most_bytes: int) -> tuple[str, int]:
    """The end of a text file, whole lines of at most so many bytes, and its size. Raises as `open_plain`."""
    with os.fdopen(open_plain(folder, name), "rb") as opened:
        size_bytes = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size_bytes - most_bytes))
        text = opened.read(most_bytes).decode("utf-8", errors="replace")
    text = text if size_bytes <= most_bytes else text.partition("\n")[2]
    return text if not text or text.endswith("\n") else f"{text}\n", size_bytes


@contextmanager
def folder_lock(folder: Path, *, exclusive: bool = False) -> Iterator[None]:
    """Hold a shared or `exclusive` lock on a folder, across processes; waits for those who hold it otherwise."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def safe_file_name(given: str) -> str:
    """Strip folders and invisible characters from a file name.

    Raises `BadInput` if nothing is left.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", given))[-1]
    shown = "".join(sign for sign in last if is_visible(sign)).strip(" .")
    if not shown:
        raise BadInput.of("Name", "filename", "This file has no name.", "Give it one, such as model.pt2.")
    if len(shown) > LONGEST_NAME:
        stem, dot, suffix = shown.rpartition(".")
        shown = f"{stem[: LONGEST_NAME - len(suffix) - 1]}{dot}{suffix}"[:LONGEST_NAME]
    return shown
