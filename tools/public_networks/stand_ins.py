"""What processes find loaded: packages, and torchvision that can be imported, with data that need no download."""

import importlib
import importlib.util
import io
import re
import sys
from typing import Any

import torch
from torch import nn
from torch.export import Dim

_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")
_KEPT: list[torch.library.Library] = []


def warm_up() -> None:
    """Load once what every export and every network of a package needs, for all forks of this process."""
    for name in ("timm", "einops", "transformers.modeling_utils", "transformers.modeling_layers"):
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    layer = nn.Linear(2, 2)
    exported = torch.export.export(layer, (torch.zeros(2, 2),), dynamic_shapes=({0: Dim("batch")},))
    torch.export.save(exported, io.BytesIO())
    torch.optim.Adam(layer.parameters()).step()


def install() -> None:
    """Load torchvision, if it is installed, and let its data sets hold a few random images instead of a download.

    Where its compiled part does not fit this torch, the operators that it asks for on import exist in name alone.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    _KEPT.append(library)
    while not _loaded(library):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    datasets: Any = importlib.import_module("torchvision.datasets")
    datasets.MNIST = _images(datasets.FakeData, (1, 28, 28))
    datasets.CIFAR10 = _images(datasets.FakeData, (3, 32, 32))


def _loaded(library: torch.library.Library) -> bool:
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if (missing := _MISSING.search(str(error))) is None:
            raise
        library.define(f"{missing[1]}(Tensor any) -> Tensor")  # type: ignore[no-untyped-call]
        return False
    return True


def _images(fake: Any, size: tuple[int, int, int]) -> Any:
    def made(*_: Any, transform: Any = None, **__: Any) -> Any:
        return fake(8, size, 10, transform)

    return made
