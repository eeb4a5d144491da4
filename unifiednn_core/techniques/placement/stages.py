"""A first guess of a placement: consecutive operators on each device, the slowest device as fast as possible."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.techniques.placement.graph import CostGraph, Link

MOST_CUTS = 4096
"""Of more places to cut only some are tried, equally far apart in time."""
_Sizes = NDArray[np.int64]


def consecutive(graph: CostGraph, caps: Sequence[int | None], link: Link) -> tuple[int, ...] | None:
    """Return the device of each operator, by dynamic programming over the places to cut; None if nothing fits.

    `caps` are bytes of each device, None for no limit. To receive counts as time of a device where it takes longer
    than to compute. It is no placement: operators that have to be together may be torn.
    """
    places = _places(graph)
    last = len(places) - 1
    passed_s = np.concatenate(([0.0], np.cumsum([*map(graph.op_s, range(len(graph.ops)))])))[places]
    sent_bytes = _sent_bytes(graph)[places]
    sending_s = np.array([link.seconds(int(size_bytes)) for size_bytes in sent_bytes])
    peak = _peaks(graph)
    best = np.full((len(caps) + 1, last + 1), np.inf)
    chosen = np.zeros((len(caps) + 1, last + 1), int)
    best[0, 0] = 0.0
    for device, cap in enumerate(caps):
        lowest = 0
        for end in range(last + 1):
            best[device + 1, end], chosen[device + 1, end] = best[device, end], end  # nothing on this device
            while cap is not None and lowest < end and sent_bytes[lowest] + peak(places[lowest], places[end]) > cap:
                lowest += 1  # a part of a stage needs no more than it
            if lowest < end:
                own_s = np.maximum(passed_s[end] - passed_s[lowest:end], sending_s[lowest:end])
                slowest = np.maximum(best[device, lowest:end], own_s)
                at = int(slowest.argmin())
                if slowest[at] < best[device + 1, end]:
                    best[device + 1, end], chosen[device + 1, end] = slowest[at], lowest + at
    if not np.isfinite(best[len(caps), last]):
        return None
    found, end = [0] * len(graph.ops), last
    for device in reversed(range(len(caps))):
        start = int(chosen[device + 1, end])
        found[places[start] : places[end]] = [device] * (places[end] - places[start])
        end = start
    return tuple(found)


def _places(graph: CostGraph) -> list[int]:
    """Numbers of operators before which the program may be cut, with its two ends."""
    count = len(graph.ops)
    if count - 1 <= MOST_CUTS:
        return [*range(count), count]
    at_s = np.cumsum([graph.op_s(number) for number in range(count - 1)])
    chosen = np.unique(np.searchsorted(at_s, np.linspace(at_s[0], at_s[-1], MOST_CUTS)))
    return [0, *(chosen + 1).tolist(), count]


def _sent_bytes(graph: CostGraph) -> _Sizes:
    """Bytes that are sent if the program is cut before each operator; nothing at its two ends."""
    sizes = np.zeros(len(graph.ops) + 1, np.int64)
    for number, edges in enumerate(graph.outgoing):
        if reads := [edge for edge in edges if edge.size_bytes]:
            last = max(edge.target for edge in reads)
            _between(sizes, number + 1, last, max(edge.size_bytes for edge in reads))
    return sizes.cumsum()


def _peaks(graph: CostGraph) -> Callable[[int, int], int]:
    """Prepare a function that bounds the peak in bytes from one operator to before another one, without its inputs."""
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
    held = np.concatenate(([0], np.cumsum((weights + kept)[:-1])))
    largest = _largest_of(np.maximum(np.cumsum(passing)[:-1], np.cumsum(gradients)[:-1]))
    return lambda first, behind: int(held[behind] - held[first]) + largest(first, behind)


def _between(sizes: _Sizes, first: int, last: int, size_bytes: int) -> None:
    sizes[first] += size_bytes
    sizes[last + 1] -= size_bytes


def _largest_of(values: _Sizes) -> Callable[[int, int], int]:
    """Prepare a function that finds the largest value from a place to before another one, at once."""
    tables = [values]
    while (step := 1 << (len(tables) - 1)) * 2 <= len(values):
        tables.append(np.maximum(tables[-1][:-step], tables[-1][step:]))

    def largest(first: int, behind: int) -> int:
        level = (behind - first).bit_length() - 1
        return int(max(tables[level][first], tables[level][behind - (1 << level)]))

    return largest
