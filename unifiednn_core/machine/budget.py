"""How much memory a device has and how much of it is free, without torch."""

from dataclasses import dataclass

import pynvml

from unifiednn_core.base.paths import cpu_devices
from unifiednn_core.machine.devices import best_match, devices_known
from unifiednn_core.machine.gpu import gpu_handle
from unifiednn_core.machine.host import host_memory
from unifiednn_core.spec.devices import SERVER, host_of, type_named


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes of one device; None is not available."""

    total_bytes: int | None
    free_bytes: int | None


UNKNOWN = Budget(None, None)


def slot(asked: str) -> str:
    """Name of the best known device for what a spec asks; without one, what was asked."""
    found = best_match(asked)
    return asked if found is None else found.name


def device_type(asked: str) -> str:
    """`cpu` or `cuda`."""
    return type_named(slot(asked))


def budget_of(device: str) -> Budget:
    """Memory of a device now, by its name; unknown for a GPU that NVML cannot read.

    `cpu:N` has an equal share of the host's memory; what is free is free for all of them. Of a device of another host
    only the total is known.
    """
    if host_of(device) != SERVER:
        found = next((one for one in devices_known() if one.name == device), None)
        return UNKNOWN if found is None else Budget(found.total_bytes, None)
    kind, _, index = device.partition(":")
    if kind == "cuda":
        return _of_gpu(int(index)) if index.isdecimal() else UNKNOWN
    total_bytes, free_bytes = host_memory()
    return Budget(total_bytes // cpu_devices() if index else total_bytes, free_bytes)


def _of_gpu(index: int) -> Budget:
    try:
        pynvml.nvmlInit()
        memory = pynvml.nvmlDeviceGetMemoryInfo(gpu_handle(index))
    except pynvml.NVMLError:
        return UNKNOWN
    total_bytes, free_bytes = int(memory.total), int(memory.free)
    return Budget(total_bytes, free_bytes if 0 <= free_bytes <= total_bytes else None)  # some drivers wrap it
