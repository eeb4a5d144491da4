"""Everything that an exercise can meet: one card for each kind of fault and place."""

import random
from dataclasses import dataclass
from typing import Literal

from unifiednn_core.failpoints import Fault

Kind = Literal["point", "commands", "server", "moment", "damage", "clock"]


@dataclass(frozen=True, slots=True)
class Card:
    """`kind` says who is met: a worker at a `point`, the process that issues `commands`, the `server`, and so on."""

    kind: Kind
    action: str
    fault_point: str = ""
    hits: int = 1
    """The fault strikes at one of the first so many passings."""

    @property
    def name(self) -> str:
        """As a person reads it in a journal."""
        return f"{self.kind} {self.fault_point or ''} {self.action}".replace("  ", " ")

    @property
    def signal(self) -> bool:
        """Whether the fault ends the process."""
        return self.action in SIGNALS

    @property
    def place(self) -> int:
        """When it can be met: 0 at any time, later where a sub-model has to end first; the killing ones go first."""
        return 0 if not self.fault_point.startswith("separation") else 1 if self.signal else 2

    @property
    def on_request(self) -> bool:
        """Whether somebody has to ask for something before a worker meets it."""
        return self.fault_point.startswith(("command", "policy"))

    @property
    def downloads(self) -> bool:
        """Whether it is met by who downloads a model."""
        return self.fault_point.startswith("download")

    def fault(self, chance: random.Random) -> Fault:
        """Arm it for one of its passings; a disk stays full, and a store locked, for a while."""
        times = 1 if self.signal else chance.randint(1, 4)
        return Fault(self.fault_point, self.action, hit=chance.randint(1, self.hits), times=times)


SIGNALS = ("sigkill", "sigterm")
_HITS = {
    "checkpoint.before_write": 6,
    "checkpoint.before_fsync": 6,
    "checkpoint.before_rename": 6,
    "checkpoint.after_rename": 6,
    "store.before_commit": 25,
    "store.after_commit": 25,
    "command.before_effect": 3,
    "command.after_effect": 3,
    "policy.before_switch": 1,
    "policy.after_switch": 1,
    "separation.before_write": 2,
    "separation.before_rename": 2,
    "separation.after_rename": 2,
}
_ASKED_HITS = {
    "command.before_acknowledgement": 3,
    "command.after_acknowledgement": 3,
    "store.before_commit": 4,
    "store.after_commit": 4,
    "download.before_copy": 1,
    "download.before_rename": 1,
}
_DISK_POINTS = (
    "checkpoint.before_write",
    "checkpoint.before_fsync",
    "checkpoint.before_rename",
    "separation.before_write",
    "separation.before_rename",
)
_LOCKED: tuple[tuple[Kind, int], ...] = (("point", 25), ("commands", 4))
_MOMENTS = ("worker",) * 5 + ("server",) * 3 + ("both",) * 4 + ("commands",) * 2

DECK: tuple[Card, ...] = (
    *(Card("point", action, point, hits) for point, hits in _HITS.items() for action in SIGNALS),
    *(Card("point", action, point, _HITS[point]) for point in _DISK_POINTS for action in ("disk_full", "read_only")),
    *(Card("commands", action, point, hits) for point, hits in _ASKED_HITS.items() for action in SIGNALS),
    *(Card("server", action, f"store.{when}_commit", 4) for when in ("before", "after") for action in SIGNALS),
    *(Card(kind, "locked", "store.before_commit", hits) for kind, hits in _LOCKED),
    *(Card("moment", whom) for whom in _MOMENTS),
    *(Card("damage", how) for how in ("flip", "truncate") * 2),
    *(Card("clock", where) for where in ("forwards", "backwards")),
)
