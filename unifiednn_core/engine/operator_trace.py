"""Names each operator of torch before it runs, in a step at which a worker has died.

The training of every other step runs without it: naming costs some microseconds for each operator. It covers forward,
criterion, backward and optimizer of networks of any format, and the bits are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, calls `tell` with the name of each operator (`aten.div.Tensor_mode`) before it runs."""

    supports_higher_order_operators = True

    def __init__(self, tell: Callable[[str], object]):
        super().__init__()  # type: ignore[no-untyped-call]
        self._tell = tell

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Name an operator and run it."""
        self._tell(str(operator))
        return operator(*args, **(kwargs or {}))
