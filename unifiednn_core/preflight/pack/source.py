"""Makes a network from a Python file. This runs the code in it: on its owner's machine, or in the sandbox."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.request import Source

_SHOWN = 300


def network_of(source: Source) -> nn.Module:
    """Run the file and call its factory; raises `BadInput` if that fails, with the line that failed."""
    module = module_of(source.path)
    where = f"{source.path.name}:{source.factory}"
    factory = getattr(module, source.factory, None)
    if not callable(factory):
        names = [name for name, value in vars(module).items() if _is_own_network(value, module)]
        remedy = f"Networks in it: {', '.join(names[:5])}." if names else "Define a class or function of that name."
        raise _wrong(where, f"The file has no class or function '{source.factory}'.", remedy)
    try:
        network = factory(**source.arguments)
    except Exception as error:
        message = f"{source.factory} failed: {described(error, source.path)}."
        remedy = "Give its arguments with --arg NAME=VALUE, or name a function that makes the network."
        raise _wrong(where, message, remedy) from error
    if not isinstance(network, nn.Module):
        message = f"{source.factory} gives a {type(network).__name__}, not a torch.nn.Module."
        raise _wrong(where, message, "Name the class of the network, or a function that returns one.")
    return network


def module_of(path: Path) -> ModuleType:
    """Import a file as a module of its own name; raises `BadInput`."""
    if not path.is_file() or path.suffix != ".py":
        raise _wrong(path.name, f"{path.name} is not a Python file.", "Give the path of a .py file.")
    name = path.stem
    if name in sys.modules:
        raise _wrong(path.name, f"'{name}' is the name of a module of Python.", "Rename the file.")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _wrong(path.name, "The file cannot be imported.", "Give a .py file.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        message = f"Importing the file failed: {described(error, path)}."
        raise _wrong(path.name, message, "Correct the code; one file must be enough.") from error
    return module


def described(error: BaseException, path: Path) -> str:
    """An error of the user's code in one line, with the last line of the file at `path` that led to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
    where = f", line {frames[-1].lineno} of {path.name}" if frames else ""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}{': ' if text else ''}{text[:_SHOWN].rstrip('.')}{where}"


def _is_own_network(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__


def _wrong(field: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Code", field=field, message=message, remedy=remedy)
