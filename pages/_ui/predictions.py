"""Predicted memory, with the paper's equations and the measurement. HTML."""

from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.prediction import Prediction
from unifiednn_core.views import markup, wording
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
    room = "" if budget is None else room_text(budget, prediction.peak_bytes)
    smallest_of = [wording.title(name) for name, size in prediction.by_policy.items() if size == smallest]
    figures = (
        ("Predicted peak", prediction.peak_bytes, f"under {wording.title(policy)}"),
        ("Smallest of all policies", smallest, ", ".join(smallest_of)),
        ("Paper, equation 2", prediction.paper_bytes, "forgets weights that stay resident"),
        ("Budget", budget, " · ".join(part for part in (room, prediction.budget_text) if part)),
    )
    return [markup.Fact(label, memory_text(size), markup.text(words)) for label, size, words in figures]


def tables(prediction: Prediction, policy: str, numbers: dict[str, int]) -> str:
    """Predicted need of each sub-model, part by part, and the peak of the hybrid under each policy."""
    parts = (
        {"Sub-model": (numbers.get(part.name, place), part.name)}
        | {head: getattr(part, field) for head, field in PARTS.items()}
        | {"Transient is": "measured before" if part.measured else "estimated"}
        for place, part in enumerate(prediction.submodels)
    )
    looks: markup.Looks = {
        **dict.fromkeys(PARTS, memory_text),
        "Sub-model": markup.signed,
        "Transient is": markup.faint,
    }
    size = memory_text(prediction.context_bytes)
    caption = f"Predicted memory of each sub-model, without the context of {size}"
    policies = (
        {"Policy": wording.title(name), "Peak": size, "": "this run" if name == policy else ""}
        for name, size in prediction.by_policy.items()
    )
    chosen = wording.title(policy)
    looks_of_policies: markup.Looks = {
        "Policy": lambda title: markup.bold(title) if title == chosen else markup.text(title),
        "Peak": memory_text,
        "": markup.faint,
    }
    table = markup.table("Predicted peak of the hybrid under each policy", policies, looks_of_policies)
    return f'{markup.table(caption, parts, looks)}<div class="u-narrow">{table}</div>'


def measured(view: RunView) -> str:
    """Predicted and measured peak of a run, and the limits of its figures."""
    notes = "".join(markup.quiet("info", note) for note in view.memory_notes)
    if view.prediction is None:
        return markup.small("This run has no prediction of its memory.") + notes
    predicted_bytes, measured_bytes = view.prediction.peak_bytes, view.peak_memory_bytes
    hybrid = {
        "": "Hybrid",
        "Predicted peak": memory_text(predicted_bytes),
        "Measured peak": memory_text(measured_bytes),
    }
    hybrid["Prediction is"] = off_text(predicted_bytes, measured_bytes)
    hybrid["Paper, equation 2"] = memory_text(view.prediction.paper_bytes)
    caption = f"Prediction and measurement ({wording.source_text(view.memory_source)})"
    table = markup.table(caption, [hybrid], {"": markup.bold}, right=hybrid.keys() - {""})
    numbers = {submodel.name: submodel.number for submodel in view.submodels}
    return f'<div class="u-stack">{table}{tables(view.prediction, view.policy, numbers)}</div>{notes}'


def room_text(budget_bytes: int, peak_bytes: int) -> str:
    """How much of the budget is left, or missing."""
    size = memory_text(abs(budget_bytes - peak_bytes))
    return f"{size} short" if peak_bytes > budget_bytes else f"{size} free"


def off_text(predicted_bytes: int, measured_bytes: int | None) -> str:
    """How far a prediction is from the measurement."""
    if not measured_bytes:
        return "not measured yet"
    off = predicted_bytes / measured_bytes - 1
    if abs(off) < 0.005:
        return "right"
    percent = f"{100 * abs(off):.0f} %"
    return f"{percent} above" if off > 0 else f"{percent} below"
