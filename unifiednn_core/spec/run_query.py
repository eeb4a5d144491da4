"""What a person asks of the list of runs."""

from dataclasses import dataclass
from typing import Literal

from unifiednn_core.spec.lifecycle import State

PAGE_ROWS = 25
NEWEST_ROWS = 50
"""Runs of a list that nobody asked to be longer."""
MOST_COUNTED, MOST_USES_COUNTED = 200, 10
"""Most that are counted of what runs keep, and of the runs that use a file: to count all looks at each of them."""
SortKey = Literal["submitted", "name", "state", "owner", "device", "time", "accuracy", "memory"]


@dataclass(frozen=True, slots=True)
class RunQuery:
    """What a person asks of the list of runs. Empty fields do not filter."""

    text: str = ""
    """Part of the name or id of a run, of a sub-model's name, or of an owner; looked for in the newest runs."""
    everywhere: bool = False
    """Whether the text is looked for in all runs."""
    states: tuple[State, ...] = ()
    owner: str | None = None
    """"" is the local operator."""
    device: str = ""
    since_s: float | None = None
    """Submitted at this UTC time or later."""
    sort: SortKey = "submitted"
    descending: bool = True
    page: int = 0
    """From 0; one beyond the end means the last."""
    rows: int = PAGE_ROWS

    @property
    def filters(self) -> bool:
        """Whether it leaves out any run."""
        times = (self.owner, self.since_s)
        return bool(self.text or self.states or self.device) or any(one is not None for one in times)


KeptSort = Literal["name", "run", "state", "step", "accuracy", "size", "added"]


@dataclass(frozen=True, slots=True)
class KeptQuery:
    """What a person asks of the trained models, or of the newest checkpoints, that runs keep."""

    what: Literal["model", "checkpoint"]
    text: str = ""
    """Part of the name of a sub-model, or of the name or id of a run."""
    sort: KeptSort = "added"
    descending: bool = True
    rows: int | None = None
    """Most of them; all without it."""
    counted: bool = True
    """Whether to count those that match, up to `MOST_COUNTED`."""


@dataclass(frozen=True, slots=True)
class RunChoices:
    """What the filters of a person can choose."""

    owners: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    total: int = 0
    living: int = 0
    """Runs that have not ended."""
