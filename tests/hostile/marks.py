"""The mark that a payload would leave, and what a hostile pickle is made of."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

CANARY = "canary"


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None):
        self._call = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def payload(folder: Path) -> Call:
    """Would make the mark when it is unpickled."""
    return Call(os.mkdir, str(folder / CANARY))
