"""What the screens say about baselines, comparisons and predictions; the sentences of a verdict are in the report's."""

from collections.abc import Mapping

from unifiednn_core.lifecycle import State
from unifiednn_core.report.words import HOW, QUANTITIES, difference
from unifiednn_core.units import memory_text
from unifiednn_core.views.comparison import BASELINES, Comparison, Mode, Spread
from unifiednn_core.views.runs import RunView

OVERLAY_HELP = "Draws the training curves of the newest baseline of each kind over the hybrid's, dashed in grey."
BASELINE_HELP: dict[Mode, str] = {
    "concurrent": f"Trains the same sub-models by {HOW['concurrent']}. It waits until the device is free.",
    "sequential": f"Trains the same sub-models by {HOW['sequential']}. It waits until the device is free.",
}
NO_BASELINE = "No baseline yet. What merging saves is known once the same training has run by plain PyTorch, too."
CHOICES: dict[str, tuple[Mode, ...]] = {
    "None": (),
    "Concurrent": ("concurrent",),
    "Sequential": ("sequential",),
    "Both": BASELINES,
}
CHOICE_HELP = (
    "The same training by plain PyTorch, to compare with: concurrent is one process for each sub-model, all at once; "
    "sequential is one after the other. They never run beside the hybrid, so none disturbs another. An equal baseline "
    "that there is already is reused."
)
STOP_BASELINE = (
    "Its processes end now. What it trained is not kept, and a stopped baseline gives no verdict; it can be run again."
)
NO_PREDICTION = "This run has no prediction of its memory."
NO_HYBRID = "There is no hybrid to compare yet. Try the demo with its baselines, or build one."
ASK_TO_COMPARE = "A hybrid against the same training by plain PyTorch. Choose one."
MEMORY_LIMIT_HELP = "Most memory that the run may take on its device. Empty means: all that the device has."


def choice_of(modes: tuple[Mode, ...]) -> str:
    """Name of a choice of baselines."""
    return next((name for name, chosen in CHOICES.items() if set(chosen) == set(modes)), "None")


def difference_text(comparison: Comparison | None, ratio: str) -> str:
    """What the first verdict that there is says about one ratio: "54 % less memory than concurrent"; often nothing."""
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
    if peak_bytes > budget_bytes:
        return f"{memory_text(peak_bytes - budget_bytes)} too little"
    return f"{memory_text(budget_bytes - peak_bytes)} to spare"


def off_text(predicted_bytes: int, measured_bytes: int | None) -> str:
    """How far a prediction is from the measurement."""
    if not measured_bytes:
        return "not measured yet"
    off = predicted_bytes / measured_bytes - 1
    return "right" if abs(off) < 0.005 else f"{100 * abs(off):.0f} % {'above' if off > 0 else 'below'}"


def baselines_text(found: Mapping[Mode, RunView]) -> str:
    """Which baselines a hybrid has, on one line."""
    words = {State.COMPLETED: "done"}
    said = [f"{mode} {words.get(found[mode].state, found[mode].state.value)}" for mode in BASELINES if mode in found]
    return ", ".join(said) or "no baseline yet"
