"""Terminal output: tables, findings and progress bars for people, JSON for programs.

Names come from strangers: `say` and `print_table` show them visibly, without markup, emoji or escape sequences.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from unifiednn_core.base.errors import Finding
from unifiednn_core.base.units import NOT_AVAILABLE, duration_text, memory_text, percent_text
from unifiednn_core.base.visible import visible
from unifiednn_core.preflight.report import FileReport, SubModelReport, Tell, untold
from unifiednn_core.scheduling.registry import PolicyCard
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.spec.sweep import members_by_sweep
from unifiednn_core.views.comparison import Comparison, Spread
from unifiednn_core.views.placement import device_line
from unifiednn_core.views.report import cards
from unifiednn_core.views.runs import RunView
from unifiednn_core.views.wording import device_text

POLL_S = 0.25
LONGEST_VALUE = 100
RUN_ID_LENGTH = 20
NEWS = ("recovery", "warning", "error", "refused", "defect")

out, err = Console(emoji=False), Console(stderr=True, emoji=False)


def follow(service: Service, run_id: str, quiet: bool, until: Collection[State] = ENDED) -> RunView:
    """Wait until a run has ended, with one progress bar per sub-model on a terminal; `quiet` prints nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as progress:
        bars: dict[str, TaskID] = {}
        waits_for: str | None = None
        seen_until_s = max((event.at_s for event in service.runs.observe(run_id).events), default=0.0)
        while True:
            view = service.runs.observe(run_id)
            if view.waits_for is not None and waits_for is None:
                say(f"It waits for {view.waits_for.rstrip('.')}.", to=err)
            waits_for = view.waits_for
            news = [event for event in view.events if event.at_s > seen_until_s]
            seen_until_s = max((event.at_s for event in news), default=seen_until_s)
            for event in news:
                if event.kind in NEWS and not quiet:
                    say(event.message, to=err, style="yellow")
            for part in view.submodels:
                if part.name not in bars:
                    bars[part.name] = progress.add_task(part.name, total=part.steps_total, figures="")
                accuracy = "" if part.test_accuracy is None else f", test {percent_text(part.test_accuracy)}"
                figures = f"{part.state}, epoch {part.epochs_done}/{part.epochs}{accuracy}"
                progress.update(bars[part.name], completed=part.steps_done, total=part.steps_total, figures=figures)
            if view.state in until:
                return view
            time.sleep(POLL_S)


@contextmanager
def checking(*, quiet: bool = False) -> Iterator[Tell]:
    """Show on a terminal what a check does, as long as the block runs; elsewhere, and if `quiet`, nothing."""
    if quiet or not err.is_terminal:
        yield untold
        return
    with err.status("Checking…") as status:
        yield lambda progress: status.update(Text(visible(progress.line)))


def say(text: str, *, to: Console = out, style: str = "") -> None:
    """Print one line without highlighting or wrapping."""
    to.print(Text(visible(text), style), soft_wrap=True)


def print_table(columns: Iterable[Column | str], rows: Iterable[Iterable[str | tuple[str, ...]]]) -> None:
    """Print rows as a table; a cell is one line, or a tuple of lines."""
    table = Table(*columns)
    for row in rows:
        lines = (cell if isinstance(cell, tuple) else (cell,) for cell in row)
        table.add_row(*(Text("\n".join(map(visible, cell))) for cell in lines))
    out.print(table)


def print_json(document: object) -> None:
    """Print the one document of `--json`."""
    print(json.dumps(document, indent=2))  # noqa: T201  (nothing else goes to stdout)


