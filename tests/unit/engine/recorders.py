"""A recorder without a GPU: it replays by doing the work again, and has results at fixed addresses as a graph has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from unifiednn_core.engine.submodel import SubModel


class FakeRecorder:
    """Counts what is recorded and replayed. A replayed step takes a third of the time of an eager one."""

    def __init__(self, submodel: SubModel | None, gain: float = 3.0):
        """`submodel` is the one that is recorded next."""
        self.submodel, self._gain = submodel, gain
        self.refuses: str | None = None
        self.error: Exception | None = None
        """What the next recording raises."""
        self.spoil: Callable[[list[Tensor]], object] = lambda gradients: None
        """What happens to the gradients of each replay."""
        self.step_s: float | None = None
        """What a step that is not replayed takes, in place of `gain` times one that is."""
        self.share = 0.01
        """Share of the device's memory that a step takes."""
        self.stale = False
        """Whether replays read the weights of the recording."""
        self.replays = self.recorded = self.freed = 0
        self.is_aside = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.is_aside = True
        try:
            yield
        finally:
            self.is_aside = False

    def record(self, work: Callable[[], object], *, draws: bool) -> "FakeRecording":
        assert self.is_aside
        assert self.submodel is not None
        assert all(parameter.grad is None for parameter in self.submodel.module.parameters())
        if self.error is not None:
            self.refuses = "an earlier recording failed"
            raise self.error
        self.recorded += 1
        return FakeRecording(self, self.submodel, work)

    def duration_s(self, work: Callable[[], object]) -> float:
        replays = self.replays
        work()
        return 0.001 if self.replays > replays else self.step_s or self._gain * 0.001

    def memory_share(self, work: Callable[[], object]) -> float:
        work()
        return self.share


class FakeRecording:
    def __init__(self, recorder: FakeRecorder, submodel: SubModel, work: Callable[[], object]):
        module, randomness = submodel.module, submodel._randomness
        self._recorder, self._module, self._work = recorder, module, work
        self._weights = [parameter.detach().clone() for parameter in module.parameters()]
        buffers, drawn = [buffer.clone() for buffer in module.buffers()], randomness.state
        work()  # nothing of it happens
        for buffer, before in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(before)
        randomness.state = drawn
        randomness.begin()
        self._gradients = [parameter.grad for parameter in module.parameters()]

    def replay(self) -> None:
        assert self._recorder.freed < self._recorder.recorded
        self._recorder.replays += 1
        parameters = list(self._module.parameters())
        outside = [parameter.grad for parameter in parameters]
        now = [parameter.detach().clone() for parameter in parameters]
        self._write(parameters, self._weights if self._recorder.stale else now)
        self._work()
        self._write(parameters, now)
        kept = [(mine, parameter.grad) for mine, parameter in zip(self._gradients, parameters, strict=True)]
        for mine, gradient in kept:
            if mine is not None and gradient is not None:
                mine.copy_(gradient)
        self._recorder.spoil([mine for mine, _ in kept if mine is not None])
        for parameter, gradient in zip(parameters, outside, strict=True):
            parameter.grad = gradient

    def free(self) -> None:
        self._recorder.freed += 1

    @torch.no_grad()
    def _write(self, parameters: list[nn.Parameter], values: list[Tensor]) -> None:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
