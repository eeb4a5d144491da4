"""What a check reports of a sub-model, as tests write it."""

from typing import Any

from unifiednn_core.preflight.report import SubModelReport


def report_of(name: str, **facts: Any) -> SubModelReport:
    """A network of one weight with eight samples, but for these facts."""
    network = {"format": "pt2", "parameters": 1, "weights_bytes": 4, "input_shape": (1,)}
    data = {"samples": 8, "test_samples": None, "classes": None, "steps_per_epoch": 1}
    return SubModelReport(**{"name": name, **network, **data, **facts})
