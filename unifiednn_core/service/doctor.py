"""What this machine offers and lacks for training, and what keeps people and networks apart on it. Loads no torch."""

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pynvml
from packaging.requirements import Requirement

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home, application, offered_devices
from unifiednn_core.base.units import GIB, memory_text
from unifiednn_core.machine import allocator, peers
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.machine.gpu import gpu_count, gpu_handle
from unifiednn_core.machine.host import host_memory
from unifiednn_core.runtime import confinement

ALL_USERS = "--all-local-users"
DEFAULT_PORT = 8501
LEAST_MEMORY_BYTES, LEAST_DISK_BYTES = 2 * GIB, 2 * GIB
CONSTRAINTS = "constraints.txt"
State = Literal["ok", "advice", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    """`missing` is something that was asked for, or without which nothing trains."""
    found: str
    wanted: str = ""
    remedy: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing is to be done."""
        return self.state == "ok"


def all_users_may() -> bool:
    """Whether this server was started for every user of this machine, as long as nobody has to sign in."""
    return ALL_USERS in sys.argv


def examined(home: Home, *, port: int = DEFAULT_PORT, nvml: Any = pynvml) -> tuple[Check, ...]:
    """Look at everything, in a fixed order. Takes under a second and makes no CUDA context."""
    checks = (*_gpus(nvml), _devices(), _memory(), _disk(home), _port(port), _allocator(), *_versions())
    return (*checks, *protections_of(home))


def protections_of(home: Home) -> tuple[Check, ...]:
    """What keeps people and networks apart, in a fixed order."""
    return _home(home), _dashboard(), _workers(home)


# -- GPUs


def _gpus(nvml: Any) -> Iterator[Check]:
    count, (torch, cuda) = gpu_count(nvml), _torch()
    built = f"torch {torch} for {f'CUDA {cuda}' if cuda else 'CPUs alone'}"
    if not count:
        remedy = "On a GPU server, install the NVIDIA driver, or give the container its GPUs." if cuda else ""
        yield Check("GPU", "advice" if cuda else "ok", f"no GPU that NVML can see; {built}", remedy=remedy)
        return
    driver, supports = str(nvml.nvmlSystemGetDriverVersion()), int(nvml.nvmlSystemGetCudaDriverVersion_v2()) // 1000
    found, wanted = f"driver {driver} for CUDA {supports}, {built}", "torch for a CUDA that the driver supports"
    if not cuda:
        yield Check("GPU", "missing", found, wanted, f"Install torch for CUDA {supports}; see pytorch.org.")
    elif int(cuda.partition(".")[0]) > supports:
        yield Check("GPU", "missing", found, wanted, f"Update the driver, or install torch for CUDA {supports}.")
    else:
        yield Check("GPU", "ok", found, wanted)
    for index in range(count):
        yield _gpu(index, nvml)


def _gpu(index: int, nvml: Any) -> Check:
    """Memory of a GPU, and whether NVML tells processes apart here."""
    name, wanted = f"cuda:{index}", "NVML that tells the memory of each process"
    try:
        handle = gpu_handle(index, nvml)
        memory, listed = nvml.nvmlDeviceGetMemoryInfo(handle), list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        free = f"{nvml.nvmlDeviceGetName(handle)}, {memory_text(memory.free)} of {memory_text(memory.total)} free"
    except Exception as error:  # it fell off the bus, or this user may not ask
        return Check(
            name, "missing", f"NVML cannot tell its memory: {error}", wanted, "Look at nvidia-smi, and at dmesg."
        )
    if any(not Path(f"/proc/{process.pid}").exists() for process in listed):
        remedy = "Start the container with --pid=host; until then figures are those of the whole GPU."
        return Check(name, "advice", f"{free}; NVML names processes that this container cannot see", wanted, remedy)
    if any(process.usedGpuMemory is None for process in listed):
        remedy = "Figures are those of the whole GPU. A newer driver, or a system other than WSL, tells more."
        return Check(name, "advice", f"{free}; the driver tells no memory by process", wanted, remedy)
    return Check(name, "ok", f"{free}, {len(listed)} processes", wanted)


def _torch() -> tuple[str, str | None]:
    """Version of the installed torch, and of its CUDA; reads a file."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "is not installed", None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    cuda = re.search(r"^cuda[^=\n]*= '([\d.]+)'", text, re.MULTILINE)
    return version("torch"), None if cuda is None else cuda[1]


# -- the machine


def _devices() -> Check:
    try:
        names, asked = [device.name for device in devices_of_host()], offered_devices()
    except BadInput as error:
        return Check("devices", "missing", str(error), "a valid setting", "Correct UNIFIEDNN_DEVICES.")
    found = f"offers {', '.join(names) or 'no device'}"
    if asked is not None and not names and asked:
        return Check(
            "devices", "missing", found, ", ".join(asked), "Name devices of this machine in UNIFIEDNN_DEVICES."
        )
    return Check("devices", "ok", found)


def _memory() -> Check:
    total_bytes, free_bytes = host_memory()
    found = f"{memory_text(free_bytes)} of {memory_text(total_bytes)} free"
    remedy = "" if free_bytes >= LEAST_MEMORY_BYTES else "End other programs, or give the container more memory."
    return Check("memory", "advice" if remedy else "ok", found, f"{memory_text(LEAST_MEMORY_BYTES)} free", remedy)


def _disk(home: Home) -> Check:
    folder = next(place for place in (home.root, *home.root.parents) if place.exists())
    free_bytes = shutil.disk_usage(folder).free
    found, wanted = f"{memory_text(free_bytes)} free for {home.root}", f"{memory_text(LEAST_DISK_BYTES)} free"
    if not os.access(folder, os.W_OK):
        return Check(
            "disk", "missing", f"{folder} cannot be written", wanted, "Set UNIFIEDNN_HOME to a folder of yours."
        )
    remedy = "" if free_bytes >= LEAST_DISK_BYTES else "Set UNIFIEDNN_HOME to a folder on a larger disk."
    return Check("disk", "advice" if remedy else "ok", found, wanted, remedy)


def _port(port: int) -> Check:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            remedy = "Another program, maybe a dashboard, has it. Choose one: unifiednn app --port PORT"
            return Check("port", "advice", f"{port}: {error.strerror}", "a free port", remedy)
    return Check("port", "ok", f"{port} is free", "a free port")


def _allocator() -> Check:
    found, wanted = allocator.of_workers(), "tcmalloc or mimalloc: a fifth less memory for workers"
    if found != allocator.GLIBC:
        return Check("allocator", "ok", found, wanted)
    return Check("allocator", "advice", found, wanted, "apt-get install libtcmalloc-minimal4")


def _versions() -> Iterator[Check]:
    """Packages below their floors, and those that differ from what was tested."""
    needed = [Requirement(text) for text in requires("unifiednn") or ()]
    floors = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    installed = {one.name: _installed(one.name) for one in floors}
    old = [f"{one} (found {installed[one.name]})" for one in floors if not one.specifier.contains(installed[one.name])]
    if old:
        yield Check("packages", "missing", ", ".join(old), "the versions of pyproject.toml", "pip install .")
        return
    pinned = _pinned()
    differ = [
        f"{name} {found} instead of {pinned[name.lower()]}"
        for name, found in installed.items()
        if found.partition("+")[0] != pinned.get(name.lower(), found.partition("+")[0])
    ]
    found, wanted = (
        ", ".join(differ) or "as tested" * bool(pinned) or "as pyproject.toml asks",
        f"those of {CONSTRAINTS}",
    )
    remedy = f"They should work, but were not tested: pip install -c {CONSTRAINTS} ." if differ else ""
    yield Check("packages", "advice" if differ else "ok", found, wanted, remedy)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "0"


def _pinned() -> Mapping[str, str]:
    """Tested versions by name; empty where there is no clone."""
    with suppress(OSError):
        lines = (application() / CONSTRAINTS).read_text(encoding="utf-8").splitlines()
        pairs = (line.partition("==") for line in lines if "==" in line)
        return {name.lower(): wanted for name, _, wanted in pairs}
    return {}


# -- what keeps people and networks apart


def _home(home: Home) -> Check:
    wanted = "a home that no other user of this machine can read"
    if not home.answers.exists() or home.is_private:  # without its folders it is not in use yet
        return Check("home", "ok", f"No other user of this machine, except root, can read {home.root}.", wanted)
    remedy = "Give it to the user who runs UnifiedNN, with mode 0700 on a file system that keeps modes."
    return Check("home", "advice", f"Other users of this machine can enter {home.root}.", wanted, remedy)


def _dashboard() -> Check:
    opened, wanted = "Without sign-in, every user of this machine can use the dashboard", "only its own user"
    if all_users_may():
        return Check("dashboard", "advice", f"{opened}.", wanted, f"Start it without {ALL_USERS}.")
    if not peers.can_tell():
        found = f"{opened}: the system does not tell whose connections are whose."
        return Check("dashboard", "advice", found, wanted, "Configure sign-in, or keep others off this machine.")
    return Check(
        "dashboard", "ok", "Without sign-in, the dashboard answers only the user who runs it, and root.", wanted
    )


def _workers(home: Home) -> Check:
    wanted = "workers in bubblewrap"
    reason, _, remedy = confinement.trial(home).partition(". ")
    if reason:
        found = f"Workers can use the network and read every file of their user: {reason.rstrip('.')}."
        return Check("workers", "advice", found, wanted, remedy or "docs/OPERATE.md lists what it needs.")
    files = "no files but stored ones, their run's and the database"
    return Check("workers", "ok", f"Workers run in bubblewrap: no network, no privileges, {files}.", wanted)
