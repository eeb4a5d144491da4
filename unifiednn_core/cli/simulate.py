"""`unifiednn simulate`: what each policy would do to a spec, or to jobs of a public trace. Nothing is trained."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Column

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import NOT_AVAILABLE, memory_text
from unifiednn_core.cli import cluster, terminal
from unifiednn_core.cli.shared import AsJson, opened, refusing
from unifiednn_core.scheduling.cluster import CHECKPOINT_S
from unifiednn_core.scheduling.cluster_arms import TURN_S
from unifiednn_core.scheduling.cluster_run import MOST_GPUS, MOST_JOBS, ClusterRequest
from unifiednn_core.scheduling.outcome import Outcome, outcome
from unifiednn_core.scheduling.registry import policies, policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.scheduling.traces import read_trace
from unifiednn_core.scheduling.workloads import HOUR_S, STATISTICS, at_load, by_time, draw, with_deadlines
from unifiednn_core.spec.run import load_run
from unifiednn_core.views.estimates import Basis
from unifiednn_core.views.figures.forecast import gantt_text, seconds_text
from unifiednn_core.views.forecast import PolicyForecast, best

_HEADS = (
    Column("policy", no_wrap=True), "mean h", "median h", "p95 h", "slow", "all h", "in time", "Jain", "off by",
)  # fmt: skip
_ABOUT = (
    "Turnaround in hours: mean, median, 95th percentile. Slow: mean of turnaround by duration alone. All: from the "
    "first arrival to the last end. In time: deadlines that hold. Jain's index over owners, of service by service due: "
    "1 is fair. Off by: the most that the share of an owner in the device is off."
)


BASES: dict[Basis, str] = {
    "measured": "Seconds are as measured in earlier trainings here.",
    "timed": "Seconds are as the check timed a few steps of each.",
    "relative": "Not measured: times are percent of all work, by weights and batch size.",
}


def simulate_policies(
    spec: Annotated[Path | None, typer.Argument(help="Run spec (JSON). Without one: jobs of a trace.")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Your copy of a trace of Philly, Helios or Alibaba PAI; with --gpus also our CSV."),
    ] = None,
    statistics: Annotated[str, typer.Option(help=f"Without a trace, draw from: {', '.join(STATISTICS)}.")] = "helios",
    policy: Annotated[list[str] | None, typer.Option(help="A policy, repeatable; by default all.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of jobs: 300, or 30 for each GPU of a cluster.", min=2, max=MOST_JOBS)
    ] = None,
    load: Annotated[
        float | None, typer.Option(help="Work offered by the time it takes to arrive: 0.9, or 1.2.", min=0.01, max=100)
    ] = None,
    turn_s: Annotated[
        float | None, typer.Option(help="Turns of policies that take turns by time: 60, or 600.", min=1)
    ] = None,
    slack: Annotated[float, typer.Option(help="Deadlines, as multiples of the durations.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Equal seeds draw equal jobs.", min=0)] = 0,
    gpus: Annotated[int | None, typer.Option(help="Simulate a cluster of so many GPUs.", min=1, max=MOST_GPUS)] = None,
    gpu_gib: Annotated[float, typer.Option(help="Memory of each GPU of a cluster.", min=1)] = 80,
    kind: Annotated[
        list[str] | None, typer.Option(help="GPUs of a kind, repeatable, such as H100:600:80 (name, number, GiB).")
    ] = None,
    gpus_per_host: Annotated[int, typer.Option(help="GPUs of each host.", min=1)] = 8,
    placement: Annotated[
        Literal["both", "exclusive", "pooled"], typer.Option(help="exclusive: a GPU each; pooled: hybrids.")
    ] = "both",
    moves: Annotated[
        Literal["on", "off"], typer.Option(help="With --policy: let sub-models move to GPUs that become free.")
    ] = "off",
    failures: Annotated[float | None, typer.Option(help="Mean hours between two failures of a GPU.", min=0.1)] = None,
    host_failures: Annotated[
        float | None, typer.Option(help="Mean hours between two failures of a host.", min=0.1)
    ] = None,
    checkpoint_s: Annotated[
        float, typer.Option(help="Seconds between checkpoints in a cluster.", min=1)
    ] = CHECKPOINT_S,
    several: Annotated[float, typer.Option(help="Share of drawn jobs that claim 2 to 8 GPUs.", min=0, max=1)] = 0,
    estimates_off: Annotated[
        float,
        typer.Option(help="How wrong placement is about durations: 0 knows them.", min=0, max=5),
    ] = 0,
    gains: Annotated[
        bool, typer.Option("--gains", help="Let lanes train faster where that was measured: on CPUs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate policies: what each would do to the sub-models of a spec, with the seconds that are known here.

    Without a spec, jobs of a trace, or drawn from fitted statistics of one, arrive at one device. Arrivals are
    stretched until they offer the given load. With --gpus or --kind they arrive at a cluster: placement, policies,
    moves and failures. A CSV of your own has the columns submitted_s and duration_s, and may have memory_bytes,
    kept_bytes, owner, gpus, kind and priority; its moments stay as they are without --load.
    """
    if spec is not None:
        _simulate_spec(spec, policy or [], as_json)
        return
    if gpus is not None or kind:
        file = None if trace is None or str(trace) in ("statistics", *STATISTICS) else trace
        named = str(trace) if str(trace) in STATISTICS else statistics
        count = gpus or 1
        request = ClusterRequest(
            gpus=count, gpu_gib=gpu_gib, kinds=tuple(kind or ()), gpus_per_host=gpus_per_host,
            trace=None if file is None else str(file), statistics=named,
            jobs=jobs or (MOST_JOBS if file or kind else min(cluster.MOST_JOBS, cluster.JOBS_BY_GPU * count)),
            load=load if load or file else cluster.LOAD, seed=seed, several=several, policies=tuple(policy or ()),
            placements=("exclusive", "pooled") if placement == "both" else (placement,), moves=moves == "on",
            failure_h=failures, host_failure_h=host_failures, checkpoint_s=checkpoint_s, estimates_off=estimates_off,
            gains=gains, turn_s=turn_s or TURN_S,
        )  # fmt: skip
        cluster.simulate_cluster(request, as_json=as_json)
        return
    jobs, load, turn_s = jobs or 300, load or 0.9, turn_s or 60
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


