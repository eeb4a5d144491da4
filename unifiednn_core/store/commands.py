"""What people ask for: written here at once, carried out later at a step boundary, exactly once."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from unifiednn_core import failpoints
from unifiednn_core.clock import Clock
from unifiednn_core.errors import BadInput, IllegalTransition
from unifiednn_core.lifecycle import ENDED, Event, State, actions, submodel_actions
from unifiednn_core.store.database import Database
from unifiednn_core.store.effects import effect
from unifiednn_core.store.runs import Runs, release_worker, run_of, submodel_of, submodels_of
from unifiednn_core.store.schema import HYBRID, CommandRow, RunRow, SubModelRow


class Verb(StrEnum):
    """What can be asked of a run or a sub-model. The first six are events of the transition table."""

    PAUSE = "pause"
    RESUME = "resume"
    SAVE = "save"
    STOP = "stop"
    DISCARD = "discard"
    RETRY = "retry"
    PRIORITY = "priority"
    EPOCHS = "epochs"
    ORDER = "order"
    POLICY = "policy"
    ADD = "add"


EDITS = frozenset({Verb.PRIORITY, Verb.EPOCHS, Verb.ORDER, Verb.POLICY, Verb.ADD})
# What a baseline, which is a measurement in one piece, can be asked for; a resume lets it begin anew.
OF_A_BASELINE = frozenset({Verb.STOP, Verb.DISCARD, Verb.RESUME})
# What only a worker can do, because it has to do with weights or checkpoints.
_NEEDS_WORKER = frozenset({Verb.SAVE, Verb.STOP, Verb.DISCARD, Verb.RETRY})
_STEERING = EDITS | {Verb.PAUSE, Verb.RESUME, Verb.SAVE, Verb.RETRY}
_OPEN = CommandRow.applied_at_s.is_(None)


@dataclass(frozen=True, slots=True)
class Command:
    """`verb` for one sub-model, or for the whole run where `submodel` is None."""

    id: int
    submodel: str | None
    verb: Verb
    arguments: Mapping[str, Any]
    issued_at_s: float


class Commands:
    """The part of the store that carries orders."""

    def __init__(self, database: Database, runs: Runs, clock: Clock):
        self._database, self._runs, self._clock = database, runs, clock

    def issue(
        self,
        run_id: str,
        submodel: str | None,
        verb: Verb,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        *,
        row: SubModelRow | None = None,
    ) -> State:
        """Ask for something: the state shows at once that it was heard, in the same transaction as the order itself.

        `row` is the sub-model that an `ADD` brings. Raises `IllegalTransition` where the state does not allow it,
        `NotFound` where there is no such thing.
        """
        with self._database.write() as session:
            state = self._heard(session, run_id, submodel, verb, row, arguments)
            now_s = self._clock.utc_s()
            command = CommandRow(
                run_id=run_id, submodel=submodel, verb=verb.value, arguments=dict(arguments), issued_at_s=now_s
            )
            session.add(command)
            what = command_text(Command(0, submodel, verb, arguments, now_s))
            self._runs.note(session, run_id, submodel, "command", f"Asked for: {what}.")
            failpoints.passing("command.before_acknowledgement")
        failpoints.passing("command.after_acknowledgement")
        return state

    def steered(self, run_id: str) -> bool:
        """Whether anything was asked of a run that changes how long it takes."""
        of_run = (CommandRow.run_id == run_id) & CommandRow.verb.in_([verb.value for verb in _STEERING])
        with self._database.read() as session:
            return session.scalar(select(CommandRow.id).where(of_run).limit(1)) is not None

    def open(self, run_id: str) -> list[Command]:
        """Orders that have not taken effect yet, oldest first."""
        with self._database.read() as session:
            return [_command(row) for row in session.scalars(_open_of(run_id))]

    def adopt(self, run_id: str) -> None:
        """Show again what was asked of a worker that died: its run was queued anew since."""
        with self._database.write() as session:
            for command in list(session.scalars(_open_of(run_id))):
                if command.verb in (Verb.PAUSE, Verb.STOP, Verb.DISCARD):
                    row = run_of(session, run_id) if command.submodel is None else None
                    state = State((row or submodel_of(session, run_id, command.submodel or "")).state)
                    if Event(command.verb) in actions(state):
                        self._runs.transition_in(session, run_id, command.submodel, Event(command.verb))

    def carry_out(self, command_id: int, step: int | None = None) -> None:
        """Let a command take effect in the store, once, however often this is called."""
        with self._database.write() as session:
            command = session.get_one(CommandRow, command_id)
            if command.applied_at_s is None:
                failpoints.passing("command.before_effect")
                self._carry_out_in(session, command, step)
        failpoints.passing("command.after_effect")

    def decline(self, command_id: int, reason: str) -> None:
        """Record that a command could not take effect any more, and why."""
        with self._database.write() as session:
            command = session.get_one(CommandRow, command_id)
            if command.applied_at_s is None:
                self._close(session, command, reason)

    def settle_unclaimed(self) -> None:
        """Carry out what was asked of runs that no worker knows of: nothing has to be waited for."""
        unclaimed = select(CommandRow).join(RunRow, RunRow.id == CommandRow.run_id)
        unclaimed = unclaimed.where(_OPEN, RunRow.heartbeat_at_s.is_(None)).order_by(CommandRow.id)
        with self._database.read() as session:
            if session.scalar(unclaimed.limit(1)) is None:  # the rule; no lock is taken for it
                return
        with self._database.write() as session:
            for command in list(session.scalars(unclaimed)):
                run, ends = run_of(session, command.run_id), command.verb in (Verb.STOP, Verb.DISCARD)
                if command.applied_at_s is not None:  # answered by the end of its run just now
                    continue
                if ends and command.submodel is None and run.started_at_s is None:
                    if State(run.state) is not State.STOPPING:
                        self._runs.transition_in(session, run.id, None, Event(command.verb))
                    self._runs.halt_in(session, run.id)
                elif command.verb not in _NEEDS_WORKER:
                    self._carry_out_in(session, command, None)

    # -- inside

    def _heard(
        self,
        session: Session,
        run_id: str,
        submodel: str | None,
        verb: Verb,
        row: SubModelRow | None,
        arguments: Mapping[str, Any],
    ) -> State:
        run = run_of(session, run_id)
        if run.mode != HYBRID and verb not in OF_A_BASELINE:
            raise BadInput.of(
                "Not in a baseline",
                field=run_id,
                message=f"A baseline is a measurement in one piece: it takes no '{verb}'.",
                remedy="Stop it, and run it again.",
            )
        if verb is Verb.ADD and row is not None:
            _require_open(run.name, run, verb)
            others = list(session.scalars(submodels_of(run_id)))
            if row.name.lower() in {other.name.lower() for other in others}:
                raise BadInput.of(
                    "Name",
                    field=f"submodels.{row.name}.name",
                    message=f"Two sub-models would be called '{row.name}'.",
                    remedy="Give each its own name.",
                )
            row.arrival = 1 + max((other.arrival for other in others), default=-1)
            session.add(row)
            run.spec = {**run.spec, "submodels": [*run.spec["submodels"], arguments["submodel"]]}
            files = run.environment.get("files", {}) | arguments["files"]
            run.environment = {**run.environment, "files": files}
            session.flush()
            return State(run.state)
        target = run if submodel is None else submodel_of(session, run_id, submodel)
        if verb in EDITS:
            _require_open(run.name, run, verb)
            _require_open(target.name, target, verb)
            return State(target.state)
        if submodel is not None and Event(verb) not in submodel_actions(State(run.state), State(target.state)):
            _refuse(target.name, target, verb, submodel_actions(State(run.state), State(target.state)))
        if verb is Verb.RESUME:
            self._undo_pauses(session, run_id, submodel)
        if verb is Verb.RETRY:
            return self._retry(session, run, submodel, arguments)
        return self._runs.transition_in(session, run_id, submodel, Event(verb))

    def _retry(self, session: Session, run: RunRow, submodel: str | None, arguments: Mapping[str, Any]) -> State:
        """A failed sub-model waits again, with what was changed; a run that had ended with it is queued again."""
        names = [submodel] if submodel is not None else [
            row["name"] for row in run.spec["submodels"]
            if submodel_of(session, run.id, row["name"]).state == State.FAILED.value
        ]  # fmt: skip
        state = State.QUEUED
        for name in names:
            state = self._runs.transition_in(session, run.id, name, Event.RETRY)
            if arguments.get("hyperparameters"):  # it will need another amount of memory than the key stands for
                submodel_of(session, run.id, name).memory_key = ""
        run.spec = _with_hyperparameters(run.spec, names, arguments.get("hyperparameters", {}))
        if State(run.state) is State.FAILED:
            self._runs.transition_in(session, run.id, None, Event.RETRY)
            release_worker(run)
        return state

    def _undo_pauses(self, session: Session, run_id: str, submodel: str | None) -> None:
        """A pause that was asked for before a resume must not take effect after it."""
        for command in list(session.scalars(_open_of(run_id))):
            if command.verb == Verb.PAUSE.value and command.submodel == submodel:
                self._close(session, command, "pause: undone by a later resume")

    def _carry_out_in(self, session: Session, command: CommandRow, step: int | None) -> None:
        said = command_text(_command(command))
        effect(session, self._runs, command)
        self._close(session, command, f"{said}" + (f", at step {step}" if step is not None else ""))

    def _close(self, session: Session, command: CommandRow, outcome: str) -> None:
        command.applied_at_s, command.outcome = self._clock.utc_s(), outcome
        self._runs.note(session, command.run_id, command.submodel, "applied", f"{outcome[:1].upper()}{outcome[1:]}.")


def command_text(command: Command) -> str:
    """Say a command as people read it: "priority 3 for lenet"."""
    whom, arguments = f" for {command.submodel}" if command.submodel else "", command.arguments
    match command.verb:
        case Verb.PRIORITY | Verb.EPOCHS:
            return f"{command.verb} {arguments[command.verb.value]}{whom}"
        case Verb.ORDER:
            return f"order {', '.join(arguments['names'])}"
        case Verb.POLICY:
            return f"policy {arguments['policy']['name']}"
        case Verb.ADD:
            return f"add {arguments['submodel']['name']}"
        case _:
            return f"{command.verb}{whom}"


def _command(row: CommandRow) -> Command:
    return Command(row.id, row.submodel, Verb(row.verb), row.arguments, row.issued_at_s)


def _open_of(run_id: str) -> Any:
    return select(CommandRow).where(CommandRow.run_id == run_id, _OPEN).order_by(CommandRow.id)


def _require_open(what: str, row: RunRow | SubModelRow, verb: Verb) -> None:
    state = State(row.state)
    if state in ENDED - {State.INTERRUPTED} or state is State.STOPPING:
        _refuse(what, row, verb, actions(state))


def _refuse(what: str, row: RunRow | SubModelRow, verb: Verb, allowed: frozenset[Event]) -> None:
    raise IllegalTransition(what, row.state, verb.value, [event.value for event in Event if event in allowed])


def _with_hyperparameters(spec: dict[str, Any], names: list[str], changed: Mapping[str, Any]) -> dict[str, Any]:
    parts = [
        {**part, "hyperparameters": {**part["hyperparameters"], **changed}} if part["name"] in names else part
        for part in spec["submodels"]
    ]
    return {**spec, "submodels": parts}
