"""Hosts as values for pages and terminals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ListedState = Literal["ready", "draining", "parking", "silent", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedHost:
    """A machine that offers devices, or offered some."""

    name: str
    """`server` is the machine of the server."""
    machine: str
    """What the machine calls itself."""
    state: ListedState
    """`draining`: all of its devices drain; `parking`: its agent ends; `silent`: it is late to renew its lease."""
    silent_s: float
    """Seconds since it renewed its lease."""
    devices: tuple[str, ...]
    """Names of its devices that are there."""
    hybrids: int
    """Hybrids that hold one of them."""
    versions: Mapping[str, str]
    differences: tuple[str, ...]
    """What differs from the server, as sentences: results may have other bits there."""
