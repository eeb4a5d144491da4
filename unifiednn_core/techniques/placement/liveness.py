"""The most memory on each device while a placed network takes a step: by what is alive, task by task.

Alive are: weights, always; a result, until the last operator there has read it, the last copy of it has arrived, and,
if a backward needs it, until that; a copy on another device, in the same way; the gradient of a result, from the first
backward that adds to it until the one that reads it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.techniques.placement.graph import Link
from unifiednn_core.techniques.placement.simulate import Numbers, Tasks, Times


def peaks_bytes(tasks: Tasks, device_of: Sequence[int], devices: int, link: Link, times: Times) -> tuple[int, ...]:
    """Return the most that is alive on each device at these times."""
    return tuple(int(alive.max(initial=0)) for alive in memory_bytes(tasks, device_of, devices, link, times))


def memory_bytes(tasks: Tasks, device_of: Sequence[int], devices: int, link: Link, times: Times) -> list[Numbers]:
    """Return what is alive on each device during each of its tasks, in the order in which it does them."""
    at = _Places(tasks, device_of, devices, times)
    changes = np.zeros(len(times.starts_s) + devices + 1, np.int64)  # each device: its tasks, and one place behind

    def add(first: Numbers, last: Numbers, sizes: Numbers) -> None:
        np.add.at(changes, first, sizes)
        np.add.at(changes, last + 1, -sizes)

    device, source, target, training = at.device, tasks.source, tasks.target, tasks.graph.training
    forward = at.place[: tasks.count]
    backward = at.place[tasks.backward(np.arange(tasks.count))] if training else forward
    read = np.where(tasks.kept > 0, backward[target], forward[target])
    here, ends_s = device[source] == device[target], np.asarray(times.ends_s)

    # results, where they are made
    until = np.where(tasks.keeps_output > 0, backward, forward)
    np.maximum.at(until, source[here], read[here])
    sent, there = source[~here], device[target[~here]]
    arrives_s = ends_s[sent] + link.latency_s + tasks.size_bytes[~here] / link.bytes_per_s
    np.maximum.at(until, sent, at.before(device[sent], arrives_s))
    owned = forward.copy()
    np.maximum.at(owned, tasks.owner, until)
    add(forward, owned, tasks.output_bytes)

    # copies elsewhere: one for each result and device
    copies, number = np.unique(sent * devices + there, return_inverse=True)
    sizes, first, last = np.zeros(len(copies), np.int64), np.full(len(copies), len(changes)), np.zeros(len(copies), int)
    np.maximum.at(sizes, number, tasks.size_bytes[~here])
    np.minimum.at(first, number, np.minimum(at.before(there, ends_s[sent]), forward[target[~here]]))
    np.maximum.at(last, number, read[~here])
    add(first, last, sizes)

    if training:
        add(forward, backward, tasks.saved_bytes)
        begun, gradients = backward.copy(), np.zeros(tasks.count, np.int64)
        back = tasks.gradient_bytes > 0
        np.maximum.at(gradients, source, tasks.gradient_bytes)
        near, far = here & back, ~here & back
        np.minimum.at(begun, source[near], backward[target[near]])
        done_s = ends_s[tasks.backward(target[far])]
        np.minimum.at(begun, source[far], at.before(device[source[far]], done_s))
        add(begun, backward, gradients)
        arrived_s = done_s + link.latency_s + tasks.gradient_bytes[far] / link.bytes_per_s
        ended = np.maximum(backward[target[far]], at.before(device[target[far]], arrived_s))
        add(backward[target[far]], ended, tasks.gradient_bytes[far])

    weights = [0] * devices
    for number_of_op, size_bytes in tasks.weights:
        weights[device_of[number_of_op]] += size_bytes
    alive = np.cumsum(changes)
    return [
        alive[start : max(end, start + 1)] * (end > start) + weight
        for start, end, weight in zip(at.starts, at.ends, weights, strict=True)
    ]


class _Places:
    """Tasks in the order in which each device does them: those of device 0, a gap, those of device 1, and so on."""

    def __init__(self, tasks: Tasks, device_of: Sequence[int], devices: int, times: Times):
        on, self._starts_s = tasks.devices(device_of), np.asarray(times.starts_s)
        self.device = on[: tasks.count]
        numbers = np.arange(len(on))
        order = np.lexsort((numbers, np.asarray(times.ends_s), self._starts_s, on))
        counts = np.bincount(on, minlength=devices)
        self.starts = (np.cumsum(counts) - counts + np.arange(devices)).tolist()
        self.ends = [start + count for start, count in zip(self.starts, counts.tolist(), strict=True)]
        self.place = np.empty(len(on), np.int64)
        self.place[order] = numbers + on[order]
        begun = np.cumsum(counts) - counts
        self._order_s = [self._starts_s[order[at : at + count]] for at, count in zip(begun, counts, strict=True)]

    def before(self, device: Numbers, second: NDArray[np.float64]) -> Numbers:
        """Place of the last task that each device starts before a second."""
        found = np.zeros(len(device), np.int64)
        for number, (start, order_s) in enumerate(zip(self.starts, self._order_s, strict=True)):
            here = device == number
            found[here] = start + np.maximum(np.searchsorted(order_s, second[here]) - 1, 0)
        return found
