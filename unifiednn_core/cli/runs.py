"""Commands on existing runs, started from the dashboard or by another command."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unifiednn_core.base.errors import BadInput, IllegalTransition
from unifiednn_core.base.files import apply_user_umask
from unifiednn_core.cli import shared, terminal
from unifiednn_core.cli.shared import AsJson, Folder, MaybeSubModel, RunId, SpecPath, SubModelName, bad_option, opened
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec, load_run
from unifiednn_core.spec.run_query import NEWEST_ROWS, RunQuery
from unifiednn_core.views.run_rows import summary


class Moves(StrEnum):
    """Devices on which a run may go on."""

    SAME = "same"
    ANY = "any"


NEEDS_SUPERVISOR = "It takes effect while a dashboard, or a train or resume command, is running."


def runs(
    every: Annotated[bool, typer.Option("--all", help=f"List all runs, not only the newest {NEWEST_ROWS}.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the newest runs."""
    with opened(as_json) as service:
        if every:
            views = service.runs.runs()
            total = len(views)
        else:
            found = service.runs.listing(RunQuery(rows=NEWEST_ROWS))
            views, total = tuple(line.run for line in found.lines), found.total
        if as_json:
            terminal.print_json([summary(view) for view in views])
            return
        terminal.print_runs(views)
        if len(views) < total:
            terminal.say(f"The newest {len(views)} of {total:,} runs. List all with: unifiednn runs --all")


def resume(
    run_id: RunId,
    submodel: MaybeSubModel = None,
    as_json: AsJson = False,
    detach: Annotated[bool, typer.Option("--detach", help="Request it and return at once.")] = False,
) -> None:
    """Continue a run from any state and follow it to its end, like train.

    With a sub-model, resume only that one and return at once.
    """
    with opened(as_json) as service:
        if submodel is not None:
            _tell(service, run_id, submodel, service.runs.resume(run_id, submodel), as_json)
            return
        if detach and service.runs.observe(run_id).state not in ENDED - {State.INTERRUPTED}:
            _tell(service, run_id, None, _resume(service, run_id), as_json)
            return
        service.start_supervisor()
        while service.runs.observe(run_id).state is State.PAUSING:
            time.sleep(terminal.POLL_S)
        with suppress(IllegalTransition):  # another person resumed it at the same moment
            _resume(service, run_id)
        shared.finish(service, run_id, as_json)


def pause(run_id: RunId, submodel: MaybeSubModel = None) -> None:
    """Pause a run or one sub-model at the next step; it releases the device."""
    _order(run_id, submodel, lambda service: service.runs.pause(run_id, submodel))


def save(run_id: RunId, submodel: MaybeSubModel = None) -> None:
    """Write a checkpoint of a run or one sub-model now, and verify its data sets in memory."""
    _order(run_id, submodel, lambda service: service.runs.save(run_id, submodel))


def stop(
    run_id: RunId,
    submodel: MaybeSubModel = None,
    discard: Annotated[bool, typer.Option("--discard", help="Keep nothing: no model, no checkpoint.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Discard without confirmation.")] = False,
) -> None:
    """End a run, or one of its sub-models, and keep its progress."""
    with opened() as service:
        if discard and not yes:
            _require_name(submodel or service.runs.observe(run_id).name)
        end = service.runs.discard if discard else service.runs.stop
        _tell(service, run_id, submodel, end(run_id, submodel))


def retry(
    run_id: RunId,
    submodel: SubModelName,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate from here on.")] = None,
    batch_split: Annotated[int | None, typer.Option(help="Parts into which each batch is split.")] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Start over instead of at the last checkpoint.")
    ] = False,
) -> None:
    """Retry a failed sub-model, even after its run has ended."""
    with opened() as service:
        state = service.runs.retry(
            run_id, submodel, learning_rate=learning_rate, batch_split=batch_split, from_start=from_start
        )
        _tell(service, run_id, submodel, state)


