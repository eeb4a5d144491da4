"""Named points at which a test can inject a fault, to test recovery.

Passing an unarmed point costs one comparison. The environment variable `UNIFIEDNN_FAULT` arms a point for a process:
`checkpoint.before_rename=sigkill@3` kills the process when it passes that point for the third time.
"""

import errno
import os
import signal
import sqlite3
from dataclasses import dataclass
from itertools import count

VARIABLE = "UNIFIEDNN_FAULT"

POINTS = (
    "checkpoint.before_write",
    "checkpoint.before_fsync",
    "checkpoint.before_rename",
    "checkpoint.after_rename",
    "store.before_commit",
    "store.after_commit",
    "command.before_acknowledgement",
    "command.after_acknowledgement",
    "command.before_effect",
    "command.after_effect",
    "policy.before_switch",
    "policy.after_switch",
    "separation.before_write",
    "separation.before_rename",
    "separation.after_rename",
    "certificate.before_record",
    "download.before_copy",
    "download.before_rename",
    "placement.before_open",
    "placement.after_open",
    "placement.before_join",
    "placement.after_join",
    "placement.before_restart",
    "placement.after_restart",
    "placement.before_release",
    "placement.before_leave",
    "placement.after_leave",
    "placement.before_give_back",
    "placement.after_give_back",
    "placement.before_close",
    "placement.after_close",
    "removal.after_mark",
    "removal.after_files",
)
ACTIONS = ("sigkill", "disk_full", "read_only", "locked")


@dataclass(frozen=True, slots=True)
class Fault:
    """`action` happens at the `hit`-th passing of `point`; errors repeat for `times` passings."""

    point: str
    action: str
    hit: int = 1
    times: int = 1

    def __post_init__(self) -> None:
        if self.point not in POINTS or self.action not in ACTIONS or self.hit < 1 or self.times < 1:
            valid = f"points are {', '.join(POINTS)}; actions are {', '.join(ACTIONS)}"
            raise ValueError(f"{self} cannot be armed; {valid}.")

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read `POINT=ACTION@HIT`; raises `ValueError`."""
        point, _, rest = text.partition("=")
        action, _, hit = rest.partition("@")
        return cls(point, action, int(hit or 1))


class _Armed:
    """The fault of this process, and how often its point was passed."""

    def __init__(self, fault: Fault):
        self.fault, self._passings = fault, count(1)

    def strikes(self) -> bool:
        return self.fault.hit <= next(self._passings) < self.fault.hit + self.fault.times  # next() is atomic


_armed: _Armed | None = None


def arm(fault: Fault | None) -> None:
    """Arm a fault in this process, or disarm with None."""
    global _armed
    _armed = None if fault is None else _Armed(fault)


def arm_from_environment() -> None:
    """Arm the fault that `UNIFIEDNN_FAULT` names, if any."""
    text = os.environ.get(VARIABLE)
    arm(Fault.parse(text) if text else None)


def passing(point: str) -> None:
    """Mark that `point` is reached; a fault armed for it happens here."""
    armed = _armed
    if armed is None or armed.fault.point != point or not armed.strikes():
        return
    match armed.fault.action:
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "disk_full" | "read_only" as action:
            number = errno.ENOSPC if action == "disk_full" else errno.EROFS
            raise OSError(number, os.strerror(number))
        case "locked":
            raise sqlite3.OperationalError("database is locked")
