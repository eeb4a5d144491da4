"""When a quantum is spent, and when progress is to be kept again."""

from unifiednn_core.clock import Clock
from unifiednn_core.scheduling.base import Quantum
from unifiednn_core.spec import CheckpointSpec
from unifiednn_core.training.submodel import SubModel


class QuantumMeter:
    """Tells when a quantum is spent."""

    def __init__(self, quantum: Quantum, submodel: SubModel, clock: Clock):
        self._quantum, self._submodel, self._clock = quantum, submodel, clock
        self._epochs, self._steps, self._start_s = submodel.epochs_done, submodel.steps_done, clock.monotonic_s()

    def spent(self) -> bool:
        """Whether the turn is over."""
        match self._quantum.kind:
            case "completion":
                return False
            case "epochs":
                return self._submodel.epochs_done - self._epochs >= self._quantum.amount
            case "steps":
                return self._submodel.steps_done - self._steps >= self._quantum.amount
            case "seconds":
                return self._clock.monotonic_s() - self._start_s >= self._quantum.amount


class Period:
    """Tells when so many seconds or steps have passed since it last told."""

    def __init__(self, asked: CheckpointSpec | None, clock: Clock):
        self._asked, self._clock = asked, clock
        self._since_s, self._since_steps = clock.monotonic_s(), 0

    def is_over(self, steps: int) -> bool:
        """Whether it is over after `steps` steps of the run; if so, the next one begins."""
        if self._asked is None:
            return False
        every_s, every_steps, now_s = self._asked.every_s, self._asked.every_steps, self._clock.monotonic_s()
        over = (every_s is not None and now_s - self._since_s >= every_s) or (
            every_steps is not None and steps - self._since_steps >= every_steps
        )
        if over:
            self._since_s, self._since_steps = now_s, steps
        return over
