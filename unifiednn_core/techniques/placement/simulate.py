"""What a placement takes: when each operator runs, and the most memory on each device. A simulation; nothing runs.

A task is the forward of an operator (its number) or its backward (its number plus the number of operators). A device
does one task at a time. Tensors travel beside the work, each once to a device that needs it.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.techniques.placement.graph import CostGraph, Edge, Link


@dataclass(frozen=True, slots=True)
class Times:
    """When each task starts and ends, in seconds."""

    starts_s: Sequence[float]
    ends_s: Sequence[float]

    @property
    def makespan_s(self) -> float:
        """Until the last task has ended."""
        return max(self.ends_s, default=0.0)


def list_schedule(graph: CostGraph, device_of: Sequence[int], devices: int, link: Link) -> Times:
    """Let each device take, of the tasks whose tensors are there, the one with the longest way to go."""
    count, tasks = len(graph.ops), _task_count(graph)
    seconds, to_go_s = _seconds(graph), _ways_to_go_s(graph, device_of, link)
    waiting, arrived_s = _waiting_for(graph), [0.0] * tasks
    starts_s, ends_s = [0.0] * tasks, [0.0] * tasks
    ready: list[list[tuple[float, int]]] = [[] for _ in range(devices)]
    idle = [True] * devices
    events: list[tuple[float, int]] = [(0.0, task) for task in range(tasks) if not waiting[task]]
    while events:  # a task whose last tensor arrived, or -1 - device for a device that is done
        now_s, touched = events[0][0], set()
        while events and events[0][0] == now_s:
            _, what = heapq.heappop(events)
            if what < 0:
                device = -1 - what
                idle[device] = True
            else:
                device = device_of[what % count]
                heapq.heappush(ready[device], (-to_go_s[what], what))
            touched.add(device)
        for device in sorted(touched):
            if not idle[device] or not ready[device]:
                continue
            _, task = heapq.heappop(ready[device])
            end_s = now_s + seconds[task]
            starts_s[task], ends_s[task], idle[device] = now_s, end_s, False
            heapq.heappush(events, (end_s, -1 - device))
            for after, at_s in _sent(graph, device_of, link, task, end_s):
                arrived_s[after] = max(arrived_s[after], at_s)
                waiting[after] -= 1
                if not waiting[after]:
                    heapq.heappush(events, (arrived_s[after], after))
    return Times(starts_s, ends_s)


def program_order(graph: CostGraph, device_of: Sequence[int], devices: int, link: Link) -> Times:
    """Let each device do its tasks in the order of the program, as `execute` does: forward, then back."""
    count, tasks = len(graph.ops), _task_count(graph)
    seconds, free_s, arrived_s = _seconds(graph), [0.0] * devices, [0.0] * tasks
    starts_s, ends_s = [0.0] * tasks, [0.0] * tasks
    for task in (*range(count), *reversed(range(count, tasks))):
        device = device_of[task % count]
        starts_s[task] = max(free_s[device], arrived_s[task])
        ends_s[task] = free_s[device] = starts_s[task] + seconds[task]
        for after, at_s in _sent(graph, device_of, link, task, ends_s[task]):
            arrived_s[after] = max(arrived_s[after], at_s)
    return Times(starts_s, ends_s)


def _task_count(graph: CostGraph) -> int:
    return len(graph.ops) * (2 if graph.training else 1)


def _seconds(graph: CostGraph) -> list[float]:
    return [op.forward_s for op in graph.ops] + [op.backward_s for op in graph.ops if graph.training]


def _waiting_for(graph: CostGraph) -> list[int]:
    """For how many tensors each task waits; a backward also waits for its forward."""
    forward = [len(edges) for edges in graph.incoming]
    if not graph.training:
        return forward
    return forward + [1 + sum(1 for edge in edges if edge.gradient_bytes) for edges in graph.outgoing]


def _sent(graph: CostGraph, device_of: Sequence[int], link: Link, task: int, end_s: float) -> list[tuple[int, float]]:
    """List tasks that wait for this one, each with the second at which they have its result."""
    count = len(graph.ops)
    if task < count:
        here = device_of[task]
        found = [
            (edge.target, end_s if device_of[edge.target] == here else end_s + link.seconds(edge.size_bytes))
            for edge in graph.outgoing[task]
        ]
        return [*found, (count + task, end_s)] if graph.training else found
    here = device_of[task - count]
    return [
        (count + edge.source, end_s if device_of[edge.source] == here else end_s + link.seconds(edge.gradient_bytes))
        for edge in graph.incoming[task - count]
        if edge.gradient_bytes
    ]


def _ways_to_go_s(graph: CostGraph, device_of: Sequence[int], link: Link) -> list[float]:
    """Seconds from the start of each task to the end of all that waits for it, with what is sent on the way."""
    count = len(graph.ops)
    to_go_s = [0.0] * _task_count(graph)
    seconds = _seconds(graph)
    for task in (*range(count, len(to_go_s)), *reversed(range(count))):
        after = _sent(graph, device_of, link, task, 0.0)
        to_go_s[task] = seconds[task] + max((at_s + to_go_s[other] for other, at_s in after), default=0.0)
    return to_go_s


def peaks_bytes(graph: CostGraph, device_of: Sequence[int], devices: int, link: Link, times: Times) -> tuple[int, ...]:
    """Return the most memory that is alive on each device at these times: weights, activations, gradients, copies."""
    return tuple(int(sizes.max(initial=0)) for sizes in memory_bytes(graph, device_of, devices, link, times))


def memory_bytes(
    graph: CostGraph, device_of: Sequence[int], devices: int, link: Link, times: Times
) -> list[NDArray[np.int64]]:
    """Return what is alive on each device during each of its tasks, in the order in which it does them."""
    memory = _Memory(graph, device_of, devices, link, times)
    for weight in graph.weights:
        memory.weights[device_of[weight.ops[0]]] += weight.size_bytes
    for owner, members in graph.storages().items():
        memory.add_storage(owner, members)
    if graph.training:
        for number, op in enumerate(graph.ops):
            memory.add_saved(number, op.saved_bytes)
            memory.add_gradient(number)
    return memory.totals()


class _Memory:
    """Collects what is alive from a task of a device to another one."""

    def __init__(self, graph: CostGraph, device_of: Sequence[int], devices: int, link: Link, times: Times):
        self._graph, self._device_of, self._link, self._times = graph, device_of, link, times
        self._count = len(graph.ops)
        self._place = [0] * len(times.starts_s)
        self._starts_s: list[list[float]] = [[] for _ in range(devices)]
        # zero-second tasks that start at once run in the order of the program
        order = sorted(range(len(times.starts_s)), key=lambda task: (times.starts_s[task], times.ends_s[task], task))
        for task in order:
            starts_s = self._starts_s[device_of[task % self._count]]
            self._place[task] = len(starts_s)
            starts_s.append(times.starts_s[task])
        self._changes = [np.zeros(len(starts_s) + 1, np.int64) for starts_s in self._starts_s]
        self.weights = [0] * devices

    def totals(self) -> list[NDArray[np.int64]]:
        """Sum it up: bytes at each task of each device."""
        return [
            np.cumsum(changes)[:-1] + weights if len(changes) > 1 else np.array([weights], np.int64)
            for changes, weights in zip(self._changes, self.weights, strict=True)
        ]

    def add_storage(self, owner: int, members: Sequence[int]) -> None:
        """Add the result of `owner`, which `members` share, where it was made and where copies of it are read."""
        graph, here = self._graph, self._device_of[owner]
        until = self._place[owner]
        for member in members:
            op, readers = graph.ops[member], list[Edge]()
            until = max(until, self._place[member])
            if graph.training and op.keeps_output:
                until = max(until, self._place[self._count + member])
            copies: dict[int, list[Edge]] = {}
            for edge in graph.outgoing[member]:
                device = self._device_of[edge.target]
                (readers if device == here else copies.setdefault(device, [])).append(edge)
            until = max(until, self._last_read(readers))
            sent_s = self._times.ends_s[member]
            for device, edges in copies.items():
                size_bytes = max(edge.size_bytes for edge in edges)
                until = max(until, self._before(here, sent_s + self._link.seconds(size_bytes)))
                self._add(device, min(self._at(device, sent_s), self._place[edges[0].target]), self._last_read(edges),
                          size_bytes)  # fmt: skip
        self._add(here, self._place[owner], until, graph.ops[owner].output_bytes)

    def add_saved(self, number: int, size_bytes: int) -> None:
        """Add what an operator keeps for its backward beside its inputs and its result."""
        if size_bytes:
            self._add(self._device_of[number], self._place[number], self._place[self._count + number], size_bytes)

    def add_gradient(self, number: int) -> None:
        """Add the gradient of a result, from the first backward that adds to it until its own backward."""
        here, own = self._device_of[number], self._place[self._count + number]
        first, size_bytes = own, 0
        for edge in self._graph.outgoing[number]:
            if not edge.gradient_bytes:
                continue
            reader = self._count + edge.target
            device, size_bytes = self._device_of[edge.target], max(size_bytes, edge.gradient_bytes)
            if device == here:
                first = min(first, self._place[reader])
                continue
            sent_s = self._times.ends_s[reader]
            first = min(first, self._at(here, sent_s))
            arrived_s = sent_s + self._link.seconds(edge.gradient_bytes)
            self._add(device, self._place[reader], self._before(device, arrived_s), edge.gradient_bytes)
        self._add(here, first, own, size_bytes)

    def _last_read(self, edges: Sequence[Edge]) -> int:
        """Place of the last task that reads along these edges, which all lead to one device."""
        last = 0
        for edge in edges:
            last = max(last, self._place[edge.target])
            if self._graph.training and edge.kept:
                last = max(last, self._place[self._count + edge.target])
        return last

    def _at(self, device: int, second: float) -> int:
        """Place of the task that a device does at this second or did last before it."""
        return max(0, bisect_right(self._starts_s[device], second) - 1)

    def _before(self, device: int, second: float) -> int:
        """Place of the last task that a device starts before this second."""
        return max(0, bisect_left(self._starts_s[device], second) - 1)

    def _add(self, device: int, first: int, last: int, size_bytes: int) -> None:
        changes = self._changes[device]
        changes[first] += size_bytes
        changes[last + 1] -= size_bytes
