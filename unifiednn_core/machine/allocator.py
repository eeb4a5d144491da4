"""The memory allocator of training workers: tcmalloc or mimalloc where the machine has one, else that of the C library.
The server keeps that of the C library, with other settings.

glibc keeps about a fifth of a worker's peak for later, in pieces of any size; these two keep less, and take no more
processor time. A worker gets it by LD_PRELOAD, which decides over all libraries of a process, torch's among them.
"""

import ctypes
import os
import platform
import subprocess
import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

GLIBC, TCMALLOC, MIMALLOC = "glibc", "tcmalloc", "mimalloc"
_PRELOAD = "LD_PRELOAD"
_PATIENCE_S = 10.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_RETURNED_BYTES = 128 * 1024
_FILES: Final = {"libtcmalloc_minimal.so.4": TCMALLOC, "libmimalloc.so.3": MIMALLOC, "libmimalloc.so.2": MIMALLOC}
"""In order of preference; docs/LOG.md says what was measured."""


class Releasing(NamedTuple):
    """How an allocator returns what it keeps, by a function of it."""

    allocator: str
    function: str
    arguments: tuple[int, ...]


_RELEASING: Final = (
    Releasing(TCMALLOC, "MallocExtension_ReleaseFreeMemory", ()),
    Releasing(MIMALLOC, "mi_collect", (1,)),
    Releasing(GLIBC, "malloc_trim", (0,)),
)


def preloading(environment: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment of a worker; nothing if none is installed, or something is preloaded already."""
    chosen = None if environment.get(_PRELOAD) else library()
    return {} if chosen is None else {_PRELOAD: str(chosen)}


def forget_preloading() -> None:
    """Let the processes that this worker starts have the allocator of their system."""
    if Path(os.environ.get(_PRELOAD, "")).name in _FILES:
        del os.environ[_PRELOAD]


@cache
def library() -> Path | None:
    """The best allocator that is installed and can be loaded, by the system or by `unifiednn[allocator]`."""
    system = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    folders = (*map(Path, system), Path(sysconfig.get_path("platlib"), "cmeel.prefix", "lib"))
    installed = (folder / name for name in _FILES for folder in folders)
    return next((file for file in installed if file.is_file() and _loads(file)), None)


def _loads(file: Path) -> bool:
    """Whether a process starts with it: one that needs a library that is missing would end each worker at once."""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            ["true"],
            env={_PRELOAD: str(file), "PATH": os.defpath},
            stdin=quiet,
            stdout=quiet,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and not done.stderr  # the loader says there why it ignores one


def of_workers(environment: Mapping[str, str] = os.environ) -> str:
    """Name of the allocator that a worker of this machine gets."""
    preloaded = preloading(environment).get(_PRELOAD) or environment.get(_PRELOAD, "")
    return _FILES.get(Path(preloaded).name, GLIBC)


@cache
def of_this_process() -> str | None:
    """Name of the allocator in use here; None if it is another one."""
    found = _releasing()
    return None if found is None else found[0].allocator


def release() -> None:
    """Return what the allocator keeps to the system; does nothing with an unknown one."""
    if (found := _releasing()) is not None:
        found[1](*found[0].arguments)


def return_early() -> None:
    """Have glibc keep little for later in this process; does nothing with another allocator.

    A server starts a thread for each update of each page. glibc gives threads heaps of their own and, after the first
    large block is freed, puts large blocks there too. These heaps fill with gaps and grow as viewers come and go.
    """
    if of_this_process() == GLIBC:
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        # A threshold that is set stays as it is.
        mallopt(_M_MMAP_THRESHOLD, _RETURNED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _RETURNED_BYTES)


@cache
def _releasing() -> tuple[Releasing, Callable[..., object]] | None:
    """The first of these functions that this process has: only a preloaded library has them for all."""
    process = ctypes.CDLL(None)
    return next(((how, getattr(process, how.function)) for how in _RELEASING if hasattr(process, how.function)), None)
