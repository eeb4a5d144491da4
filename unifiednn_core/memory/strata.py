"""What memory is used for at one instant: figures in, strata out. Pure; `store.schema.StrataRow` names the shape."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Strata = dict[str, Any]

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
    """What NVML and torch's allocator say at one instant; None is what cannot be had."""

    process_bytes: int | None
    device_bytes: int | None
    others_bytes: int | None
    device_before_bytes: int | None
    """In use by everybody before this process came to the GPU."""
    reserved_bytes: int
    """By torch, from the driver."""
    allocated_bytes: int
    """By tensors, of what is reserved."""


def on_gpu(
    figures: GpuFigures, *, data_bytes: int, footprints: Mapping[str, Footprint], holder: str | None
) -> tuple[int | None, Strata]:
    """Total and strata of a GPU: of everybody on it where NVML tells, else of this process alone, else None.

    The context is what the driver counts for the process beyond torch's reserve. Where it tells no process apart,
    everything that the GPU's memory in use grew by counts as ours, and what was there before as others'.
    """
    placed = {name: footprint for name, footprint in footprints.items() if footprint.placed}
    ours, others = figures.process_bytes, figures.others_bytes
    if ours is None and figures.device_bytes is not None and figures.device_before_bytes is not None:
        ours, others = max(0, figures.device_bytes - figures.device_before_bytes), figures.device_before_bytes
    strata = _of_tensors(placed, data_bytes)
    strata["slack"] = max(0, figures.reserved_bytes - figures.allocated_bytes)
    if ours is not None:
        strata["context"] = max(0, ours - figures.reserved_bytes)
    if others is not None:
        strata["others"] = others
    known = data_bytes + sum(footprint.size_bytes for footprint in placed.values())
    if holder is not None:
        strata["transient"] = {holder: max(0, figures.allocated_bytes - known)}
    total = figures.device_bytes if figures.device_bytes is not None else ours
    if figures.device_bytes is None:
        strata.pop("others", None)  # they are no part of what this process alone has in use
    return total, strata if total is None else fitted(total, strata)


def on_host(
    total_bytes: int,
    *,
    context_bytes: int | None,
    data_bytes: int,
    footprints: Mapping[str, Footprint],
    holder: str | None,
    transient_bytes: int | None,
) -> Strata:
    """Strata of the host memory of this process; `transient_bytes` is the most that the one at work took for a while.

    Memory that the allocator keeps from earlier steps, and code that is loaded when it is first called, are in none.
    """
    strata = _of_tensors(footprints, data_bytes)
    if context_bytes is not None:
        strata["context"] = context_bytes
    if holder is not None and transient_bytes is not None:
        strata["transient"] = {holder: transient_bytes}
    return fitted(total_bytes, strata)


def sum_of(strata: Strata) -> int:
    """Bytes of all strata."""
    single = sum(strata.get(kind, 0) for kind in SINGLE)
    return int(single + sum(sum(strata.get(kind, {}).values()) for kind in BY_SUBMODEL))


def fitted(total_bytes: int, strata: Strata) -> Strata:
    """Strata that are together at most the total, which alone was read in one piece.

    What is too much goes first from the parts that are differences of readings, in the order transient, slack,
    context, others; what is then still too much (pages of tensors that nobody has touched yet) goes from all tensors
    in equal shares.
    """
    excess = sum_of(strata) - total_bytes
    for kind in _UNCERTAIN:
        part = sum_of({kind: strata[kind]}) if kind in strata else 0
        if excess <= 0 or not part:
            continue
        less = min(excess, part)
        strata, excess = _scaled(strata, (kind,), part - less, part), excess - less
    if excess <= 0:
        return strata
    return _scaled(strata, ("data", "weights", "gradients", "optimizer"), max(0, total_bytes), sum_of(strata))


# -- inside


def _of_tensors(footprints: Mapping[str, Footprint], data_bytes: int) -> Strata:
    sizes: dict[str, Callable[[Footprint], int]] = {
        "weights": lambda footprint: footprint.weights_bytes,
        "gradients": lambda footprint: footprint.gradients_bytes,
        "optimizer": lambda footprint: footprint.optimizer_bytes,
    }
    found = {
        kind: {name: size for name, footprint in footprints.items() if (size := size_of(footprint))}
        for kind, size_of in sizes.items()
    }
    return {"data": data_bytes, **found}


def _scaled(strata: Strata, kinds: tuple[str, ...], numerator: int, denominator: int) -> Strata:
    """Copy in which these kinds are that fraction of what they were, rounded down."""

    def less(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: size * numerator // denominator for name, size in value.items()}
        return value * numerator // denominator

    return {kind: less(value) if kind in kinds else value for kind, value in strata.items()}
