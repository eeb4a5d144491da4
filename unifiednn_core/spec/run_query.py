"""What a person asks of the list of runs."""

from dataclasses import dataclass
from typing import Literal

from unifiednn_core.spec.lifecycle import State

PAGE_ROWS = 25
SortKey = Literal["submitted", "name", "state", "owner", "device", "time", "accuracy", "memory"]


@dataclass(frozen=True, slots=True)
class RunQuery:
    """What a person asks of the list of runs. Empty fields do not filter."""

    text: str = ""
    """Part of the name or id of a run, of a sub-model's name, or of an owner."""
    states: tuple[State, ...] = ()
    owner: str | None = None
    """"" is the local operator."""
    device: str = ""
    since_s: float | None = None
    """Submitted at this UTC time or later."""
    until_s: float | None = None
    sort: SortKey = "submitted"
    descending: bool = True
    page: int = 0
    """From 0; one beyond the end means the last."""
    rows: int = PAGE_ROWS


@dataclass(frozen=True, slots=True)
class RunChoices:
    """What the filters of a person can choose."""

    owners: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    total: int = 0
    living: int = 0
    """Runs that have not ended."""
