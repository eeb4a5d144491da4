# ruff: noqa: N802  (the names are those of pynvml)
"""A stand-in for pynvml that fails in every way that NVML does."""

import os
from types import SimpleNamespace
from typing import Any

import pynvml

MIB = 2**20
OWN = os.getpid()
OTHER = os.getppid()


class Nvml:
    """Two cards; `failing` names the functions that raise, `error` what."""

    nvmlMemory_v2 = pynvml.nvmlMemory_v2  # noqa: N815  (its own name)
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, *failing: str, error: Exception | None = None, processes: Any = None, used: int = 900 * MIB):
        self.failing = set(failing)
        self.error = error if error is not None else pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self.processes = [(OWN, 500 * MIB), (OTHER, 300 * MIB)] if processes is None else processes
        self.sizes: dict[str, int] = {}
        self.used, self.asked, self.partitioned, self.knows_v2 = used, [], False, True

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name != "nvmlMemory_v2" and name in self.failing:

            def fail(*args: Any, **named: Any) -> Any:
                raise self.error

            return fail
        return super().__getattribute__(name)

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.asked.append(index)
        return f"card {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(uuid)
        return f"card {uuid}"

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.124.06"

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> Any:
        if version is not None and not self.knows_v2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        reserved = 0 if version is not None else 100 * MIB
        return SimpleNamespace(used=self.used + reserved, total=self.sizes.get(handle, 2000 * MIB))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> Any:
        return [SimpleNamespace(pid=OTHER, usedGpuMemory=300 * MIB)] if (OTHER, 300 * MIB) in self.processes else []

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=37, memory=99)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 123_400

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return 5_000

    def nvmlDeviceIsMigDeviceHandle(self, handle: str) -> bool:
        return False

    def nvmlDeviceGetMigMode(self, handle: str) -> Any:
        if not self.partitioned:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [1, 1]
