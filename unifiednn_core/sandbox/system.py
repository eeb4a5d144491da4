"""The kernel's door: system calls that Python has no function for. Linux on x86_64 and aarch64."""

import ctypes
import os
import platform
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_SIGKILL = 9
_CAPABILITIES_VERSION = 0x20080522


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


def machine() -> str | None:
    """`x86_64` or `aarch64` where walls can be built, None elsewhere."""
    known = platform.system() == "Linux" and sys.maxsize > 2**32 and platform.machine() in ("x86_64", "aarch64")
    return platform.machine() if known else None


def call(number: int, *arguments: object) -> int:
    """Make a system call; raises `OSError`."""
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *words))


def prctl(option: int, *arguments: object) -> None:
    """Change something about this process; raises `OSError`."""
    words = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    _checked(_libc().prctl(option, *words, *[ctypes.c_ulong(0)] * (4 - len(words))))


def die_with_parent(parent: int) -> None:
    """Be killed when the process that started this one ends. `parent` is its id; 0 where it cannot be seen."""
    prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if parent and os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def hide_memory() -> None:
    """Leave no core dump, also not to a program that the kernel starts for it; let nobody trace this process."""
    prctl(_PR_SET_DUMPABLE, 0)


def end_first() -> None:
    """Be the process that the kernel ends where the machine runs out of memory."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def drop_capabilities() -> None:
    """Give up every right of root that is more than owning root's files."""
    header = _CapabilityHeader(_CAPABILITIES_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc().capset(ctypes.byref(header), nothing))


def threads() -> int:
    """Threads of this process; walls hold for those that are started behind them."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
