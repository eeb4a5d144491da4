"""What the engine reports. Reports are values put on a queue; no step ever waits for whoever reads them.

Where they fall in the loop:

    while somebody has not ended:
        obey orders ................................. Moved (pause, hold, resume, stop, halt)
        ask the policy .............................. Granted (or Refused)
        steps of one sub-model ...................... Moved(begin) at its first, Stepped after each
            at the end of each epoch, evaluate ...... EpochDone
        quantum is over ............................. Released
        at its last step ............................ Ended, with a host copy of its weights
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.lifecycle import Event


@dataclass(frozen=True, slots=True)
class Moved:
    """A sub-model, or with `submodel=None` the run, went along the transition table."""

    submodel: str | None
    event: Event


@dataclass(frozen=True, slots=True)
class Granted:
    """A sub-model takes the device at `start_s` after the start of the run."""

    submodel: str
    start_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The policy named a sub-model that cannot train; the engine took another, and says why."""

    submodel: str
    message: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step was launched. `loss` and `correct` are scalars on the device; reading them waits for it."""

    submodel: str
    step: int
    loss: Tensor
    correct: Tensor | None
    """Right answers among `labels`; None where there are no classes."""
    labels: int


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch was trained and evaluated."""

    submodel: str
    figures: EpochFigures


@dataclass(frozen=True, slots=True)
class Released:
    """A sub-model gave the device back."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    peak_bytes: int | None
    """Most that torch had allocated during the quantum; None on a CPU."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A sub-model completed, was stopped or failed, and left the hybrid."""

    submodel: str
    event: Event
    state_dict: Mapping[str, Tensor] | None
    """Host copy of its weights; None where it failed or never trained."""
    figures: tuple[EpochFigures, ...] = ()
    paused_s: float = 0.0
    cause: str | None = None
    remedy: str | None = None


Report = Moved | Granted | Refused | Stepped | EpochDone | Released | Ended
