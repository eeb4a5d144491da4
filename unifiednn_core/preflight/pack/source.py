"""Makes a network from a user's code. This runs the code, on its owner's machine."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack import factories
from unifiednn_core.preflight.pack.failures import needs_gpu
from unifiednn_core.preflight.pack.importing import described, module_of, told
from unifiednn_core.preflight.pack.request import PICKLES, Source

_MESSAGE = (
    "{what}. UnifiedNN trains a network with one loss and one optimizer on a data set. A GAN, whose networks meet in "
    "each step, reinforcement learning, and networks that train layer by layer are other kinds of job."
)
_APART = "Name a function that returns one network, if each can be trained alone."
_ALONE = "Give a network without them, if one optimizer can train it."


def network_of(source: Source) -> nn.Module:
    """Run the code and call its factory; raises `BadInput` if that fails, with the line that failed."""
    network = _unpickled(source) if source.path.suffix in PICKLES and not source.module else _found(source)
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
        network = network.module
    _refuse_other_jobs(network, source.title)
    if not isinstance(network, nn.Module):
        message = f"{source.factory or source.title} gives a {type(network).__name__}, not a torch.nn.Module."
        remedy = "Name the class of the network, or a function that returns the network alone."
        raise BadInput.of("Code", source.title, message, remedy)
    return network


def _unpickled(source: Source) -> object:
    """Load a whole network, which runs the code of its classes, and whatever else is in the file."""
    if not source.path.is_file():
        raise BadInput.of("File not found", source.title, f"{source.path} does not exist.", "Correct the path.")
    with told(source):
        # The file may run any code: `pack` runs its owner's code on the owner's machine, and never on the server.
        network: object = torch.load(source.path, map_location="cpu", weights_only=False)
    return network


def _found(source: Source) -> object:
    module = module_of(source)
    factory = getattr(module, source.factory, None)
    if isinstance(factory, nn.Module) and not source.arguments:
        return factory
    if callable(factory):
        return _made(factory, module, source)
    own = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, nn.Module)]
    names = [network.__name__ for network in own if network.__module__ == module.__name__]
    remedy = f"Networks in it: {', '.join(names[:5])}." if names else "Define a class or function of that name."
    raise BadInput.of("Code", source.title, f"The code has no class or function '{source.factory}'.", remedy)


def _made(factory: Any, module: ModuleType, source: Source) -> object:
    arguments = factories.arguments(factory, module, source)
    try:
        return factory(**arguments)
    except (Exception, SystemExit) as error:
        message = f"{source.factory} failed: {described(error)}."
        remedy = needs_gpu(error) or "Correct the code, or give other arguments with --arg NAME=VALUE."
        raise BadInput.of("Code", source.title, message, remedy) from error


def _refuse_other_jobs(made: object, title: str) -> None:
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
