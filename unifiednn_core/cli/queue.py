"""Submit one network for hybrids shared with others, and look at the line."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column

from unifiednn_core.base.units import NOT_AVAILABLE, memory_text, percent_text
from unifiednn_core.cli import shared, terminal
from unifiednn_core.cli.runs import NEEDS_SUPERVISOR
from unifiednn_core.cli.shared import AsJson, bad_option, opened
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Role
from unifiednn_core.service.shared_spec import as_shared
from unifiednn_core.spec.run import load_json
from unifiednn_core.views import wording
from unifiednn_core.views.estimates import Estimate
from unifiednn_core.views.hybrids import MODES, LineEntry, ListedHybrid, mode_text

Network = Annotated[
    Path, typer.Argument(help='One network (JSON): the fields of a sub-model, or a spec with "submodels".')
]

queue = typer.Typer(
    help="Show the line and the hybrids, and set how submissions become hybrids.", invoke_without_command=True
)


def submit(
    network: Network,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end, like train.")] = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, one device, or a kind such as H200.")] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a network. It trains in one hybrid with those of others, with the same bits as alone."""
    with opened(as_json) as service:
        asked = as_shared(load_json(network), network.stem, device)
        with terminal.checking(quiet=as_json) as tell:
            base, warn = network.resolve().parent, terminal.print_findings
            run_id = service.runs.submit(asked, base, on_warnings=warn, on_progress=tell)
        if wait:
            service.start_supervisor()
            if not as_json:
                again = f"Continue it after any interruption with: unifiednn resume {run_id}"
                terminal.say(f"Run {run_id}. {again}", to=terminal.err)
            shared.finish(service, run_id, as_json)
        entries = [entry for entry in service.queue.line() if entry.run_id == run_id]
        if as_json:
            terminal.print_json({"run_id": run_id, "line": [asdict(entry) for entry in entries]})
            return
        place = f" It is number {entries[0].place} in line." if entries else ""
        terminal.say(f"Submitted: {run_id}.{place}")
        terminal.say(f"Follow it with: unifiednn resume {run_id}. {NEEDS_SUPERVISOR}", to=terminal.err)


@queue.callback()
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show what waits for a device, in order; operators also see the hybrids that train."""
    if context.invoked_subcommand is not None:
        return
    with opened(as_json) as service:
        line, hybrids = service.queue.line(), _hybrids(service)
        if as_json:
            found = {} if hybrids is None else {"hybrids": [asdict(one) for one in hybrids]}
            mode = {} if hybrids is None else {"pooling": service.queue.pooling().model_dump(mode="json")}
            terminal.print_json({"line": [asdict(entry) for entry in line], **found, **mode})
            return
        _print_line(line)
        if hybrids is not None:
            _print_hybrids(hybrids)
            terminal.say(f"Mode: {mode_text(service.queue.pooling())}")


@queue.command("move")
def move(
    run: Annotated[str, typer.Argument(help="Id of a waiting run; list them with: unifiednn queue")],
    place: Annotated[int, typer.Argument(help="Place in the line; 1 runs next.")],
) -> None:
    """Move a waiting run in the line. The order of all others stays."""
    with opened() as service:
        new = service.queue.move(run, place)
        terminal.say(f"{run} is number {new} in line.")


@queue.command("mode")
def mode(
    name: Annotated[str, typer.Argument(help=", ".join(MODES))],
    after: Annotated[float | None, typer.Option(help="Seconds for which gathering collects.")] = None,
    count: Annotated[int | None, typer.Option(help="Submissions after which gathering ends at once.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy of shared hybrids.")] = None,
    lanes: Annotated[str | None, typer.Option(help="Lanes of shared hybrids: auto, or a number.")] = None,
) -> None:
    """Set how shared submissions become hybrids from now on."""
    with opened() as service:
        known = service.queue.pooling()
        if name not in MODES:
            raise bad_option("mode", f"'{name}' is no mode.", f"Choose {', '.join(MODES)}.")
        given = {
            "gather_s": after,
            "gather_n": count,
            "policy": None if policy is None else {"name": policy},
            "lanes": int(lanes) if lanes is not None and lanes.isdecimal() else lanes,
        }
        pooling = known.changed(mode=name, **{entry: value for entry, value in given.items() if value is not None})
        service.queue.set_pooling(pooling)
        terminal.say(mode_text(pooling))


def _hybrids(service: Service) -> tuple[ListedHybrid, ...] | None:
    return service.queue.hybrids() if service.actor.role.rank >= Role.OPERATOR.rank else None


def _in_text(estimate: Estimate | None) -> str:
    return NOT_AVAILABLE if estimate is None else wording.range_text(estimate)


def _print_line(line: Sequence[LineEntry]) -> None:
    if not line:
        terminal.say("Nothing waits for a device.")
        return
    columns = ("place", Column("run", no_wrap=True), "sub-models", "starts in", "ends in", "waits for")
    rows = (
        (
            str(entry.place),
            entry.run_id,
            ", ".join(entry.submodels),
            *map(_in_text, (entry.starts_in_s, entry.ends_in_s)),
            entry.waits_for or "a moment",
        )
        for entry in line
    )
    terminal.print_table(columns, rows)


def _print_hybrids(hybrids: Sequence[ListedHybrid]) -> None:
    if not hybrids:
        terminal.say("Nothing trains.")
        return
    for one in hybrids:
        memory = f"{memory_text(one.memory_bytes)} now, peak {memory_text(one.peak_memory_bytes)}"
        kind = "Shared" if one.shared else "Private"
        terminal.say(f"{kind} hybrid {one.hybrid_id} on {one.device}, policy {one.policy}, {memory}:")
        columns = (Column("run", no_wrap=True), "sub-model", "state", "progress", "ends in")
        rows = (
            (part.run_id, part.name, part.state, percent_text(part.progress), _in_text(part.ends_in_s))
            for part in one.members
        )
        terminal.print_table(columns, rows)
