"""The plan of a placement: every task once, what is alive within the caps, as JSON and drawn."""

import json

import pytest

from tests.unit.techniques.placement.graphs import random_graph
from unifiednn_core.techniques.placement.place import place, planned
from unifiednn_core.techniques.placement.plan import PlacementPlan


def plan_of(seed: int, most_ops: int = 40) -> PlacementPlan:
    graph = random_graph(seed, most_ops, training=True)
    caps = [int(place(graph, [1 << 60]).peaks_bytes[0] * 0.9), None]
    return planned(graph, place(graph, caps), caps)


@pytest.mark.parametrize("seed", range(4))
def test_each_task_is_planned_once_and_what_is_alive_is_within_the_cap(seed: int) -> None:
    graph, plan = random_graph(seed, 40, training=True), plan_of(seed)
    done = [(task.operator, task.backward) for device in plan.devices for task in device.tasks]
    assert sorted(done) == sorted((op.name, backward) for op in graph.ops for backward in (False, True))
    for device in plan.devices:
        assert all(one.end_s <= other.start_s for one, other in zip(device.tasks, device.tasks[1:], strict=False))
        assert all(task.alive_bytes <= device.peak_bytes for task in device.tasks)
        assert device.cap_bytes is None or device.peak_bytes <= device.cap_bytes
    assert max(task.end_s for device in plan.devices for task in device.tasks) == pytest.approx(plan.makespan_s)
    assert sum(device.work_s for device in plan.devices) == pytest.approx(plan.work_s)
    assert json.loads(plan.to_json())["devices"][0]["cap_bytes"] == plan.devices[0].cap_bytes
