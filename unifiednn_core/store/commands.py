"""Commands of people: durable once acknowledged, carried out later, exactly once, at a step boundary."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, IllegalTransition, UnifiedNNError
from unifiednn_core.spec.lifecycle import ENDED, Event, State, actions, submodel_actions
from unifiednn_core.spec.sharing import NOT_IN_ONE_PROCESS
from unifiednn_core.store.database import Database, Repository
from unifiednn_core.store.events import Code
from unifiednn_core.store.hybrids import CLAIMED, forget_deaths, is_live
from unifiednn_core.store.library import use_in
from unifiednn_core.store.people import parties_of, sharing_rule_in
from unifiednn_core.store.runs import Runs, row_of, run_of, submodel_of, submodels_of
from unifiednn_core.store.schema import HYBRID, CommandRow, HybridRow, RunRow, SubModelRow


class Verb(StrEnum):
    """Commands for a run or a sub-model. The first six are events of the transition table."""

    PAUSE = "pause"
    RESUME = "resume"
    SAVE = "save"
    STOP = "stop"
    DISCARD = "discard"
    RETRY = "retry"
    PRIORITY = "priority"
    EPOCHS = "epochs"
    DEADLINE = "deadline"
    DEVICES = "devices"
    ORDER = "order"
    POLICY = "policy"
    MOVES = "moves"
    ADD = "add"


EDITS = frozenset(
    {Verb.PRIORITY, Verb.EPOCHS, Verb.DEADLINE, Verb.DEVICES, Verb.ORDER, Verb.POLICY, Verb.MOVES, Verb.ADD}
)
# Commands for a baseline, which is one uninterrupted measurement; a resume restarts it.
OF_A_BASELINE = frozenset({Verb.STOP, Verb.DISCARD, Verb.RESUME})
# Commands that need a worker, because they involve weights or checkpoints.
_NEEDS_WORKER = frozenset({Verb.SAVE, Verb.STOP, Verb.DISCARD, Verb.RETRY})
OF_A_HYBRID = frozenset({Verb.ORDER, Verb.POLICY, Verb.ADD})
_PAUSED = "a person paused it"
_ADOPTED = frozenset({Verb.PAUSE, Verb.STOP, Verb.DISCARD})
_STEERING = EDITS | {Verb.PAUSE, Verb.RESUME, Verb.SAVE, Verb.RETRY}
_OPEN = CommandRow.applied_at_s.is_(None)


def brief_of(command: CommandRow) -> dict[str, Any]:
    """The verb of a command and its essential argument; `views.event_text.command_text` makes the text."""
    arguments: dict[str, Any] = command.arguments
    match command.verb:
        case Verb.PRIORITY | Verb.EPOCHS | Verb.DEVICES | Verb.MOVES:
            more = {"value": arguments[command.verb]}
        case Verb.DEADLINE:
            more = {"value": arguments["deadline_s"]}
        case Verb.ORDER:
            more = {"names": list(arguments["names"])}
        case Verb.POLICY:
            more = {"policy": arguments["policy"]["name"]}
        case Verb.ADD:
            more = {"added": arguments["submodel"]["name"]}
        case _:
            more = {}
    return {"verb": command.verb, **more}


def require_new_name(name: str, others: Iterable[str]) -> None:
    """Raise `BadInput` if another sub-model of the run has this name, in upper or lower case."""
    if name.lower() in {other.lower() for other in others}:
        message, field = f"Two sub-models would be called '{name}'.", f"submodels.{name}.name"
        raise BadInput.of("Name", field, message, "Give each its own name.")


class Commands(Repository):
    """Stores commands, and carries them out in the rows."""

    def __init__(self, database: Database, runs: Runs):
        super().__init__(database)
        self._runs = runs

    def issue(
        self,
        run_id: str,
        submodel: str | None,
        verb: Verb,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        *,
        row: SubModelRow | None = None,
    ) -> State:
        """Store a command for a sub-model, or for the whole run, and show it in the state, in one transaction.

        `row` is the sub-model that an `ADD` brings. Raises `IllegalTransition` if the state does not allow it,
        `NotFound` for an unknown run or sub-model.
        """
        command = CommandRow(run_id=run_id, submodel=submodel, verb=verb.value, arguments=dict(arguments))
        with self._database.write() as session:
            command.issued_at_s = self._clock.utc_s()
            state = self._accept(session, command, row)
            session.add(command)
            self._runs.note(session, run_id, submodel, Code.ASKED, **brief_of(command))
            if self._is_done(session, command, state):
                self._carry_out_in(session, command, None)
            failpoints.passing("command.before_acknowledgement")
        failpoints.passing("command.after_acknowledgement")
        return state

    def steered(self, run_id: str) -> bool:
        """Whether any command changed the duration of a run."""
        of_run = (CommandRow.run_id == run_id) & CommandRow.verb.in_([verb.value for verb in _STEERING])
        return self._value(select(CommandRow.id).where(of_run).limit(1)) is not None

    def open(self, run_id: str) -> list[CommandRow]:
        """Commands that have not taken effect yet, oldest first."""
        return self._rows(_open_of(run_id))

    def open_in(self, hybrid_id: str) -> list[CommandRow]:
        """Open commands for what is placed in a hybrid and that its worker has to carry out, oldest first."""
        placed = select(SubModelRow.run_id).where(SubModelRow.hybrid_id == hybrid_id)
        in_it = select(SubModelRow.name).where(SubModelRow.hybrid_id == hybrid_id)
        in_it = in_it.where(SubModelRow.run_id == CommandRow.run_id, SubModelRow.name == CommandRow.submodel)
        asked = select(CommandRow).join(RunRow, RunRow.id == CommandRow.run_id).where(_OPEN)
        private, shared = RunRow.id == hybrid_id, RunRow.shared & (CommandRow.verb != Verb.PAUSE)
        shared &= CommandRow.run_id.in_(placed) & or_(CommandRow.submodel.is_(None), in_it.exists())
        return self._rows(asked.where(or_(private, shared)).order_by(CommandRow.id))

    def adopt(self, hybrid_id: str) -> None:
        """Show open commands in the states again after a worker died and its runs were queued again."""
        commands = self.open_in(hybrid_id)
        with self._database.write() as session:
            for command in [session.get_one(CommandRow, one.id) for one in commands]:
                run_id = command.run_id
                allowed = actions(State(row_of(session, run_id, command.submodel).state))
                if command.verb in _ADOPTED and Event(command.verb) in allowed:
                    self._runs.transition_in(session, run_id, command.submodel, Event(command.verb))

    def find_open(self, command_id: int) -> CommandRow | None:
        """A command that has not taken effect yet; None if it was answered."""
        with self._database.read() as session:
            row = session.get_one(CommandRow, command_id)
            return row if row.applied_at_s is None else None

    def carry_out(self, command_id: int, step: int | None = None) -> bool:
        """Let a command take effect in the store, exactly once; False if it had no effect."""
        with self._database.write() as session:
            command = session.get_one(CommandRow, command_id)
            if command.applied_at_s is None:
                failpoints.passing("command.before_effect")
                self._carry_out_in(session, command, step)
        failpoints.passing("command.after_effect")
        return command.outcome == Code.APPLIED

    def decline(self, command_id: int, reason: str) -> None:
        """Record that a command could not take effect, and why."""
        with self._database.write() as session:
            command = session.get_one(CommandRow, command_id)
            if command.applied_at_s is None:
                self._runs.answer(session, command, Code.DECLINED, verb=command.verb, reason=reason)

    def settle_unclaimed(self) -> None:
        """Carry out the commands of runs that have no worker and so no step boundary to wait for."""
        of_target = or_(CommandRow.submodel.is_(None), CommandRow.submodel == SubModelRow.name)
        live = select(SubModelRow.name).join(HybridRow, HybridRow.id == SubModelRow.hybrid_id)
        live = live.where(SubModelRow.run_id == CommandRow.run_id, of_target, CLAIMED)
        unclaimed = select(CommandRow).where(_OPEN, ~live.exists()).order_by(CommandRow.id)
        if self._value(unclaimed.limit(1)) is None:  # the usual case needs no write lock
            return
        with self._database.write() as session:
            for command in list(session.scalars(unclaimed)):
                if command.applied_at_s is not None:  # its run has just ended, which answered it
                    continue
                try:
                    with session.begin_nested():
                        self._settle_in(session, command)
                except UnifiedNNError as error:  # one that cannot be settled must not hold up all others
                    self._runs.answer(session, command, Code.DECLINED, verb=command.verb, reason=str(error))

    def _settle_in(self, session: Session, command: CommandRow) -> None:
        run, ends = run_of(session, command.run_id), command.verb in (Verb.STOP, Verb.DISCARD)
        if ends and command.submodel is None and run.started_at_s is None:
            if State(run.state) is not State.STOPPING:
                self._runs.transition_in(session, run.id, None, Event(command.verb))
            self._runs.halt_in(session, run.id)
        elif ends and run.shared and self._halted(session, run, command.submodel):
            return
        elif command.verb not in _NEEDS_WORKER and not (run.shared and command.verb == Verb.PAUSE):
            self._carry_out_in(session, command, None)  # to pause in a shared hybrid is to leave it

    def _halted(self, session: Session, run: RunRow, submodel: str | None) -> bool:
        """End the sub-models of a shared run that are to be stopped and never trained; whether that was all."""
        meant = [row for row in session.scalars(submodels_of(run.id)) if submodel in (None, row.name)]
        rows = [row for row in meant if State(row.state) is State.STOPPING]
        for row in rows:
            if row.attempt == 0:
                self._runs.transition_in(session, run.id, row.name, Event.HALT)
        return all(row.attempt == 0 for row in rows)

    def _accept(self, session: Session, command: CommandRow, row: SubModelRow | None) -> State:
        """Check a new command against the states, and show it in them; return the state of its target."""
        run, verb, submodel = run_of(session, command.run_id), Verb(command.verb), command.submodel
        if run.mode != HYBRID and verb not in OF_A_BASELINE:
            message = f"A baseline is one uninterrupted measurement and does not accept '{verb}'."
            raise BadInput.of("Not in a baseline", run.id, message, "Stop it, and run it again.")
        target = row_of(session, run.id, submodel)
        if run.shared and verb in OF_A_HYBRID:
            message = f"The {verb} belongs to the hybrids that this run shares with others."
            raise BadInput.of("Shared hybrid", run.id, message, "Ask an operator, or submit it as a private one.")
        if verb in EDITS:
            if verb is not Verb.MOVES:  # for one that failed for that, too
                _require_open(run, verb)
                _require_open(target, verb)
            if row is not None:
                self._join(session, run, row, command.arguments)
            return State(target.state)
        if submodel is not None:
            allowed = submodel_actions(State(run.state), State(target.state))
            if Event(verb) not in allowed:
                _refuse(target, verb, allowed)
        own = session.get(HybridRow, run.id)
        if verb in (Verb.RESUME, Verb.RETRY) and own is not None:
            forget_deaths(own)
        if verb is Verb.RESUME:
            self._undo_pauses(session, run.id, submodel)
        if verb is Verb.RETRY and submodel is not None:
            return self._retry(session, run, submodel, command.arguments.get("hyperparameters"))
        state = self._runs.transition_in(session, run.id, submodel, Event(verb))
        return self._accept_shared(session, run, verb, submodel) if run.shared else state

    def _accept_shared(self, session: Session, run: RunRow, verb: Verb, submodel: str | None) -> State:
        """Do what a command means for a run in shared hybrids: to pause is to leave, to resume is to wait again."""
        rows = list(session.scalars(submodels_of(run.id)))
        meant = [row for row in rows if submodel in (None, row.name)]
        if verb is Verb.PAUSE:
            for row in meant:
                if is_live(session, row):
                    row.leaving = _PAUSED
                elif State(row.state) not in ENDED:
                    row.hybrid_id = row.leaving = None
                    if State(row.state) is State.PAUSING:
                        self._runs.hold_in(session, run.id, row.name)
            self._runs.follow_in(session, run)
        elif verb is Verb.RESUME:
            rests = all(State(row.state) in {State.PAUSED, *ENDED} for row in rows)
            for row in meant:
                was = State(row.state)
                if was is State.INTERRUPTED or (was is State.PAUSED and (rests or submodel is not None)):
                    self._runs.transition_in(session, run.id, row.name, Event.RESUME)
            if State(run.state) is State.PAUSED:
                self._runs.transition_in(session, run.id, None, Event.RESUME)
        return State(row_of(session, run.id, submodel).state)

    def _is_done(self, session: Session, command: CommandRow, state: State) -> bool:
        """Whether a pause or resume of a run in shared hybrids took effect at once, because no worker has a part."""
        if not run_of(session, command.run_id).shared:
            return False
        if command.verb == Verb.RESUME:
            rows = session.scalars(submodels_of(command.run_id))
            return not any(is_live(session, row) for row in rows if command.submodel in (None, row.name))
        return command.verb == Verb.PAUSE and state is State.PAUSED

    def _join(self, session: Session, run: RunRow, row: SubModelRow, arguments: Mapping[str, Any]) -> None:
        others = list(session.scalars(submodels_of(run.id)))
        require_new_name(row.name, [other.name for other in others])
        row.arrival = 1 + max((other.arrival for other in others), default=-1)
        row.joined_at_s, row.hybrid_id = self._clock.utc_s(), run.id
        row.paused_since_s = row.joined_at_s if State(run.state) is State.PAUSED else None
        session.add(row)
        _require_permission(session, run, row.name)
        use_in(session, run.id, [arguments["submodel"]])
        run.spec = {**run.spec, "submodels": [*run.spec["submodels"], arguments["submodel"]]}
        run.environment = {**run.environment, "files": run.environment.get("files", {}) | arguments["files"]}

    def _retry(self, session: Session, run: RunRow, submodel: str, changed: Mapping[str, Any] | None) -> State:
        """Queue a failed sub-model again, with changed hyper-parameters; queue its run again if it had ended."""
        state = self._runs.transition_in(session, run.id, submodel, Event.RETRY)
        if changed:  # it will need another amount of memory than the one measured under its key
            submodel_of(session, run.id, submodel).memory_key = ""
            _edit(run, submodel, changed)
        if run.shared:
            submodel_of(session, run.id, submodel).hybrid_id = None
        if State(run.state) is State.FAILED:
            self._runs.transition_in(session, run.id, None, Event.RETRY)
        _require_permission(session, run, submodel)
        return state

    def _undo_pauses(self, session: Session, run_id: str, submodel: str | None) -> None:
        """Close open pauses before a resume, so none takes effect after it."""
        for command in list(session.scalars(_open_of(run_id))):
            if command.verb == Verb.PAUSE.value and command.submodel == submodel:
                self._runs.answer(session, command, Code.UNDONE, verb=command.verb, by=Verb.RESUME.value)

    def _carry_out_in(self, session: Session, command: CommandRow, step: int | None) -> None:
        met = _apply(session, self._runs, command)
        if met is None:
            self._runs.answer(session, command, Code.APPLIED, **brief_of(command), step=step)
        else:
            name = command.submodel or run_of(session, command.run_id).name
            self._runs.answer(session, command, Code.OBSOLETE, verb=command.verb, name=name, found=met.value)


def _open_of(run_id: str) -> Any:
    return select(CommandRow).where(CommandRow.run_id == run_id, _OPEN).order_by(CommandRow.id)


def _require_open(row: RunRow | SubModelRow, verb: Verb) -> None:
    state = State(row.state)
    if state in ENDED - {State.INTERRUPTED} or state is State.STOPPING:
        _refuse(row, verb, actions(state))


def _require_permission(session: Session, run: RunRow, joining: str) -> None:
    """Raise `BadInput` if the people of a run may not share a process; names nobody, because anyone may read it."""
    people = [party.person for party in parties_of(run, list(session.scalars(submodels_of(run.id))))]
    if not sharing_rule_in(session).may_share(people):
        message, field = "Its people may not share a process with all others of this run.", f"submodels.{joining}"
        raise BadInput.of(NOT_IN_ONE_PROCESS, field, message, "Submit it as a run of its own, or ask an admin.")


def _refuse(row: RunRow | SubModelRow, verb: Verb, allowed: frozenset[Event]) -> None:
    raise IllegalTransition(row.name, row.state, verb.value, [event.value for event in Event if event in allowed])


def _apply(session: Session, runs: Runs, command: CommandRow) -> State | None:
    """Apply a command to rows and spec; return None, or the state that made it obsolete.

    A stop changes nothing here: the worker reports the end.
    """
    run, arguments = run_of(session, command.run_id), command.arguments
    match command.verb:
        case "pause":
            state = runs.hold_in(session, command.run_id, command.submodel)
            return None if state is State.PAUSED else state
        case "priority":
            submodel_of(session, run.id, command.submodel or "").priority = arguments["priority"]
            _edit(run, command.submodel, {}, priority=arguments["priority"])
        case "deadline":
            submodel_of(session, run.id, command.submodel or "").deadline_s = arguments["deadline_s"]
            _edit(run, command.submodel, {}, deadline_s=arguments["deadline_s"])
        case "epochs":
            row = submodel_of(session, run.id, command.submodel or "")
            row.steps_total, row.epochs = row.steps_total // row.epochs * arguments["epochs"], arguments["epochs"]
            _edit(run, command.submodel, arguments)
        case "devices":
            [part] = [part for part in run.spec["submodels"] if part["name"] == command.submodel]
            techniques = part["hyperparameters"]["techniques"]
            changed = [one | arguments if one["name"] == "virtual_nodes" else one for one in techniques]
            _edit(run, command.submodel, {"techniques": changed})
        case "order":
            parts = {part["name"]: part for part in run.spec["submodels"]}
            names = [*arguments["names"], *(name for name in parts if name not in arguments["names"])]
            for place, name in enumerate(names):
                submodel_of(session, run.id, name).arrival = place
            run.spec = {**run.spec, "submodels": [parts[name] for name in names]}
        case "moves":
            run.spec = {**run.spec, "moves": arguments["moves"]}
        case "policy":
            run.spec = {**run.spec, "policy": arguments["policy"]}
            hybrid = session.get_one(HybridRow, run.id)
            hybrid.settings = {**hybrid.settings, "policy": arguments["policy"]}
    return None


def _edit(run: RunRow, name: str | None, hyperparameters: Mapping[str, Any], **values: Any) -> None:
    """Set values of a sub-model in the spec, and some of its hyper-parameters."""
    run.spec = {
        **run.spec,
        "submodels": [
            {**part, **values, "hyperparameters": {**part["hyperparameters"], **hyperparameters}}
            if part["name"] == name
            else part
            for part in run.spec["submodels"]
        ],
    }
