"""The devices of this machine, without torch."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pynvml

from unifiednn_core.base.paths import cpu_devices, offered_devices
from unifiednn_core.machine.cores import cores, default_threads, divided, own_cores
from unifiednn_core.machine.gpu import gpu_count, gpu_handle
from unifiednn_core.machine.host import host_memory
from unifiednn_core.spec.devices import CPU, CUDA
from unifiednn_core.spec.devices import Device as Device
from unifiednn_core.spec.devices import matching as matching

_PROCESSOR = Path("/proc/cpuinfo")
_CAPABILITY = "ATEN_CPU_CAPABILITY"
_LEVELS = {
    "avx512": frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"}),
    "avx2": frozenset({"avx2", "fma"}),
    "default": frozenset[str](),
}
"""Instruction sets for which torch has kernels, the best first, with the flags of the processor that they need."""


_elsewhere: ContextVar[Callable[[], Sequence[Device]]] = ContextVar("elsewhere", default=tuple)
_here: ContextVar[tuple[Device, ...] | None] = ContextVar("here", default=None)


def devices_of_host() -> tuple[Device, ...]:
    """The devices that this machine offers now: GPUs that torch can use, then the CPU.

    Raises `BadInput` for a bad setting.
    """
    found, offered = (*_gpus(), *_cpus(cpu_devices())), offered_devices()
    if offered is None:
        return found
    return tuple(one for one in found if any(one in matching(word, found) for word in offered))


@contextmanager
def knowing(elsewhere: Callable[[], Sequence[Device]]) -> Iterator[None]:
    """Let the block, in this thread, know the devices of other hosts, too."""
    token = _elsewhere.set(elsewhere)
    try:
        yield
    finally:
        _elsewhere.reset(token)


@contextmanager
def looking_once() -> Iterator[None]:
    """Let the block, in this thread, look at the devices of this machine once: a look reads a dozen files."""
    token = _here.set(devices_of_host())
    try:
        yield
    finally:
        _here.reset(token)


def devices_known() -> tuple[Device, ...]:
    """The devices of this machine, and those of other hosts as far as the caller knows them (`knowing`)."""
    here = _here.get()
    return (*(devices_of_host() if here is None else here), *_elsewhere.get()())


def best_match(asked: str) -> Device | None:
    """The known device with most memory that matches, the first of equal ones; None if none does."""
    return max(matching(asked, devices_known()), key=_size, default=None)


def threads_of(asked: str) -> int:
    """CPU threads of a step on the known device that a spec asks for."""
    found = best_match(asked)
    return default_threads() if found is None else found.threads


@cache
def processor_name() -> str:
    """Model of the CPU."""
    facts = _processor()
    arm = " ".join(filter(None, (facts.get("CPU implementer"), facts.get("CPU part"))))
    return facts.get("model name") or arm or platform.processor() or platform.machine() or "unknown"


@cache
def processor_model() -> str:
    """Name and numbers of the CPU model: in a virtual machine the name alone says little."""
    facts = _processor()
    numbers = f"model {facts['cpu family']}-{facts.get('model')}" if "cpu family" in facts else ""
    return ", ".join(filter(None, (processor_name(), numbers)))


def _size(device: Device) -> int:
    return device.total_bytes or 0


def _cpus(count: int) -> list[Device]:
    """Logical CPU devices with equal shares."""
    facts = _processor()
    threads = default_threads() if count == 1 else max(1, cores() // count)
    written = f"{threads} thread{'s' * (threads > 1)}"
    return [
        Device(
            name=CPU if count == 1 else f"{CPU}:{index}",
            type=CPU,
            host=platform.node(),
            index=index,
            kind=", ".join((processor_model(), _capability(facts), written)),
            total_bytes=host_memory()[0] // count,
            threads=threads,
            cpus=cpus,
        )
        for index, cpus in enumerate(((),) if count == 1 else divided(own_cores(), count))
    ]


def _gpus() -> list[Device]:
    """GPUs in CUDA's order; none if the installed torch can use none."""
    count = 0 if _for_cpus(version) else gpu_count(pynvml)
    threads = default_threads() if count == 1 else max(1, cores() // max(1, count))
    return [found for index in range(count) if (found := _gpu(index, threads)) is not None]


@cache
def _for_cpus(version: Callable[[str], str]) -> bool:
    """Whether the installed torch knows no GPU; reads a file."""
    return version("torch").endswith("+cpu")


def _gpu(index: int, threads: int) -> Device | None:
    """A GPU; None if NVML cannot even name it."""
    try:
        handle = gpu_handle(index, pynvml)
        name, driver = str(pynvml.nvmlDeviceGetName(handle)), str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # it fell off the bus
        return None
    capability = uuid = total_bytes = None
    with suppress(Exception):
        capability = ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle)))
    with suppress(Exception):
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    with suppress(Exception):  # of a partitioned GPU it may be secret
        total_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Device(
        name=f"{CUDA}:{index}",
        type=CUDA,
        host=platform.node(),
        index=index,
        kind=", ".join(filter(None, (name, capability and f"compute capability {capability}", f"driver {driver}"))),
        total_bytes=total_bytes,
        threads=threads,
        uuid=uuid,
    )


@cache
def _processor() -> Mapping[str, str]:
    """Facts of the first core; empty where the system does not tell. Reading them takes long with many cores."""
    with suppress(OSError):
        first = _PROCESSOR.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}


def _capability(facts: Mapping[str, str]) -> str:
    """What `torch.backends.cpu.get_cpu_capability` says on x86; elsewhere it may say more than "DEFAULT"."""
    forced, flags = os.environ.get(_CAPABILITY, ""), set(facts.get("flags", "").split())
    best = next(level for level, needed in _LEVELS.items() if needed <= flags)
    return (forced if forced in _LEVELS else best).upper()
