"""Reports of the engine: values put on a queue, so that no step ever waits for their reader.

The loop emits them here:

    until every sub-model has ended:
        ask the policy .............................. Granted (or Refused)
        steps of one sub-model ...................... Stepped after each (and ProcessChanged, if it changed settings)
            once it is known whether that pays ...... StepsRecorded (on CUDA alone), Ganged
            at the end of each epoch, evaluate ...... EpochDone
            between two steps, carry out orders ..... Answered
            between two steps, now and then ......... Captured, for each sub-model that has changed
        the quantum is used up ...................... Released
        after its last step ......................... Ended, with a host copy of its state
            or when it was asked to leave ........... Left, after the Captured of its last state
            and before that, if its data changed .... DataChanged
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.probes import Probes
from unifiednn_core.engine.progress import EpochFigures, NotLearning
from unifiednn_core.spec.lifecycle import Event


@dataclass(frozen=True, slots=True)
class Answered:
    """The order of this id took effect, or was declined for the reason given."""

    id: int
    step: int | None
    """Steps done of the sub-model that it was for; None for an order of the whole run."""
    declined: str | None = None


@dataclass(frozen=True, slots=True)
class Captured:
    """State of a sub-model between two steps; its writer confirms with `Engine.checkpoint_written`."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Granted:
    """A sub-model takes a lane of the device at `start_s` after the start of the run."""

    submodel: str
    start_s: float
    reason: str
    begins: bool = False
    """Whether it was queued until now."""
    lane: int = 1
    """1 for the policy's choice, more for its company."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The decision of the policy could not be enacted, or the policy raised; `submodel` trains instead."""

    submodel: str
    message: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step was launched. `loss` and `correct` are scalars on the device; wait for `ready` before you read them."""

    submodel: str
    step: int
    loss: Tensor
    correct: Tensor | None
    """Correct predictions among `labels`; None if there are no classes."""
    labels: int
    ready: torch.cuda.Event | None = None
    """Happens when they are computed; None if reading them waits for that anyway."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch was trained and evaluated."""

    submodel: str
    figures: EpochFigures
    step_s: float | None = None
    """As in `Released`."""
    doubt: NotLearning | None = None
    """Why the sub-model seems not to learn."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a turn cost."""

    peak_bytes: int | None = None
    """Peak: allocated by torch on a GPU, resident memory of the process on the host. None if unknown."""
    transient_bytes: int | None = None
    """Largest temporary memory, in addition to what stayed."""
    cpu_s: float = 0.0
    """CPU seconds of the process, user and system; its share of them in company."""
    own_bytes: int | None = None
    """Weights, gradients, optimizer state, and the largest temporary memory of a step that was measured alone."""


@dataclass(frozen=True, slots=True)
class Released:
    """A sub-model gave its lane back, or goes on in the first one as the policy's choice."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    cost: Cost
    lane: int = 1
    step_s: float | None = None
    """Usual seconds of its steps alone, without the first one and evaluations; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A sub-model completed, was stopped or failed, and left the hybrid."""

    submodel: str
    event: Event
    checkpoint: Checkpoint | None
    """Its last state; None if it failed, was discarded or never trained."""
    cause: str | None = None
    remedy: str | None = None
    discarded: bool = False
    """Whether a person asked to keep nothing."""
    probes: Probes | None = None
    """What it makes of a few samples, for the certificate of its file; None without a checkpoint."""
    figures: tuple[EpochFigures, ...] = ()
    """Those of all its epochs, which `notebook.train` adds."""

    @property
    def state_dict(self) -> Mapping[str, Tensor] | None:
        """Host copy of its weights, averaged if it has averages, under the submitted network's own keys."""
        state = None if self.checkpoint is None else self.checkpoint.state
        return None if state is None else state.get("ema", state["model"])


@dataclass(frozen=True, slots=True)
class Left:
    """A sub-model left the hybrid as it was asked to, and may go on in another; its last report until it joins again.

    All its steps are in the last `Captured`; without any there is none.
    """

    submodel: str


@dataclass(frozen=True, slots=True)
class DataChanged:
    """A data set in memory is not what was read; reported for each sub-model that used it, also if that has ended."""

    submodel: str
    data: str
    """What the sub-model calls the data set."""


@dataclass(frozen=True, slots=True)
class ProcessChanged:
    """A step changed settings of the whole process, which were put back; reported once for each setting."""

    submodel: str
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepsRecorded:
    """From now on full steps of a sub-model are replayed from a CUDA graph; with a reason, they never are."""

    submodel: str
    gain: float | None
    """How many times faster that makes a step."""
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Ganged:
    """From now on a sub-model steps together with others; with a reason, it steps by itself."""

    submodel: str
    others: int
    """Other members of the gang."""
    gain: float | None = None
    """How many times faster that makes a step of all."""
    parted: str | None = None
    """The reason, as a sentence."""


Report = (
    Answered
    | Captured
    | DataChanged
    | Ganged
    | Granted
    | Left
    | ProcessChanged
    | Refused
    | Stepped
    | StepsRecorded
    | EpochDone
    | Released
    | Ended
)
