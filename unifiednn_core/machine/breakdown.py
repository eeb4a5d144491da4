"""What memory is used for at one instant, from figures of samplers. Pure; `StrataRow.strata` names the shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unifiednn_core.machine.gpu import GpuReading

Breakdown = dict[str, Any]

SINGLE = ("context", "slack", "data", "others")
BY_SUBMODEL = ("weights", "gradients", "optimizer", "transient")
# Differences of readings that were not taken at the very same instant; tensors are exact to the byte.
_UNCERTAIN = ("transient", "slack", "context", "others")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Exact bytes of the tensors of one sub-model. Immutable, so any thread can read it."""

    weights_bytes: int
    """Parameters and buffers."""
    gradients_bytes: int = 0
    """Only while it holds the device."""
    optimizer_bytes: int = 0
    """State of the optimizer; 0 before the first step."""
    placed: bool = False
    """Whether it is on the device that trains."""

    @property
    def size_bytes(self) -> int:
        """Weights, gradients and optimizer state together."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


def on_gpu(
    seen: GpuReading,
    *,
    before_bytes: int | None,
    reserved_bytes: int,
    allocated_bytes: int,
    data_bytes: int,
    footprints: Mapping[str, Footprint],
    at_work: Mapping[str, int | None],
) -> tuple[int | None, Breakdown]:
    """Total and breakdown of a GPU: of all its processes, else of this process alone; total None without NVML.

    `before_bytes` were in use when this process came. Torch has `reserved_bytes` from the driver, `allocated_bytes` of
    them in tensors; what the driver counts beyond is the context. If it lists no processes, the growth counts as ours.
    `at_work` has the peak of temporary memory of each sub-model in a step, by which they share what is there now.
    """
    placed = {name: footprint for name, footprint in footprints.items() if footprint.placed}
    ours, others, total = seen.process_bytes, seen.others_bytes, seen.device_bytes
    if ours is None and total is not None and before_bytes is not None:
        ours, others = max(0, total - before_bytes), before_bytes
    breakdown = _of_tensors(placed, data_bytes) | {"slack": max(0, reserved_bytes - allocated_bytes)}
    if ours is not None:
        breakdown["context"] = max(0, ours - reserved_bytes)
    if others is not None and total is not None:  # else the total is that of this process alone
        breakdown["others"] = others
    if at_work:
        known = data_bytes + sum(footprint.size_bytes for footprint in placed.values())
        weights = {name: size or 1 for name, size in at_work.items()}
        rest = max(0, allocated_bytes - known)
        breakdown["transient"] = {name: rest * weight // sum(weights.values()) for name, weight in weights.items()}
    total = ours if total is None else total
    return total, breakdown if total is None else fitted(total, breakdown)


def on_host(
    total_bytes: int,
    *,
    context_bytes: int | None,
    data_bytes: int,
    footprints: Mapping[str, Footprint],
    at_work: Mapping[str, int | None],
) -> Breakdown:
    """Breakdown of this process's host memory.

    No part covers memory that the allocator keeps from earlier steps, and code that is loaded at its first call.
    """
    breakdown = _of_tensors(footprints, data_bytes)
    if context_bytes is not None:
        breakdown["context"] = context_bytes
    if found := {name: size for name, size in at_work.items() if size is not None}:
        breakdown["transient"] = found
    return fitted(total_bytes, breakdown)


def sum_of(breakdown: Breakdown) -> int:
    """Bytes of all parts together."""
    single = sum(breakdown.get(kind, 0) for kind in SINGLE)
    return int(single + sum(sum(breakdown.get(kind, {}).values()) for kind in BY_SUBMODEL))


def fitted(total_bytes: int, breakdown: Breakdown) -> Breakdown:
    """Cut the breakdown to at most the total, the only figure that was read in one piece.

    Excess is taken first from the differences of readings, in the order transient, slack, context, others, then from
    all tensors in equal shares (pages that were never touched).
    """
    excess = sum_of(breakdown) - total_bytes
    for kind in _UNCERTAIN:
        part = sum_of({kind: breakdown[kind]}) if kind in breakdown else 0
        if excess <= 0 or not part:
            continue
        less = min(excess, part)
        breakdown, excess = _scaled(breakdown, (kind,), part - less, part), excess - less
    if excess <= 0:
        return breakdown
    return _scaled(breakdown, ("data", "weights", "gradients", "optimizer"), max(0, total_bytes), sum_of(breakdown))


def _of_tensors(footprints: Mapping[str, Footprint], data_bytes: int) -> Breakdown:
    found = {
        kind: {name: size for name, footprint in footprints.items() if (size := getattr(footprint, f"{kind}_bytes"))}
        for kind in ("weights", "gradients", "optimizer")
    }
    return {"data": data_bytes, **found}


def _scaled(breakdown: Breakdown, kinds: tuple[str, ...], numerator: int, denominator: int) -> Breakdown:
    """Copy with these kinds multiplied by a fraction, rounded down."""

    def less(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: size * numerator // denominator for name, size in value.items()}
        return value * numerator // denominator

    return {kind: less(value) if kind in kinds else value for kind, value in breakdown.items()}
