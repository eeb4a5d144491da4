"""Commands on runs that exist, whoever started them: the dashboard or another command."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from unifiednn_core.commands import terminal
from unifiednn_core.commands.shared import (
    AsJson,
    Folder,
    MaybeSubModel,
    RunId,
    SpecPath,
    SubModelName,
    bad_option,
    finish,
    opened,
)
from unifiednn_core.errors import BadInput, IllegalTransition
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec, load_run

SOMEBODY = "It is carried out while a dashboard, or a train or resume command, is running."


def runs(as_json: AsJson = False) -> None:
    """List the runs, the newest first."""
    with opened(as_json) as service:
        if as_json:
            terminal.print_json([terminal.run_summary(view) for view in service.runs()])
        else:
            terminal.print_runs(service.runs())


def resume(
    run_id: RunId,
    submodel: MaybeSubModel = None,
    as_json: AsJson = False,
    detach: Annotated[bool, typer.Option("--detach", help="Ask for it and return at once.")] = False,
) -> None:
    """Go on with a run, in whatever state it is, and follow it to its end as train does.

    A sub-model that is named is resumed, and the command returns at once.
    """
    with opened(as_json) as service:
        if submodel is not None:
            _tell(service, run_id, submodel, service.resume(run_id, submodel), as_json)
            return
        if detach and service.observe(run_id).state not in ENDED - {State.INTERRUPTED}:
            _tell(service, run_id, None, _going_on(service, run_id), as_json)
            return
        service.start_supervisor()
        while service.observe(run_id).state is State.PAUSING:
            time.sleep(terminal.POLL_S)
        with suppress(IllegalTransition):  # somebody else let it go on in the same moment
            _going_on(service, run_id)
        finish(service, run_id, as_json)


def pause(run_id: RunId, submodel: MaybeSubModel = None) -> None:
    """Pause a run, or one of its sub-models, at the next step; it lets go of the device."""
    _order(run_id, submodel, lambda service: service.pause(run_id, submodel))


def save(run_id: RunId, submodel: MaybeSubModel = None) -> None:
    """Write a checkpoint of a run, or of one of its sub-models, now."""
    _order(run_id, submodel, lambda service: service.save(run_id, submodel))


def stop(
    run_id: RunId,
    submodel: MaybeSubModel = None,
    discard: Annotated[bool, typer.Option("--discard", help="Keep nothing: no model, no checkpoint.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Discard without asking for the name.")] = False,
) -> None:
    """End a run, or one of its sub-models, and keep what was learnt."""
    with opened() as service:
        if discard and not yes:
            _require_name(submodel or service.observe(run_id).name)
        end = service.discard if discard else service.stop
        _tell(service, run_id, submodel, end(run_id, submodel))


def retry(
    run_id: RunId,
    submodel: SubModelName,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate from here on.")] = None,
    batch_split: Annotated[int | None, typer.Option(help="Parts in which a batch goes through the network.")] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin anew, not at the last checkpoint.")] = False,
) -> None:
    """Try a failed sub-model again, also after its run has ended."""
    with opened() as service:
        state = service.retry(
            run_id, submodel, learning_rate=learning_rate, batch_split=batch_split, from_start=from_start
        )
        _tell(service, run_id, submodel, state)


def edit(
    run_id: RunId,
    submodel: MaybeSubModel = None,
    priority: Annotated[int | None, typer.Option(help="Priority of the sub-model; lower goes first.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of the sub-model, in all.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy of the run.")] = None,
    order: Annotated[str | None, typer.Option(help="Order of all sub-models of the run: a,b,c.")] = None,
) -> None:
    """Change a run, or one of its sub-models, while it goes on."""
    with opened() as service:
        if priority is None and epochs is None and policy is None and order is None:
            raise bad_option("options", "Nothing is to be changed.", "Give --priority, --epochs, --policy or --order.")
        if (priority, epochs) != (None, None) and submodel is None:
            raise bad_option("SUBMODEL", "Priority and epochs belong to a sub-model.", "Name it after the run's id.")
        if (policy, order) != (None, None) and submodel is not None:
            raise bad_option("SUBMODEL", "Policy and order belong to the run.", "Leave the sub-model out.")
        changes: list[tuple[str, Callable[[], State]]] = []
        if policy is not None:
            changes.append((f"policy {policy}", lambda: service.set_policy(run_id, PolicySpec(name=policy))))
        if order is not None:
            names = [name.strip() for name in order.split(",")]
            changes.append((f"order {', '.join(names)}", lambda: service.reorder(run_id, names)))
        if epochs is not None:
            changes.append((f"epochs {epochs}", lambda: service.set_epochs(run_id, submodel or "", epochs)))
        if priority is not None:
            changes.append((f"priority {priority}", lambda: service.set_priority(run_id, submodel or "", priority)))
        for said, change in changes:
            change()
            terminal.out.print(f"Asked for: {said}.", markup=False, highlight=False)
        _say_who_carries_out(service, run_id)


def add(run_id: RunId, spec: SpecPath) -> None:
    """Let the sub-models of a spec file join a run; of the spec's own settings only the seed is taken."""
    with opened() as service:
        asked, base = load_run(spec), spec.resolve().parent
        if len(asked.submodels) > 1:  # what is wrong with any of them is said before the first one joins
            errors = [finding for finding in service.check(asked, base).findings if finding.severity == "error"]
            if errors:
                raise BadInput(errors)
        for part in asked.submodels:
            seeded = part.hyperparameters.model_copy(update={"seed": asked.seed_of(part)})
            seeded_part = part.model_copy(update={"hyperparameters": seeded})
            service.add_submodel(run_id, seeded_part, base, told=terminal.print_findings)
            terminal.out.print(f"Asked for: add {part.name}.", highlight=False)
        _say_who_carries_out(service, run_id)


