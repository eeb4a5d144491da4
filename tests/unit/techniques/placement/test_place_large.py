"""100,000 operators: all placed, no device above its limit."""

import random

import pytest

from unifiednn_core.techniques.placement.graph import CostGraph, Edge, Link, Op, Weight
from unifiednn_core.techniques.placement.place import EFFORT, PlacedOps, place
from unifiednn_core.techniques.placement.simulate import Tasks, peaks_bytes

LARGE_OPS, LARGE_DEVICES, LARGE_SHARE = 100_000, 4, 0.28
"""A large graph, and the limit of each device as a share of what one device needs: a fair share is 0.25."""
_KIB = 1024


def large_graph(ops: int = LARGE_OPS, seed: int = 0) -> CostGraph:
    """A graph with branches in which every fourth operator has a weight; equal for equal seeds."""
    draw = random.Random(seed)
    made = tuple(
        Op(
            f"op{number}",
            draw.randint(1, 20) * 1e-5,
            draw.randint(0, 30) * 1e-5,
            draw.randint(1, 64) * _KIB,
            keeps_output=draw.random() < 0.3,
        )
        for number in range(ops)
    )
    edges = tuple(
        Edge(source, target, made[source].output_bytes, made[source].output_bytes, kept=draw.random() < 0.5)
        for target in range(1, ops)
        for source in sorted({max(0, target - draw.choice((1, 1, 2, 5, 50))) for _ in range(draw.choice((1, 1, 2)))})
    )
    held = tuple(Weight(f"w{number}", draw.randint(1, 64) * _KIB, (number,)) for number in range(0, ops, 4))
    return CostGraph(made, edges, held)


def large_caps(graph: CostGraph) -> list[int | None]:
    """Limits so tight that a placement without them is above them."""
    return [int(LARGE_SHARE * place(graph, [1 << 62], effort=1).peaks_bytes[0])] * LARGE_DEVICES


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
