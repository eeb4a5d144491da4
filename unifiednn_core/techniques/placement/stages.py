"""A model in consecutive stages for a pipeline: the slowest stage as fast as possible, each within its memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.base.errors import Infeasible
from unifiednn_core.base.units import memory_text
from unifiednn_core.techniques.placement.graph import CostGraph, Link

MOST_CUTS = 4096
"""Of more places only some are tried, equally far apart in time."""


@dataclass(frozen=True, slots=True)
class ModelStage:
    """Operators `first` to `last`, the last one included, on one device."""

    device: int
    first: int
    last: int
    seconds: float
    """Forward and, in training, backward."""
    peak_bytes: int
    """At most: weights, all that is kept for the backward, and the largest step."""
    received: tuple[int, ...]
    """Operators of earlier stages whose results this one or a later one reads."""
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The program can be cut before operator `before`; the results of so many operators are sent."""

    before: int
    tensors: int = 0
    size_bytes: int = 0


def cuts(graph: CostGraph, most_tensors: int = 1, *, may_tear: bool = False) -> tuple[Cut, ...]:
    """List the places where at most so many tensors cross, and no unit is cut in two unless that `may_tear` them."""
    count = len(graph.ops)
    torn, tensors, sizes = (np.zeros(count + 1, np.int64) for _ in range(3))
    for unit in graph.units:
        _between(torn, unit[0] + 1, unit[-1], 1)
    for number in range(count):
        reads = [edge for edge in graph.outgoing[number] if edge.size_bytes]
        if reads:
            last = max(edge.target for edge in reads)
            _between(tensors, number + 1, last, 1)
            _between(sizes, number + 1, last, max(edge.size_bytes for edge in reads))
    allowed = tensors.cumsum() <= most_tensors
    if not may_tear:
        allowed &= torn.cumsum() == 0
    crossing, size_bytes = tensors.cumsum().tolist(), sizes.cumsum().tolist()
    return tuple(Cut(at, crossing[at], size_bytes[at]) for at in range(1, count) if allowed[at])


def crossing(graph: CostGraph, before: int) -> tuple[int, ...]:
    """List the operators whose results are sent if the program is cut before this operator."""
    return tuple(
        number
        for number in range(before)
        if any(edge.target >= before and edge.size_bytes for edge in graph.outgoing[number])
    )


def stages(
    graph: CostGraph,
    devices: int,
    caps: Sequence[int | None] | None = None,
    *,
    most_tensors: int = 1,
    in_flight: Sequence[int] | None = None,
    link: Link | None = None,
    may_tear: bool = False,
) -> tuple[ModelStage, ...]:
    """Cut a model in at most `devices` consecutive stages, by dynamic programming over `cuts`.

    The slowest stage is as fast as it can be. `caps` are bytes of each device, None for no limit. `in_flight` says
    for how many micro-batches each stage keeps activations (1 each); the graph is that of one micro-batch. With a
    `link`, to receive counts as time of a stage where it takes longer than to compute. Where stages `may_tear` units
    the result is a first guess, not a placement. Raises `Infeasible`.
    """
    limits, kept_for = list(caps or [None] * devices), list(in_flight or [1] * devices)
    if devices < 1 or len(limits) != devices or len(kept_for) != devices:
        raise ValueError(f"{devices} devices need one cap and one number in flight each")
    places = [Cut(0), *_thinned(graph, cuts(graph, most_tensors, may_tear=may_tear)), Cut(len(graph.ops))]
    starts = np.array([place.before for place in places])
    passed_s = np.concatenate(([0.0], np.cumsum([*map(graph.op_s, range(len(graph.ops)))])))[starts]
    sending_s = np.array([link.seconds(place.size_bytes) if link else 0.0 for place in places])
    peak = _peaks(graph)
    last = len(places) - 1

    def needed(start: int, end: int, device: int) -> int:
        return peak(places[start], places[end], kept_for[device])

    best = np.full((devices + 1, last + 1), np.inf)
    chosen = np.zeros((devices + 1, last + 1), int)
    best[0, 0] = 0.0
    for device, limit in enumerate(limits):
        lowest = 0
        for end in range(last + 1):
            best[device + 1, end], chosen[device + 1, end] = best[device, end], end  # nothing on this device
            while limit is not None and lowest < end and needed(lowest, end, device) > limit:
                lowest += 1  # a stage within another one needs no more than it
            if lowest < end:
                own_s = np.maximum(passed_s[end] - passed_s[lowest:end], sending_s[lowest:end])
                slowest = np.maximum(best[device, lowest:end], own_s)
                at = int(slowest.argmin())
                if slowest[at] < best[device + 1, end]:
                    best[device + 1, end], chosen[device + 1, end] = slowest[at], lowest + at
    if not np.isfinite(best[devices, last]):
        reached = int(np.isfinite(best[devices - 1]).nonzero()[0][-1])
        raise _does_not_fit(needed(reached, last, devices - 1), limits, graph.ops[places[reached].before].name)
    found: list[ModelStage] = []
    end = last
    for device in reversed(range(devices)):
        start = int(chosen[device + 1, end])
        if start < end:
            first, seconds = places[start], float(passed_s[end] - passed_s[start])
            size = needed(start, end, device)
            received = () if may_tear else crossing(graph, first.before)
            found.append(
                ModelStage(device, first.before, places[end].before - 1, seconds, size, received, first.size_bytes)
            )
        end = start
    return tuple(reversed(found))