def edit(
    run_id: RunId,
    submodel: MaybeSubModel = None,
    priority: Annotated[int | None, typer.Option(help="Priority of the sub-model; lower goes first.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Total epochs of the sub-model.")] = None,
    deadline_s: Annotated[
        float | None, typer.Option(help="Seconds after the submission by which the sub-model should end; 0: none.")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Logical devices that compute its virtual nodes.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy of the run.")] = None,
    order: Annotated[str | None, typer.Option(help="Order of all sub-models of the run: a,b,c.")] = None,
    moves: Annotated[
        Moves | None, typer.Option(help="Devices on which the run may go on: of the same kind, or any.")
    ] = None,
) -> None:
    """Change a run or one sub-model while it trains."""
    with opened() as service:
        own = (priority, epochs, deadline_s, devices) != (None, None, None, None)
        if not own and (policy, order, moves) == (None, None, None):
            remedy = "Give --priority, --epochs, --deadline-s, --devices, --policy, --order or --moves."
            raise bad_option("options", "No change was given.", remedy)
        if own and submodel is None:
            remedy = "Name it after the run's id."
            raise bad_option("SUBMODEL", "Priority, epochs, deadline and devices belong to a sub-model.", remedy)
        if (policy, order, moves) != (None, None, None) and submodel is not None:
            raise bad_option("SUBMODEL", "Policy, order and moves belong to the run.", "Leave the sub-model out.")
        if moves is not None:
            service.runs.set_moves(run_id, moves.value)
            terminal.say(f"Requested: moves {moves}.")
        if policy is not None:
            service.runs.set_policy(run_id, PolicySpec(name=policy))
            terminal.say(f"Requested: policy {policy}.")
        if order is not None:
            names = [name.strip() for name in order.split(",")]
            service.runs.reorder(run_id, names)
            terminal.say(f"Requested: order {', '.join(names)}.")
        if epochs is not None:
            service.runs.set_epochs(run_id, submodel or "", epochs)
            terminal.say(f"Requested: epochs {epochs}.")
        if priority is not None:
            service.runs.set_priority(run_id, submodel or "", priority)
            terminal.say(f"Requested: priority {priority}.")
        if devices is not None:
            service.runs.set_devices(run_id, submodel or "", devices)
            terminal.say(f"Requested: devices {devices}.")
        if deadline_s is not None:
            service.runs.set_deadline(run_id, submodel or "", deadline_s or None)
            terminal.say(f"Requested: deadline {deadline_s:g} s." if deadline_s else "Requested: no deadline.")
        _warn_without_worker(service, run_id)


def add(run_id: RunId, spec: SpecPath) -> None:
    """Add the sub-models of a spec file to a run; of the other settings, only the seed counts."""
    with opened() as service:
        asked, base = load_run(spec), spec.resolve().parent
        if len(asked.submodels) > 1:  # report all errors before the first sub-model joins
            errors = [finding for finding in service.runs.check(asked, base).findings if finding.severity == "error"]
            if errors:
                raise BadInput(errors)
        for part in asked.seeded():
            service.runs.add_submodel(run_id, part, base, on_warnings=terminal.print_findings)
            terminal.say(f"Requested: add {part.name}.")
        _warn_without_worker(service, run_id)


def checkpoint(run_id: RunId, submodel: SubModelName, to: Folder = Path()) -> None:
    """Copy the newest checkpoint of a sub-model into a folder. A new run can start from it."""
    with opened() as service:
        if not to.is_dir():
            raise bad_option("--to", f"{to} is not a folder.", "Create it first.")
        path = service.runs.download_checkpoint(run_id, submodel, to)
        apply_user_umask(path)
        terminal.say(str(path))


def _resume(service: Service, run_id: str) -> State:
    """Resume a run if it is interrupted or paused; return its state. Raises `IllegalTransition`."""
    state = service.runs.observe(run_id).state
    return service.runs.resume(run_id) if state in (State.INTERRUPTED, State.PAUSED, State.PAUSING) else state


def _order(run_id: str, submodel: str | None, issue: Callable[[Service], State]) -> None:
    with opened() as service:
        _tell(service, run_id, submodel, issue(service))


def _tell(service: Service, run_id: str, submodel: str | None, state: State, as_json: bool = False) -> None:
    """Print the state of a run or sub-model after a request."""
    if as_json:
        whom = {} if submodel is None else {"submodel": submodel}
        terminal.print_json({"run_id": run_id, **whom, "status": state.value})
    else:
        terminal.say(state.value)
    _warn_without_worker(service, run_id)


def _warn_without_worker(service: Service, run_id: str) -> None:
    if service.runs.observe(run_id).heartbeat_age_s is None:
        terminal.say(NEEDS_SUPERVISOR, to=terminal.err)


def _require_name(name: str) -> None:
    """Ask for the name before discarding. Raises `BadInput`."""
    remedy = f"Type {name}, or give --yes."
    if not sys.stdin.isatty():
        raise bad_option("--discard", f"Discarding {name} needs a confirmation, and this is not a terminal.", remedy)
    typed = typer.prompt(f"This deletes all progress of {name}. Type its name to discard it", err=True)
    if typed.strip() != name:
        raise bad_option("--discard", f"'{typed}' is not its name. Nothing was discarded.", remedy)
