"""Makes the plan of a placement by simulating one step."""

from collections.abc import Sequence

from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.place import PlacedOps
from unifiednn_core.techniques.placement.plan import PlacementPlan, PlannedDevice, PlannedTask
from unifiednn_core.techniques.placement.simulate import Tasks, memory_bytes


def planned(
    graph: CostGraph, placement: PlacedOps, caps: Sequence[int | None], link: Link | None = None
) -> PlacementPlan:
    """Make the plan of a placement that `place` found under these caps with this link."""
    tasks, device_of, count = Tasks(graph), placement.device_of, len(graph.ops)
    link = link or Link()
    times = tasks.list_schedule(device_of, len(caps), link)
    alive = memory_bytes(tasks, device_of, len(caps), link, times)
    own: list[list[PlannedTask]] = [[] for _ in caps]
    starts_s, ends_s = times.starts_s, times.ends_s
    for task in sorted(range(len(starts_s)), key=lambda task: (starts_s[task], ends_s[task], task)):
        number = task if task < count else 2 * count - 1 - task
        done = own[device_of[number]]
        size_bytes = int(alive[device_of[number]][len(done)])
        name = graph.ops[number].name
        done.append(PlannedTask(name, task >= count, starts_s[task], ends_s[task], size_bytes))
    weight_bytes = [0] * len(caps)
    for weight in graph.weights:
        weight_bytes[device_of[weight.ops[0]]] += weight.size_bytes
    devices = tuple(
        PlannedDevice(cap, peak, held, sum(one.end_s - one.start_s for one in done), tuple(done))
        for cap, peak, held, done in zip(caps, placement.peaks_bytes, weight_bytes, own, strict=True)
    )
    return PlacementPlan(
        placement.makespan_s,
        placement.program_s,
        placement.bound_s,
        graph.work_s,
        _sent_bytes(graph, device_of),
        devices,
    )


def _sent_bytes(graph: CostGraph, device_of: Sequence[int]) -> int:
    copies: dict[tuple[int, int], int] = {}
    back_bytes = 0
    for edge in graph.edges:
        device = device_of[edge.target]
        if device != device_of[edge.source]:
            copies[edge.source, device] = max(copies.get((edge.source, device), 0), edge.size_bytes)
            back_bytes += edge.gradient_bytes if graph.training else 0
    return sum(copies.values()) + back_bytes
