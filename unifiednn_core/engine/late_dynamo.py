"""Stands in for `torch._dynamo`, the compiler, until somebody compiles.

The first optimizer of a process imports it for two functions that do nothing in a process without compiled code. 820
modules come along: 70 MiB, and about one second of each start. With the stand-in every optimizer has the same bits.
This rests on private names of torch, so only tested versions get it. Baselines are plain PyTorch and never do.
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

TESTED = ("2.13.0",)
"""Versions of torch whose optimizers were tried with and without it: tests/integration/test_late_dynamo.py."""
_NAME = "torch._dynamo"


def install() -> bool:
    """Put it where torch imports from, for the rest of this process. Call it before the first optimizer.

    Returns whether it is there: not with an untested torch, and not where the compiler is loaded already.
    """
    spec = importlib.util.find_spec(_NAME) if torch.__version__.partition("+")[0] in TESTED else None
    if spec is None or _NAME in sys.modules:
        return False
    stand_in = ModuleType(_NAME, __doc__)
    late = _Late(stand_in, threading.Lock())
    stand_in.__dict__.update(
        graph_break=lambda *_, **__: None,
        disable=_disable,
        __getattr__=late.attribute,
        __spec__=spec,
        __path__=list(spec.submodule_search_locations or ()),
    )
    sys.modules[_NAME] = stand_in
    vars(torch)["_dynamo"] = stand_in
    sys.meta_path.insert(0, late)
    return True


def prepare() -> None:
    """Before forks are made: put it there, or load the compiler once for all of them."""
    if not install() and _NAME not in sys.modules:
        importlib.import_module(_NAME)


def _disable(fn: Callable[..., Any] | None = None, *_: object, **__: object) -> Callable[..., Any]:
    """Nothing is compiled, so there is nothing to switch off: the function itself, or a decorator that returns it."""
    return fn if fn is not None else lambda decorated: decorated


@dataclass(frozen=True, slots=True)
class _Late:
    """Loads the real package in place of the stand-in: for any other attribute, and before any of its modules."""

    stand_in: ModuleType
    lock: threading.Lock

    def attribute(self, name: str) -> Any:
        """An attribute that the stand-in lacks. Code that walks through all modules asks for names like `__file__`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real(), name)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Let Python import a module of the package, as part of which it may have been loaded by now."""
        if not name.startswith(f"{_NAME}.") or sys.modules.get(_NAME) is not self.stand_in:
            return None
        self._real()
        loaded = sys.modules.get(name)
        if loaded is None:
            return None
        again = importlib.util.spec_from_loader(name, _Loaded(loaded))
        vars(loaded)["__spec__"] = again  # Python takes the spec of a module that was loaded meanwhile, and loads that
        return again

    def _real(self) -> ModuleType:
        with self.lock:
            if sys.modules.get(_NAME) is self.stand_in:
                del sys.modules[_NAME], vars(torch)["_dynamo"]
        return importlib.import_module(_NAME)


class _Loaded(Loader):
    """Hands out a module that has been loaded, so that it is not loaded twice."""

    def __init__(self, module: ModuleType):
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """It has run; only its own spec was replaced."""
        vars(module)["__spec__"] = self._spec
