"""What a command changes in the store when it takes effect; the caller marks it as applied in the same transaction."""

from typing import Any

from sqlalchemy.orm import Session

from unifiednn_core.lifecycle import Event, State, actions
from unifiednn_core.store.runs import Runs, run_of, submodel_of
from unifiednn_core.store.schema import CommandRow, RunRow


def effect(session: Session, runs: Runs, command: CommandRow) -> None:
    """Change rows and spec as `command` says. Stopping is not among them: that is told by the end itself."""
    run, arguments = run_of(session, command.run_id), command.arguments
    match command.verb:
        case "pause":
            _hold(session, runs, command)
        case "priority":
            submodel_of(session, run.id, command.submodel or "").priority = arguments["priority"]
            _edit_submodel(run, command.submodel, priority=arguments["priority"])
        case "epochs":
            row = submodel_of(session, run.id, command.submodel or "")
            row.steps_total, row.epochs = row.steps_total // row.epochs * arguments["epochs"], arguments["epochs"]
            _edit_hyperparameters(run, command.submodel, epochs=arguments["epochs"])
        case "order":
            parts = {part["name"]: part for part in run.spec["submodels"]}
            names = [*arguments["names"], *(name for name in parts if name not in arguments["names"])]
            for place, name in enumerate(names):
                submodel_of(session, run.id, name).arrival = place
            run.spec = {**run.spec, "submodels": [parts[name] for name in names]}
        case "policy":
            run.spec = {**run.spec, "policy": arguments["policy"]}


def _hold(session: Session, runs: Runs, command: CommandRow) -> None:
    """Reach the pause; a worker that died in between had its run queued again, so that it has to be asked for anew."""
    row = run_of(session, command.run_id) if command.submodel is None else None
    state = State((row or submodel_of(session, command.run_id, command.submodel or "")).state)
    if Event.PAUSE in actions(state):
        state = runs.transition_in(session, command.run_id, command.submodel, Event.PAUSE)
    if state is State.PAUSING:
        runs.transition_in(session, command.run_id, command.submodel, Event.HOLD)


def _edit_submodel(run: RunRow, name: str | None, **values: Any) -> None:
    parts = [{**part, **values} if part["name"] == name else part for part in run.spec["submodels"]]
    run.spec = {**run.spec, "submodels": parts}


def _edit_hyperparameters(run: RunRow, name: str | None, **values: Any) -> None:
    [part] = [part for part in run.spec["submodels"] if part["name"] == name]
    _edit_submodel(run, name, hyperparameters={**part["hyperparameters"], **values})
