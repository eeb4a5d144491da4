"""Memory of several runs over time, one line each."""

from collections.abc import Sequence

from unifiednn_core.base.units import MIB
from unifiednn_core.views.figures.arrays import floats, places
from unifiednn_core.views.figures.chips import part_key
from unifiednn_core.views.figures.layout import Figure, as_label, figure, identity, layout, scatter
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import RunView

HEIGHT_PX = 300


def totals(lines: Sequence[tuple[str, str, int, RunView]]) -> Figure:
    """Total memory since the launch of each: label, name of the chip, number of its colour, and the run."""
    traces = []
    for label, chip, number, view in lines:
        known = view.breakdown
        at_s, size_bytes = map(
            floats, (known.at_s, known.total_bytes) if known.at_s else (view.memory.x, view.memory.y)
        )
        if not len(at_s):
            continue
        kept, mark = places(size_bytes), sign(number)
        traces.append(
            scatter(at_s[kept] + view.launch_offset_s, size_bytes[kept] / MIB)
            | {
                "name": as_label(label),
                "uid": identity("total", label),
                "hovertemplate": "%{y:,.0f} MiB",
                "line": {"color": mark.colour, "dash": mark.dash, "width": 1.6},
                "connectgaps": False,
                "meta": {"of": part_key(chip), "kind": "arm"},
            }
        )
    drawn = layout(HEIGHT_PX, ",".join(label for label, *_ in lines))
    drawn["yaxis"] |= {"ticksuffix": " MiB", "rangemode": "tozero"}
    return figure(traces, drawn)
