"""Makes a network from a user's code. This runs the code, on its owner's machine."""

import dataclasses
import inspect
import os
import typing
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.exporting import needs_gpu
from unifiednn_core.preflight.pack.importing import described, module_of, told
from unifiednn_core.preflight.pack.request import PICKLES, Source

_MESSAGE = (
    "{what}. UnifiedNN trains a network with one loss and one optimizer on a data set. A GAN, whose networks meet in "
    "each step, reinforcement learning, and networks that train layer by layer are other kinds of job."
)
_APART = "Name a function that returns one network, if each can be trained alone."
_ALONE = "Give a network without them, if one optimizer can train it."

_PLAIN = (bool, int, float, str, list, tuple, dict)
_OF_OBJECTS = ("config", "cfg", "conf", "args", "opt", "opts", "options", "hparams", "params", "settings")


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
    given = _arguments(factory, module, source)
    try:
        return factory(**given)
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


def _arguments(factory: Any, module: ModuleType, source: Source) -> dict[str, Any]:
    """Those given, and each dataclass that has a default for every field; raises `BadInput` if one is missing."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a function in C
        return dict(source.arguments)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in signature.parameters.values() if parameter.kind in kinds]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    if (unknown := sorted(source.arguments.keys() - set(names))) and not takes_any:
        message = f"{source.factory} has no argument '{unknown[0]}'."
        raise BadInput.of("Code", source.title, message, f"Its arguments are: {', '.join(names) or 'none'}.")
    required = [name for name in names if signature.parameters[name].default is inspect.Parameter.empty]
    types = _types(factory)
    made, missing = dict(source.arguments), []
    for name in required:
        if name in made:
            continue
        if dataclasses.is_dataclass(kind := types.get(name)) and not _required_fields(kind):
            made[name] = typing.cast(Any, kind)()
        else:
            missing.append(name)
    if missing:
        raise _missing(missing, types, module, source)
    return made


def _types(factory: Any) -> dict[str, Any]:
    """Annotations of the parameters, as far as they can be evaluated."""
    try:
        return typing.get_type_hints(vars(factory)["__init__"] if isinstance(factory, type) else factory)
    except Exception:  # a name that only a type checker knows
        return {}


def _required_fields(kind: Any) -> list[str]:
    missing = dataclasses.MISSING
    return [
        f.name for f in dataclasses.fields(kind) if f.init and f.default is missing and f.default_factory is missing
    ]


def _missing(names: list[str], types: Mapping[str, Any], module: ModuleType, source: Source) -> BadInput:
    """Ask for plain values with options, and for objects with a function that makes the network."""
    quoted = ", ".join(f"'{name}'" for name in names)
    message = f"{source.factory} needs {quoted}."
    options = f"Add {' '.join(f'--arg {name}=VALUE' for name in names)}"
    if ready := _ready(source.factory, module):
        options = f"Name a function that needs no argument: {', '.join(ready)}. Or add{options.removeprefix('Add')}"
    if all(isinstance(types.get(name), type) and issubclass(types[name], _PLAIN) for name in names):
        return BadInput.of("Code", source.title, message, f"{options}.")
    imports, given = [source.factory], []
    for name in names:
        kind = _class_for(name, types.get(name), module)
        if kind is not None and kind.__module__ == module.__name__ and kind.__name__ not in imports:
            imports.append(kind.__name__)
        given.append(f"{name}={_call(kind)}")
    given += [f"{name}={value!r}" for name, value in source.arguments.items()]
    depth = module.__name__.count(".") + (Path(module.__file__ or "").stem == "__init__")
    folder = Path() if source.module else source.path.resolve().parents[depth]
    file = Path(os.path.relpath(folder / "my_network.py"))
    if any(_is_object(name, types.get(name)) for name in names):
        message, options = f"{message} An object cannot be given with --arg.", "Write"
    else:
        options += ". For an object, write"
    remedy = (
        f"{options} a function that makes the network into {file}, and pack {file}:make_network:\n\n"
        f"from {module.__name__} import {', '.join(imports)}\n\n\n"
        f"def make_network():\n    return {source.factory}({', '.join(given)})\n"
    )
    return BadInput.of("Code", source.title, message, remedy)


def _ready(factory: str, module: ModuleType) -> list[str]:
    """Functions of the module that are named like the class and need no argument."""
    alike = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and factory.lower() in name.lower()
    ]
    empty = inspect.Parameter.empty
    free = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        function.__name__
        for function in alike
        if all(one.default is not empty or one.kind in free for one in inspect.signature(function).parameters.values())
    ][:5]


def _is_object(name: str, kind: Any) -> bool:
    if isinstance(kind, type):
        return not issubclass(kind, _PLAIN)
    return kind is None and name.lower().rpartition("_")[2] in _OF_OBJECTS


def _class_for(name: str, kind: Any, module: ModuleType) -> type | None:
    """The class of an argument: by its annotation, else the only one of the module that is named like it."""
    if isinstance(kind, type):
        return kind
    if not _is_object(name, kind):
        return None
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    like = [one for one in own if one.__name__.lower().endswith(name.lower().rpartition("_")[2])]
    return like[0] if len(like) == 1 else None


def _call(kind: type | None) -> str:
    if kind is None or kind in _PLAIN:
        return "..."
    names = _required_fields(kind) if dataclasses.is_dataclass(kind) else []
    return f"{kind.__name__}({', '.join(f'{name}=...' for name in names)})"
