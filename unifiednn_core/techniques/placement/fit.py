"""Placements made to fit: operators leave devices above their limits, those first whose leaving costs least."""

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.techniques.placement.refine import Assignment, Search

ROUNDS = 24
_PATIENCE = 5
_MORE = 1.05
"""Some more than what is missing leaves, because what a move frees is an estimate."""
_Table = NDArray[np.float64]


def fitted(search: Search, start: Assignment) -> Assignment:
    """Move units until no device is above its limit, or moves do not help any more; returns the best that was found."""
    placed = best = start
    if not search.score(start).excess_bytes:
        return start
    resident_bytes, work_s = _of_units(search)
    worse = 0
    for _ in range(ROUNDS):
        if not search.score(placed).excess_bytes or worse >= _PATIENCE:
            break
        placed = _relieved(search, placed, resident_bytes, work_s)
        worse = 0 if search.score(placed) < search.score(best) else worse + 1
        best = min(best, placed, key=search.score)
    return best


def _of_units(search: Search) -> tuple[_Table, _Table]:
    """Bytes that leave a device with each unit, which are weights, what it keeps and its results; and its seconds."""
    graph, tasks = search.graph, search.tasks
    resident_bytes = _summed(graph.unit_of, tasks.output_bytes + tasks.saved_bytes * graph.training, len(graph.units))
    for number, size_bytes in tasks.weights:
        resident_bytes[graph.unit_of[number]] += size_bytes
    return resident_bytes, _summed(graph.unit_of, [*map(graph.op_s, range(tasks.count))], len(graph.units))


def _summed(places: object, values: object, count: int) -> _Table:
    found: _Table = np.bincount(np.asarray(places), np.asarray(values, float), count).astype(float)
    return found


def _relieved(search: Search, placed: Assignment, resident_bytes: _Table, work_s: _Table) -> Assignment:
    """Move what frees the missing bytes of each device, the fullest first, at the least loss of seconds by byte."""
    peaks = search.score(placed).peaks_bytes
    room = [float("inf") if cap is None else cap - peak for peak, cap in zip(peaks, search.caps, strict=True)]
    device = np.array(placed)
    load_s = _summed(device, work_s, search.devices)
    sent_s, shared_bytes = _ties(search, device)
    moved = list(placed)
    for full in sorted(range(search.devices), key=room.__getitem__):
        freed_bytes = resident_bytes + shared_bytes.sum(axis=1) - 2 * shared_bytes[:, full]
        others = [other for other in range(search.devices) if other != full and room[other] > 0]
        units, places = np.nonzero(((device == full) & (freed_bytes > 0))[:, None] & np.ones(len(others), bool))
        there = np.array(others, int)[places]
        slower_s = np.maximum(0.0, work_s[units] + load_s[there] - load_s[full])
        loss_s = sent_s[units, full] - sent_s[units, there] + slower_s
        order = np.lexsort((there, units, loss_s / freed_bytes[units]))
        missing, gone = -room[full] * _MORE, set[int]()
        for unit, other in zip(units[order].tolist(), there[order].tolist(), strict=True):
            if missing <= 0:
                break
            if unit not in gone and room[other] >= resident_bytes[unit]:
                gone.add(unit)
                moved[unit], missing = other, missing - freed_bytes[unit]
                room[other] -= resident_bytes[unit]
    return tuple(moved)


def _ties(search: Search, device: NDArray[np.int64]) -> tuple[_Table, _Table]:
    """Seconds of sending, and bytes of copies, between each unit and the other units of each device."""
    tasks, link, unit_of = search.tasks, search.link, np.array(search.graph.unit_of)
    source, target = unit_of[tasks.source], unit_of[tasks.target]
    apart = source != target
    source, target = source[apart], target[apart]
    size_bytes, gradient_bytes = tasks.size_bytes[apart], tasks.gradient_bytes[apart]
    sent_s = sum(
        np.where(one > 0, link.latency_s + one / link.bytes_per_s, 0.0) for one in (size_bytes, gradient_bytes)
    )
    of_source, of_target = source * search.devices + device[target], target * search.devices + device[source]
    shape = len(device), search.devices

    def to_each(values: object) -> _Table:
        size = shape[0] * shape[1]
        return (_summed(of_source, values, size) + _summed(of_target, values, size)).reshape(shape)

    return to_each(sent_s), to_each(size_bytes // 2)
