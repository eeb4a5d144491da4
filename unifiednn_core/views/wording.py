"""Words that several pages share: states, actions, moments, and sentences for empty or stale pages."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from unifiednn_core.base.units import NOT_AVAILABLE, duration_text
from unifiednn_core.base.visible import visible
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.spec.run import BASELINES
from unifiednn_core.views.estimates import Estimate
from unifiednn_core.views.runs import LinePlace, RunView, SubModelView

Colour = Literal["blue", "green", "orange", "red", "gray", "violet"]


class StateWords(NamedTuple):
    """How a state is shown. Colour is never the only sign."""

    label: str
    icon: str
    """Material symbol."""
    colour: Colour
    sentence: str
    """What happens next."""


STATES: dict[State, StateWords] = {
    State.QUEUED: StateWords("Queued", "schedule", "violet", "It starts when a device is free."),
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

TRAINS = StateWords("Trains now", "play_arrow", "blue", "It holds the device.")
NEXT = StateWords("Next", "skip_next", "violet", "It trains as soon as the device is free.")
WAITS = StateWords("Waits for its turn", "schedule", "violet", "The policy decides when it trains.")
_IN_LINE = (State.QUEUED, State.STARTING, State.RUNNING)

VERBS = {
    Event.PAUSE: ("Pause", "pause"),
    Event.RESUME: ("Resume", "play_arrow"),
    Event.SAVE: ("Save now", "save"),
    Event.STOP: ("Stop", "stop"),
    Event.DISCARD: ("Discard", "delete_forever"),
    Event.RETRY: ("Retry", "replay"),
}
"""Label and Material symbol of each action on a run or a sub-model."""
TITLES = {
    "applied": "Took effect",
    "fcfs": "First come",
    "sjf": "Shortest job",
    "srtf": "Shortest remaining time",
    "las": "Least served",
}
"""Titles of kinds of events and of policies; every other name is its own title."""

SOURCES = {"process PSS": "memory of the process (PSS)", "process RSS": "memory of the process (RSS)"}
SOURCE_HELP = "What the worker's process holds in the memory of the host. Pages that it shares count in part (PSS)."
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

NO_RUNS = "No runs yet. Try the demo, or build your own hybrid."
NO_CURVES = "Curves appear after the first step."
ADD_HELP = "It joins the hybrid while the others train; the policy decides when it gets a turn."
NO_ESTIMATE = "no estimate yet"
ESTIMATING = "estimating…"
STALE_AFTER_S = 10.0
EXCEEDED = 1.5
"""A peak of so many times the prediction is told as exceeding it."""
_WORDS = re.compile(r"[^\W_]+(?:[-_ ][^\W_]+)*")


def run_words(view: RunView) -> StateWords:
    """How the state of a run is shown; one of which only some completed says so."""
    failed = sum(part.state is State.FAILED for part in view.submodels)
    completed = sum(part.state is State.COMPLETED for part in view.submodels)
    if view.state in (State.COMPLETED, State.FAILED) and failed and completed:
        label = f"Completed, {failed} failed"
        return StateWords(label, "warning", "orange", f"{completed} of {len(view.submodels)} sub-models completed.")
    return STATES[view.state]


def standing_words(run: RunView, part: SubModelView) -> StateWords:
    """Who trains, who is next, and who waits for what: the state of a sub-model in its run."""
    if part.state not in _IN_LINE or run.mode in BASELINES:
        return STATES[part.state]
    if part.holds_device:
        return TRAINS._replace(sentence=run.now_reason or TRAINS.sentence)
    if run.state is State.PAUSED:
        return STATES[State.PAUSED]._replace(sentence="Its run is paused and holds no device.")
    if part.line is not None:
        return _line_words(part.line)
    if run.waits_for and part.state is State.QUEUED:
        what = run.waits_for.rstrip(".")
        return WAITS._replace(label=f"Waits for {what}")
    if run.state is State.QUEUED and run.queue_position:
        label = f"Waits: place {run.queue_position} in queue"
        return StateWords(label, "schedule", "violet", "Its run starts when a device is free.")
    return STATES[part.state] if run.state is not State.RUNNING else WAITS


def _line_words(line: LinePlace) -> StateWords:
    sentence = f"The policy, when it comes to that turn: {line.reason}"
    if line.is_next:
        return NEXT._replace(sentence=f"{NEXT.sentence} {sentence}")
    return WAITS._replace(label=f"Waits: turn {line.place} of {line.of}", sentence=sentence)


def device_text(device: str) -> str:
    """Where a run trains, or what it asked for while it waits for a place."""
    words = {"auto": "any device", "cuda": "any GPU"}
    return words.get(device, device)


def stale_text(heartbeat_age_s: float) -> str:
    """Sentence for a run with a silent worker."""
    silent = f"The worker has been silent for {heartbeat_age_s:.0f} s, so the figures below are old."
    return f"{silent} If it stays silent, the run becomes interrupted."


def recovered_text(recoveries: int, redone_steps: int, *, ended: bool) -> str:
    """Cost of crashes and retries so far; empty without any. That no step was lost is certain only once a run ended."""
    if recoveries < 1 and redone_steps < 1:
        return ""
    often = "Recovered once" if recoveries == 1 else f"Recovered {recoveries} times"
    often = often if recoveries else "Continued from the last checkpoints"
    if not redone_steps:
        return f"{often}; no step was lost." if ended else f"{often}."
    steps = count_text(redone_steps, "lost step")
    return f"{often}; {steps} trained again and counted once."


def range_text(estimate: Estimate) -> str:
    """Both ends of an estimate in one unit, no finer than it is: "12 to 15 min", "about 3 h", "a moment"."""
    if estimate.high_s < 5:
        return "a moment"
    units = ((1.0, "s", 90.0), (60.0, "min", 90 * 60.0), (3600.0, "h", 36 * 3600.0), (86_400.0, "days", math.inf))
    unit_s, name = next((size_s, name) for size_s, name, below_s in units if estimate.high_s < below_s)
    step = 5 if name == "s" and estimate.high_s > 20 else 1
    low = step * math.floor(estimate.low_s / unit_s / step)
    high = max(low, step * math.ceil(estimate.high_s / unit_s / step))
    likely = round(estimate.likely_s / unit_s)
    if low < 1:
        return f"up to {high} {name}"
    if high == low:
        return f"about {likely} {name}"
    return f"{low} to {high} {name}"


def clock_text(at_s: float, now_s: float, timezone: str | None) -> str:
    """Moment to come as "about 14:32", with the date if it is not today."""
    today, day = (moment_text(one, timezone, "%Y-%m-%d") for one in (now_s, at_s))
    return moment_text(at_s, timezone, "about %H:%M" if today == day else "on %-d %b about %H:%M")


def moment_and_range(estimate: Estimate, now_s: float, timezone: str | None) -> str:
    """An estimate as "about 14:32, in 12 to 15 min"; below 90 s no clock is fine enough."""
    span = f"in {range_text(estimate)}"
    return span if estimate.high_s < 90 else f"{clock_text(now_s + estimate.likely_s, now_s, timezone)}, {span}"


def estimate_text(starts: Estimate | None, ends: Estimate | None, now_s: float, timezone: str | None) -> str:
    """When something starts and ends, as far as that is known: "ends about 14:32, in 12 to 15 min"."""
    begins = "" if starts is None else f"starts {moment_and_range(starts, now_s, timezone)}"
    finishes = "" if ends is None else f"ends {moment_and_range(ends, now_s, timezone)}"
    return "; ".join(filter(None, (begins, finishes)))


def change_text(
    before: Mapping[str, Estimate | None], after: Mapping[str, Estimate | None], now_s: float, timezone: str | None
) -> str:
    """What a change does to finish times: "lenet 14:32 -> 13:58, cnn 9 min later"; empty if all stay.

    The one that gains most is told by the clock, if a minute matters; all others by how much they move.
    """
    shifts = {
        name: (one.likely_s, new.likely_s - one.likely_s)
        for name, one in before.items()
        if one is not None and (new := after.get(name)) is not None
    }
    moved = {name: shift for name, shift in shifts.items() if abs(shift[1]) > max(1.0, 0.02 * shift[0])}
    said: list[str] = []
    for name, (was_s, shift_s) in sorted(moved.items(), key=lambda item: item[1][1]):
        if not said and shift_s < -60:
            old, new_at = (moment_text(now_s + at_s, timezone, "%H:%M") for at_s in (was_s, was_s + shift_s))
            said.append(f"{name} {old} \N{RIGHTWARDS ARROW} {new_at}")
            continue
        size = abs(shift_s)
        span = f"{size:.0f} s" if size < 90 else f"{size / 60:.0f} min" if size < 5400 else f"{size / 3600:.1f} h"
        said.append(f"{name} {span} {'later' if shift_s > 0 else 'earlier'}")
    return ", ".join(said)


def kept_text(checkpoint_text: str, recovery: str) -> str:
    """How often a run writes checkpoints, and what happens after a crash."""
    kept = f"checkpoint {checkpoint_text}; " if checkpoint_text else ""
    crash = "restarts by itself after a crash" if recovery == "auto" else "waits for you after a crash"
    return f"{kept}{crash}"


def waiting_text(text: str, submodel: str | None, asked: str, state: State) -> str:
    """Sentence about a command that has not taken effect; `asked` is its time."""
    part = "" if submodel is None or text.endswith(f" {submodel}") else f" of {submodel}"
    when = "at the next step" if state is State.RUNNING else "when it trains again"
    return f"{text}{part}: requested {asked}, takes effect {when}"


def title(name: str) -> str:
    """Kind of an event, or a policy, in words."""
    return TITLES.get(name, name.replace("_", " ").capitalize())


def moment_text(at_s: float, timezone: str | None, form: str) -> str:
    """Moment (UTC seconds) in a form of `strftime` and a time zone; UTC if the zone is unknown."""
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
    """Loss with four significant digits, a dash before there is one, a power of ten in place of many zeros."""
    if loss is None:
        return "-"
    size = abs(loss)
    if size == 0 or not math.isfinite(loss):
        return f"{loss:.4g}"
    if 1e-3 <= size < 1e6:
        return f"{loss:,.0f}" if size >= 1000 else f"{loss:#.4g}"
    mantissa, _, exponent = f"{loss:.2e}".partition("e")
    return f"{mantissa} \N{MULTIPLICATION SIGN} 10{str(int(exponent)).translate(_RAISED)}"


def source_text(source: str | None) -> str:
    """Where a memory figure comes from, in words."""
    known = NOT_AVAILABLE if source is None else SOURCES.get(source)
    return str(source) if known is None else known


def peak_exceeds(view: RunView) -> bool:
    """Whether a run needed so much more memory than was predicted that people should look."""
    peak_bytes, prediction = view.peak_memory_bytes, view.prediction
    return peak_bytes is not None and prediction is not None and peak_bytes >= EXCEEDED * prediction.peak_bytes


def accuracy_text(accuracy: float | None) -> str:
    """Accuracy as a percentage, or a dash before there is one."""
    return "-" if accuracy is None else f"{100 * accuracy:.1f} %"


def count_text(count: int, thing: str) -> str:
    """Count with its noun: `1 sub-model`, `3 sub-models`."""
    plural = f"{thing}es" if thing.endswith(("s", "tch")) else f"{thing}s"
    return f"{count:,} {thing if count == 1 else plural}"


def deadline_text(submodel: SubModelView) -> str:
    """How the deadline of a sub-model stands; empty without one."""
    if submodel.deadline in ("met", "missed") or submodel.due_in_s is None:
        return "" if submodel.deadline is None else f"deadline {submodel.deadline}"
    due = f"due in {duration_text(max(0.0, submodel.due_in_s))}"
    return f"{due}, will be missed" if submodel.deadline == "late" else due


def plain(text: str) -> str:
    """Text for labels that take Markdown: words as they are, everything else as a code span, literal and visible.

    Escapes would not do: Streamlit turns addresses, arrows and `:material/...:` of the parsed text into elements. The
    style sheet lets code in labels look like the rest.
    """
    if _WORDS.fullmatch(text):
        return text
    # Streamlit replaces this one even inside of code; the word joiner has no width.
    shown = visible(text).replace(":material/", ":material\N{WORD JOINER}/")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    space = " " if shown[:1] in " `" or shown[-1:] in " `" else ""
    return f"{fence}{space}{shown}{space}{fence}"
