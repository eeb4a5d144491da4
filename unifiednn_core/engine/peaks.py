"""One sub-model at a time climbs to the peak of its step (`scheduling.peaks`), where two would need too much memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class Peak:
    """The right to climb; one lane has it at a time, for a step or until backward is past the peak."""

    def __init__(self) -> None:
        self._right = threading.Lock()

    @contextmanager
    def climb(self, module: nn.Module, until: str | None) -> Iterator[None]:
        """Surround a step. It waits for the right, and gives it back where the parameter `until` has its gradient.

        With None, or if that parameter gets no gradient, it keeps the right to the end. Bits stay the same.
        """
        mine = threading.Lock()  # for whoever gives the right back first
        hook = None

        def give_back(_: Tensor | None = None) -> None:
            if mine.acquire(blocking=False):
                self._right.release()

        self._right.acquire()
        try:
            if until is not None:
                parameter = module.get_parameter(until)
                hook = parameter.register_post_accumulate_grad_hook(give_back)  # type: ignore[no-untyped-call]
            yield
        finally:
            if hook is not None:
                hook.remove()
            give_back()
