"""Makes a network from a Python file. This runs the code in it: on its owner's machine, or in the sandbox."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.request import Source


def network_of(source: Source) -> nn.Module:
    """Run the file and call its factory; raises `BadInput` if that fails, with the line that failed."""
    module, name = module_of(source.path), source.factory
    place = f"{source.path.name}:{name}"
    factory = getattr(module, name, None)
    if not callable(factory):
        own = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, nn.Module)]
        names = [network.__name__ for network in own if network.__module__ == module.__name__]
        remedy = f"Networks in it: {', '.join(names[:5])}." if names else "Define a class or function of that name."
        raise BadInput.of("Code", place, f"The file has no class or function '{name}'.", remedy)
    try:
        network = factory(**source.arguments)
    except Exception as error:
        remedy = "Give its arguments with --arg NAME=VALUE, or name a function that makes the network."
        raise BadInput.of("Code", place, f"{name} failed: {described(error, source.path)}.", remedy) from error
    if not isinstance(network, nn.Module):
        message = f"{name} gives a {type(network).__name__}, not a torch.nn.Module."
        raise BadInput.of("Code", place, message, "Name the class of the network, or a function that returns one.")
    return network


def module_of(path: Path) -> ModuleType:
    """Import a file as a module named after it; raises `BadInput`."""
    name, spec = path.stem, importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or path.suffix != ".py" or spec is None or spec.loader is None:
        raise BadInput.of("Code", path.name, f"{path.name} is not a Python file.", "Give the path of a .py file.")
    if name in sys.modules:
        raise BadInput.of("Code", path.name, f"'{name}' is the name of a module of Python.", "Rename the file.")
    sys.path.insert(0, str(path.resolve().parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        message = f"Importing the file failed: {described(error, path)}."
        raise BadInput.of("Code", path.name, message, "Correct the code; one file must be enough.") from error
    return module


def described(error: BaseException, path: Path) -> str:
    """An error of the user's code in one line, with the last line of the file at `path` that led to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
    place = f", line {frames[-1].lineno} of {path.name}" if frames else ""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}{': ' if text else ''}{text[:300].rstrip('.')}{place}"
