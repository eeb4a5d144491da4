"""The plan of a placed network: what each device does when, and below it what it holds beside its limit."""

from collections.abc import Sequence

from unifiednn_core.base.units import MIB, memory_text, step_text
from unifiednn_core.techniques.placement.plan import PlacementPlan, PlannedDevice, PlannedTask
from unifiednn_core.views.figures.arrays import single
from unifiednn_core.views.figures.layout import FAINT, Figure, Trace, as_label, figure, layout, scatter
from unifiednn_core.views.figures.palette import sign

MAX_BARS = 600
"""Of all devices; of more tasks, those that follow each other share a bar."""
BACKWARD = 0.45
"""Opacity of backward."""
LANE_PX, MEMORY_PX, FRAME_PX = 30, 130, 80
_MEMORY_SHARE = 0.45


def placement(plan: PlacementPlan) -> Figure:
    """Draw a plan: a lane for each device, seconds to the right, and the memory of each device in MiB below."""
    names = [f"device {number}" for number in range(len(plan.devices))]
    most = max(1, MAX_BARS // max(1, len(plan.devices)))
    drawn = layout(FRAME_PX + MEMORY_PX + LANE_PX * len(names), "placement")
    drawn |= {"barmode": "overlay", "bargap": 0.3, "hovermode": "closest"}
    drawn["xaxis"] |= {
        "title": {"text": "seconds of one step", "font": {"size": 11, "color": FAINT}},
        "range": [0.0, plan.makespan_s or 1.0],
        "anchor": "y2",
    }
    drawn["yaxis"] |= {
        "domain": [_MEMORY_SHARE + 0.08, 1],
        "categoryorder": "array",
        "categoryarray": names[::-1],
        "showgrid": False,
        "fixedrange": True,
    }
    drawn["yaxis2"] = layout(0, "")["yaxis"] | {
        "domain": [0, _MEMORY_SHARE],
        "rangemode": "tozero",
        "ticksuffix": " MiB",
        "anchor": "x",
    }
    drawn["meta"] = {"note": _note(plan)}
    traces: list[Trace] = []
    for number, (name, device) in enumerate(zip(names, plan.devices, strict=True)):
        traces.append(_lane(number, name, joined(device.tasks, most)))
        traces += _memory(number, name, device, plan.makespan_s)
    return figure(traces, drawn)


def joined(tasks: Sequence[PlannedTask], most: int) -> list[tuple[PlannedTask, ...]]:
    """Group tasks that follow each other, of one direction, in about `most` groups at most."""
    size = -(-len(tasks) // most)
    groups: list[tuple[PlannedTask, ...]] = []
    for task in tasks:
        if groups and len(groups[-1]) < size and groups[-1][-1].backward == task.backward:
            groups[-1] += (task,)
        else:
            groups.append((task,))
    return groups


def _note(plan: PlacementPlan) -> str:
    share = plan.makespan_s / plan.bound_s if plan.bound_s else 1.0
    sent = f"{memory_text(plan.sent_bytes)} sent between devices"
    return f"{step_text(plan.makespan_s)} a step, {share:.2f} times what no placement can beat; {sent}"


def _lane(number: int, name: str, groups: Sequence[Sequence[PlannedTask]]) -> Trace:
    busy_s = [sum(task.end_s - task.start_s for task in group) for group in groups]
    widths_s = [group[-1].end_s - group[0].start_s for group in groups]
    shares = [busy / width if width else 1.0 for busy, width in zip(busy_s, widths_s, strict=True)]
    opacity = [share * (BACKWARD if group[0].backward else 1.0) for share, group in zip(shares, groups, strict=True)]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [name] * len(groups),
        "base": single([group[0].start_s for group in groups]),
        "x": single(widths_s),
        "marker": {"color": sign(number).colour, "line": {"width": 0}, "opacity": single(opacity)},
        "customdata": [_text(group) for group in groups],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _text(group: Sequence[PlannedTask]) -> str:
    way = "backward" if group[0].backward else "forward"
    names = group[0].operator if len(group) == 1 else f"{group[0].operator} … {group[-1].operator}"
    seconds = step_text(sum(task.end_s - task.start_s for task in group))
    return f"<b>{as_label(names)}</b>: {way}<br>{seconds}, {memory_text(max(task.alive_bytes for task in group))}"


def _memory(number: int, name: str, device: PlannedDevice, until_s: float) -> list[Trace]:
    colour = sign(number).colour
    starts_s = [0.0, *(task.start_s for task in device.tasks), until_s]
    last = device.tasks[-1].alive_bytes if device.tasks else device.weight_bytes
    held = [device.weight_bytes, *(task.alive_bytes for task in device.tasks), last]
    traces = [
        scatter(
            starts_s,
            [size / MIB for size in held],
            name=name,
            yaxis="y2",
            line={"color": colour, "width": 1.5, "shape": "hv"},
            hovertemplate="%{y:,.0f} MiB<extra></extra>",
        )
    ]
    if device.cap_bytes is not None:
        limit, cap = f"limit of {name}", device.cap_bytes / MIB
        dashed = {"color": colour, "width": 1, "dash": "dash"}
        hover = f"{limit}<extra></extra>"
        traces.append(scatter([0.0, until_s], [cap, cap], name=limit, yaxis="y2", line=dashed, hovertemplate=hover))
    return traces
