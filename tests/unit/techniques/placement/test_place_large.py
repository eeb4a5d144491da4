"""100,000 operators: all placed, no device above its limit. `tools.bench techniques-placement` tells the seconds."""

import pytest

from tools.bench.placement import LARGE_DEVICES, LARGE_OPS, large_caps, large_graph
from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.liveness import peaks_bytes
from unifiednn_core.techniques.placement.place import PlacedOps, place
from unifiednn_core.techniques.placement.refine import EFFORT
from unifiednn_core.techniques.placement.simulate import Tasks


def peaks_of(graph: CostGraph, found: PlacedOps) -> tuple[int, ...]:
    """Peaks of both orders of work, simulated anew."""
    tasks, link = Tasks(graph), Link()
    orders = [order(found.device_of, LARGE_DEVICES, link) for order in (tasks.list_schedule, tasks.program_order)]
    peaks = [peaks_bytes(tasks, found.device_of, LARGE_DEVICES, link, times) for times in orders]
    return tuple(map(max, *peaks))


@pytest.mark.parametrize(("count", "effort"), [(1000, 20_000), pytest.param(LARGE_OPS, EFFORT, marks=pytest.mark.long)])
def test_a_large_graph_is_placed_whole_and_never_above_a_limit(count: int, effort: int) -> None:
    graph = large_graph(count)
    caps = large_caps(graph)
    free, capped = (place(graph, limits, effort=effort) for limits in ([None] * LARGE_DEVICES, caps))
    for found in (free, capped):
        assert len(found.device_of) == count and set(found.device_of) == set(range(LARGE_DEVICES))
        assert all(len({found.device_of[number] for number in unit}) == 1 for unit in graph.units)
        assert found.peaks_bytes == peaks_of(graph, found)
    assert all(cap is not None and peak <= cap for peak, cap in zip(capped.peaks_bytes, caps, strict=True))
    assert max(free.peaks_bytes) > max(cap or 0 for cap in caps)  # so the limits bind
    assert free.makespan_s <= 1.25 * free.bound_s and capped.makespan_s <= 1.4 * capped.bound_s
