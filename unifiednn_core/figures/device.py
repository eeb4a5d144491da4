"""How busy a GPU was, and what it drew."""

from unifiednn_core.figures.arrays import floats, pack, places
from unifiednn_core.figures.layout import ACCENT, FAINT, Figure, axis_title, layout, unavailable
from unifiednn_core.views.runs import RunView

HEIGHT_PX, MAX_INSTANTS = 150, 600


def device(view: RunView) -> Figure:
    """Utilisation and power of the GPU."""
    figure_layout = layout("GPU", "utilisation, and power in grey", HEIGHT_PX, view.run_id)
    if not view.utilisation.x and not view.power_w.x:
        return unavailable({"data": [], "layout": figure_layout}, "Utilisation and power are not available.")
    traces = []
    for series, axis, name, unit, colour in (
        (view.utilisation, "y", "utilisation", ".0%", ACCENT),
        (view.power_w, "y2", "power", ",.0f", FAINT),
    ):
        kept = places(floats(series.y), MAX_INSTANTS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": pack(floats(series.x)[kept]),
                "y": pack(floats(series.y)[kept]),
                "yaxis": axis,
                "name": name,
                "line": {"color": colour, "width": 1.4, "dash": "solid" if axis == "y" else "2px,2px"},
                "hovertemplate": f"%{{y:{unit}}}{' W' if axis == 'y2' else ''}",
            }
        )
    figure_layout["yaxis"] |= {"tickformat": ".0%", "range": [0, 1.02], "nticks": 4}
    figure_layout["yaxis2"] = figure_layout["yaxis"] | {
        "overlaying": "y", "side": "right", "tickformat": ",.0f", "ticksuffix": " W", "range": None,
        "rangemode": "tozero", "showgrid": False,
    }  # fmt: skip
    figure_layout["xaxis"] |= {"title": axis_title("seconds since the start"), "rangemode": "tozero"}
    return {"data": traces, "layout": figure_layout}
