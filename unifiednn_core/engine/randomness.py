"""Where the random numbers of one sub-model come from: torch's default generators, one of its own, or nowhere."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from unifiednn_core.engine.device import RngState
from unifiednn_core.formats.draws import draws, own_draws


class Randomness:
    """The state of a sub-model's random numbers, and where its steps draw from.

    A network that draws nothing leaves the default generators alone, and so does one on a CPU whose draws all take a
    generator of its own. Any other has them in its own state while it steps.
    """

    def __init__(self, network: nn.Module, seed: int, device: torch.device, *, transforms_draw: bool = False):
        self.seed, self._device, self._at_work = seed, device, False
        self._state = RngState.of_seed(seed, device)
        self.draws = draws(network) or transforms_draw
        """Whether its steps may draw from any generator."""
        self._own = own_draws(network) if self.draws and device.type == "cpu" else None
        self.shared = self.draws and self._own is None
        """Whether its steps may draw from the default generators."""

    @property
    def generator(self) -> torch.Generator | None:
        """What transforms draw from while it steps; None for torch's default generators."""
        return None if self._own is None else self._own.generator

    @property
    def state(self) -> RngState:
        """State as of now, equal for every way of drawing; takes 1 µs on the CPU."""
        if self._at_work and self._own is not None:
            return RngState(self._own.generator.get_state(), None)
        return RngState.current(self._device) if self._at_work and self.shared else self._state

    @state.setter
    def state(self, state: RngState) -> None:
        self._state = state

    def begin(self) -> None:
        """Let the network draw from its state on."""
        if self._own is not None:
            self._own.generator.set_state(self._state.cpu)
            self._own.begin()
        elif self.shared:
            self._state.restore(self._device)
        self._at_work = True

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Draw from the state of another seed; what follows goes on from the state before. For the time of a step."""
        if not self.draws:
            yield
            return
        before = self.state
        self._put(RngState.of_seed(seed, self._device))
        try:
            yield
        finally:
            self._put(before)

    def _put(self, state: RngState) -> None:
        if self._own is None:
            state.restore(self._device)
        else:
            self._own.generator.set_state(state.cpu)

    def end(self) -> None:
        """Keep the state."""
        self._state, self._at_work = self.state, False
        if self._own is not None:
            self._own.end()
