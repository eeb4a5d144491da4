"""Consecutive stages: as balanced as any partition at the same cuts, within the memory of each device."""

from itertools import combinations

import pytest

from tests.unit.techniques.placement.graphs import KIB, chain, random_graph
from unifiednn_core.base.errors import Infeasible
from unifiednn_core.techniques.placement.graph import Link
from unifiednn_core.techniques.placement.stages import crossing, cuts, stages


def seconds_of(first: int, behind: int, seconds: list[float]) -> float:
    return 3 * sum(seconds[first:behind])


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_the_slowest_stage_is_that_of_the_best_partition(devices: int) -> None:
    seconds = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    found = stages(chain(seconds), devices)
    best = min(
        max(seconds_of(first, behind, seconds) for first, behind in zip((0, *at), (*at, 8), strict=True))
        for count in range(devices)
        for at in combinations(range(1, 8), count)
    )
    assert max(stage.seconds for stage in found) == pytest.approx(best)
    assert [number for stage in found for number in range(stage.first, stage.last + 1)] == list(range(8))
    assert sum(stage.seconds for stage in found) == pytest.approx(3 * sum(seconds))


def test_a_cap_holds_and_what_does_not_fit_is_refused() -> None:
    graph = chain([1.0] * 8)
    free = stages(graph, 2)
    assert [stage.last for stage in free] == [3, 7]
    tight = [free[0].peak_bytes - KIB, None]
    capped = stages(graph, 2, tight)
    assert capped[0].peak_bytes <= tight[0] < free[0].peak_bytes and capped[0].last == 2
    with pytest.raises(Infeasible, match="as consecutive stages") as refused:
        stages(graph, 2, [free[0].peak_bytes // 2] * 2)
    assert refused.value.missing_bytes > 0
    with pytest.raises(Infeasible):
        stages(graph, 2, [free[0].peak_bytes] * 2, in_flight=[2, 1])


def test_a_slow_link_counts_as_time_of_the_stage_that_receives() -> None:
    slow = Link(latency_s=20.0, bytes_per_s=1e9)
    assert len(stages(chain([1.0] * 4), 4, link=slow)) == 1
    assert len(stages(chain([1.0] * 4), 4)) == 4


@pytest.mark.parametrize("seed", range(40))
def test_only_the_tensors_of_a_cut_cross_it_and_no_unit_is_torn(seed: int) -> None:
    graph = random_graph(seed)
    for cut in cuts(graph, 2):
        sent = {edge.source for edge in graph.edges if edge.source < cut.before <= edge.target and edge.size_bytes}
        assert sent == set(crossing(graph, cut.before)) and len(sent) == cut.tensors <= 2
        assert all((unit[0] < cut.before) == (unit[-1] < cut.before) for unit in graph.units)
