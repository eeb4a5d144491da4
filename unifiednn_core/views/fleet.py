"""Simulations of a cluster for people: the table of arms, its honest reading, CSV and charts.

An arm is a document of `scheduling.cluster_arms.ArmOutcome`, the workload one of `scheduling.cluster_run.workload`.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unifiednn_core.base.units import duration_text, percent_text
from unifiednn_core.views import wording
from unifiednn_core.views.figures.board import Chart
from unifiednn_core.views.figures.layout import FAINT, Figure, Trace, as_label, figure, layout, scatter
from unifiednn_core.views.figures.palette import sign

ArmDocument = Mapping[str, Any]
HOUR_S = 3600.0
CLOSE = 0.02
"""Figures that differ by less count as equal in a sentence."""
BEST = ("mean_turnaround_s", "median_turnaround_s", "p95_turnaround_s", "p95_slowdown", "p95_wait_s", "makespan_s")
HEADS = {
    "mean_turnaround_s": "mean turnaround",
    "median_turnaround_s": "median",
    "p95_turnaround_s": "p95",
    "p95_slowdown": "p95 slowdown",
    "p95_wait_s": "p95 wait",
    "makespan_s": "makespan",
    "utilisation": "GPUs busy",
    "moves": "moves",
    "lost_gpu_s": "lost GPU time",
    "decisions": "decisions",
    "cpu_s": "CPU seconds",
}
"""Figures of the table with their heads."""
COSTS = frozenset({"decisions", "cpu_s"})
"""Those of the simulation itself."""
PLAIN = ("name", "text", "jobs", "unfinished", "mean_turnaround_s", "median_turnaround_s", "p95_turnaround_s",
         "median_slowdown", "p95_slowdown", "mean_wait_s", "p95_wait_s", "makespan_s", "utilisation", "moves", "deaths",
         "lost_gpu_s", "decisions", "cpu_s")  # fmt: skip
CHART_PX, BAR_PX, BARS_FRAME_PX = 280, 26, 60


@dataclass(frozen=True, slots=True)
class FleetSimulation:
    """A simulation as far as it is."""

    state: Literal["runs", "done", "ended", "refused"]
    """`ended` before all arms were simulated: cancelled, or the server ended."""
    workload: Mapping[str, Any] | None
    """None before the jobs are known."""
    arms: tuple[ArmDocument, ...]
    refusal: str = ""


def title(arm: ArmDocument) -> str:
    """Name of an arm: where its jobs train, the policy, and what more happens."""
    asked = arm["arm"]
    where = "exclusive" if asked["placement"] == "private" else "hybrids"
    more = [word for word in ("moves", "failures") if asked[word]]
    return f"{where}, {' + '.join([asked['policy'], *more])}"


def cell(name: str, arm: ArmDocument) -> str:
    """A figure of an arm as text."""
    value = arm[name]
    if name == "lost_gpu_s" and not value:
        return "0"
    if name == "cpu_s":
        return f"{value:.1f} s"
    if name.endswith("_s"):
        return duration_text(value)
    if name == "utilisation":
        return percent_text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def best(arms: Sequence[ArmDocument]) -> dict[str, float]:
    """The least of each figure, of the arms without failures if there are any."""
    calm = [arm for arm in arms if not arm["arm"]["failures"]] or list(arms)
    return {name: min(arm[name] for arm in calm) for name in BEST} if calm else {}


def csv_text(arms: Sequence[ArmDocument]) -> str:
    """All figures, one row for each arm."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(PLAIN)
    writer.writerows([arm[name] for name in PLAIN] for arm in arms)
    return out.getvalue()


def told_of(workload: Mapping[str, Any]) -> str:
    """What is simulated, as one sentence."""
    request = workload["request"]
    source = f"drawn from statistics of {request['statistics']}"
    if request["trace"]:
        source = f"of {str(request['trace']).rsplit('/', 1)[-1]}"
    hours = f"{workload['gpu_hours']:,.0f} GPU hours submitted in {duration_text(workload['submitted_h'] * HOUR_S)}"
    hosts = wording.count_text(workload["hosts"], "host")
    return f"{workload['jobs']:,} jobs {source}, {hours}, on {workload['gpus']:,} GPUs of {hosts}."


def reading(workload: Mapping[str, Any], arms: Sequence[ArmDocument]) -> list[str]:
    """What the table says, and what it does not: which arm is worse, and what was assumed."""
    calm = [arm for arm in arms if not arm["arm"]["failures"]]
    found = list[str]()
    alone = next((arm for arm in calm if arm["arm"]["placement"] == "private"), None)
    shared = [arm for arm in calm if arm["arm"]["placement"] == "pooled"]
    if shared:
        first = min(shared, key=lambda arm: arm["mean_turnaround_s"])
        found.append(f"The least mean turnaround: {title(first)}, {cell('mean_turnaround_s', first)}.")
    if alone is not None and shared:
        found += _against(alone, shared)
    found += _moves(shared)
    found += _failures(arms)
    lost = max((arm["unfinished"] for arm in arms), default=0)
    if lost:
        found.append(f"{lost:,} jobs never start: no GPU is large enough for them.")
    return found + assumed(workload)


