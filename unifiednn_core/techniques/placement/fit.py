"""Placements made to fit: operators leave devices above their limits, those first whose leaving costs least."""

from collections.abc import Sequence

from unifiednn_core.techniques.placement.refine import Assignment, Search

ROUNDS = 24
_PATIENCE = 5
_MORE = 1.05
"""Some more than what is missing leaves, because what a move frees is an estimate."""


def fitted(search: Search, start: Assignment) -> Assignment:
    """Move units until no device is above its limit, or moves do not help any more; returns the best that was found."""
    resident = _resident_bytes(search)
    placed = best = start
    worse = 0
    for _ in range(ROUNDS):
        if not search.score(placed).excess_bytes or worse >= _PATIENCE:
            break
        placed = _relieved(search, placed, resident)
        worse = 0 if search.score(placed) < search.score(best) else worse + 1
        best = min(best, placed, key=search.score)
    return best


def _resident_bytes(search: Search) -> list[int]:
    """Bytes that leave a device with each unit: weights, what it keeps, and its results."""
    graph = search.graph
    found = [0] * len(graph.units)
    for number, op in enumerate(graph.ops):
        found[graph.unit_of[number]] += op.output_bytes + op.saved_bytes * graph.training
    for weight in graph.weights:
        found[graph.unit_of[weight.ops[0]]] += weight.size_bytes
    return found


def _relieved(search: Search, placed: Assignment, resident: Sequence[int]) -> Assignment:
    """Move what frees the missing bytes of the fullest device, at the least loss of seconds for each byte."""
    peaks = search.peaks_of(placed)
    room = [float("inf") if cap is None else cap - peak for peak, cap in zip(peaks, search.caps, strict=True)]
    full = min(range(search.devices), key=lambda device: (room[device], device))
    load_s = [0.0] * search.devices
    work_s = [sum(map(search.graph.op_s, unit)) for unit in search.graph.units]
    for unit, device in enumerate(placed):
        load_s[device] += work_s[unit]
    candidates = []
    for unit, device in enumerate(placed):
        if device != full:
            continue
        sent_s, shared = _ties(search, placed, unit)
        for other in range(search.devices):
            freed = resident[unit] + sum(shared) - 2 * shared[full]
            if other == full or freed <= 0 or room[other] <= 0:
                continue
            loss_s = sent_s[full] - sent_s[other] + max(0.0, work_s[unit] + load_s[other] - load_s[full])
            candidates.append((loss_s / freed, unit, other, freed))
    moved, missing = list(placed), -room[full] * _MORE
    gone = set[int]()
    for _, unit, other, freed in sorted(candidates):
        if missing <= 0:
            break
        if unit not in gone and room[other] >= resident[unit]:
            gone.add(unit)
            moved[unit], missing, room[other] = other, missing - freed, room[other] - resident[unit]
    return tuple(moved)


def _ties(search: Search, placed: Assignment, unit: int) -> tuple[list[float], list[int]]:
    """Seconds of sending, and bytes of copies, between a unit and the units of each device."""
    graph, link = search.graph, search.link
    sent_s, shared = [0.0] * search.devices, [0] * search.devices
    for number in graph.units[unit]:
        for edges, is_in in ((graph.incoming[number], True), (graph.outgoing[number], False)):
            for edge in edges:
                other = graph.unit_of[edge.source if is_in else edge.target]
                if other != unit:
                    device = placed[other]
                    sent_s[device] += link.seconds(edge.size_bytes) + link.seconds(edge.gradient_bytes)
                    shared[device] += edge.size_bytes // 2
    return sent_s, shared
