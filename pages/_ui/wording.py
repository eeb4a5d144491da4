"""Words that several pages share: states, actions, moments, and sentences for empty or stale pages."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from unifiednn_core.spec.lifecycle import Event, State

Colour = Literal["blue", "green", "orange", "red", "gray", "violet"]


@dataclass(frozen=True, slots=True)
class StateWords:
    """How a state is shown. Colour is never the only sign."""

    label: str
    icon: str
    """Name of a Material symbol."""
    colour: Colour
    sentence: str
    """What happens next."""


STATES: dict[State, StateWords] = {
    State.QUEUED: StateWords("Queued", "schedule", "violet", "It starts when the device is free."),
    State.STARTING: StateWords("Starting", "hourglass_top", "blue", "The worker is loading models and data."),
    State.RUNNING: StateWords("Running", "play_arrow", "blue", "Training."),
    State.PAUSING: StateWords("Pausing…", "hourglass_top", "orange", "It pauses at the end of the current step."),
    State.PAUSED: StateWords("Paused", "pause", "orange", "It continues when you resume it."),
    State.STOPPING: StateWords("Stopping…", "hourglass_top", "orange", "It stops at the end of the current step."),
    State.COMPLETED: StateWords("Completed", "check", "green", "All sub-models completed."),
    State.STOPPED: StateWords("Stopped", "stop", "gray", "A person stopped it."),
    State.FAILED: StateWords("Failed", "close", "red", "An error ended it."),
    State.INTERRUPTED: StateWords("Interrupted", "power_off", "red", "Its process or host died."),
}

VERBS: dict[Event, tuple[str, str]] = {
    Event.PAUSE: ("Pause", "pause"),
    Event.RESUME: ("Resume", "play_arrow"),
    Event.SAVE: ("Save now", "save"),
    Event.STOP: ("Stop", "stop"),
    Event.DISCARD: ("Discard", "delete_forever"),
    Event.RETRY: ("Retry", "replay"),
}
"""Label and Material symbol of each action on a run or a sub-model, in button order."""

EVENT_KINDS = {
    "state": "State",
    "command": "Command",
    "applied": "Took effect",
    "checkpoint": "Checkpoint",
    "separated": "Separated",
    "recovery": "Recovery",
    "warning": "Warning",
    "error": "Error",
    "refused": "Refused",
    "defect": "Defect",
}

POLICY_TITLES = {"fcfs": "First come", "priority": "Priority", "sjf": "Shortest job", "round_robin": "Round robin"}

NO_SUPERVISOR = "The supervisor is not running, so no queued run can start. Restart the dashboard."
NOTHING_RUNS = "Nothing is training. A run that you start appears here, with what trains now and why."
PROMISE = (
    "They share one process and one device, and each keeps its own optimizer, data and random numbers. "
    "No runs yet. Try the demo, or build your own hybrid."
)
NO_RUNS = "No runs yet. Try the demo, or build your own hybrid."
NO_GRAPH = "The graph appears once the worker has merged the networks."
NO_CURVES = "Curves appear after the first step."
EMPTY_LIBRARY = {
    "model": "Add a model above, or try the demo, which includes its own.",
    "data set": "Add a data set above, or try the demo, which includes its own.",
    "checkpoint": "Download a checkpoint from the page of a run and add it above to continue its training here.",
}
DEMO_HELP = "Trains three small networks on handwritten digits as one hybrid; about a minute on a CPU."
STOP_RUN = (
    "Training ends after the current step. The progress of each sub-model is saved and can be downloaded, and the "
    "history stays. A stopped run cannot be resumed."
)
STOP_SUBMODEL = (
    "It ends after its current step; the other sub-models go on. Its progress is saved and can be downloaded. "
    "A stopped sub-model cannot be resumed."
)
DISCARD_RUN = (
    "Training ends after the current step. Unfinished sub-models keep nothing: no model file and no checkpoint. "
    "Finished sub-models and the history stay. This cannot be undone."
)
DISCARD_SUBMODEL = (
    "It ends after its current step and keeps nothing: no model file and no checkpoint. The other sub-models go on. "
    "This cannot be undone."
)
DRAFT_CONFLICT = (
    "Another tab saved this draft after this tab read it. What you change here is not saved until you overwrite it."
)
PAUSED_RUN = "It holds no device, so other runs can train. It continues at the same step when you resume it."
RESUME_RUN = (
    "Resume continues each sub-model from its last checkpoint, in the middle of its epoch, with the same bits as "
    "without the interruption. Later steps are trained again and count once."
)
RECOVERY = {"auto": "Restart by itself", "ask": "Wait for me"}
EDITS_HELP = "Each change takes effect at the next step. No progress is lost."
NOTHING_TO_ADJUST = "This run has ended; nothing is left to adjust."
ORDER_HELP = "Earlier means arrived first. First come follows this order; the other policies break ties by it."
ADD_HELP = "It joins the hybrid while the others train; the policy decides when it gets a turn."
START_EVERYTHING = (
    "Continues exactly there, with optimizer, LR scheduler, random numbers and data order. Trained epochs count."
)
BATCH_SPLIT_HELP = (
    "Number of parts in which each batch passes through the network. More parts need less memory. The gradient is "
    "that of the whole batch up to rounding; batch normalisation sees the parts."
)
CHECKPOINT_HELP = "How often a checkpoint is written. A crash costs at most this much training, which is then repeated."
STEPS_HELP = "Steps of the run, all sub-models together. With both periods, the first to pass counts."
STEP_LIMIT_HELP = "A longer step counts as endless: its sub-model fails and the others go on."
STALE_AFTER_S = 10.0


def stale_text(heartbeat_age_s: float) -> str:
    """Sentence for a run with a silent worker."""
    return (
        f"The worker has been silent for {heartbeat_age_s:.0f} s, so the figures below are old. "
        "If it stays silent, the run becomes interrupted."
    )


def recovered_text(recoveries: int, redone_steps: int, *, ended: bool) -> str:
    """What crashes and retries have cost so far; empty without any. Only an ended run knows that nothing was lost."""
    if recoveries < 1 and redone_steps < 1:
        return ""
    often = (
        f"Recovered {'once' if recoveries == 1 else f'{recoveries} times'}"
        if recoveries
        else "Continued from the last checkpoints"
    )
    if not redone_steps:
        return f"{often}; no step was lost." if ended else f"{often}."
    return f"{often}; {count_text(redone_steps, 'lost step')} trained again and counted once."


def kept_text(checkpoint_text: str, recovery: str) -> str:
    """How often a run writes checkpoints, and what happens after a crash."""
    kept = f"checkpoint {checkpoint_text}; " if checkpoint_text else ""
    crash = "restarts by itself" if recovery == "auto" else "waits for you"
    return f"in order of arrival · {kept}{crash} after a crash"


def waiting_text(text: str, submodel: str | None, asked: str, state: State) -> str:
    """Sentence about a command that has not taken effect; `asked` is its time."""
    part = "" if submodel is None or text.endswith(f" {submodel}") else f" of {submodel}"
    when = "at the next step" if state is State.RUNNING else "when it trains again"
    return f"{text}{part}: requested {asked}, takes effect {when}"


def event_kind(kind: str) -> str:
    """Kind of an event in words; an unknown kind keeps its own name."""
    return EVENT_KINDS.get(kind, kind.replace("_", " ").capitalize())


def policy_title(name: str) -> str:
    """Name of a policy in words: its title, or its own name."""
    return POLICY_TITLES.get(name, name.replace("_", " ").capitalize())


def moment_text(at_s: float, timezone: str | None, form: str) -> str:
    """Moment (UTC seconds) in a form of `strftime` and a time zone; UTC where the zone is unknown."""
    try:
        zone: tzinfo = ZoneInfo(timezone) if timezone else UTC
    except (ZoneInfoNotFoundError, ValueError):
        zone = UTC
    return datetime.fromtimestamp(at_s, zone).strftime(form)


def ago_text(at_s: float | None, now_s: float, timezone: str | None = None, *, seconds: bool = False) -> str:
    """Moment (UTC seconds) as `12 min ago` within a day, as a date and time before; `12 s ago` only with `seconds`."""
    if at_s is None:
        return "-"
    age_s = max(0.0, now_s - at_s)
    if age_s < 60:
        return f"{age_s:.0f} s ago" if seconds else "just now"
    if age_s < 3600:
        return f"{age_s // 60:.0f} min ago"
    if age_s < 24 * 3600:
        return f"{age_s // 3600:.0f} h ago"
    return moment_text(at_s, timezone, "%Y-%m-%d %H:%M")


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