def download(run_id: RunId, submodel: SubModelName, to: Folder = Path()) -> None:
    """Copy the zip of a separated model into a folder."""
    _copy(lambda service: service.download(run_id, submodel, to), to)


def checkpoint(run_id: RunId, submodel: SubModelName, to: Folder = Path()) -> None:
    """Copy the newest checkpoint of a sub-model into a folder; a run can start from it."""
    _copy(lambda service: service.download_checkpoint(run_id, submodel, to), to)


COMMANDS: tuple[Callable[..., None], ...] = (
    runs,
    pause,
    resume,
    save,
    stop,
    retry,
    edit,
    add,
    download,
    checkpoint,
)


def _going_on(service: Service, run_id: str) -> State:
    """Ask a run to go on where that has to be asked for; returns its state. Raises `IllegalTransition`."""
    state = service.observe(run_id).state
    return service.resume(run_id) if state in (State.INTERRUPTED, State.PAUSED, State.PAUSING) else state


def _order(run_id: str, submodel: str | None, issue: Callable[[Service], State]) -> None:
    with opened() as service:
        _tell(service, run_id, submodel, issue(service))


def _tell(service: Service, run_id: str, submodel: str | None, state: State, as_json: bool = False) -> None:
    """Say where a run or a sub-model stands now that something was asked of it."""
    if as_json:
        whom = {} if submodel is None else {"submodel": submodel}
        terminal.print_json({"run_id": run_id, **whom, "status": state.value})
    else:
        terminal.out.print(state.value, highlight=False)
    _say_who_carries_out(service, run_id)


def _say_who_carries_out(service: Service, run_id: str) -> None:
    if service.observe(run_id).heartbeat_age_s is None:  # no worker has the run
        terminal.err.print(SOMEBODY)


def _require_name(name: str) -> None:
    """Have the name of what is to be discarded typed; raises `BadInput`."""
    remedy = f"Type {name}, or give --yes."
    if not sys.stdin.isatty():
        raise bad_option("--discard", f"Nothing of {name} would be kept, and there is nobody to ask.", remedy)
    typed = typer.prompt(f"Nothing of {name} will be kept. Type its name to discard it", err=True)
    if typed.strip() != name:
        raise bad_option("--discard", f"'{typed}' is not its name; nothing was discarded.", remedy)


def _copy(download: Callable[[Service], Path], folder: Path) -> None:
    with opened() as service:
        if not folder.is_dir():
            remedy = "Make it first."
            raise BadInput.of("No such folder", field="--to", message=f"{folder} is no folder.", remedy=remedy)
        terminal.out.print(str(download(service)), soft_wrap=True, markup=False, highlight=False)
