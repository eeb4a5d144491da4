"""Builds networks without memory, to learn the names and shapes of their weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Make every new tensor one without memory."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Skips drawing normal weights where there are none: torch does it in Python there, which loads sympy, 40 MiB."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call it, but for that one."""
        call: Callable[..., Any] = func
        return args[0] if call is Tensor.normal_ and args[0].is_meta else call(*args, **(kwargs or {}))
