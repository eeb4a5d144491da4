"""Memory that is filled with a pattern when it is handed out: what reads it before writing gives itself away.

glibc fills every block of `malloc` on request, but for those of a thread's own cache, which a variable of the
environment turns off before a process starts. Other C libraries do nothing; the known leaks notice that.
"""

import ctypes
import os
import sys
from functools import cache

ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1",
    "MKL_DISABLE_FAST_MM": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_PERTURB = -1, -3, -6
_KEPT_BYTES = 32 * 1024**2  # the most that glibc takes
_TOP_BYTES = 1024**2


def start_over(module: str) -> None:
    """Begin this module again in the environment above, unless it runs in it."""
    if any(os.environ.get(key) != value for key, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], os.environ | ENVIRONMENT)


def fill_memory(byte: int) -> None:
    """Fill what `malloc` hands out from now on with a byte, and what is freed with its complement."""
    _libc().mallopt(_M_PERTURB, byte ^ 0xFF)
    _libc().free(_libc().malloc(_TOP_BYTES))  # what follows the last block of the heap would be zero


def overrun(address: int) -> bool:
    """Whether a write past the end of a `malloc` block has overwritten the size field of the next block.

    `address` is a multiple of 64, as torch asks for. Lengths are multiples of 16; bit 0 says that the block before it
    is in use, bit 1 that the block stands alone.
    """
    if not hasattr(_libc(), "gnu_get_libc_version"):
        return False
    length = ctypes.c_uint64.from_address(address - 8).value
    if length & 2:
        return False
    following = ctypes.c_uint64.from_address(address - 8 + (length & ~7)).value
    return not following & 1 or not 32 <= following & ~7 < 2**40


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)  # memory from the system would be zero
    libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    return libc
