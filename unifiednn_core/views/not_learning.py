"""Sub-models that do not learn, as findings: what shows it, and the causes, the most likely first. Pure."""

from collections.abc import Mapping
from typing import Any

from unifiednn_core.base.errors import Finding
from unifiednn_core.views.wording import accuracy_text, count_text, loss_text

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
    after = f"after {count_text(found['epoch'], 'epoch')}"
    on = "training" if found.get("test_loss") is None else "test"
    loss, accuracy = (found.get(f"{on.removesuffix('ing')}_{figure}") for figure in ("loss", "accuracy"))
    figures = f"the loss on the {on} data is {loss_text(loss)}, the accuracy {accuracy_text(accuracy)}; one answer for "
    figures += f"all samples gets {loss_text(found['constant_loss'])} and {accuracy_text(found['constant_accuracy'])}"
    match found["sign"]:
        case "weights":
            return f"{name} does not learn: no weight changed in epoch {found['epoch']}"
        case "outputs":
            return f"{name} does not learn: {after} its output is the same for all test samples"
        case "training_only":
            return f"{name} learns its training data alone: {after} {figures}"
        case _:
            return f"{name} does not learn: {after} {figures}"


def finding(name: str, found: Mapping[str, Any]) -> Finding:
    """The finding with all causes, and what would show each."""
    causes = " ".join(_CAUSES[one] for one in _ORDER[found["sign"]]).format(rate=found["learning_rate"])
    remedy = f"Likely causes, the most likely first. {causes}"
    message = f"{sentence(name, found)}."
    return Finding(severity="warning", title=TITLE, field=f"submodels.{name}", message=message, remedy=remedy)
