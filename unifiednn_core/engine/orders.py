"""Orders for the engine. It carries them out between two steps and answers the command `id`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from unifiednn_core.engine.checkpoint import name_of_key
from unifiednn_core.engine.job import Job, Standing
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.spec.lifecycle import Event


@dataclass(frozen=True, slots=True)
class Order:
    """Pause, resume, stop, discard, save or release one sub-model, or the whole run if `submodel` is None.

    To pause the run, also because the process has to end, the engine captures everything and returns. A new engine
    resumes it. Whatever a save or this pause captures, the engine verifies the data sets that it was trained on.
    A sub-model that is released leaves the hybrid for another one: the report `Left` answers, or its end.
    """

    event: Event
    submodel: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Give a sub-model another priority."""

    submodel: str
    priority: int
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetEpochs:
    """Train a sub-model for another number of epochs; it ends at once if it already has as many."""

    submodel: str
    epochs: int
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetDeadline:
    """Give a sub-model a deadline in seconds after its submission, or none."""

    submodel: str
    deadline_s: float | None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetDevices:
    """Let another number of logical devices compute the virtual nodes of a sub-model."""

    submodel: str
    devices: int
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Reorder:
    """Change the order of arrival and of turns; sub-models not named go last."""

    names: tuple[str, ...]
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Use another policy from the next step on."""

    policy: Policy
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """Merge one more sub-model. `prepare` adds it to the hybrid and returns it; it runs between two steps."""

    submodel: str
    prepare: Callable[[], SubModel]
    id: int | None = None
    standing: Standing = field(default_factory=Standing)
    captured_step: int = 0
    """Step of its newest checkpoint."""


Adjustment = SetPriority | SetEpochs | SetDeadline | SetDevices
AnyOrder = Order | Adjustment | Reorder | SetPolicy | Join


def adjust(job: Job | None, order: Adjustment) -> str | None:
    """Change one figure of a sub-model; returns the reason if that is not possible, or no longer."""
    name = name_of_key(order.submodel)
    if job is None:
        return f"{name} has ended"
    if isinstance(order, SetPriority):
        job.priority = order.priority
    elif isinstance(order, SetDeadline):
        job.standing = replace(job.standing, deadline_s=order.deadline_s)
    elif isinstance(order, SetDevices):
        if job.submodel.devices is None:
            return f"{name} has no virtual nodes"
        job.submodel.devices = order.devices
    elif order.epochs < job.submodel.epochs_begun:
        return f"{name} is in epoch {job.submodel.epochs_begun} already"
    else:
        job.submodel.epochs = order.epochs
    return None
