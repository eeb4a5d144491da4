"""Loads a full pickle of a network together with the Python file that its classes are in. For behind walls alone."""

import io
import pickle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from unifiednn_core.errors import BadInput
from unifiednn_core.packing.source import told

_LIBRARIES = frozenset({"torch", "builtins", "collections", "numpy", "functools", "_codecs"})


def load(path: Path, classes: ModuleType) -> nn.Module:
    """Load a pickled network whose own classes are taken from `classes`; raises `BadInput`."""

    class Unpickler(pickle._Unpickler):  # the one in Python: torch derives from it
        def find_class(self, module: str, name: str) -> Any:
            if module.partition(".")[0] not in _LIBRARIES and hasattr(classes, name.partition(".")[0]):
                found: Any = classes
                for part in name.split("."):
                    found = getattr(found, part)
                return found
            return super().find_class(module, name)

    def unpickle(file: io.BufferedIOBase, **options: Any) -> Any:
        return Unpickler(file, **options).load()

    door = SimpleNamespace(
        __name__="pickle", Unpickler=Unpickler, load=unpickle, UnpicklingError=pickle.UnpicklingError
    )
    try:
        network = torch.load(path, map_location="cpu", pickle_module=door, weights_only=False)
    except Exception as error:  # a pickle is a program
        message = f"The pickle cannot be loaded: {told(error, Path(classes.__file__ or ''))}."
        remedy = "Give the Python file that its classes were in when it was saved."
        raise BadInput.of("Pickle", field=path.name, message=message, remedy=remedy) from error
    if not isinstance(network, nn.Module):
        message = f"The pickle holds a {type(network).__name__}, not a torch.nn.Module."
        remedy = "Weights alone need no sandbox: hand them in with an architecture."
        raise BadInput.of("Pickle", field=path.name, message=message, remedy=remedy)
    return network