def _thinned(graph: CostGraph, found: Sequence[Cut]) -> Sequence[Cut]:
    if len(found) <= MOST_CUTS:
        return found
    passed_s = np.cumsum([graph.op_s(number) for number in range(len(graph.ops))])
    at_s = passed_s[[cut.before - 1 for cut in found]]
    chosen = np.unique(np.searchsorted(at_s, np.linspace(at_s[0], at_s[-1], MOST_CUTS)))
    return [found[number] for number in chosen]


def _does_not_fit(needed_bytes: int, limits: Sequence[int | None], first: str) -> Infeasible:
    limit_bytes = limits[-1] or 0
    problem = (
        f"The model does not fit {len(limits)} devices as consecutive stages: the last one, from operator '{first}' "
        f"on, needs {memory_text(needed_bytes)} and may have {memory_text(limit_bytes)}."
    )
    return Infeasible(problem, needed_bytes - limit_bytes, proved=False)


def _peaks(graph: CostGraph) -> Callable[[Cut, Cut, int], int]:
    """Prepare a function that bounds the peak in bytes between two cuts, with so many micro-batches in flight."""
    count = len(graph.ops)
    weights, kept, passing, gradients = (np.zeros(count + 1, np.int64) for _ in range(4))
    for weight in graph.weights:
        weights[weight.ops[0]] += weight.size_bytes
    for owner, members in graph.storages().items():
        edges = [edge for member in members for edge in graph.outgoing[member]]
        size_bytes = graph.ops[owner].output_bytes
        is_kept = any(edge.kept for edge in edges) or any(graph.ops[member].keeps_output for member in members)
        if graph.training and is_kept:
            kept[owner] += size_bytes
        else:
            _between(passing, owner, max((edge.target for edge in edges), default=owner), size_bytes)
    for number, op in enumerate(graph.ops):
        kept[number] += op.saved_bytes if graph.training else 0
        if graph.training and (readers := graph.outgoing[number]):
            size_bytes = max(edge.gradient_bytes for edge in readers)
            _between(gradients, number, max(edge.target for edge in readers), size_bytes)
    resident, held = (np.concatenate(([0], np.cumsum(sizes[:-1]))) for sizes in (weights, kept))
    largest = _largest_of(np.maximum(np.cumsum(passing)[:-1], np.cumsum(gradients)[:-1]))

    def peak_bytes(start: Cut, end: Cut, in_flight: int) -> int:
        first, behind = start.before, end.before
        activations = int(held[behind] - held[first]) + start.size_bytes
        return int(resident[behind] - resident[first]) + in_flight * activations + largest(first, behind)

    return peak_bytes


def _between(sizes: NDArray[np.int64], first: int, last: int, size_bytes: int) -> None:
    sizes[first] += size_bytes
    sizes[last + 1] -= size_bytes


def _largest_of(values: NDArray[np.int64]) -> Callable[[int, int], int]:
    """Prepare a function that finds the largest value from a place to before another one, at once."""
    tables = [values]
    while (step := 1 << (len(tables) - 1)) * 2 <= len(values):
        tables.append(np.maximum(tables[-1][:-step], tables[-1][step:]))

    def largest(first: int, behind: int) -> int:
        level = (behind - first).bit_length() - 1
        return int(max(tables[level][first], tables[level][behind - (1 << level)]))

    return largest
