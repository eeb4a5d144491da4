"""What the command line shows: tables, findings and progress bars for people, JSON for programs."""

import json
import time
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from unifiednn_core.errors import Finding
from unifiednn_core.lifecycle import ENDED
from unifiednn_core.service import FileReport, PolicyCard, Service
from unifiednn_core.units import NOT_AVAILABLE, duration_text, memory_text, percent_text
from unifiednn_core.views.comparison import Comparison, Spread
from unifiednn_core.views.runs import RunView

POLL_S = 0.25
LONGEST_VALUE = 100
RUN_ID_LENGTH = 20
NEWS = ("recovery", "warning", "error", "refused", "defect")

out, err = Console(), Console(stderr=True)


def follow(service: Service, run_id: str, quiet: bool) -> RunView:
    """Wait until a run has ended, with one bar for each sub-model on a terminal; `quiet` prints nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as progress:
        bars: dict[str, TaskID] = {}
        waits_for: str | None = None
        told_until_s = max((event.at_s for event in service.observe(run_id).events), default=0.0)
        while True:
            view = service.observe(run_id)
            if view.waits_for is not None and waits_for is None:
                err.print(f"It waits for {view.waits_for.rstrip('.')}.", markup=False, highlight=False, soft_wrap=True)
            waits_for = view.waits_for
            if not quiet:
                told_until_s = _print_news(view, told_until_s)
            for part in view.submodels:
                if part.name not in bars:
                    bars[part.name] = progress.add_task(part.name, total=part.steps_total, figures="")
                accuracy = "" if part.test_accuracy is None else f", test {percent_text(part.test_accuracy)}"
                figures = f"{part.state}, epoch {part.epochs_done}/{part.epochs}{accuracy}"
                progress.update(bars[part.name], completed=part.steps_done, total=part.steps_total, figures=figures)
            if view.state in ENDED:
                return view
            time.sleep(POLL_S)


def _print_news(view: RunView, since_s: float) -> float:
    """Print what went wrong after `since_s`, and what was done about it; returns the moment of the last event."""
    news = [event for event in view.events if event.at_s > since_s]
    for event in news:
        if event.kind in NEWS:
            err.print(event.message, style="yellow", markup=False, highlight=False, soft_wrap=True)
    return max((event.at_s for event in news), default=since_s)


def print_json(document: object) -> None:
    """Print the one document of `--json`."""
    print(json.dumps(document, indent=2))  # noqa: T201  (nothing else goes to stdout)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings to stderr: severity, field, message, remedy."""
    for finding in findings:
        style = "bold red" if finding.severity == "error" else "yellow"
        text = f"{escape(finding.message)} {escape(finding.remedy)}".rstrip()
        err.print(f"[{style}]{finding.severity}[/] [bold]{escape(finding.field)}[/]: {text}", soft_wrap=True)


def print_result(view: RunView, service: Service) -> None:
    """Print how a run went, one row for each sub-model."""
    table = Table("sub-model", "status", "epochs", "test accuracy", "wait", "service", "turnaround")
    for part in view.submodels:
        table.add_row(
            part.name,
            part.state,
            f"{part.epochs_done}/{part.epochs}",
            percent_text(part.test_accuracy),
            duration_text(part.wait_s),
            duration_text(part.service_s),
            duration_text(part.turnaround_s),
        )
    out.print(table)
    for part in view.submodels:  # below the table, which a narrow terminal would cut them off in
        model = str(service.artifact(view.run_id, part.name)) if part.artifact else f"{part.cause or 'no model'}"
        out.print(f"{part.name}: {escape(model)}", soft_wrap=True)
    memory = f"{memory_text(view.peak_memory_bytes)} ({view.memory_source or 'no source'})"
    out.print(f"{view.run_id}: {view.state}, makespan {duration_text(view.elapsed_s)}, peak memory {memory}")
    if view.cause:
        out.print(escape(f"{view.cause} {view.remedy or ''}"))


