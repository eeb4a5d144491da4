"""Refuses what is another kind of job than to train one network with one loss and one optimizer."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput

_MESSAGE = (
    "{what}. UnifiedNN trains a network with one loss and one optimizer on a data set. A GAN, whose networks meet in "
    "each step, reinforcement learning, and networks that train layer by layer are other kinds of job."
)
_APART = "Name a function that returns one network, if each can be trained alone."
_ALONE = "Give a network without them, if one optimizer can train it."


def refuse(made: object, title: str) -> None:
    """Raise `BadInput` if a factory made several networks, or one with several optimizers."""
    if networks := _networks(made):
        what = f"The code gives {len(networks)} networks ({', '.join(type(one).__name__ for one in networks[:5])})"
        raise BadInput.of("Another kind of job", title, _MESSAGE.format(what=what), _APART)
    if isinstance(made, nn.Module) and (count := max(_held_optimizers(made), _configured_optimizers(made))) > 1:
        message = _MESSAGE.format(what=f"The network has {count} optimizers")
        raise BadInput.of("Another kind of job", title, message, _ALONE)


def _networks(made: object) -> list[nn.Module]:
    """All networks in a tuple, list or dict of several."""
    if isinstance(made, nn.Module):
        return []
    values = [*made.values()] if isinstance(made, Mapping) else [*made] if isinstance(made, list | tuple) else []
    networks = [value for value in values if isinstance(value, nn.Module)]
    return networks if len(networks) > 1 else []


def _held_optimizers(network: nn.Module) -> int:
    """How many optimizers its layers hold."""
    return sum(isinstance(value, Optimizer) for layer in network.modules() for value in vars(layer).values())


def _configured_optimizers(network: Any) -> int:
    """How many optimizers a network names that brings its own training step, as in Lightning."""
    if not (
        callable(getattr(network, "training_step", None)) and callable(getattr(network, "configure_optimizers", None))
    ):
        return 0
    try:
        configured = network.configure_optimizers()
    except Exception:  # it needs its trainer
        return 0
    if isinstance(configured, tuple | list) and configured and isinstance(configured[0], tuple | list):
        configured = configured[0]  # optimizers, then schedulers
    return len(configured) if isinstance(configured, tuple | list) else 1
