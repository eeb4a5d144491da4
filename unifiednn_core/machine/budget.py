"""How much memory a device has and how much of it is free, without torch."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil
import pynvml

from unifiednn_core.base.units import memory_text
from unifiednn_core.machine.gpu import gpu_count

_CGROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes of one device; None is not available."""

    total_bytes: int | None
    free_bytes: int | None


UNKNOWN = Budget(None, None)


def slot(device: str) -> str:
    """Device that a spec's `auto`, `cpu`, `cuda` or `cuda:N` means on this machine."""
    if device == "auto":
        return "cuda:0" if gpu_count() and not version("torch").endswith("+cpu") else "cpu"
    return "cuda:0" if device == "cuda" else device


def device_type(device: str) -> str:
    """`cpu` or `cuda`."""
    return slot(device).partition(":")[0]


def budget_of(device: str) -> Budget:
    """Memory of a device of this machine now; unknown for a GPU that NVML cannot read."""
    name, _, index = slot(device).partition(":")
    return _of_host() if name == "cpu" else _of_gpu(int(index))


def shortage(device: str, needed_bytes: int, budget: Budget) -> str | None:
    """Reason why a run that needs `needed_bytes` has to wait, as text after "waits for"; None if it can start."""
    total_bytes, free_bytes = budget.total_bytes, budget.free_bytes
    if free_bytes is None or needed_bytes <= free_bytes:
        return None
    need = f"memory: needs {memory_text(needed_bytes)} on {device}"
    if total_bytes is None:
        return f"{need}, {memory_text(free_bytes)} are free"
    if needed_bytes > total_bytes:
        return f"{need}, which has {memory_text(total_bytes)} in all; stop it, and submit it with smaller batches"
    return f"{need}, {memory_text(free_bytes)} are free; other processes hold {memory_text(total_bytes - free_bytes)}"


def _of_gpu(index: int) -> Budget:
    try:
        pynvml.nvmlInit()
        memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError:
        return UNKNOWN
    return Budget(int(memory.total), int(memory.free))


def _of_host() -> Budget:
    """Memory of the machine, or of the container if that has less."""
    memory = psutil.virtual_memory()
    total_bytes, free_bytes = int(memory.total), int(memory.available)
    for folder, limit, used in _own_cgroups():
        limit_bytes, used_bytes = _number(folder / limit), _number(folder / used)
        if limit_bytes is not None and used_bytes is not None and limit_bytes < total_bytes:
            total_bytes = limit_bytes
            cached = [line.split()[1] for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
            reclaimable_bytes = sum(map(int, cached))  # files that the kernel drops when memory runs short
            free_bytes = min(free_bytes, max(0, limit_bytes - used_bytes + reclaimable_bytes))
    return Budget(total_bytes, free_bytes)


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
