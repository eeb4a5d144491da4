"""Sub-models that do not learn, as findings: what shows it, and the causes, the most likely first. Pure."""

from collections.abc import Mapping
from typing import Any

from unifiednn_core.base.errors import Finding
from unifiednn_core.base.units import percent_text

TITLE = "Does not learn"
_CAUSES = {
    "scale": "Scale: inputs are almost equal, or far from -1 to 1, such as pixels divided by 255 twice. The preview of "
    "the data shows their range before scale, mean and std.",
    "labels": "Labels: they do not belong to the samples. The preview shows samples with their labels.",
    "rate": "Learning rate ({rate:g}): too small or too large. A sweep over 0.1, 1 and 10 times of it shows which.",
    "frozen": "Frozen parameters, or a layer without gradients. The parameter groups of the spec say what is frozen.",
    "test": "Test data of another kind, or with other labels, than the training data. The preview shows both.",
}
_ORDER = {
    "weights": ("rate", "frozen", "scale"),
    "outputs": ("scale", "rate", "frozen"),
    "chance": ("scale", "labels", "rate", "frozen"),
    "training_only": ("labels", "test"),
}


def sentence(name: str, found: Mapping[str, Any]) -> str:
    """What shows that a sub-model does not learn, without full stop; `found` is `SubModelRow.not_learning`."""
    epoch, sign = found["epoch"], found["sign"]
    if sign == "weights":
        return f"{name} does not learn: no weight changed in epoch {epoch}"
    after = "after 1 epoch" if epoch == 1 else f"after {epoch:,} epochs"
    if sign == "outputs":
        return f"{name} does not learn: {after} its output is the same for all test samples"
    on = "train" if found.get("test_loss") is None else "test"
    figures = f"the loss on the {on}{'ing' * (on == 'train')} data is {_pair(found, on)}; one answer for all samples "
    figures += f"gets {_pair(found, 'constant')}"
    learns = "learns its training data alone" if sign == "training_only" else "does not learn"
    return f"{name} {learns}: {after} {figures}"


def _pair(found: Mapping[str, Any], of: str) -> str:
    return f"{found[f'{of}_loss']:#.4g}, the accuracy {percent_text(found[f'{of}_accuracy'])}"


def finding(name: str, found: Mapping[str, Any]) -> Finding:
    """The finding with all causes, and what would show each."""
    causes = " ".join(_CAUSES[one] for one in _ORDER[found["sign"]]).format(rate=found["learning_rate"])
    remedy = f"Likely causes, the most likely first. {causes}"
    message = f"{sentence(name, found)}."
    return Finding(severity="warning", title=TITLE, field=f"submodels.{name}", message=message, remedy=remedy)
