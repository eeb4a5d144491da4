"""What the engine can be asked for. Each is obeyed between two steps; `id` names the command that it answers."""

from collections.abc import Callable
from dataclasses import dataclass

from unifiednn_core.lifecycle import Event
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.training.submodel import SubModel


@dataclass(frozen=True, slots=True)
class Order:
    """Pause, resume, stop, discard or save one sub-model, or the whole run where `submodel` is None.

    A run is paused by leaving: the engine keeps everything and returns. There is no resume of a whole run here.
    """

    event: Event
    submodel: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Keep everything and return, because the process has to end."""

    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Give a sub-model another priority."""

    submodel: str
    priority: int
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetEpochs:
    """Train a sub-model for another number of epochs; one that has as many already ends at once."""

    submodel: str
    epochs: int
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Reorder:
    """Put the sub-models into another order of arrival, and of turns; who is not named goes last."""

    names: tuple[str, ...]
    id: int | None = None


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Let another policy decide from the next step on."""

    policy: Policy
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """Take one more sub-model into the hybrid. `prepare` adds it there and returns it; it runs between two steps."""

    submodel: str
    prepare: Callable[[], SubModel]
    id: int | None = None


AnyOrder = Order | Leave | SetPriority | SetEpochs | Reorder | SetPolicy | Join
