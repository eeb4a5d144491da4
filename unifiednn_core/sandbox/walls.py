"""All walls of one process, in the order in which they can be put up."""

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.sandbox import landlock, limits, seccomp, system

_PACKAGE = Path(__file__).resolve().parents[1]
# Libraries of the system, and what torch asks about the processor.
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/sys/devices/system/cpu", "/proc/cpuinfo", "/proc/meminfo", "/dev/null", "/dev/urandom",
)  # fmt: skip
_NICENESS = 10


class NoWalls(RuntimeError):
    """A process cannot be walled in; the message says why."""


@dataclass(frozen=True, slots=True)
class Walls:
    """What a process behind walls may read, and how much it may take."""

    readable: tuple[str, ...]
    limits: limits.Limits
    parent: int
    """Process id to die with; 0 where the process cannot see it."""
    sees_only_readable: bool = False
    """Whether there are no other files for it, so that walls without Landlock do."""


def libraries() -> tuple[str, ...]:
    """Folders and files of Python, of installed packages and of the system that Python code needs to run."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    base = Path(sys.base_prefix)
    own |= {str(base / "lib"), str(Path(sys.prefix) / "pyvenv.cfg"), str(_PACKAGE)}
    return tuple(sorted(path for path in own if path)) + _SYSTEM


def put_up(walls: Walls) -> None:
    """Close this process in; raises `NoWalls` where one wall cannot be had.

    Needs a single thread, because walls hold for the thread that puts them up and for what it starts.
    """
    machine = system.machine()
    if machine is None:
        raise NoWalls("Walls are known for Linux on x86_64 and aarch64 alone")
    if (running := system.threads()) != 1:
        raise NoWalls(f"The process has {running} threads already")
    if not landlock.version() and not walls.sees_only_readable:
        raise NoWalls("The kernel has no Landlock")
    try:
        system.die_with_parent(walls.parent)
        os.nice(_NICENESS)
        system.end_first()
        system.hide_memory()
        limits.restrain(walls.limits)
        system.drop_capabilities()
        if landlock.version():
            landlock.restrict(walls.readable)
        seccomp.install(machine)
    except (OSError, ValueError) as error:
        raise NoWalls(f"A wall could not be put up ({error})") from error
