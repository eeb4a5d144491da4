"""Networks of the paper that the product does not build by name; the bench submits them as `.pt2` files."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from unifiednn_core.formats.architectures import registry


def build(name: str, args: Mapping[str, Any]) -> nn.Module:
    """Make an untrained network, of this folder or of the product's registry, in train mode."""
    if name in registry.names():
        return registry.build(name, args)
    network: nn.Module = import_module(f"{__package__}.{name}").build(**args)
    return network
