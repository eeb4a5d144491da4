"""A placement as a document and as a drawing needs it: what each device does when, and what it holds."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """Forward or backward of an operator."""

    operator: str
    backward: bool
    start_s: float
    end_s: float
    alive_bytes: int
    """On the device during the task."""


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """What a device does, in order."""

    cap_bytes: int | None
    peak_bytes: int
    weight_bytes: int
    work_s: float
    tasks: tuple[PlannedTask, ...]


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """One simulated step of a placed network."""

    makespan_s: float
    program_s: float
    """If each device does its tasks in the order of the program."""
    bound_s: float
    work_s: float
    """Of all operators one after another."""
    sent_bytes: int
    """Copied between devices in a step, forward and back."""
    devices: tuple[PlannedDevice, ...]

    def to_json(self) -> str:
        """Return the plan as a JSON document."""
        return json.dumps(asdict(self), allow_nan=False)
