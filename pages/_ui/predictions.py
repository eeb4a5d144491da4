"""Memory as it was predicted, beside what the paper's equations say and what was measured. HTML."""

from pages._ui import arm_words, markup, wording
from unifiednn_core.units import memory_text
from unifiednn_core.views.memory import Prediction
from unifiednn_core.views.runs import RunView

HEADS = (
    "Sub-model",
    "Weights",
    "Gradients",
    "Optimizer",
    "Transient",
    "Data",
    "Peak by itself",
    "Equation 1",
    "Transient is",
)


def facts(prediction: Prediction, policy: str) -> list[markup.Fact]:
    """The few figures that matter before a start."""
    smallest = min(prediction.by_policy.values(), default=prediction.peak_bytes)
    budget = prediction.budget_bytes
    room = "" if budget is None else arm_words.room_text(budget, prediction.peak_bytes)
    beside = " · ".join(part for part in (room, prediction.budget_text) if part)
    return [
        markup.Fact(
            "Predicted peak", memory_text(prediction.peak_bytes), markup.text(f"under {wording.policy_title(policy)}")
        ),
        markup.Fact("Smallest of all policies", memory_text(smallest), _policies_with(prediction, smallest)),
        markup.Fact(
            "Paper, equation 2", memory_text(prediction.paper_bytes), markup.text("forgets weights that stay resident")
        ),
        markup.Fact("Budget", memory_text(budget), markup.text(beside)),
    ]


def submodels_table(prediction: Prediction, numbers: dict[str, int]) -> str:
    """What each sub-model is predicted to need, part by part."""
    rows = [
        (
            markup.signed_name(numbers.get(part.name, place), part.name),
            *(
                memory_text(size)
                for size in (
                    part.weights_bytes,
                    part.gradients_bytes,
                    part.optimizer_bytes,
                    part.transient_bytes,
                    part.data_bytes,
                    part.peak_bytes,
                    part.paper_bytes,
                )
            ),
            markup.faint("measured before" if part.measured else "estimated"),
        )
        for place, part in enumerate(prediction.submodels)
    ]
    caption = f"Predicted memory of each sub-model, without the context of {memory_text(prediction.context_bytes)}"
    return markup.table(caption, HEADS, rows, numeric=frozenset(range(1, 8)))


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
    rows = [
        (
            markup.bold("Hybrid"),
            memory_text(view.prediction.peak_bytes),
            memory_text(view.peak_memory_bytes),
            arm_words.off_text(view.prediction.peak_bytes, view.peak_memory_bytes),
            memory_text(view.prediction.paper_bytes),
        )
    ]
    heads = ("", "Predicted peak", "Measured peak", "Prediction is", "Paper, equation 2")
    source = view.memory_source or "source not available"
    table = markup.table(f"Prediction and measurement ({source})", heads, rows, frozenset({1, 2, 3, 4}))
    numbers = {submodel.name: submodel.number for submodel in view.submodels}
    parts = submodels_table(view.prediction, numbers) + policies_table(view.prediction, view.policy)
    return f'<div class="u-stack">{table}{parts}</div>{notes}'


def _policies_with(prediction: Prediction, peak_bytes: int) -> str:
    names = [wording.policy_title(name) for name, size in prediction.by_policy.items() if size == peak_bytes]
    return markup.text(", ".join(names))
