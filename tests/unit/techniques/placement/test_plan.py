"""The plan of a placement: every task once, what is alive within the caps, as JSON and drawn."""

import json

import plotly.graph_objects as go
import pytest

from tests.unit.techniques.placement.graphs import random_graph
from tests.unit.views.reading import unpack
from unifiednn_core.techniques.placement.place import place
from unifiednn_core.techniques.placement.plan import PlacementPlan, PlannedDevice, PlannedTask
from unifiednn_core.techniques.placement.planning import planned
from unifiednn_core.views.figures.placement import MAX_BARS, placement


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


def test_the_drawing_has_a_lane_for_each_device_its_memory_and_its_limit() -> None:
    plan = plan_of(1)
    document = placement(plan)
    assert len(go.Figure(document).data) == len(document["data"]) == 5
    lanes = [trace for trace in document["data"] if trace["type"] == "bar"]
    for lane, device in zip(lanes, plan.devices, strict=True):
        assert unpack(lane["x"]).sum() == pytest.approx(device.work_s, rel=1e-5)
    assert "a step" in document["layout"]["meta"]["note"]


def test_many_operators_share_bars() -> None:
    tasks = [PlannedTask(f"op{at}", at >= 5000, at * 1e-3, (at + 1) * 1e-3, 1) for at in range(10_000)]
    device = PlannedDevice(None, 1, 0, 10.0, tuple(tasks))
    document = placement(PlacementPlan(10.0, 10.0, 10.0, 10.0, 0, (device,)))
    assert MAX_BARS // 2 < len(document["data"][0]["y"]) <= MAX_BARS + 2
    assert unpack(document["data"][0]["x"]).sum() == pytest.approx(10.0, rel=1e-4)
    document = placement(plan_of(0))
    assert all(len(trace["y"]) > 1 for trace in document["data"])
