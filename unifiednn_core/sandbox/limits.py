"""How much a stranger's code may take: memory, time, files."""

import os
import resource
from dataclasses import dataclass

_MIB = 1024**2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GRACE_S = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """What one conversion may take. The defaults fit networks of up to about 1 GB of weights."""

    memory_bytes: int = 4096 * _MIB
    """Address space beside what torch itself takes."""
    cpu_s: int = 120
    wall_s: float = 180.0
    result_bytes: int = 2048 * _MIB
    """Size of the converted file; no other file can be written."""
    log_bytes: int = 1 * _MIB
    """What the code may print before it is ended."""
    open_files: int = 256


def restrain(limits: Limits) -> None:
    """Bound processor time, files and core dumps of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + _GRACE_S)
    _lower(resource.RLIMIT_FSIZE, limits.result_bytes, limits.result_bytes)
    _lower(resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    _lower(resource.RLIMIT_MEMLOCK, 0, 0)
    _lower(resource.RLIMIT_MSGQUEUE, 0, 0)


def restrain_memory(more_bytes: int, statm: int) -> None:
    """Bound the address space to what is taken now and `more_bytes`; `statm` is an open /proc/self/statm."""
    taken_bytes = int(os.pread(statm, 256, 0).split()[0]) * _PAGE_BYTES
    _lower(resource.RLIMIT_AS, taken_bytes + more_bytes, taken_bytes + more_bytes)


def _lower(limit: int, soft: int, hard: int) -> None:
    _, most = resource.getrlimit(limit)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(limit, (soft, hard))
