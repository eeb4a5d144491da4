"""One GPU as NVML sees it. Figures that NVML cannot tell are None, and a note says why."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pynvml

_GROWN_BYTES = 64 * 2**20  # less than any CUDA context, more than what desktop windows take and return
_LONGEST_GAP_S = 5.0  # a longer gap between two samples says nothing about the GPU
# What no card has: drivers that wrap their counters report far more (2**64 - x, 0xFFFFFFFF).
_MOST_BYTES, _MOST_MW, _MOST_MJ, _MOST_C = 2**50, 20_000_000, 2**56, 200

NVML_PROCESS, NVML_DEVICE = "NVML process", "NVML device"
ABSENT = "NVML cannot be used here ({error}): memory, utilisation and power of the GPU are not available."
NO_CARD = "NVML does not know this GPU ({error}): its memory, utilisation and power are not available."
_WHOLE = "figures are those of the whole GPU, and the growth of its memory in use counts as this run's."
HOST_PIDS = f"NVML names processes by the host's numbers (a container without --pid=host): {_WHOLE}"
NO_PROCESSES = f"NVML lists no processes here, as in some containers: {_WHOLE}"
NO_SIZES = f"The driver reports no memory by process (N/A): {_WHOLE}"
SHARED = "Utilisation, power and energy are those of the whole GPU, which other processes use too."
PARTITIONED = "The GPU is partitioned (MIG): utilisation, power and energy are not those of this partition alone."
MISSING = "NVML cannot tell {what} of this GPU ({error})."
IMPOSSIBLE = "The driver reports an impossible figure for {what} of this GPU, which is not available therefore."


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Figures of NVML at one instant; None if it cannot tell."""

    process_bytes: int | None = None
    """Of the given processes."""
    device_bytes: int | None = None
    """In use by all processes, without what the driver reserves for itself; `nvidia-smi` shows the same."""
    others_bytes: int | None = None
    """Of all other processes."""
    utilisation: float | None = None
    """Share of time in which some kernel ran, 0 to 1."""
    power_w: float | None = None
    notes: tuple[str, ...] = ()
    """Why figures are missing, or what they include, as people read it."""
    total_bytes: int | None = None
    energy_j: float | None = None
    """Of the whole GPU, since the driver was loaded."""


class GpuUse:
    """Adds up seconds and energy of one GPU over readings; a gap in sampling adds neither. For one thread."""

    def __init__(self, before: GpuReading):
        self._before = before
        self._last: tuple[float, float] | None = None
        """Time and utilisation of the last reading."""
        self.gpu_s: float | None = None
        self.energy_j: float | None = None

    def add(self, at_s: float, seen: GpuReading) -> None:
        """Add the reading at `at_s`."""
        if seen.utilisation is not None:
            last_s, utilisation = self._last or (at_s, seen.utilisation)
            self.gpu_s = self.gpu_s or 0.0
            if at_s - last_s <= _LONGEST_GAP_S:
                self.gpu_s += (at_s - last_s) * (utilisation + seen.utilisation) / 2
            self._last = at_s, seen.utilisation
        if seen.energy_j is not None and self._before.energy_j is not None:
            self.energy_j = seen.energy_j - self._before.energy_j

    def columns(self) -> dict[str, float]:
        """Known sums as columns of a run."""
        known = {"gpu_s": self.gpu_s, "energy_j": self.energy_j}
        return {name: value for name, value in known.items() if value is not None}


