"""Memory of the machine, or of the container that this process is in."""

from pathlib import Path

import psutil

_CGROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def host_memory() -> tuple[int, int]:
    """Bytes in all and bytes that are free, of the machine or of the container if that has less."""
    memory = psutil.virtual_memory()
    total_bytes, free_bytes = int(memory.total), int(memory.available)
    for folder, limit, used in _own_cgroups():
        limit_bytes, used_bytes = _number(folder / limit), _number(folder / used)
        if limit_bytes is not None and used_bytes is not None and limit_bytes < total_bytes:
            total_bytes = limit_bytes
            cached = [line.split()[1] for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
            reclaimable_bytes = sum(map(int, cached))  # files that the kernel drops when memory runs short
            free_bytes = min(free_bytes, max(0, limit_bytes - used_bytes + reclaimable_bytes))
    return total_bytes, free_bytes


def _own_cgroups() -> list[tuple[Path, str, str]]:
    """Control groups of this process up to the visible root, each with the names of its limit and usage files."""
    found = []
    for line in _lines(_OWN_GROUPS):
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            root, names = _CGROUPS, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = root / path.strip("/")
        found += [(folder, *names) for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return found


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
