"""Exact bytes of the tensors that one sub-model keeps from step to step."""

from collections.abc import Iterable

from torch import Tensor

from unifiednn_core.hybrid.unifier import Part
from unifiednn_core.memory.strata import Footprint


def footprints_of(part: Part, *, placed: bool) -> tuple[Footprint, Footprint]:
    """Footprint of a sub-model while it does not hold the device, and while it does."""
    parameters = list(part.module.parameters())
    weights_bytes = stored_bytes([*parameters, *part.module.buffers()])
    optimizer_bytes = stored_bytes(
        value
        for parameter, entries in part.optimizer.state.items()
        for value in entries.values()
        if isinstance(value, Tensor) and value.device == parameter.device  # counters stay on the host
    )
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    gradients_bytes = sum(parameter.numel() * parameter.element_size() for parameter in trained)
    return (
        Footprint(weights_bytes, 0, optimizer_bytes, placed),
        Footprint(weights_bytes, gradients_bytes, optimizer_bytes, placed),
    )


def stored_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all tensors; those that share storage count once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
