"""Slices mapped to devices: the primary ones give each device its first work, the others join where they fit best."""

from collections.abc import Sequence

import numpy as np

from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.slicing import Slices

WINDOWS = 512
"""Parts of the critical path in which the work of each device is counted."""


def mapped(graph: CostGraph, found: Slices, devices: int, link: Link, *, avoid_sending: float = 1.0) -> tuple[int, ...]:
    """Return the device of each operator; units are together.

    A slice runs in a window of time, between what it waits for and what waits for it. It joins the device where the
    work in this window, and what has to be sent to others and from them, take least; what is sent counts
    `avoid_sending` times.
    """
    device_of = np.full(len(graph.ops), -1)
    levels = found.levels
    longest_s = max((levels.weight_s(number) for number in range(len(graph.ops))), default=0.0) or 1.0
    window_of = [min(WINDOWS - 1, int(WINDOWS * start_s / longest_s)) for start_s in levels.before_s]
    load_s = np.zeros((devices, WINDOWS))

    def put(members: Sequence[int], device: int) -> None:
        for number in members:
            device_of[number] = device
            load_s[device, window_of[number]] += graph.op_s(number)

    for device, members in enumerate(found.primary):
        put(members, device)
    for members in found.secondary:
        cost_s = load_s[:, window_of[members[0]] : window_of[members[-1]] + 1].sum(axis=1)
        for number in members:
            for edges, others in ((graph.incoming[number], "source"), (graph.outgoing[number], "target")):
                for edge in edges:
                    other = device_of[edge.source if others == "source" else edge.target]
                    if other >= 0:
                        sending_s = avoid_sending * (link.seconds(edge.size_bytes) + link.seconds(edge.gradient_bytes))
                        cost_s += sending_s
                        cost_s[other] -= sending_s
        put(members, int(cost_s.argmin()))
    return together(graph, device_of.tolist(), devices)


def together(graph: CostGraph, device_of: Sequence[int], devices: int) -> tuple[int, ...]:
    """Bring the operators of each unit to the device that has most of its work."""
    united = list(device_of)
    for unit in graph.units:
        if len(unit) > 1:
            work_s = [0.0] * devices
            for number in unit:
                work_s[device_of[number]] += graph.op_s(number) + 1e-12  # so that operators of no time count, too
            device = max(range(devices), key=lambda one: (work_s[one], -one))
            for number in unit:
                united[number] = device
    return tuple(united)
