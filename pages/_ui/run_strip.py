"""The five figures of a run: progress, makespan, who trains, memory, device."""

import math

from pages._ui import arms, frame
from unifiednn_core.base.units import duration_text, energy_text, memory_text, percent_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views import markup, wording
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.runs import RunView

MAKESPAN_HELP = "From the launch of the first process to the last model delivered. The verdict compares this figure."

COST_HELP = (
    "Processor seconds of all its processes, and of a GPU its busy seconds and its energy, where the driver says it."
)

NO_MEMORY = "0 MiB"


def html(view: RunView, comparison: Comparison | None) -> str:
    """The strip, always of five cells."""
    facts = (_progress(view), _makespan(view, comparison), _who(view), _memory(view, comparison), _device(view))
    return markup.strip(facts, "u-five")


def _progress(view: RunView) -> markup.Fact:
    done, total = sum(s.steps_done for s in view.submodels), sum(s.steps_total for s in view.submodels)
    steps = f"{done:,} of {total:,} steps"
    bar = markup.bar(view.progress, "Progress of the run")
    return markup.Fact("Progress", percent_text(view.progress), f"{bar}{markup.text(steps)}")


def _makespan(view: RunView, comparison: Comparison | None) -> markup.Fact:
    """One name from the launch to the end: the figure that the verdict compares."""
    completed = sum(s.state is State.COMPLETED for s in view.submodels)
    counts = f"{completed} of {len(view.submodels)} sub-models completed"
    label = "Makespan" if view.state in ENDED else "Makespan so far"
    elapsed = "-" if view.elapsed_s is None else duration_text(view.elapsed_s)
    against = arms.difference_text(comparison, "makespan_ratio")
    ends = ""
    if view.state not in ENDED and view.elapsed_s is not None:
        ends = frame.estimate(None, view.ends_in_s) or (wording.ESTIMATING if view.state is State.RUNNING else "")
    return markup.Fact(label, elapsed, _lines(counts, against, ends), tip=MAKESPAN_HELP)


def _who(view: RunView) -> markup.Fact:
    if view.state in ENDED:
        return markup.Fact(
            "Ended", markup.text(frame.ago(view.ended_at_s)), markup.text(wording.run_words(view).sentence)
        )
    if view.state is State.QUEUED and view.queue_position:
        when = frame.estimate(view.starts_in_s, view.ends_in_s) or wording.NO_ESTIMATE
        return markup.Fact("In the queue", markup.text(f"number {view.queue_position}"), markup.text(when))
    now = [part for part in view.submodels if part.holds_device]
    if len(now) > 1:
        names = wording.count_text(len(now), "sub-model")
        value = f'<span title="{markup.text(", ".join(part.name for part in now))}">{markup.text(names)}</span>'
    else:
        value = "".join(markup.signed_name(part.number, part.name) for part in now) or markup.faint("none")
    reason = (view.now_reason or "") if now else ""
    return markup.Fact(
        "Trains now", value, f'<span class="u-two-lines" title="{markup.text(reason)}">{markup.text(reason)}</span>'
    )


def _memory(view: RunView, comparison: Comparison | None) -> markup.Fact:
    if view.shared:
        own = next((int(size) for size in reversed(view.breakdown.total_bytes) if size is not None), None)
        return markup.Fact("Own memory", memory_text(own), markup.text("its own part of the process"))
    source = wording.source_text(view.memory_source)
    noted = f'<span title="{markup.text(wording.SOURCE_HELP)}">{markup.text(source)}</span>'
    peak = f"peak {memory_text(view.peak_memory_bytes)}"
    if view.state in ENDED:
        lines = (_lines(arms.difference_text(comparison, "memory_ratio")), _predicted(view), noted)
        return markup.Fact("Peak memory", memory_text(view.peak_memory_bytes), "<br>".join(filter(None, lines)))
    last_bytes = next((int(size) for size in reversed(view.memory.y) if math.isfinite(size)), None)
    if view.state is State.PAUSED:
        noted = markup.text("paused: it holds no device")
    parts = (markup.text(peak), _predicted(view), noted)
    now = NO_MEMORY if view.state is State.PAUSED else memory_text(last_bytes)
    return markup.Fact("Memory", now, " · ".join(filter(None, parts)))


def _predicted(view: RunView) -> str:
    """The prediction, as HTML; loud if the peak is above it."""
    if view.prediction is None:
        return ""
    words = markup.text(f"predicted {memory_text(view.prediction.peak_bytes)}")
    if not wording.peak_exceeds(view):
        return words
    return f'{words} · <b class="u-warn">{markup.text("forecast exceeded")}</b>'


def _device(view: RunView) -> markup.Fact:
    devices = list(dict.fromkeys(stay.device for stay in view.stays))
    threads = "" if view.threads is None else wording.count_text(view.threads, "thread")
    moved = f"trained on {', then '.join(devices)}" if len(devices) > 1 else threads
    device = markup.text(wording.device_text(view.device))
    return markup.Fact(
        "Device", f'<span class="u-clip" title="{device}">{device}</span>', _lines(moved, _cost(view)), tip=COST_HELP
    )


def _cost(view: RunView) -> str:
    """What the run has used so far, as far as it is measured."""
    own = [part.cpu_s for part in view.submodels if part.cpu_s is not None]
    cpu_s = sum(own) if view.shared and own else view.cpu_s
    used = (
        "" if cpu_s is None else f"CPU {duration_text(cpu_s)}",
        "" if view.gpu_s is None else f"GPU {duration_text(view.gpu_s)}",
        "" if view.energy_j is None else energy_text(view.energy_j),
    )
    return " · ".join(filter(None, used))


def _lines(*lines: str) -> str:
    return "<br>".join(markup.text(line) for line in lines if line)
