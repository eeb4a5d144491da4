"""What the engine reports. Reports are values put on a queue; no step ever waits for whoever reads them.

Where they fall in the loop:

    while somebody has not ended:
        ask the policy .............................. Granted (or Refused)
        steps of one sub-model ...................... Moved(begin) at its first, Stepped after each
            at the end of each epoch, evaluate ...... EpochDone
            between two steps, obey orders .......... Moved, Obeyed
            between two steps, now and then ......... Captured, for each sub-model that has moved on
        quantum is over ............................. Released
        at its last step ............................ Ended, with a host copy of its state
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.lifecycle import Event


@dataclass(frozen=True, slots=True)
class Moved:
    """A sub-model went along the transition table by itself."""

    submodel: str
    event: Event


@dataclass(frozen=True, slots=True)
class Obeyed:
    """The order of this id has taken effect after `step` steps of the run; or could not, and `declined` says why."""

    id: int
    step: int
    declined: str | None = None


@dataclass(frozen=True, slots=True)
class Captured:
    """State of a sub-model between two steps; whoever has kept it says so by `Engine.kept`."""

    checkpoint: Checkpoint


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
class Cost:
    """What a turn took."""

    peak_bytes: int | None = None
    """Most in use: what torch had allocated on a GPU, what the process had resident on the host. None where unknown."""
    transient_bytes: int | None = None
    """Most that was taken for a while, beside what stayed."""
    cpu_s: float = 0.0
    """CPU seconds of the whole process, user and system."""


@dataclass(frozen=True, slots=True)
class Released:
    """A sub-model gave the device back."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Ended:
    """A sub-model completed, was stopped or failed, and left the hybrid."""

    submodel: str
    event: Event
    checkpoint: Checkpoint | None
    """Its last state; None where it failed, was discarded or never trained."""
    figures: tuple[EpochFigures, ...] = ()
    cause: str | None = None
    remedy: str | None = None
    discarded: bool = False
    """Whether a person wants nothing of it to be kept."""

    @property
    def state_dict(self) -> Mapping[str, Tensor] | None:
        """Host copy of its weights under the submitted network's own keys."""
        return None if self.checkpoint is None else self.checkpoint.state["model"]


Report = Moved | Obeyed | Captured | Granted | Refused | Stepped | EpochDone | Released | Ended
