"""Makes a network from a user's code. This runs the code, on its owner's machine."""

from types import ModuleType
from typing import Any

import torch
from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack import factories, other_jobs
from unifiednn_core.preflight.pack.failures import needs_gpu
from unifiednn_core.preflight.pack.importing import described, module_of, told
from unifiednn_core.preflight.pack.request import PICKLES, Source


def network_of(source: Source) -> nn.Module:
    """Run the code and call its factory; raises `BadInput` if that fails, with the line that failed."""
    network = _unpickled(source) if source.path.suffix in PICKLES and not source.module else _found(source)
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
        network = network.module
    other_jobs.refuse(network, source.title)
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
