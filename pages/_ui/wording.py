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
    State.STOPPED: StateWords("Stopped", "stop", "gray", "Ended by a person."),
    State.FAILED: StateWords("Failed", "close", "red", "An error ended it."),
    State.INTERRUPTED: StateWords("Interrupted", "power_off", "red", "Its process or its host went away."),
}

VERBS: dict[Event, tuple[str, str]] = {
    Event.PAUSE: ("Pause", "pause"),
    Event.RESUME: ("Resume", "play_arrow"),
    Event.SAVE: ("Save now", "save"),
    Event.STOP: ("Stop", "stop"),
    Event.DISCARD: ("Discard", "delete_forever"),
    Event.RETRY: ("Retry", "replay"),
}
"""Label and Material symbol of each thing that a person can do to a run or a sub-model, in button order."""

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
EMPTY_LIBRARY = {
    "model": "Add a model above, or try the demo: it brings its own.",
    "data set": "Add a data set above, or try the demo: it brings its own.",
    "checkpoint": "Download one from the page of a run, on any machine, and add it above to train on from there.",
}
DEMO_HELP = "Trains three small networks on handwritten digits as one hybrid; about a minute on a CPU."
STOP_RUN = (
    "Training ends after the current step. What each sub-model has learnt so far is written out and can be downloaded, "
    "and the history stays. A stopped run cannot be resumed."
)
STOP_SUBMODEL = (
    "It ends after its current step; the other sub-models go on. What it has learnt so far is written out and can be "
    "downloaded. A stopped sub-model cannot be resumed."
)
DISCARD_RUN = (
    "Training ends after the current step. Of the sub-models that are not done nothing is kept: no model file and no "
    "checkpoint. Those that are done stay, and so does the history. This cannot be undone."
)
DISCARD_SUBMODEL = (
    "It ends after its current step, and nothing of it is kept: no model file and no checkpoint. The other sub-models "
    "go on. This cannot be undone."
)
PAUSED_RUN = "It holds no device, so others may train meanwhile. It goes on at the same step when you resume it."
RESUME_RUN = (
    "Resume goes on at the last checkpoint of each sub-model, in the middle of its epoch, with the same bits as "
    "without the interruption. What was trained after it is trained again and counts once."
)
AFTER_CRASH = {"auto": "after a crash it goes on by itself", "ask": "after a crash it waits for you"}
RECOVERY = {"auto": "Goes on by itself", "ask": "Waits for you"}
EDITS_HELP = "Each change takes effect at the next step. Nothing that was learnt is lost."
NOTHING_TO_ADJUST = "This run has ended, so there is nothing left to adjust."
ORDER_HELP = "Earlier means: arrived first. First come goes by it, and every other policy where it is a tie."
ADD_HELP = "It joins the hybrid while the others train on; the policy decides when its turn is."
START_EVERYTHING = (
    "Goes on exactly there: optimizer, LR scheduler, random numbers and data order too. The epochs are counted in all."
)
START_NOWHERE = "the model file itself"
START_WEIGHTS = "Begins a new training with these weights."
BATCH_SPLIT_HELP = (
    "Parts in which a batch goes through the network, one after the other, for one step. More parts need less memory. "
    "The gradient is that of the whole batch but for rounding; batch normalisation sees the parts."
)
CHECKPOINT_HELP = "How often progress is kept. A crash costs at most this much training, which is then done again."
STEPS_HELP = "Steps of the run, all sub-models together. With both periods, whichever comes first."
STEP_LIMIT_HELP = "A step that takes longer is taken for endless: its sub-model fails, the others go on."
STALE_AFTER_S = 10.0


def stale_text(heartbeat_age_s: float) -> str:
    """Sentence for a run whose worker has not been heard of lately."""
    return (
        f"No word from the worker for {heartbeat_age_s:.0f} s: the figures below are old. "
        "If it stays silent, the run is marked as interrupted."
    )


def recovered_text(recoveries: int, redone_steps: int) -> str:
    """Sentence about what crashes and retries have cost so far; nothing where they cost nothing."""
    if recoveries < 1 and redone_steps < 1:
        return ""
    often = (
        f"Recovered {'once' if recoveries == 1 else f'{recoveries} times'}"
        if recoveries
        else "Went on from the last checkpoints"
    )
    if not redone_steps:
        return f"{often}; no step had to be trained again."
    return f"{often}; {count_text(redone_steps, 'lost step')} trained again, none counts twice."


def kept_text(checkpoint_text: str, recovery: str) -> str:
    """How the progress of a run is kept, and what happens after a crash."""
    kept = f"progress is kept {checkpoint_text}; " if checkpoint_text else ""
    return f"in order of arrival · {kept}{AFTER_CRASH.get(recovery, AFTER_CRASH['ask'])}"


def waiting_text(text: str, submodel: str | None, asked: str, state: State) -> str:
    """Sentence about something that was asked for and has not taken effect; `asked` is when."""
    whose = "" if submodel is None or text.endswith(f" {submodel}") else f" of {submodel}"
    when = "at the next step" if state is State.RUNNING else "when it trains again"
    return f"{text}{whose}: asked {asked}, takes effect {when}"


def retry_texts(batch_split: int, learning_rate: float | None) -> dict[str, tuple[str, str]]:
    """Label and sentence of each way to try a failed sub-model again, from the settings that it failed with."""
    parts = f"{2 * batch_split} parts instead of {batch_split}" if batch_split > 1 else "2 parts"
    texts = {
        "split": (
            "Retry with batch split \N{MULTIPLICATION SIGN}2",
            f"Each batch goes through in {parts}, one after the other, which needs less memory.",
        ),
        "plain": ("Retry", "Tries again with the same settings."),
    }
    if learning_rate is not None:
        smaller = f"{learning_rate / 10:.6g} instead of {learning_rate:.6g}"
        texts["rate"] = ("Retry with learning rate /10", f"Trains on with learning rate {smaller}.")
    return texts


def from_text(checkpoint_step: int | None) -> str:
    """Where a retry goes on."""
    return (
        "It begins anew." if checkpoint_step is None else f"It goes on from its checkpoint at step {checkpoint_step:,}."
    )


def event_kind(kind: str) -> str:
    """Kind of an event for people; an unknown one keeps its own name."""
    return EVENT_KINDS.get(kind, kind.replace("_", " ").capitalize())


def policy_title(name: str) -> str:
    """Name of a policy for people; an unknown one keeps its own."""
    return POLICY_TITLES.get(name, name.replace("_", " ").capitalize())


def clock_text(at_s: float, timezone: str | None) -> str:
    """Moment (UTC seconds) as `hh:mm:ss` in a time zone; UTC where the zone is unknown."""
    return datetime.fromtimestamp(at_s, _zone(timezone)).strftime("%H:%M:%S")


def age_text(at_s: float | None, now_s: float, timezone: str | None = None) -> str:
    """Moment (UTC seconds) as `12 s ago` within a minute, and as `ago_text` says it before."""
    if at_s is None or now_s - at_s >= 60:
        return ago_text(at_s, now_s, timezone)
    return f"{max(0.0, now_s - at_s):.0f} s ago"


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
