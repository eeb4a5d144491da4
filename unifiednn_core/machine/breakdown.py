"""What memory is used for at one instant, from figures of samplers. Pure; `store.schema.StrataRow` names the shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Breakdown = dict[str, Any]

SINGLE = ("context", "slack", "data", "others")
BY_SUBMODEL = ("weights", "gradients", "optimizer", "transient")
# Differences of readings that were not taken at the very same instant; tensors are exact to the byte.
_UNCERTAIN = ("transient", "slack", "context", "others")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Exact bytes of the tensors of one sub-model. A new value at each change: any thread can read it at any time."""

    weights_bytes: int
    """Parameters and buffers."""
    gradients_bytes: int = 0
    """While it holds the device."""
    optimizer_bytes: int = 0
    """State of the optimizer, once there is some."""
    placed: bool = False
    """Whether it lies on the device that trains."""

    @property
    def size_bytes(self) -> int:
        """All of it together."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """What NVML and torch's allocator say at one instant; None is not available."""

    process_bytes: int | None
    device_bytes: int | None
    others_bytes: int | None
    device_before_bytes: int | None
    """In use by all processes before this one came to the GPU."""
    reserved_bytes: int
    """By torch, from the driver."""
    allocated_bytes: int
    """By tensors, of what is reserved."""


def on_gpu(
    figures: GpuFigures, *, data_bytes: int, footprints: Mapping[str, Footprint], holder: str | None
) -> tuple[int | None, Breakdown]:
    """Total and breakdown of a GPU: of all processes on it where NVML tells, else of this process alone, else None.

    The context is what the driver counts for the process beyond torch's reserve. Where it tells no process apart,
    everything that the GPU's memory in use grew by counts as ours, and what was there before as others'.
    """
    placed = {name: footprint for name, footprint in footprints.items() if footprint.placed}
    ours, others = figures.process_bytes, figures.others_bytes
    if ours is None and figures.device_bytes is not None and figures.device_before_bytes is not None:
        ours, others = max(0, figures.device_bytes - figures.device_before_bytes), figures.device_before_bytes
    breakdown = _of_tensors(placed, data_bytes)
    breakdown["slack"] = max(0, figures.reserved_bytes - figures.allocated_bytes)
    if ours is not None:
        breakdown["context"] = max(0, ours - figures.reserved_bytes)
    if others is not None:
        breakdown["others"] = others
    known = data_bytes + sum(footprint.size_bytes for footprint in placed.values())
    if holder is not None:
        breakdown["transient"] = {holder: max(0, figures.allocated_bytes - known)}
    total = figures.device_bytes if figures.device_bytes is not None else ours
    if figures.device_bytes is None:
        breakdown.pop("others", None)  # they are no part of what this process alone has in use
    return total, breakdown if total is None else fitted(total, breakdown)


def on_host(
    total_bytes: int,
    *,
    context_bytes: int | None,
    data_bytes: int,
    footprints: Mapping[str, Footprint],
    holder: str | None,
    transient_bytes: int | None,
) -> Breakdown:
    """Breakdown of this process's host memory; `transient_bytes` is the peak of the one at work.

    Memory that the allocator keeps from earlier steps, and code that is loaded when it is first called, are in none.
    """
    breakdown = _of_tensors(footprints, data_bytes)
    if context_bytes is not None:
        breakdown["context"] = context_bytes
    if holder is not None and transient_bytes is not None:
        breakdown["transient"] = {holder: transient_bytes}
    return fitted(total_bytes, breakdown)


def sum_of(breakdown: Breakdown) -> int:
    """Bytes of all parts together."""
    single = sum(breakdown.get(kind, 0) for kind in SINGLE)
    return int(single + sum(sum(breakdown.get(kind, {}).values()) for kind in BY_SUBMODEL))


def fitted(total_bytes: int, breakdown: Breakdown) -> Breakdown:
    """The breakdown cut to at most the total, which alone was read in one piece.

    What is too much goes first from the parts that are differences of readings, in the order transient, slack,
    context, others; what is then still too much (pages of tensors that were never touched) goes from all tensors
    in equal shares.
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


# -- inside


def _of_tensors(footprints: Mapping[str, Footprint], data_bytes: int) -> Breakdown:
    found = {
        kind: {name: size for name, footprint in footprints.items() if (size := getattr(footprint, f"{kind}_bytes"))}
        for kind in ("weights", "gradients", "optimizer")
    }
    return {"data": data_bytes, **found}


def _scaled(breakdown: Breakdown, kinds: tuple[str, ...], numerator: int, denominator: int) -> Breakdown:
    """Copy in which these kinds are that fraction of what they were, rounded down."""

    def less(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: size * numerator // denominator for name, size in value.items()}
        return value * numerator // denominator

    return {kind: less(value) if kind in kinds else value for kind, value in breakdown.items()}
