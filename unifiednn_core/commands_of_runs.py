"""Commands on runs that exist, whoever started them: the dashboard or another command."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from unifiednn_core import failpoints, terminal
from unifiednn_core.command import (
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
from unifiednn_core.errors import BadInput
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec, load_run

SOMEBODY = "It is carried out while a dashboard, or a train or resume command, is running."
COPY_TRIES = 5


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
        errors = [finding for finding in service.check(asked, base).findings if finding.severity == "error"]
        if errors:  # said of all before the first one joins
            raise BadInput(errors)
        for part in asked.submodels:
            seeded = part.hyperparameters.model_copy(update={"seed": asked.seed_of(part)})
            service.add_submodel(run_id, part.model_copy(update={"hyperparameters": seeded}), base)
            terminal.out.print(f"Asked for: add {part.name}.", highlight=False)
        _say_who_carries_out(service, run_id)


def download(run_id: RunId, submodel: SubModelName, to: Folder = Path()) -> None:
    """Copy the zip of a separated model into a folder."""
    with opened() as service:
        source = service.artifact(run_id, submodel)
        _print_path(_copied(source, to, source.name))


def checkpoint(run_id: RunId, submodel: SubModelName, to: Folder = Path()) -> None:
    """Copy the newest checkpoint of a sub-model into a folder; a run can start from it."""
    with opened() as service:
        for left in reversed(range(COPY_TRIES)):
            source = service.checkpoint(run_id, submodel)
            try:
                _print_path(_copied(source, to, f"{run_id}-{submodel}-step-{_step(source)}.safetensors"))
                return
            except FileNotFoundError:  # newer ones took its place while it was being looked for
                if not left:
                    raise


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
    """Ask a run to go on where that has to be asked for; returns its state."""
    view = service.observe(run_id)
    return service.resume(run_id) if Event.RESUME in view.actions else view.state


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


def _copied(source: Path, folder: Path, name: str) -> Path:
    """Copy a file into a folder under another name first, so that there never is half a file under its own."""
    if not folder.is_dir():
        raise BadInput.of("No such folder", field="--to", message=f"{folder} is no folder.", remedy="Make it first.")
    temporary = folder / f".{name}.{os.getpid()}.part"
    try:
        failpoints.passing("download.before_copy")
        with source.open("rb") as read, temporary.open("wb") as written:
            shutil.copyfileobj(read, written)
            written.flush()
            os.fsync(written.fileno())
        failpoints.passing("download.before_rename")
        return temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)


def _print_path(path: Path) -> None:
    terminal.out.print(str(path), soft_wrap=True, markup=False, highlight=False)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.stem.removeprefix("step-"))
