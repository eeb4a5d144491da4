"""Logical devices of one machine: they compute several virtual nodes of a step at once, one thread each.

Each has the threads of the caller for its operators, and on CUDA a stream of its own. So a node has the same bits
whichever device computes it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from unifiednn_core.engine.device import own_stream
from unifiednn_core.techniques.build import Techniques

Result = TypeVar("Result")


class LogicalDevices:
    """Some logical devices; their threads begin with the first work and end with `close`, or with this object."""

    def __init__(self, count: int):
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="logical-device")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def compute(self, work: Sequence[Callable[[], Result]], device_type: str = "cpu") -> Iterator[Result]:
        """Do at most one piece of work per device at once; the results are in its order, as soon as all are done.

        On CUDA the work waits for the stream of the caller, which then waits for the work. Raises what the first piece
        raises, once all have ended. Where a mode of torch looks at each operator of the caller, the caller does all the
        work.
        """
        if torch._C._len_torch_dispatch_stack():  # of this thread; torch's flag in Python is one for all threads
            yield from [one() for one in work]
            return
        stream = torch.cuda.current_stream() if device_type == "cuda" else None
        run = partial(_run, threads=torch.get_num_threads(), caller=stream)
        futures = [self._pool.submit(run, one, place) for place, one in enumerate(work)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        for future in futures:
            yield _arrived(future.result(), stream)


def may_compute_at_once(module: nn.Module, techniques: Techniques) -> bool:
    """Whether several threads may run a network at once: nothing of it changes when it runs forward."""
    if techniques.in_steps:  # one gives layers another forward for the time of a part, another has one budget
        return False
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    return not hooked and next(module.buffers(), None) is None


def add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Add the gradients of one node to those before, as `backward` does."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is not None:
            parameter.grad += gradient
        elif gradient.layout is torch.strided:  # a copy, for several parameters may have one gradient
            parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(gradient)
        else:
            parameter.grad = gradient.clone()


def _run(work: Callable[[], Result], place: int, *, threads: int, caller: "torch.cuda.Stream | None") -> Result:
    torch.set_num_threads(threads)
    if caller is None:
        return work()
    with own_stream(caller.device, -1 - place):  # lanes count from 0
        own = torch.cuda.current_stream()
        own.wait_stream(caller)
        try:
            return work()
        finally:
            caller.wait_stream(own)


def _arrived(result: Result, stream: "torch.cuda.Stream | None") -> Result:
    """Keep the memory of a result until the caller's stream has used it."""
    if stream is not None:
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                one.record_stream(stream)
    return result
