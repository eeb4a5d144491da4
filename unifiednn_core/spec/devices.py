"""Devices as values, and what a spec may ask for.

A device is a GPU or a logical CPU device: `cpu`, or `cpu:0`, `cpu:1` and so on where `UNIFIEDNN_CPU_DEVICES` says so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CPU: Literal["cpu"] = "cpu"
CUDA: Literal["cuda"] = "cuda"
AUTO = "auto"
DeviceState = Literal["ready", "draining", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a machine."""

    name: str
    """`cpu`, `cpu:1`, `cuda:0`."""
    type: Literal["cpu", "cuda"]
    host: str
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
    driver: str | None = None

    @property
    def text(self) -> str:
        """Its name and model, as people read it."""
        return f"{self.name} ({self.kind.partition(',')[0]})"


def matches(asked: str, device: Device, all_devices: Sequence[Device]) -> bool:
    """Whether a device is what a spec asks for; case does not count.

    `auto` is any GPU if there is one among all devices, else any CPU device; `cpu` and `cuda` are any of that type. A
    name is that device alone. Other words must all be words of its kind: `H200`.
    """
    wanted = asked.lower()
    if wanted == AUTO:
        wanted = CUDA if any(one.type == CUDA for one in all_devices) else CPU
    if wanted in (CPU, CUDA):
        return device.type == wanted
    if ":" in wanted:
        return wanted == device.name
    words = _words(wanted)
    return bool(words) and words <= _words(device.kind)


def torch_name(name: str) -> str:
    """What torch calls a device: all logical CPU devices are its `cpu`."""
    return CPU if name.startswith(f"{CPU}:") else name


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.-]+", text.lower()))
