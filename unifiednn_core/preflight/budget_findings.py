"""A budget of activation offload that a step does not keep, and the fewest parts of a batch with which it would."""

from unifiednn_core.base.errors import Finding, Fix
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.techniques import Offload

SLACK = 1.02
"""Predictions from two small batches are not exact to the byte."""


def budget_findings(trial: Trial, need: MemoryNeed, device: str) -> list[Finding]:
    """An error if a step needs more than its budget although all that is saved is on the host.

    On a CPU nothing is: the host is the device.
    """
    hyper = trial.spec.hyperparameters
    asked = next((one for one in hyper.techniques if isinstance(one, Offload)), None)
    if asked is None or asked.budget_bytes is None or device == "cpu":
        return []
    most_bytes = SLACK * (asked.budget_bytes + 8 * trial.train.samples)  # the permutation of an epoch is extra
    step_bytes = need.step_of(need.batch_split)
    if step_bytes <= most_bytes:
        return []
    message = f"A step of {trial.spec.name} takes {memory_text(step_bytes)} although all its saved activations are on "
    message += f"the host; the budget is {memory_text(asked.budget_bytes)}."
    entry, fix, remedy = "techniques", None, "Give a larger budget, or smaller batches."
    wider = range(need.batch_split + 1, need.batch_size // trial.definition.min_batch + 1)
    parts = next((count for count in wider if need.step_of(count) <= most_bytes), None)
    if parts is not None and hyper.nodes is None:
        entry, fix = "batch_split", Fix(label=f"Split into {parts}", value=parts)
        remedy = f"Set batch_split to {parts}: then {memory_text(need.step_of(parts))} are needed. "
        remedy += "Batch normalisation sees the parts; without it only rounding differs."
    elif parts is not None:
        remedy = f"Set the nodes of virtual_nodes to {parts}: then {memory_text(need.step_of(parts))} are needed."
    field = trial.place(f"hyperparameters.{entry}")
    return [Finding(title="Budget too small", field=field, message=message, remedy=remedy, fix=fix)]