class GpuSampler:
    """Reads one GPU; never raises, and is safe in any thread."""

    def __init__(self, index: int, *, nvml: Any = pynvml, proc: Path = Path("/proc")):
        """`index` counts the visible GPUs by their place on the bus, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID."""
        self._nvml, self._proc, self._lock = nvml, proc, threading.Lock()
        self._handle: Any = None
        self._first_device_bytes: int | None = None
        self._most_bytes = _MOST_BYTES
        problem = ABSENT
        try:
            nvml.nvmlInit()
            problem = NO_CARD
            self._handle = gpu_handle(index, nvml)
        except Exception as error:  # NVML fails in many ways
            self._fixed_notes = [problem.format(error=_text(error))]
        else:
            self._fixed_notes = [PARTITIONED] if self._is_partitioned() else []
            with contextlib.suppress(Exception):
                total_bytes = int(self._memory().total)  # 0 where the GPU has the memory of the host
                self._most_bytes = total_bytes if 0 < total_bytes < _MOST_BYTES else _MOST_BYTES

    def read(self, pids: Iterable[int]) -> GpuReading:
        """Figures of this instant, for these processes together and for all processes."""
        if self._handle is None:
            return GpuReading(notes=tuple(self._fixed_notes))
        with self._lock:
            return self._read(frozenset(pids))

    @property
    def lost(self) -> bool:
        """Whether NVML did not know the GPU; another sampler may find it later."""
        return self._handle is None

    def temperature_c(self) -> float | None:
        """Of the chip; None if NVML cannot tell."""
        with self._lock, contextlib.suppress(Exception):  # no sensor, or the card is gone
            found = float(self._nvml.nvmlDeviceGetTemperature(self._handle, self._nvml.NVML_TEMPERATURE_GPU))
            return found if abs(found) < _MOST_C else None
        return None

    def processes(self) -> dict[int, int | None]:
        """Bytes of each process that holds memory, by PID as NVML names it; empty if it lists none."""
        with self._lock, contextlib.suppress(Exception):
            return self._possible(self._listed())
        return {}

    # -- inside

    def _read(self, pids: frozenset[int]) -> GpuReading:
        nvml, handle, notes = self._nvml, self._handle, [*self._fixed_notes]

        def ask(what: str, question: Callable[[], Any]) -> Any:
            """The answer of NVML; a question that fails becomes a note, and None."""
            try:
                return question()
            except Exception as error:  # it must not cost a training
                notes.append(MISSING.format(what=what, error=_text(error)))
                return None

        def possible(what: str, value: int | None, most: int) -> int | None:
            """The value; one that cannot be becomes a note, and None."""
            if _can_be(value, most):
                return value
            notes.append(IMPOSSIBLE.format(what=what))
            return None

        memory = ask("its memory", self._memory)
        total = None if memory is None else possible("memory", int(memory.total), _MOST_BYTES)
        used = None if memory is None else possible("memory in use", int(memory.used), self._most_bytes)
        if self._first_device_bytes is None:
            self._first_device_bytes = used
        listed = ask("memory by process", self._listed)
        rates = ask("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power_mw = possible("power", ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle)), _MOST_MW)
        energy_mj = possible(
            "energy", ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)), _MOST_MJ
        )
        percent = None if rates is None else possible("utilisation", rates.gpu, 100)  # `rates.memory` is the bus
        own_bytes, others_bytes = None, None
        if listed is not None:
            sizes = self._possible(listed)
            own_bytes, others_bytes = self._told_apart(sizes, pids, used, notes)
            if sizes != listed:
                notes.append(IMPOSSIBLE.format(what="memory by process"))
            own_bytes = possible("memory by process", own_bytes, self._most_bytes)
            others_bytes = possible("memory by process", others_bytes, self._most_bytes)
        return GpuReading(
            process_bytes=own_bytes,
            device_bytes=used,
            others_bytes=others_bytes,
            utilisation=None if percent is None else percent / 100,
            power_w=None if power_mw is None else power_mw * 1e-3,
            notes=tuple(notes),
            total_bytes=total or None,
            energy_j=None if energy_mj is None else energy_mj * 1e-3,
        )

    def _is_partitioned(self) -> bool:
        try:
            return bool(
                self._nvml.nvmlDeviceIsMigDeviceHandle(self._handle) or self._nvml.nvmlDeviceGetMigMode(self._handle)[0]
            )
        except Exception:  # no such question on cards that cannot be partitioned
            return False

    def _memory(self) -> Any:
        """Version 2 of the answer if there is one: version 1 counts the driver's reserve as used."""
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(self._handle, version=self._nvml.nvmlMemory_v2)
        except Exception:  # an older driver, or an older library that knows no versions
            return self._nvml.nvmlDeviceGetMemoryInfo(self._handle)

    def _listed(self) -> dict[int, int | None]:
        """Bytes by process; one that uses both compute and graphics is listed twice with the same figure."""
        found = list(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        with contextlib.suppress(Exception):  # a partition has no graphics
            found += self._nvml.nvmlDeviceGetGraphicsRunningProcesses(self._handle)
        sizes: dict[int, int | None] = {}
        for process in found:
            size_bytes = None if process.usedGpuMemory is None else int(process.usedGpuMemory)
            sizes[process.pid] = size_bytes if size_bytes is not None else sizes.get(process.pid)
        return sizes

    def _possible(self, listed: dict[int, int | None]) -> dict[int, int | None]:
        """Bytes by process; None for more than the card has."""
        return {pid: size if _can_be(size, self._most_bytes) else None for pid, size in listed.items()}

    def _told_apart(
        self, listed: dict[int, int | None], pids: frozenset[int], used: int | None, notes: list[str]
    ) -> tuple[int | None, int | None]:
        """Bytes of these processes and of all others; None, and a note, if NVML does not tell."""
        own = [size for pid, size in listed.items() if pid in pids]
        others = [size for pid, size in listed.items() if pid not in pids]
        problem = None
        if None in own:
            problem = NO_SIZES
        elif not own and not all((self._proc / str(pid)).exists() for pid in listed):
            problem, others = HOST_PIDS, []
        elif not listed and used is not None and used - (self._first_device_bytes or 0) > _GROWN_BYTES:
            problem = NO_PROCESSES
        notes += [note for note in (problem, SHARED if others else None) if note is not None]
        if problem is not None:
            return None, None
        return sum(filter(None, own)) if own else None, None if None in others else sum(filter(None, others))


def gpu_count(nvml: Any = pynvml) -> int:
    """Number of GPUs that NVML sees and CUDA_VISIBLE_DEVICES names, without loading torch; 0 if there is no NVML."""
    try:
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
    except Exception:  # no driver, no card or no permission: there is none for us
        return 0
    visible = _visible()
    return count if visible is None else min(count, len(visible))


def gpu_handle(index: int, nvml: Any = pynvml) -> Any:
    """NVML's handle of the GPU that CUDA calls `cuda:INDEX`. NVML must have been initialised; it raises `NVMLError`."""
    visible = _visible() or []
    name = visible[index] if index < len(visible) else str(index)
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name)


def _visible() -> list[str] | None:
    """Entries of CUDA_VISIBLE_DEVICES as CUDA reads it: those before the first invalid one. None if it is not set."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [] if text is None else [name.strip() for name in text.split(",")]
    return None if text is None else list(takewhile(lambda name: name not in ("", "-1"), names))


def _can_be(value: int | None, most: int) -> bool:
    """Whether a figure of the driver is one that the card can have, or none."""
    return value is None or 0 <= value <= most


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
