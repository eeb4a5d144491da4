"""Recorders: what a device offers to keep the work of a step and launch it again by one call.

Only CUDA has one; see "CUDA graphs" in torch's docs/source/notes/cuda.rst. A recording keeps addresses: all that it
reads and writes has to stay where it is. Its temporary memory comes from a pool. All recordings of one recorder share
one pool, because they never run at once, and what one leaves there for later is its own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import torch

from unifiednn_core.base.errors import first_line

_FAILED: list[str] = []
"""Recordings of this process that failed. Each leaves memory, and maybe more, behind; so there is no second."""


def recorder_for(device: torch.device) -> "CudaRecorder | None":
    """A recorder for one lane; None if the device has none."""
    return CudaRecorder(device) if device.type == "cuda" else None


class CudaRecorder:
    """Records work as CUDA graphs, for one lane. Nothing else in the process may compute meanwhile.

    The default generator belongs to all sub-models, and a recording that fails leaves it unusable ("Offset increment
    outside graph capture"). So each recording has a generator of its own.
    """

    def __init__(self, device: torch.device):
        self._device, self._index = device, device.index or 0
        self._pool: Any = None
        self._live = 0
        """Recordings that use the pool."""

    @property
    def refuses(self) -> str | None:
        """Why it records nothing: the failure of an earlier recording in this process; None if it does."""
        return f"an earlier recording in this process failed: {_FAILED[0]}" if _FAILED else None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Compute on the stream of recordings: the current one, if it is not the default one, which cannot record."""
        here = torch.cuda.current_stream(self._device)
        can_record = here != torch.cuda.default_stream(self._device)
        self._synchronize()
        try:
            with torch.cuda.stream(here if can_record else _side_stream(self._index)):
                yield
        finally:
            self._synchronize()

    def record(self, work: Callable[[], object], *, draws: bool) -> "Recording":
        """Record work, inside `aside`; nothing of it happens. `draws` tells whether it draws random numbers.

        Raises what the work raises, and `RuntimeError` for work that cannot be recorded. A failure counts for the whole
        process.
        """
        default = torch.cuda.default_generators[self._index]
        own = torch.Generator(self._device)
        own.set_state(default.get_state())
        shared = default.graphsafe_get_state()
        if not self._live:  # torch refuses a pool that once had graphs and has none now
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._synchronize()
        torch.cuda.empty_cache()  # what the steps before it needed: the pool takes memory of its own
        default.graphsafe_set_state(own)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            except Exception:
                with suppress(Exception):  # it only says that something went wrong before
                    graph.capture_end()
                raise
            graph.capture_end()
        except Exception as error:
            _FAILED.append(first_line(error))
            with suppress(Exception):  # not done by older versions of torch
                torch._C._cuda_endAllocateToPool(self._index, self._pool)
            raise
        finally:
            default.graphsafe_set_state(shared)
        self._live += 1
        return Recording(graph, default if draws else None, own, self._forget)

    def duration_s(self, work: Callable[[], object]) -> float:
        """Do some work and return how long it takes, from an idle device to an idle device."""
        self._synchronize()
        began_s = time.perf_counter()
        work()
        self._synchronize()
        return time.perf_counter() - began_s

    def memory_share(self, work: Callable[[], object]) -> float:
        """Do some work and return which share of the device's memory it takes for a while."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before_bytes = torch.cuda.memory_allocated(self._device)
        work()
        risen_bytes = torch.cuda.max_memory_allocated(self._device) - before_bytes
        return risen_bytes / torch.cuda.get_device_properties(self._device).total_memory

    def _synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def _forget(self) -> None:
        with suppress(RuntimeError):  # a broken device has nothing to wait for
            self._synchronize()
        self._live -= 1


@cache
def _side_stream(index: int) -> Any:
    """One for the process: libraries keep a workspace for each stream that they have seen."""
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]


class Recording:
    """One graph. If it draws, it draws what the default generator would."""

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        default: torch.Generator | None,
        own: torch.Generator,
        forget: Callable[[], object],
    ):
        self._graph, self._default, self._own, self._forget = graph, default, own, forget

    def replay(self) -> None:
        """Launch the graph; the default generator moves on as if the operators had been launched one by one."""
        if self._default is None:
            self._graph.replay()
            return
        self._own.set_state(self._default.get_state())
        self._graph.replay()
        self._default.set_state(self._own.get_state())

    def free(self) -> None:
        """Destroy the graph once it is not running any more; it cannot be replayed then."""
        self._forget()
        self._graph.reset()