def _simulate_spec(spec: Path, names: Sequence[str], as_json: bool) -> None:
    with opened(as_json) as service:
        asked, base = load_run(spec), spec.resolve().parent
        for name in names:
            policy_named(name, {})
        with terminal.checking(quiet=as_json) as tell:
            report = service.runs.check(asked, base, on_progress=tell)
        if report.has_errors:
            raise BadInput([finding for finding in report.findings if finding.severity == "error"])
        whole = service.runs.forecast(asked, report)
    made = [one for one in whole if not names or one.policy in names]
    if as_json:
        terminal.print_json({"basis": made[0].basis, "policies": {one.policy: one.document for one in made}})
        return
    told, least = seconds_text(made[0]), best(whole)

    def marked(one: PolicyForecast, figure: str, words: str) -> str:
        return f"{words}*" if one.policy in least[figure] else words

    parts = list(made[0].finish_s)
    heads: tuple[Column | str, ...] = (Column("policy", no_wrap=True), *parts, "mean", "all", "fair", "peak")
    rows = [
        (
            one.policy,
            *(told(one.finish_s[part]) for part in parts),
            marked(one, "mean_turnaround_s", told(one.mean_turnaround_s)),
            marked(one, "makespan_s", told(one.makespan_s)),
            marked(one, "fairness", f"{one.fairness:.2f}"),
            marked(one, "peak_bytes", memory_text(one.peak_bytes)),
        )
        for one in made
    ]
    terminal.print_table(heads, rows)
    terminal.say(f"To the finish of each, on average, and of all; * is best. {BASES[made[0].basis]}")
    terminal.say("Fair is Jain's index of the speed that each gets: 1 if all are slowed down alike.")
    for one in made if names else made[:1]:
        terminal.say(f"{one.policy_text} (# holds the device, + steps beside, . waits):")
        for line in gantt_text(one):
            terminal.say(line)


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
