"""Devices as values, and what a spec may ask for.

A device is a GPU or a logical CPU device: `cpu`, or `cpu:0`, `cpu:1` and so on where `UNIFIEDNN_DEVICES` names them.
Those of the server's own machine have these names; those of another host have its name before them: `host-a/cuda:1`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

CPU: Literal["cpu"] = "cpu"
CUDA: Literal["cuda"] = "cuda"
AUTO = "auto"
SERVER = "server"
"""Name of the host that the server runs on."""
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
DeviceState = Literal["ready", "draining", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a machine."""

    name: str
    """`cpu`, `cpu:1`, `cuda:0`; of another host than the server's `host-a/cuda:0`."""
    type: Literal["cpu", "cuda"]
    host: str
    """Name of its machine; `host_of` tells who offers it."""
    index: int
    kind: str
    """What must be equal for a sub-model to go on with the same bits: processor, instruction set and threads, or GPU,
    compute capability and driver."""
    total_bytes: int | None
    """Its memory, or its share of the host's; None if NVML does not tell."""
    threads: int
    """CPU threads of a step."""
    uuid: str | None = None
    cpus: tuple[int, ...] = ()
    """Numbers of its cores; empty means all."""

    @property
    def text(self) -> str:
        """Its name and model, as people read it."""
        return f"{self.name} ({self.kind.partition(',')[0]})"


def host_of(name: str | None) -> str:
    """Name of the host that has a device, by the name of the device."""
    host, separator, _ = (name or "").rpartition("/")
    return host if separator else SERVER


def own_name(name: str) -> str:
    """What a device is called on its own host."""
    return name.rpartition("/")[2]


def on_host(device: Device, host: str) -> Device:
    """A device of this machine as the whole fleet knows it."""
    return device if host == SERVER else replace(device, name=f"{host}/{device.name}", host=host)


def matching(asked: str, devices: Sequence[Device]) -> list[Device]:
    """Those of all devices that are what a spec asks for; case does not count.

    `auto` is any GPU if there is one, else any CPU device; `cpu` and `cuda` are any of that type. A name is that device
    alone. A host is what `auto` means there, and `host-a/cuda`, `host-a/H200` are any such device of it. Other words
    must all be words of its kind: `H200`.
    """
    wanted = asked.lower()
    host, _, rest = (wanted if "/" in wanted else f"{wanted}/{AUTO}").partition("/")
    own = [] if wanted in (AUTO, CPU, CUDA) else [one for one in devices if host_of(one.name) == host]
    if own:
        devices, wanted = own, rest
    if wanted == AUTO:
        wanted = CUDA if any(one.type == CUDA for one in devices) else CPU
    if wanted in (CPU, CUDA):
        return [one for one in devices if one.type == wanted]
    if ":" in wanted:
        name = f"{host}/{wanted}" if own and host != SERVER else wanted
        return [one for one in devices if one.name == name]
    words = _words(wanted)
    return [one for one in devices if words and words <= _words(one.kind)]


def matches(asked: str, device: Device, all_devices: Sequence[Device]) -> bool:
    """Whether a device is one of those that `matching` finds."""
    return device in matching(asked, all_devices)


def type_named(name: str) -> Literal["cpu", "cuda"]:
    """Type of a device by its name."""
    return CUDA if own_name(name).lower().startswith(CUDA) else CPU


def torch_name(name: str) -> str:
    """What torch calls a device on its own host: all logical CPU devices are its `cpu`."""
    name = own_name(name)
    return CPU if name.startswith(f"{CPU}:") else name


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.-]+", text.lower()))
