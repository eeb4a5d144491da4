"""Makes a network from a user's code. This runs the code: on its owner's machine, or in the sandbox."""

from types import ModuleType
from typing import Any

from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack import factories, other_jobs
from unifiednn_core.preflight.pack.importing import described, module_of, needs_gpu
from unifiednn_core.preflight.pack.request import Source


def network_of(source: Source) -> nn.Module:
    """Run the code and call its factory; raises `BadInput` if that fails, with the line that failed."""
    module = module_of(source)
    factory = getattr(module, source.factory, None)
    if isinstance(factory, nn.Module) and not source.arguments:
        network: object = factory
    elif callable(factory):
        network = _made(factory, module, source)
    else:
        own = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, nn.Module)]
        names = [network.__name__ for network in own if network.__module__ == module.__name__]
        remedy = f"Networks in it: {', '.join(names[:5])}." if names else "Define a class or function of that name."
        raise BadInput.of("Code", source.title, f"The code has no class or function '{source.factory}'.", remedy)
    other_jobs.refuse(network, source.title)
    if not isinstance(network, nn.Module):
        message = f"{source.factory} gives a {type(network).__name__}, not a torch.nn.Module."
        remedy = "Name the class of the network, or a function that returns the network alone."
        raise BadInput.of("Code", source.title, message, remedy)
    return network


def _made(factory: Any, module: ModuleType, source: Source) -> object:
    arguments = factories.arguments(factory, module, source)
    try:
        return factory(**arguments)
    except (Exception, SystemExit) as error:
        message = f"{source.factory} failed: {described(error, source)}."
        remedy = needs_gpu(error) or "Correct the code, or give other arguments with --arg NAME=VALUE."
        raise BadInput.of("Code", source.title, message, remedy) from error
