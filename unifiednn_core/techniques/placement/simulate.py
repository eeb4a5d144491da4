"""What a placement takes: when each operator runs, and the most memory on each device. A simulation; nothing runs.

A task is the forward or the backward of an operator. Tasks are numbered in the order of the program: the forwards,
then the backwards in reverse (`Tasks.backward`). A device does one task at a time. Tensors travel beside the work, each
once to a device that needs it, and gradients back along each edge.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.techniques.placement.graph import CostGraph, Link

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Times:
    """When each task starts and ends, in seconds."""

    starts_s: Sequence[float]
    ends_s: Sequence[float]

    @property
    def makespan_s(self) -> float:
        """Until the last task has ended."""
        return max(self.ends_s, default=0.0)


class Tasks:
    """The tasks of a graph, and which waits for which; made once for many placements."""

    def __init__(self, graph: CostGraph):
        self.graph, self.count = graph, len(graph.ops)
        table = [(edge.source, edge.target, edge.size_bytes, edge.gradient_bytes, edge.kept) for edge in graph.edges]
        columns = np.array(table, np.int64).reshape(-1, 5).T
        self.source, self.target, self.size_bytes, self.gradient_bytes, self.kept = columns
        self.seconds: list[float] = [op.forward_s for op in graph.ops]
        waits = [(self.source, self.target, self.size_bytes)]
        if graph.training:
            self.seconds += [op.backward_s for op in reversed(graph.ops)]
            ops, back = np.arange(self.count), self.gradient_bytes > 0
            waits.append((ops, self.backward(ops), np.zeros_like(ops)))
            ends = self.backward(self.target[back]), self.backward(self.source[back])
            waits.append((*ends, self.gradient_bytes[back]))
        before, after, sent_bytes = (np.concatenate(parts) for parts in zip(*waits, strict=True))
        order = np.argsort(before, kind="stable")
        self._before, self._after, self._sent_bytes = before[order], after[order], sent_bytes[order]
        self._after_list = self._after.tolist()
        self._first = np.searchsorted(self._before, np.arange(len(self.seconds) + 1)).tolist()
        self._waiting = np.bincount(self._after, minlength=len(self.seconds)).tolist()
        owners = [graph.storage(number) for number in range(self.count)]
        self.owner = np.array(owners, np.int64)
        fields = [(op.output_bytes, op.saved_bytes, op.keeps_output) for op in graph.ops]
        self.output_bytes, self.saved_bytes, self.keeps_output = np.array(fields, np.int64).reshape(-1, 3).T
        self.weights = [(weight.ops[0], weight.size_bytes) for weight in graph.weights]

    def backward(self, ops: Numbers) -> Numbers:
        """Return the backward tasks of operators, or the operators of backward tasks."""
        return 2 * self.count - 1 - ops

    def devices(self, device_of: Sequence[int]) -> Numbers:
        """Return the device of each task."""
        forward = np.asarray(device_of, np.int64)
        return np.concatenate((forward, forward[::-1])) if self.graph.training else forward

    def _sending_s(self, device: Numbers, link: Link) -> list[float]:
        """Seconds from the end of a task until one that waits for it has its result; 0 on the same device."""
        sent_s = link.latency_s + self._sent_bytes / link.bytes_per_s
        found: list[float] = np.where(
            (device[self._before] != device[self._after]) & (self._sent_bytes > 0), sent_s, 0.0
        ).tolist()
        return found

    def list_schedule(self, device_of: Sequence[int], devices: int, link: Link) -> Times:
        """Let each device take, of the tasks whose tensors are there, the one with the longest way to go."""
        device = self.devices(device_of)
        sending_s, seconds, count = self._sending_s(device, link), self.seconds, len(self.seconds)
        first, after, on = self._first, self._after_list, device.tolist()
        to_go_s = [0.0] * count
        for task in reversed(range(count)):
            longest_s = 0.0
            for at in range(first[task], first[task + 1]):
                way_s = sending_s[at] + to_go_s[after[at]]
                if way_s > longest_s:  # `max` takes four times as long
                    longest_s = way_s
            to_go_s[task] = seconds[task] + longest_s
        waiting, arrived_s = list(self._waiting), [0.0] * count
        starts_s, ends_s = [0.0] * count, [0.0] * count
        ready: list[list[tuple[float, int]]] = [[] for _ in range(devices)]
        freed: list[list[int]] = [[] for _ in range(devices)]  # tasks that only wait for the end of the one at work
        idle = [True] * devices
        events = [(0.0, task) for task in range(count) if not waiting[task]]
        while events:  # a task whose last tensor arrived, or -1 - device for a device that is done
            now_s = events[0][0]
            while events and events[0][0] == now_s:
                _, what = heapq.heappop(events)
                if what < 0:
                    idle[-1 - what] = True
                    for task in freed[-1 - what]:
                        heapq.heappush(ready[on[task]], (-to_go_s[task], task))
                    freed[-1 - what].clear()
                else:
                    heapq.heappush(ready[on[what]], (-to_go_s[what], what))
            for here in range(devices):
                if not idle[here] or not ready[here]:
                    continue
                _, task = heapq.heappop(ready[here])
                end_s = now_s + seconds[task]
                starts_s[task], ends_s[task], idle[here] = now_s, end_s, False
                heapq.heappush(events, (end_s, -1 - here))
                for at in range(first[task], first[task + 1]):
                    other, arrives_s = after[at], end_s + sending_s[at]
                    if arrives_s > arrived_s[other]:
                        arrived_s[other] = arrives_s
                    waiting[other] -= 1
                    if not waiting[other]:
                        if arrived_s[other] > end_s:
                            heapq.heappush(events, (arrived_s[other], other))
                        else:
                            freed[here].append(other)
        return Times(starts_s, ends_s)

    def program_order(self, device_of: Sequence[int], devices: int, link: Link) -> Times:
        """Let each device do its tasks in the order of the program, as `execute` does: forward, then back."""
        device = self.devices(device_of)
        sending_s, on, count = self._sending_s(device, link), device.tolist(), len(self.seconds)
        free_s, arrived_s = [0.0] * devices, [0.0] * count
        starts_s, ends_s = [0.0] * count, [0.0] * count
        first, after, seconds = self._first, self._after_list, self.seconds
        for task, here in enumerate(on):
            starts_s[task] = start_s = max(free_s[here], arrived_s[task])
            ends_s[task] = free_s[here] = end_s = start_s + seconds[task]
            for at in range(first[task], first[task + 1]):
                arrives_s = end_s + sending_s[at]
                if arrives_s > arrived_s[after[at]]:
                    arrived_s[after[at]] = arrives_s
        return Times(starts_s, ends_s)


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
