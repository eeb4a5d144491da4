"""`unifiednn simulate`: what each policy would do to jobs of a public trace, on one device. Nothing is trained."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import NOT_AVAILABLE
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, refusing
from unifiednn_core.scheduling.outcome import Outcome, outcome
from unifiednn_core.scheduling.registry import policies
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.scheduling.traces import read_trace
from unifiednn_core.scheduling.workloads import HOUR_S, STATISTICS, at_load, by_time, draw, with_deadlines

_HEADS = (
    Column("policy", no_wrap=True), "mean h", "median h", "p95 h", "slow", "all h", "in time", "Jain", "off by",
)  # fmt: skip
_ABOUT = (
    "Turnaround in hours: mean, median, 95th percentile. Slow: mean of turnaround by duration alone. All: from the "
    "first arrival to the last end. In time: deadlines that hold. Jain's index over owners, of service by service due: "
    "1 is fair. Off by: the most that the share of an owner in the device is off."
)


def simulate_trace(
    trace: Annotated[Path | None, typer.Option(help="Your copy of a trace of Philly, Helios or Alibaba PAI.")] = None,
    statistics: Annotated[str, typer.Option(help=f"Without a trace, draw from: {', '.join(STATISTICS)}.")] = "helios",
    policy: Annotated[list[str] | None, typer.Option(help="A policy, repeatable; by default all.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of jobs, each on one GPU.", min=2, max=10_000)] = 300,
    load: Annotated[float, typer.Option(help="Work offered by the time it takes to arrive.", min=0.01, max=100)] = 0.9,
    turn_s: Annotated[float, typer.Option(help="Turns of policies that take turns by time.", min=1)] = 60,
    slack: Annotated[float, typer.Option(help="Deadlines, as multiples of the durations.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Equal seeds draw equal jobs.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate policies on one device, with jobs of a trace or drawn from fitted statistics of one.

    Arrivals are stretched until they offer the given load.
    """
    with refusing(as_json):
        chosen = {name: by_time(name, turn_s) for name in policy or [known.name for known in policies()]}
        asked = with_deadlines(_jobs(trace, statistics, jobs, load, seed), slack)
        found = {name: outcome(asked, simulate(asked, one)) for name, one in chosen.items()}
    if as_json:
        workload: dict[str, Any] = {"statistics": statistics, "seed": seed} if trace is None else {"trace": str(trace)}
        workload |= {"jobs": len(asked), "load": load, "turn_s": turn_s, "slack": slack}
        texts = {name: str(one) for name, one in chosen.items()}
        figures = {name: {"text": texts[name], **asdict(one)} for name, one in found.items()}
        terminal.print_json({"workload": workload, "policies": figures})
        return
    terminal.print_table(_HEADS, [(name, *_texts(one)) for name, one in found.items()])
    source = f"of {trace}"
    if trace is None:
        share = f"{100 * STATISTICS[statistics].one_gpu_share:.0f} %"
        source = f"drawn from statistics of {statistics}, whose jobs of one GPU are {share} of all"
    terminal.say(f"{len(asked)} jobs {source}, at a load of {load:g}. {_ABOUT}")


def _jobs(trace: Path | None, statistics: str, jobs: int, load: float, seed: int) -> tuple[SimulatedJob, ...]:
    if trace is not None:
        return at_load(read_trace(trace, jobs=jobs), load)
    if statistics not in STATISTICS:
        message, remedy = f"There are no statistics of '{statistics}'.", f"Choose one of: {', '.join(STATISTICS)}."
        raise BadInput.of("Statistics", "--statistics", message, remedy)
    return draw(STATISTICS[statistics], jobs=jobs, load=load, seed=seed)


def _texts(one: Outcome) -> tuple[str, ...]:
    times_s = (one.mean_turnaround_s, one.median_turnaround_s, one.p95_turnaround_s)
    hours = [_short(seconds / HOUR_S) for seconds in (*times_s, one.makespan_s)]
    met = NOT_AVAILABLE if one.deadlines_met is None else f"{100 * one.deadlines_met:.0f} %"
    return (*hours[:3], _short(one.mean_slowdown), hours[3], met, f"{one.jain:.2f}", f"{100 * one.share_error:.0f} %")


def _short(number: float) -> str:
    """Two or three digits that matter, and no more."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"
