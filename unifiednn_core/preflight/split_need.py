"""Memory of what a split network adds: stored outputs of its parts, and a network that is joined but does not train."""

import math

from unifiednn_core.formats.base import Definition
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.run import SubModelSpec

_FLOAT_BYTES = 4


def split_need(need: MemoryNeed, spec: SubModelSpec, definition: Definition, trial: Trial) -> MemoryNeed:
    """The need of a sub-model, measured as if it trained on codes; that of one without a split stays the same."""
    if spec.split is None:
        return need
    if spec.joins and not spec.split.recovery_epochs:  # it is evaluated once
        least = need.evaluation or dict.fromkeys(need.whole, 0)
        changes = {"whole": least, "parts": least, "gradients_bytes": 0, "optimizer_bytes": 0}
        return need.model_copy(update=changes).changed()
    part = definition.part
    if spec.split.labels == "codes" or part is None or part.begins is None:
        return need
    of_sample = _FLOAT_BYTES * math.prod(part.begins.shape)
    sets = [one for one in (trial.train, trial.test) if one is not None]
    stored = {f"{spec.name}:{place}": data.samples * of_sample for place, data in enumerate(sets)}
    return need.model_copy(update={"data": need.data | stored})