def _against(alone: ArmDocument, shared: Sequence[ArmDocument]) -> list[str]:
    words = {
        "mean_turnaround_s": "mean turnaround",
        "p95_turnaround_s": "p95 turnaround",
        "p95_slowdown": "p95 slowdown",
    }
    found = []
    for name, text in words.items():
        worse = [title(arm) for arm in shared if arm[name] > (1 + CLOSE) * alone[name]]
        if worse:
            found.append(f"Worse {text} than exclusive GPUs: {'; '.join(worse)}.")
    equal = [title(arm) for arm in shared if abs(arm["mean_turnaround_s"] / alone["mean_turnaround_s"] - 1) <= CLOSE]
    if equal:
        found.append(f"No better mean turnaround than exclusive GPUs: {'; '.join(equal)}.")
    return found


def _moves(shared: Sequence[ArmDocument]) -> list[str]:
    plain = {arm["arm"]["policy"]: arm for arm in shared if not arm["arm"]["moves"]}
    pairs = [
        (plain[arm["arm"]["policy"]], arm) for arm in shared if arm["arm"]["moves"] and arm["arm"]["policy"] in plain
    ]
    found = []
    for before, after in pairs:
        if not after["moves"]:
            found.append(f"{title(after)}: nothing ever had to move.")
            continue
        share = after["mean_turnaround_s"] / before["mean_turnaround_s"]
        text = "{arm}: {moves:,} moves, and {share:.2f} times the mean turnaround without them."
        found.append(text.format(arm=title(after), moves=after["moves"], share=share))
    return found


def _failures(arms: Sequence[ArmDocument]) -> list[str]:
    text = "{arm}: failures ended {deaths:,} hybrids and took {time} of GPU time, which was trained again."
    return [
        text.format(arm=title(arm), deaths=arm["deaths"], time=cell("lost_gpu_s", arm)) for arm in arms if arm["deaths"]
    ]


def assumed(workload: Mapping[str, Any]) -> list[str]:
    """What no figure of the table may be taken for."""
    request, gain = workload["request"], workload["gain"]
    known = "Placement knows how long each job takes."
    if request["estimates_off"]:
        known = "Placement is wrong about durations by a factor of {factor:.1f} or more in a third of all cases."
    lines = [known.format(factor=2.718 ** request["estimates_off"])]
    if gain is None:
        lines.append("No network trains faster than alone: the arms differ in order, not in work.")
    else:
        text = "Steps in {lanes} lanes take {slowdown:.2f} times as long each, as measured: {source}."
        lines.append(text.format(lanes=gain["lanes"], slowdown=gain["slowdown"], source=gain["source"]))
    if not request["trace"]:
        lines.append("Durations, hours and owners follow published statistics; memory is assumed.")
    lines.append("Checkpoints cost nothing here, and a start takes no time.")
    return lines


def charts(workload: Mapping[str, Any], arms: Sequence[ArmDocument]) -> list[Chart]:
    """GPUs in use over time; turnaround and slowdown of each arm."""
    turnaround = _bars("turnaround", arms, lambda arm: arm["mean_turnaround_s"] / HOUR_S, "hours")
    slowdown = _bars("slowdown", arms, lambda arm: arm["p95_slowdown"], "times the duration")
    busy = "Share of GPUs in use over time, per arm"
    return [
        Chart("busy", "GPUs busy", _busy(arms), busy, "own", "busy", wide=True),
        Chart("turnaround", "Mean turnaround", turnaround, "Mean turnaround of each arm", "own", "one"),
        Chart("slowdown", "p95 slowdown", slowdown, "Slowdown of each arm", "own", "two"),
    ]


def _busy(arms: Sequence[ArmDocument]) -> Figure:
    drawn = layout(CHART_PX, "fleet-busy")
    drawn["xaxis"] |= {"title": {"text": "hours since the first submission", "font": {"size": 11, "color": FAINT}}}
    drawn["yaxis"] |= {"rangemode": "tozero", "tickformat": ".0%"}
    traces: list[Trace] = []
    for place, arm in enumerate(arms):
        x, y = [at_s / HOUR_S for at_s, _ in arm["busy"]], [share for _, share in arm["busy"]]
        looks = {"color": sign(place).colour, "dash": sign(place).dash, "width": 1.5}
        traces.append(scatter(x, y, name=as_label(title(arm)), line=looks))
    return figure(traces, drawn)


def _bars(name: str, arms: Sequence[ArmDocument], value: Callable[[ArmDocument], float], unit: str) -> Figure:
    names = [as_label(title(arm)) for arm in arms]
    drawn = layout(BARS_FRAME_PX + BAR_PX * len(arms), f"fleet-{name}")
    drawn |= {"hovermode": "closest", "bargap": 0.35}
    drawn["xaxis"] |= {"title": {"text": unit, "font": {"size": 11, "color": FAINT}}, "showgrid": True}
    drawn["yaxis"] |= {"categoryorder": "array", "categoryarray": names[::-1], "fixedrange": True}
    colours = [sign(place).colour for place in range(len(arms))]
    values = [value(arm) for arm in arms]
    bar = {"type": "bar", "orientation": "h", "x": values, "y": names, "marker": {"color": colours},
           "hovertemplate": "%{y}: %{x:,.2f}<extra></extra>"}  # fmt: skip
    return figure([bar], drawn)
