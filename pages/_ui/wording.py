"""Every word that several screens say: states, verbs, moments and the sentences for empty or stale screens."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from unifiednn_core.lifecycle import Event, State

Colour = Literal["blue", "green", "orange", "red", "gray", "violet"]


@dataclass(frozen=True, slots=True)
class StateWords:
    """How a state is shown: never by its colour alone."""

    label: str
    icon: str
    """Name of a Material symbol."""
    colour: Colour
    sentence: str
    """What happens next."""


STATES: dict[State, StateWords] = {
    State.DRAFT: StateWords("Draft", "edit", "gray", "Not handed in yet."),
    State.QUEUED: StateWords("Queued", "schedule", "violet", "It starts when the device is free."),
    State.STARTING: StateWords("Starting", "hourglass_top", "blue", "The worker is loading models and data."),
    State.RUNNING: StateWords("Running", "play_arrow", "blue", "Training."),
    State.PAUSING: StateWords("Pausing…", "hourglass_top", "orange", "It pauses at the end of the current step."),
    State.PAUSED: StateWords("Paused", "pause", "orange", "It goes on when you resume it."),
    State.STOPPING: StateWords("Stopping…", "hourglass_top", "orange", "It stops at the end of the current step."),
    State.COMPLETED: StateWords("Completed", "check", "green", "Everything that was asked for is done."),
    State.STOPPED: StateWords("Stopped", "stop", "gray", "Ended by a person; what was learnt is kept."),
    State.FAILED: StateWords("Failed", "close", "red", "An error ended it."),
    State.INTERRUPTED: StateWords("Interrupted", "power_off", "red", "Its process or its host went away."),
}

VERBS: dict[Event, tuple[str, str]] = {
    Event.PAUSE: ("Pause", "pause"),
    Event.RESUME: ("Resume", "play_arrow"),
    Event.STOP: ("Stop", "stop"),
}
"""Label and Material symbol of each thing that a person can do to a run or a sub-model, in button order."""

POLICY_TITLES = {
    "fcfs": "First come",
    "priority": "Priority",
    "sjf": "Shortest job",
    "round_robin": "Round robin",
}

NO_SUPERVISOR = "The supervisor is not running, so no queued run can start. Restart the dashboard."
NOTHING_RUNS = "Nothing is training. Runs that you start appear here, with what trains now and why."
NO_RUNS = "There is no run yet. Try the demo, or build a hybrid of your own."
NO_GRAPH = "The graph appears when the worker has merged the networks."
NO_CURVES = "Curves appear after the first step."
DEMO_HELP = "Trains three small networks on handwritten digits as one hybrid; about a minute on a CPU."
STOP_RUN = (
    "Training ends after the current step. What each sub-model has learnt so far is written out and can be downloaded, "
    "and the history stays. A stopped run cannot be resumed."
)
STOP_SUBMODEL = (
    "It ends after its current step; the other sub-models go on. What it has learnt so far is written out and can be "
    "downloaded. A stopped sub-model cannot be resumed."
)
STALE_AFTER_S = 10.0


def stale_text(heartbeat_age_s: float) -> str:
    """Sentence for a run whose worker has not been heard of lately."""
    return (
        f"No word from the worker for {heartbeat_age_s:.0f} s: the figures below are old. "
        "If it stays silent, the run is marked as interrupted."
    )


def policy_title(name: str) -> str:
    """Name of a policy for people; an unknown one keeps its own."""
    return POLICY_TITLES.get(name, name.replace("_", " ").capitalize())


def clock_text(at_s: float, timezone: str | None) -> str:
    """Moment (UTC seconds) as `hh:mm:ss` in a time zone; UTC where the zone is unknown."""
    return datetime.fromtimestamp(at_s, _zone(timezone)).strftime("%H:%M:%S")


def ago_text(at_s: float | None, now_s: float, timezone: str | None = None) -> str:
    """Moment (UTC seconds) as `12 min ago` within a day, as a date and time before."""
    if at_s is None:
        return "-"
    age_s = max(0.0, now_s - at_s)
    if age_s < 60:
        return "just now"
    if age_s < 3600:
        return f"{age_s // 60:.0f} min ago"
    if age_s < 24 * 3600:
        return f"{age_s // 3600:.0f} h ago"
    return datetime.fromtimestamp(at_s, _zone(timezone)).strftime("%Y-%m-%d %H:%M")


def loss_text(loss: float | None) -> str:
    """Loss with four significant digits, or a dash before there is one."""
    return "-" if loss is None else f"{loss:.4g}"


def accuracy_text(accuracy: float | None) -> str:
    """Accuracy as a percentage, or a dash before there is one."""
    return "-" if accuracy is None else f"{100 * accuracy:.1f} %"


def count_text(count: int, thing: str) -> str:
    """Count with its noun: `1 sub-model`, `3 sub-models`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def plain(text: str) -> str:
    """Text with everything escaped that Markdown would read as markup, for labels that take Markdown."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])", r"\\\1", " ".join(text.split()))


def _zone(timezone: str | None) -> tzinfo:
    try:
        return ZoneInfo(timezone) if timezone else UTC
    except (ZoneInfoNotFoundError, ValueError):
        return UTC
