"""Figures for monitoring, and the health of the server, as frozen values. Sizes are bytes, durations seconds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """Use of a device now; None is not available."""

    device: str
    ready: bool
    total_bytes: int | None
    own_bytes: int | None = None
    others_bytes: int | None = None
    free_bytes: int | None = None
    utilisation: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The server at one moment. It names devices, and no people and no runs."""

    runs: Mapping[str, int]
    """By state."""
    submodels: Mapping[str, int]
    queue_length: int
    oldest_wait_s: float
    """0 if nothing waits."""
    workers: int
    restarts: int
    """Workers that were started again after one died, of all hybrids in the store."""
    steps: int
    """Done by all sub-models in the store."""
    files_bytes: int
    """Of the library."""
    webhooks_failing: int
    devices: tuple[DeviceFigures, ...]
    disk_total_bytes: int
    disk_free_bytes: int
    supervisor_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPart:
    """Health of one part."""

    name: str
    ok: bool
    vital: bool
    """Whether the server cannot do its work without it."""
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health of the server."""

    ok: bool
    """Whether every vital part works."""
    parts: tuple[HealthPart, ...]
