"""Devices as values for pages and terminals."""

from dataclasses import dataclass

from unifiednn_core.spec.devices import DeviceState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """What a spec can ask for."""

    name: str
    kind: str
    """Model, and what else decides about bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDevice:
    """A device, for operators."""

    name: str
    type: str
    kind: str
    host: str
    uuid: str | None
    state: DeviceState
    total_bytes: int | None
    """None if it is not known."""
    limit_bytes: int | None
    """Most that may be used of it, as an operator set it; None is all."""
    threads: int
    cpus: tuple[int, ...]
    """Numbers of its cores; empty means all."""
    seen_at_s: float
    """When the server last saw it, to within half a minute."""