def print_found(
    found: Sequence[Any],
    as_json: bool,
    columns: Iterable[Column | str],
    rows: Iterable[Iterable[str | tuple[str, ...]]],
) -> None:
    """Print frozen values as JSON, or their rows as a table."""
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(columns, rows)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings to stderr: severity, field, message, remedy."""
    for finding in findings:
        style = "bold red" if finding.severity == "error" else "yellow"
        text = visible(f"{finding.message} {finding.remedy}".rstrip(), "\n")
        parts = ((finding.severity, style), " ", (visible(finding.field), "bold"), f": {text}")
        err.print(Text.assemble(*parts), soft_wrap=True)


def print_sweeps(spec: RunSpec) -> None:
    """Print to stderr what each sweep of a spec expands into."""
    for sweep, members in members_by_sweep(spec.submodels).items():
        say(f"{sweep} is a sweep of {len(members)} sub-models: {', '.join(members)}", to=err)


def print_devices(reports: Mapping[str, SubModelReport]) -> None:
    """Print what each device of a placed sub-model needs."""
    for name, report in reports.items():
        if text := device_line(report):
            say(f"{name}: {text}.")


def print_result(view: RunView, service: Service) -> None:
    """Print the result of a run, one row per sub-model."""
    columns = ("sub-model", "status", "epochs", "test accuracy", "wait", "service", "turnaround")
    rows = (
        (
            part.name,
            part.state,
            f"{part.epochs_done}/{part.epochs}",
            percent_text(part.test_accuracy),
            *map(duration_text, (part.wait_s, part.service_s, part.turnaround_s)),
        )
        for part in view.submodels
    )
    print_table(columns, rows)
    for part in view.submodels:  # a narrow terminal would cut them off in the table
        model = service.runs.artifact(view.run_id, part.name) if part.artifact else part.cause
        say(f"{part.name}: {model or 'no model'}")
        if part.in_doubt:
            say(f"{part.name}: {part.cause} {part.remedy}")
    memory = f"{memory_text(view.peak_memory_bytes)} ({view.memory_source or 'no source'})"
    say(f"{view.run_id}: {view.state}, makespan {duration_text(view.makespan_s)}, peak memory {memory}")
    if view.cause:
        say(f"{view.cause} {view.remedy or ''}")


def print_comparison(found: Comparison) -> None:
    """Print the figures of each arm, then the verdicts."""
    rows = []
    for arm in (found.hybrid, *found.baselines.values()):
        memory = _median_text(arm.memory_bytes, lambda size: memory_text(int(size)))
        times = (_median_text(time_s, duration_text) for time_s in (arm.makespan_s, arm.mean_turnaround_s))
        cpu = _median_text(arm.cpu_s, lambda seconds: f"{seconds:.1f} s")
        loader = "" if arm.mode == "hybrid" else _median_text(arm.loader_s, lambda seconds: f"{seconds:.2f} s")
        rows.append((arm.mode, str(len(arm.run_ids)), memory, *times, cpu, loader))
    columns = ("arm", "repeats", "peak memory", "makespan", "mean turnaround", "CPU seconds", "data loader")
    print_table(columns, rows)
    for mode, verdict in found.verdicts.items():
        out.print(f"[bold]hybrid against {mode}[/]")
        if verdict.withheld_because is not None:
            say(f"  withheld: {verdict.withheld_because}")
        for one in cards.QUANTITIES:
            ratio: Spread | None = getattr(verdict, one.ratio)
            if ratio is not None:
                spread = f" ({ratio.low:.2f} to {ratio.high:.2f})" if len(ratio.values) > 1 else ""
                say(f"  {one.title}: {ratio.median:.2f} times{spread}")
        same = {True: "yes", False: "no", None: "not known"}[verdict.identical_weights]
        say(f"  weights identical: {same}")
        for line in cards.oracle_lines(found.baselines.get(mode)):
            say(f"  {line}")
        for note in verdict.notes:
            say(f"  {note}")


def _median_text(spread: Spread | None, text: Callable[[float], str]) -> str:
    return NOT_AVAILABLE if spread is None else text(spread.median)


def print_file(report: FileReport) -> None:
    """Print the kind, format and facts of a file."""
    facts = {"kind": report.kind, "format": report.format or "unknown", "size": memory_text(report.size_bytes)}
    facts |= {"sha256": report.sha256, **{name: _short(value) for name, value in report.facts.items()}}
    facts.pop("preview", None)  # for the pages
    width = max(map(len, facts))
    for name, text in facts.items():
        say(f"{name.replace('_', ' '):<{width}}  {text}")


def print_policies(cards: Sequence[PolicyCard]) -> None:
    """Print what each policy does and its parameters."""
    rows = []
    for card in cards:
        parameters = tuple(f"{part.name} = {part.default} ({part.valid})" for part in card.parameters)
        rows.append((card.name, card.summary, parameters or "none"))
    print_table(("policy", "what it does", "parameters"), rows)


def print_runs(views: Sequence[RunView]) -> None:
    """Print a list of runs."""
    if not views:
        out.print("No runs yet. Start one with: unifiednn train sample_models/demo.json")
        return
    columns = ("name", "mode", "status", "policy", "device", "progress", "elapsed")
    rows = (
        (
            view.run_id,
            view.name,
            view.mode,
            view.state,
            "shared" if view.shared else view.policy,
            device_text(view.device),
            f"{100 * view.progress:.0f} %",
            duration_text(view.elapsed_s),
        )
        for view in views
    )
    print_table((Column("run", no_wrap=True, min_width=RUN_ID_LENGTH), *columns), rows)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
