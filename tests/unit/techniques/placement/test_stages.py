"""Consecutive operators on each device: as balanced as any partition, within the memory of each device."""

from itertools import combinations

import pytest

from tests.unit.techniques.placement.graphs import KIB, chain
from unifiednn_core.techniques.placement.graph import Link
from unifiednn_core.techniques.placement.place import consecutive

FREE = Link(latency_s=0.0, bytes_per_s=1e18)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_the_slowest_device_is_that_of_the_best_partition(devices: int) -> None:
    seconds = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    found = consecutive(chain(seconds), [None] * devices, FREE)
    best = min(
        max(sum(seconds[first:behind]) for first, behind in zip((0, *at), (*at, 8), strict=True))
        for count in range(devices)
        for at in combinations(range(1, 8), count)
    )
    assert found is not None and list(found) == sorted(found)
    each = [sum(s for s, device in zip(seconds, found, strict=True) if device == one) for one in range(devices)]
    assert max(each) == best


def test_a_cap_moves_the_cut_and_nothing_is_found_where_nothing_fits() -> None:
    graph = chain([1.0] * 8)
    half = (0, 0, 0, 0, 1, 1, 1, 1)
    needed = next(size for size in range(0, 999 * KIB, KIB) if consecutive(graph, [size, None], FREE) == half)
    assert consecutive(graph, [needed - KIB, None], FREE) == (0, 0, 0, 1, 1, 1, 1, 1)
    assert consecutive(graph, [needed // 2] * 2, FREE) is None


def test_a_slow_link_counts_as_time_of_the_device_that_receives() -> None:
    graph = chain([1.0] * 4)
    assert consecutive(graph, [None] * 4, Link(latency_s=20.0, bytes_per_s=1e9)) == (0, 0, 0, 0)
    assert consecutive(graph, [None] * 4, FREE) == (0, 1, 2, 3)
