"""What decides about bits, besides the kind of a device."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from platform import python_version

_PACKAGES = ("unifiednn", "torch", "numpy", "safetensors")


@cache
def versions() -> dict[str, str]:
    """Versions of this machine."""
    return {"python": python_version(), **{name: version(name) for name in _PACKAGES}}


def differences(there: Mapping[str, str]) -> list[str]:
    """Versions of another machine that are not this one's, as sentences."""
    here = versions()
    return [
        f"{name} is {there.get(name, 'missing')} there, and {here[name]} on the server."
        for name in here
        if there.get(name) != here[name]
    ]
