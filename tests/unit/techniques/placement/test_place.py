"""Placements: whole, within every cap, as fast as brute force finds them, the same each time."""

from itertools import product

import pytest

from tests.unit.techniques.placement.graphs import KIB, chain, random_graph
from unifiednn_core.base.errors import Infeasible
from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.place import Score, Search, place
from unifiednn_core.techniques.placement.simulate import Tasks

LINK = Link(latency_s=2e-4, bytes_per_s=2e8)
"""As slow, by the operators of the random graphs, that a placement has to choose what to send."""


def best_by_force(graph: CostGraph, caps: list[int | None]) -> Score:
    """Try every assignment of units to devices."""
    search = Search(Tasks(graph), caps, LINK)
    return min(search.score(placed) for placed in product(range(len(caps)), repeat=len(graph.units)))


def cap_of(graph: CostGraph, share: float) -> int:
    """This share of what one device would need for all."""
    return int(place(graph, [1 << 60], LINK).peaks_bytes[0] * share)


@pytest.mark.parametrize(("devices", "most_ops"), [(2, 12), (3, 7)])
@pytest.mark.parametrize("share", [None, 0.9, 0.7, 0.55])
def test_a_placement_is_within_a_fifth_of_brute_force_and_found_wherever_there_is_one(
    devices: int, most_ops: int, share: float | None
) -> None:
    for seed in range(6):
        graph = random_graph(seed, most_ops)
        caps = [None if share is None else cap_of(graph, share)] * devices
        best = best_by_force(graph, caps)
        if best.excess_bytes:
            with pytest.raises(Infeasible):
                place(graph, caps, LINK)
            continue
        found = place(graph, caps, LINK)
        assert found.bound_s <= found.makespan_s * (1 + 1e-9)
        assert best.makespan_s <= found.makespan_s * (1 + 1e-9) and found.makespan_s <= 1.2 * best.makespan_s
        assert all(cap is None or peak <= cap for peak, cap in zip(found.peaks_bytes, caps, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_every_operator_is_placed_once_units_are_together_and_equal_graphs_get_equal_placements(seed: int) -> None:
    graph = random_graph(seed, most_ops=40)
    found = place(graph, [None] * 3, LINK)
    assert len(found.device_of) == len(graph.ops) and set(found.device_of) <= {0, 1, 2}
    assert all(len({found.device_of[number] for number in unit}) == 1 for unit in graph.units)
    assert place(random_graph(seed, most_ops=40), [None] * 3, LINK) == found


def test_a_chain_that_fits_no_device_is_cut_as_seldom_as_possible() -> None:
    graph = chain([0.1] * 12)
    cap = cap_of(graph, 0.75)
    found = place(graph, [cap] * 4, LINK)
    assert len(set(found.device_of)) == 2 and max(found.peaks_bytes) <= cap
    assert found.makespan_s <= 1.01 * graph.work_s


def test_what_cannot_fit_is_refused() -> None:
    graph = chain([1.0] * 4, weight_bytes=100 * KIB)
    with pytest.raises(Infeasible, match="All weights need"):
        place(graph, [120 * KIB] * 2, LINK)
    with pytest.raises(Infeasible, match="have to be together"):
        place(graph, [90 * KIB] * 8, LINK)
    with pytest.raises(Infeasible, match="in the closest one device"):
        place(graph, [220 * KIB] * 2, LINK)
