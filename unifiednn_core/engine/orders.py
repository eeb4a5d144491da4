"""Orders for the engine. It carries them out between two steps and answers the command `id`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

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
class Adjust:
    """Change one figure of a sub-model: its `priority`, `epochs`, `deadline_s` or `devices`.

    One that already has as many epochs ends at once; a deadline counts from its submission, and may be None;
    `devices` are the logical ones that compute its virtual nodes.
    """

    submodel: str
    figure: str
    value: Any
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


AnyOrder = Order | Adjust | Reorder | SetPolicy | Join


def adjust(job: Job | None, order: Adjust) -> str | None:
    """Change one figure of a sub-model; returns the reason if that is not possible, or no longer."""
    name, value = name_of_key(order.submodel), order.value
    if job is None:
        return f"{name} has ended"
    match order.figure:
        case "priority":
            job.priority = value
        case "deadline_s":
            job.standing = replace(job.standing, deadline_s=value)
        case "devices" if job.submodel.devices is None:
            return f"{name} has no virtual nodes"
        case "devices":
            job.submodel.devices = value
        case "epochs" if value < job.submodel.epochs_begun:
            return f"{name} is in epoch {job.submodel.epochs_begun} already"
        case "epochs":
            job.submodel.epochs = value
    return None
