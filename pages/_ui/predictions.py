"""Memory as it was predicted, beside what the paper's equations say and what was measured. HTML."""

from pages._ui import arm_words, markup, wording
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.prediction import Prediction
from unifiednn_core.views.runs import RunView

PARTS = {
    "Weights": "weights_bytes",
    "Gradients": "gradients_bytes",
    "Optimizer": "optimizer_bytes",
    "Transient": "transient_bytes",
    "Data": "data_bytes",
    "Peak by itself": "peak_bytes",
    "Equation 1": "paper_bytes",
}
"""Columns of a sub-model's prediction, and the field of each."""


def facts(prediction: Prediction, policy: str) -> list[markup.Fact]:
    """The few figures that matter before a start."""
    smallest = min(prediction.by_policy.values(), default=prediction.peak_bytes)
    budget = prediction.budget_bytes
    room = "" if budget is None else arm_words.room_text(budget, prediction.peak_bytes)
    beside = " · ".join(part for part in (room, prediction.budget_text) if part)
    smallest_of = [wording.policy_title(name) for name, size in prediction.by_policy.items() if size == smallest]
    figures = (
        ("Predicted peak", prediction.peak_bytes, f"under {wording.policy_title(policy)}"),
        ("Smallest of all policies", smallest, ", ".join(smallest_of)),
        ("Paper, equation 2", prediction.paper_bytes, "forgets weights that stay resident"),
        ("Budget", budget, beside),
    )
    return [markup.Fact(label, memory_text(size), markup.text(words)) for label, size, words in figures]


def submodels_table(prediction: Prediction, numbers: dict[str, int]) -> str:
    """What each sub-model is predicted to need, part by part."""
    rows = [
        (
            markup.signed_name(numbers.get(part.name, place), part.name),
            *(memory_text(getattr(part, field)) for field in PARTS.values()),
            markup.faint("measured before" if part.measured else "estimated"),
        )
        for place, part in enumerate(prediction.submodels)
    ]
    caption = f"Predicted memory of each sub-model, without the context of {memory_text(prediction.context_bytes)}"
    return markup.table(caption, ("Sub-model", *PARTS, "Transient is"), rows, numeric=frozenset(range(1, 8)))


def policies_table(prediction: Prediction, policy: str) -> str:
    """Peak of the hybrid under each policy; the chosen one in bold."""
    rows = [
        (
            markup.bold(wording.policy_title(name)) if name == policy else markup.text(wording.policy_title(name)),
            memory_text(peak_bytes),
            markup.faint("this run") if name == policy else "",
        )
        for name, peak_bytes in prediction.by_policy.items()
    ]
    table = markup.table("Predicted peak of the hybrid under each policy", ("Policy", "Peak", ""), rows, frozenset({1}))
    return f'<div class="u-narrow">{table}</div>'


def measured(view: RunView) -> str:
    """Predicted against measured peak of a run, and what its figures cannot tell."""
    notes = "".join(markup.quiet("info", note) for note in view.memory_notes)
    if view.prediction is None:
        return markup.small(arm_words.NO_PREDICTION) + notes
    predicted_bytes, measured_bytes = view.prediction.peak_bytes, view.peak_memory_bytes
    hybrid = {
        "": markup.bold("Hybrid"),
        "Predicted peak": memory_text(predicted_bytes),
        "Measured peak": memory_text(measured_bytes),
        "Prediction is": arm_words.off_text(predicted_bytes, measured_bytes),
        "Paper, equation 2": memory_text(view.prediction.paper_bytes),
    }
    caption = f"Prediction and measurement ({view.memory_source or 'source not available'})"
    table = markup.table(caption, list(hybrid), [list(hybrid.values())], frozenset({1, 2, 3, 4}))
    numbers = {submodel.name: submodel.number for submodel in view.submodels}
    parts = submodels_table(view.prediction, numbers) + policies_table(view.prediction, view.policy)
    return f'<div class="u-stack">{table}{parts}</div>{notes}'
