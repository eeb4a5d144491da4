"""Budgets of activation offload: whether a step keeps its own, and the fewest parts of a batch with which it would.

Pure, without torch.
"""

from collections.abc import Sequence

from unifiednn_core.base.errors import Finding, Fix
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.spec.techniques import Offload

SLACK = 1.02
"""Predictions from two small batches are not exact to the byte."""
_ORDER_BYTES = 8  # of a sample in the permutation of an epoch, which is extra


def budget_bytes(hyper: Hyperparameters, device_type: str) -> int | None:
    """What a step may take; None without a budget, and on a CPU, where the host is the device."""
    asked = next((one for one in hyper.techniques if isinstance(one, Offload)), None)
    return None if asked is None or device_type == "cpu" else asked.budget_bytes


def keeps_budget(
    hyper: Hyperparameters, need: MemoryNeed | None, samples: int, device_type: str, parts: int | None = None
) -> bool:
    """Whether a step keeps its budget, with its own number of parts or another; so does one of unknown need."""
    most_bytes = budget_bytes(hyper, device_type)
    if most_bytes is None or need is None:
        return True
    return need.step_of(parts or need.batch_split) <= SLACK * (most_bytes + _ORDER_BYTES * samples)


def budget_findings(
    part: SubModelSpec, need: MemoryNeed, samples: int, least_part: int, device_type: str
) -> list[Finding]:
    """An error if a step needs more than its budget although all that is saved is on the host.

    Virtual nodes that fit themselves to the memory take as many as it needs, if any number does.
    """
    hyper, nodes = part.hyperparameters, part.hyperparameters.nodes
    if keeps_budget(hyper, need, samples, device_type):
        return []
    found = _fewest(hyper, need, samples, range(need.batch_split + 1, need.batch_size // least_part + 1), device_type)
    if nodes is not None and nodes.nodes == "fit" and found is not None:
        return []
    message = f"A step of {part.name} takes {memory_text(need.step_of(need.batch_split))} although all its saved "
    message += f"activations are on the host; the budget is {memory_text(budget_bytes(hyper, device_type) or 0)}."
    entry, fix, remedy = "techniques", None, "Give a larger budget, or smaller batches."
    if found is not None:
        then = f"then {memory_text(need.step_of(found))} are needed"
        remedy = f"Give the technique virtual_nodes {found} nodes: {then}."
        if nodes is None:
            entry, fix = "batch_split", Fix(label=f"Split into {found}", value=found)
            remedy = (
                f"Set batch_split to {found}: {then}. Batch normalisation sees the parts; else only rounding differs."
            )
    field = f"submodels.{part.name}.hyperparameters.{entry}"
    return [Finding(title="Budget too small", field=field, message=message, remedy=remedy, fix=fix)]


def _fewest(
    hyper: Hyperparameters, need: MemoryNeed, samples: int, counts: Sequence[int], device_type: str
) -> int | None:
    return next((count for count in counts if keeps_budget(hyper, need, samples, device_type, count)), None)
