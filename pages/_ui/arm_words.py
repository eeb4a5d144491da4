"""Words for baselines, comparisons and predictions. Sentences of a verdict are in the report."""

from collections.abc import Mapping

from unifiednn_core.base.units import memory_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import BASELINES, Mode
from unifiednn_core.views.comparison import Comparison, Spread
from unifiednn_core.views.report.words import HOW, QUANTITIES, difference
from unifiednn_core.views.runs import RunView

OVERLAY_HELP = "Draws the training curves of the newest baseline of each kind over the hybrid's, dashed in grey."
BASELINE_HELP: dict[Mode, str] = {
    "concurrent": f"Trains the same sub-models by {HOW['concurrent']}. It starts when the device is free.",
    "sequential": f"Trains the same sub-models by {HOW['sequential']}. It starts when the device is free.",
}
NO_BASELINE = "No baseline yet. Run one to see what merging saves."
CHOICES: dict[str, tuple[Mode, ...]] = {
    "None": (),
    "Concurrent": ("concurrent",),
    "Sequential": ("sequential",),
    "Both": BASELINES,
}
CHOICE_HELP = (
    "Trains the same sub-models with plain PyTorch, for comparison. Concurrent: one process each, all at once. "
    "Sequential: one after the other. A baseline never runs beside the hybrid. An equal baseline is reused."
)
STOP_BASELINE = "Its processes end now and keep nothing. A stopped baseline gives no verdict; you can run it again."
NO_PREDICTION = "This run has no prediction of its memory."
NO_HYBRID = "No hybrid to compare yet. Try the demo with its baselines, or build one."
ASK_TO_COMPARE = "A hybrid against the same training with plain PyTorch. Choose one."


def no_baseline_text(hybrid: State, baseline: State | None) -> str:
    """Why a baseline of a hybrid cannot be started; empty if it can. The states are those that they have now."""
    if baseline is not None and (baseline is State.COMPLETED or baseline not in ENDED):
        told = {State.QUEUED: "It waits for the device.", State.COMPLETED: "It has completed."}
        return told.get(baseline, "It is running.")
    ended = {State.STOPPED: "was stopped", State.FAILED: "failed"}.get(hybrid)
    return f"This run {ended}; it cannot be compared." if ended else ""


def choice_of(modes: tuple[Mode, ...]) -> str:
    """Name of a choice of baselines."""
    return next((name for name, chosen in CHOICES.items() if set(chosen) == set(modes)), "None")


def difference_text(comparison: Comparison | None, ratio: str) -> str:
    """One ratio of the first verdict in words, such as "54 % less memory than concurrent"; empty without a verdict."""
    if comparison is None:
        return ""
    quantity = next(quantity for quantity in QUANTITIES if quantity.ratio == ratio)
    for mode in BASELINES:
        verdict = comparison.verdicts.get(mode)
        known: Spread | None = getattr(verdict, ratio) if verdict is not None else None
        if known is not None:
            return difference(known, quantity, mode)
    return ""


def room_text(budget_bytes: int, peak_bytes: int) -> str:
    """How much of the budget is left."""
    return f"{memory_text(abs(budget_bytes - peak_bytes))} {'short' if peak_bytes > budget_bytes else 'free'}"


def off_text(predicted_bytes: int, measured_bytes: int | None) -> str:
    """How far a prediction is from the measurement."""
    if not measured_bytes:
        return "not measured yet"
    off = predicted_bytes / measured_bytes - 1
    return "right" if abs(off) < 0.005 else f"{100 * abs(off):.0f} % {'above' if off > 0 else 'below'}"


def baselines_text(found: Mapping[Mode, RunView]) -> str:
    """Which baselines a hybrid has, on one line."""
    words = {mode: "done" if run.state is State.COMPLETED else run.state.value for mode, run in found.items()}
    return ", ".join(f"{mode} {words[mode]}" for mode in BASELINES if mode in words) or "no baseline yet"