def print_comparison(found: Comparison) -> None:
    """Print the figures of each arm, then what they come to."""
    table = Table("arm", "repeats", "peak memory", "makespan", "mean turnaround", "CPU seconds")
    for arm in (found.hybrid, *found.baselines.values()):
        table.add_row(
            arm.mode,
            str(len(arm.run_ids)),
            _median_text(arm.memory_bytes, lambda size: memory_text(int(size))),
            _median_text(arm.makespan_s, duration_text),
            _median_text(arm.mean_turnaround_s, duration_text),
            _median_text(arm.cpu_s, lambda seconds: f"{seconds:.1f} s"),
        )
    out.print(table)
    for mode, verdict in found.verdicts.items():
        out.print(f"[bold]hybrid against {mode}[/]")
        if verdict.withheld_because is not None:
            out.print(f"  withheld: {escape(verdict.withheld_because)}", highlight=False, soft_wrap=True)
        for name, ratio in (
            ("memory", verdict.memory_ratio),
            ("makespan", verdict.makespan_ratio),
            ("mean turnaround", verdict.mean_turnaround_ratio),
            ("CPU seconds", verdict.cpu_seconds_ratio),
            ("GPU seconds", verdict.gpu_seconds_ratio),
        ):
            if ratio is not None:
                spread = f" ({ratio.low:.2f} to {ratio.high:.2f})" if len(ratio.values) > 1 else ""
                out.print(f"  {name}: {ratio.median:.2f} times{spread}", highlight=False)
        same = {True: "yes", False: "no", None: "not known"}[verdict.identical_weights]
        out.print(f"  weights identical: {same}", highlight=False)
        for note in verdict.notes:
            out.print(f"  {escape(note)}", highlight=False, soft_wrap=True)


def _median_text(spread: Spread | None, text: Callable[[float], str]) -> str:
    return NOT_AVAILABLE if spread is None else text(spread.median)


def print_file(report: FileReport) -> None:
    """Print what a file is."""
    table = Table(show_header=False, box=None)
    table.add_row("kind", report.kind)
    table.add_row("format", report.format or "unknown")
    table.add_row("size", memory_text(report.size_bytes))
    table.add_row("sha256", Text(report.sha256, overflow="fold"))
    for name, value in report.facts.items():
        if name != "preview":  # is for the pages
            table.add_row(name.replace("_", " "), escape(_short(value)))
    out.print(table)


def print_policies(cards: Sequence[PolicyCard]) -> None:
    """Print what each policy does and what can be set."""
    table = Table("policy", "what it does", "parameters")
    for card in cards:
        parameters = "\n".join(f"{part.name} = {part.default} ({part.valid})" for part in card.parameters)
        table.add_row(card.name, card.summary, escape(parameters) or "none")
    out.print(table)


def print_runs(views: Sequence[RunView]) -> None:
    """Print a list of runs."""
    if not views:
        out.print("There are no runs yet. Start one with: unifiednn train sample_models/demo.json")
        return
    table = Table(
        Column("run", no_wrap=True, min_width=RUN_ID_LENGTH),
        "name",
        "mode",
        "status",
        "policy",
        "device",
        "progress",
        "elapsed",
    )
    for view in views:
        progress, elapsed = f"{100 * view.progress:.0f} %", duration_text(view.elapsed_s)
        table.add_row(
            view.run_id, escape(view.name), view.mode, view.state, view.policy, view.device, progress, elapsed
        )
    out.print(table)


def run_summary(view: RunView) -> dict[str, object]:
    """One run in the list of `runs --json`."""
    return {
        "run_id": view.run_id,
        "name": view.name,
        "mode": view.mode,
        "status": view.state.value,
        "policy": view.policy,
        "device": view.device,
        "progress": view.progress,
        "created_at_s": view.created_at_s,
        "elapsed_s": view.elapsed_s,
    }


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
