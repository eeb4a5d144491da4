"""Runs and sub-models, and their moves along the transition table."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Row, Select, String, column, func, select, tuple_, values
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from unifiednn_core.base.errors import IllegalTransition, NotFound
from unifiednn_core.spec.lifecycle import ENDED, TRANSITIONS, Event, State, next_state
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store.database import Repository
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.hybrids import is_live, note_progress, release_worker
from unifiednn_core.store.library import use_in
from unifiednn_core.store.schema import HYBRID, Base, CommandRow, EventRow, HybridRow, RunRow, SubModelRow

HEAVY = frozenset({"spec", "graph", "environment", "prediction", "memory_notes", "claimer", "settings", "certificate"})
"""Columns of a run or sub-model that lists do not need; they may take 100 KiB per run."""
_OF_RUN = [column for column in RunRow.__table__.columns if column.name not in HEAVY]
_OF_HYBRID = [
    column for column in HybridRow.__table__.columns if column.name not in {*RunRow.__table__.columns.keys(), *HEAVY}
]
_OF_SUBMODEL = [column for column in SubModelRow.__table__.columns if column.name not in HEAVY]
_THERE = aliased(HybridRow)
PLACED = (
    select(func.max(_THERE.device))
    .join(SubModelRow, SubModelRow.hybrid_id == _THERE.id)
    .where(SubModelRow.run_id == RunRow.id)
    .correlate(RunRow)
    .scalar_subquery()
)
"""Device of a run in shared hybrids."""
_LISTED = (
    *(column for column in _OF_RUN if column.name != "device"),
    *_OF_HYBRID,
    func.coalesce(HybridRow.device, PLACED, RunRow.device).label("device"),
    RunRow.spec["policy"].label("policy"),
)
_FINAL = ENDED - {State.INTERRUPTED}


class Runs(Repository):
    """Reads runs and sub-models, and moves them from state to state."""

    def add(self, *runs: tuple[RunRow, Sequence[SubModelRow]]) -> None:
        """Queue runs with their sub-models, all or none, and make the private hybrids.

        Raises `BadInput` if a file of one was deleted from the library.
        """
        with self._database.write() as session:
            for run, submodels in runs:
                session.add(run)
                if not run.shared:
                    settings = {name: run.spec[name] for name in HybridSettings.model_fields if name in run.spec}
                    hybrid = HybridRow(id=run.id, mode=run.mode, threads=run.threads or 1, settings=settings)
                    session.add(hybrid)
                session.flush()
                for submodel in submodels:
                    submodel.hybrid_id = None if run.shared else run.id
                session.add_all(submodels)
                use_in(session, run.id, run.spec.get("submodels", ()))
                self.note(session, run.id, None, Code.ENTERED, state=State.QUEUED, name=run.name)

    def get(self, run_id: str) -> tuple[RunRow, list[SubModelRow]]:
        """A run and its sub-models in order of arrival; raises `NotFound`."""
        with self._database.read() as session:
            run = run_of(session, run_id)
            return run, list(session.scalars(submodels_of(run_id)))

    def speeds(self, keys: Iterable[str], owner: str | None = None) -> dict[str, float]:
        """Seconds of service per step by memory key, from the last training of each; only an owner's, if one is given.

        Unknown keys are left out.
        """
        wanted = sorted(set(keys) - {""})
        if not wanted:
            return {}
        asked = values(column("key", String), name="asked").data([(key,) for key in wanted]).cte("asked")
        newest = (
            select(SubModelRow.service_s / SubModelRow.steps_done)
            .join(RunRow, RunRow.id == SubModelRow.run_id)
            .where(SubModelRow.memory_key == asked.c.key, RunRow.mode == HYBRID, SubModelRow.ended_at_s.is_not(None))
            .where(SubModelRow.steps_done > 0, SubModelRow.service_s > 0)
            .where(*([] if owner is None else [SubModelRow.owner == owner]))
            .order_by(SubModelRow.ended_at_s.desc())
            .limit(1)
            .correlate(asked)
        )
        found = self._all(select(asked.c.key, newest.scalar_subquery()))
        return {key: step_s for key, step_s in found if step_s is not None}

    def listed(self) -> list[tuple[Row[Any], list[Row[Any]]]]:
        """Every run, the newest first, with its sub-models, as light rows for lists.

        They have the columns of `RunRow`, those of its private `HybridRow`, and of `SubModelRow`, except `HEAVY`, and
        `policy`, which is part of the spec. `device` is where it was placed, or what was asked.
        """
        with self._database.read() as session:
            asked = light_runs().order_by(RunRow.created_at_s.desc(), RunRow.id.desc())
            return with_light_parts(session, session.execute(asked).all())

    def with_fingerprint(self, fingerprint: str) -> list[tuple[RunRow, list[SubModelRow]]]:
        """Runs of this fingerprint, the newest first."""
        of_it = select(RunRow).where(RunRow.fingerprint == fingerprint, RunRow.removed_at_s.is_(None))
        with self._database.read() as session:
            runs = list(session.scalars(of_it.order_by(RunRow.created_at_s.desc(), RunRow.id.desc())))
            parts: dict[str, list[SubModelRow]] = {run.id: [] for run in runs}
            asked = select(SubModelRow).where(SubModelRow.run_id.in_(parts)).order_by(SubModelRow.arrival)
            for row in session.scalars(asked):
                parts[row.run_id].append(row)
            return [(run, parts[run.id]) for run in runs]

    def queued_before(self, run: RunRow) -> int:
        """Number of queued runs that are ahead of this one in the line."""
        earlier = tuple_(RunRow.line_at_s, RunRow.id) < (run.line_at_s, run.id)
        waiting = select(func.count()).select_from(RunRow).where(RunRow.state == State.QUEUED.value, earlier)
        return self._value(waiting) or 0

    def transition(self, run_id: str, submodel: str | None, event: Event, **why: str | None) -> State:
        """Move a run, or one of its sub-models, along the transition table; raises `IllegalTransition`.

        `why` may hold `cause` and `remedy`.
        """
        with self._database.write() as session:
            return self.transition_in(session, run_id, submodel, event, **why)

    def transition_in(
        self,
        session: Session,
        run_id: str,
        submodel: str | None,
        event: Event,
        *,
        cause: str | None = None,
        remedy: str | None = None,
    ) -> State:
        """`transition` inside the caller's transaction."""
        row = row_of(session, run_id, submodel)
        before, what = State(row.state), row.name if submodel is None else f"{run_id}: {submodel}"
        try:
            state = next_state(what, before, event)
        except IllegalTransition:  # only the error message needs the history
            next_state(what, before, event, _past_states(session, run_id, submodel))
            raise
        if state is not before:
            row.state = state.value
            self.note(session, run_id, submodel, Code.ENTERED, state=state, name=row.name, cause=cause or None)
        if cause is not None:
            row.cause, row.remedy = cause, remedy
        if isinstance(row, RunRow):
            if before is State.QUEUED and state is not before:
                row.waits_for = None
            if event is Event.BEGIN and row.started_at_s is None:
                row.started_at_s = self._clock.utc_s()
            self._moved_run(session, row, before, state)
        else:
            self._keep_pause(row, paused=state is State.PAUSED or run_of(session, run_id).state == State.PAUSED.value)
        self._open_or_close(session, row, before, state)
        return state

    def fail_submodel(self, run_id: str, submodel: str, cause: str, remedy: str) -> None:
        """Fail one sub-model; its run continues."""
        self.transition(run_id, submodel, Event.FAIL, cause=cause, remedy=remedy)

    def doubt(self, run_id: str, submodel: str, cause: str, remedy: str) -> None:
        """Record why the results of a sub-model cannot be trusted, whether it has ended or not."""
        with self._database.write() as session:
            submodel_of(session, run_id, submodel).assign({"cause": cause, "remedy": remedy})

    def fail_run(self, run_id: str, cause: str) -> None:
        """Fail a run that cannot train at all, and its sub-models that have not ended."""
        remedy = f"The log runs/{run_id}/worker.log in the home folder has the whole trace. Correct it, then retry."
        with self._database.write() as session:
            for row in list(session.scalars(submodels_of(run_id))):
                if State(row.state) not in ENDED:
                    self.transition_in(session, run_id, row.name, Event.FAIL, cause=cause, remedy=remedy)
            self.transition_in(session, run_id, None, Event.FAIL, cause=cause, remedy=remedy)

    def hold(self, run_id: str, submodel: str) -> bool:
        """Pause a sub-model now; False if its state does not allow it."""
        with self._database.write() as session:
            return self.hold_in(session, run_id, submodel) is State.PAUSED

    def hold_in(self, session: Session, run_id: str, submodel: str | None) -> State:
        """Reach a pause inside the caller's transaction; return the new state.

        If the worker died after the request, the run was queued again, and the pause is requested again here.
        """
        state = State(row_of(session, run_id, submodel).state)
        for event in (Event.PAUSE, Event.HOLD):
            if (state, event) in TRANSITIONS and state not in ENDED:
                state = self.transition_in(session, run_id, submodel, event)
        return state

    def follow_in(self, session: Session, run: RunRow) -> None:
        """Move a run in shared hybrids to the state that its sub-models are in, inside the caller's transaction."""
        state, rows = State(run.state), list(session.scalars(submodels_of(run.id)))
        still = [row for row in rows if State(row.state) not in ENDED]
        if not run.shared or state in ENDED:
            return
        if not still:
            self._end_in(session, run, rows)
            return
        placed = [row for row in still if row.hybrid_id is not None]
        live = [row for row in placed if is_live(session, row)]
        rests = all(State(row.state) is State.PAUSED for row in still)
        if (state is State.PAUSING or rests) and not placed:
            self.hold_in(session, run.id, None)
            self.answer_pauses_in(session, run.id, None)
        elif not live and state in (State.RUNNING, State.STARTING):
            self.transition_in(session, run.id, None, Event.RELEASE)
        elif live and state is State.QUEUED:
            self.transition_in(session, run.id, None, Event.CLAIM)

    def answer_pauses_in(self, session: Session, run_id: str, submodel: str | None) -> None:
        """Answer the open pauses of a run or sub-model, inside the caller's transaction."""
        of_row = CommandRow.submodel.is_(None) if submodel is None else CommandRow.submodel == submodel
        asked = select(CommandRow).where(CommandRow.run_id == run_id, of_row, CommandRow.applied_at_s.is_(None))
        for command in list(session.scalars(asked.where(CommandRow.verb == Event.PAUSE.value))):
            self.answer(session, command, Code.APPLIED, verb=command.verb)

    def update(self, run_id: str, **values: Any) -> None:
        """Set columns of a run, except its state."""
        with self._database.write() as session:
            run_of(session, run_id).assign(values)

    def note_fact(self, run_id: str, name: str, fact: object) -> None:
        """Set one entry of a run's environment; the others stay as they are now."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            run.environment = {**run.environment, name: fact}

    def record_export(
        self,
        run_id: str,
        submodel: str,
        event: Event,
        *,
        cause: str | None = None,
        remedy: str | None = None,
        model: Mapping[str, Any] | None = None,
    ) -> None:
        """Record how a sub-model has ended, and the model that it leaves, at once: whoever repeats it writes it once.

        `model` are the columns of an exported model, whose certificate is to be made.
        """
        with self._database.write() as session:
            if model is not None:
                at_s = self._clock.utc_s()
                made = {**model, "artifact_at_s": at_s, "certify_at_s": at_s, "certificate": None}
                submodel_of(session, run_id, submodel).assign(made)
                self.note(session, run_id, submodel, Code.SEPARATED, archive=model["artifact"])
            try:
                with session.begin_nested():
                    self.transition_in(session, run_id, submodel, event, cause=cause, remedy=remedy)
            except IllegalTransition as error:  # a wrong state costs less than the training of all
                self.note(session, run_id, submodel, Code.ILLEGAL_MOVE, text=str(error))

    def uncertified(self, until_s: float) -> list[tuple[RunRow, SubModelRow]]:
        """Sub-models whose certificate is to be made by then, the longest waiting first."""
        asked = select(RunRow, SubModelRow).join(SubModelRow, SubModelRow.run_id == RunRow.id)
        asked = asked.where(SubModelRow.certify_at_s <= until_s, RunRow.removed_at_s.is_(None))
        asked = asked.order_by(SubModelRow.certify_at_s)
        return [(run, row) for run, row in self._all(asked)]

    def certify_later(self, row: SubModelRow, at_s: float | None) -> None:
        """Make the certificate of an export then, or never; a newer export keeps its own time."""
        with self._database.write() as session:
            if (same := _same_export(session, row)) is not None:
                same.certify_at_s = at_s

    def record_certificate(
        self, row: SubModelRow, document: Mapping[str, Any], code: Code, *, size_bytes: int, **fields: Any
    ) -> None:
        """Record the certificate of an export, the size of the zip with it, and an event; nothing for an older one."""
        with self._database.write() as session:
            same = _same_export(session, row)
            if same is not None:
                same.assign({"certificate": dict(document), "certify_at_s": None, "artifact_bytes": size_bytes})
                self.note(session, row.run_id, row.name, code, **fields)

    def measuring(self) -> bool:
        """Whether a baseline is being measured."""
        at_work = (State.STARTING.value, State.RUNNING.value)
        asked = select(RunRow.id).where(RunRow.state.in_(at_work), RunRow.mode != HYBRID).limit(1)
        return self._value(asked) is not None

    def record_checkpoint(self, run_id: str, submodel: str, *, name: str, step: int, size_bytes: int) -> None:
        """Record the newest checkpoint of a sub-model."""
        columns = {"checkpoint": name, "checkpoint_step": step, "checkpoint_bytes": size_bytes}
        with self._database.write() as session:
            row = submodel_of(session, run_id, submodel)
            if step > (row.checkpoint_step or 0):
                note_progress(session, row, step)
            row.assign({**columns, "checkpoint_at_s": self._clock.utc_s()})

    def forget_checkpoint(self, run_id: str, submodel: str) -> None:
        """Record that a sub-model has no checkpoints."""
        names = ("checkpoint", "checkpoint_step", "checkpoint_bytes", "checkpoint_at_s")
        with self._database.write() as session:
            submodel_of(session, run_id, submodel).assign(dict.fromkeys(names))

    def conclude(self, run_id: str) -> bool:
        """End a run if all its sub-models have ended: failed if one failed, stopped if a person stopped it.

        Returns False if one has not ended, because it joined or is retried.
        """
        with self._database.write() as session:
            rows, run = list(session.scalars(submodels_of(run_id))), run_of(session, run_id)
            if any(State(row.state) not in ENDED for row in rows):
                return False
            self._end_in(session, run, rows)
            return True

    def _end_in(self, session: Session, run: RunRow, rows: Sequence[SubModelRow]) -> None:
        failed = [row.name for row in rows if State(row.state) is State.FAILED]
        stopping = State(run.state) is State.STOPPING
        if any(State(row.state) is State.INTERRUPTED for row in rows) and not stopping:  # first: those can be resumed
            self.transition_in(session, run.id, None, Event.LOSE)
        elif failed:
            cause = f"{', '.join(failed)} failed; the results of the others are kept."
            remedy = "Retry what failed, or use the other results: each failure is told with its cause and remedy."
            self.transition_in(session, run.id, None, Event.FAIL, cause=cause, remedy=remedy)
        else:
            self.transition_in(session, run.id, None, Event.HALT if stopping else Event.COMPLETE)

    def halt_in(self, session: Session, run_id: str) -> None:
        """End a stopping run that never trained, and its sub-models, inside the caller's transaction."""
        for row in list(session.scalars(submodels_of(run_id))):
            if State(row.state) not in ENDED:
                for event in (Event.STOP, Event.HALT):
                    self.transition_in(session, run_id, row.name, event)
        if State(run_of(session, run_id).state) not in ENDED:  # one in shared hybrids has followed its sub-models
            self.transition_in(session, run_id, None, Event.HALT)

    def warn(self, run_id: str, submodel: str, sentences: Sequence[str]) -> None:
        """Add warnings to the history of a sub-model."""
        with self._database.write() as session:
            for sentence in sentences:
                self.note(session, run_id, submodel, Code.WARNED, text=sentence)

    def remark(self, run_id: str, text: str) -> None:
        """Add a remark to the history of a run."""
        with self._database.write() as session:
            self.note(session, run_id, None, Code.WARNED, text=text)

    def note(self, session: Session, run_id: str, submodel: str | None, code: Code, **fields: Any) -> None:
        """Add an event to the history of a run, inside the caller's transaction; `fields` may hold the `state`."""
        session.add(EventRow(run_id=run_id, **event_columns(self._clock.utc_s(), submodel, code, **fields)))

    # -- consequences of a move

    def _moved_run(self, session: Session, run: RunRow, before: State, state: State) -> None:
        """Move the sub-models of a run that is paused, stopped, or resumed after a death."""
        if state is before:
            return
        for row in list(session.scalars(submodels_of(run.id))):
            own = State(row.state)
            if state is State.PAUSED and own is State.RUNNING:
                self.transition_in(session, run.id, row.name, Event.RELEASE)
            elif state is State.QUEUED and own is State.INTERRUPTED:
                self.transition_in(session, run.id, row.name, Event.RESUME)
            elif state is State.STOPPING and own not in ENDED:
                self.transition_in(session, run.id, row.name, Event.STOP)
            elif own not in ENDED:
                self._keep_pause(row, paused=State.PAUSED in (state, own))
        hybrid = session.get(HybridRow, run.id)
        if hybrid is not None and (state is State.PAUSED or state in ENDED):
            release_worker(hybrid)

    def _open_or_close(self, session: Session, row: RunRow | SubModelRow, before: State, state: State) -> None:
        if state not in ENDED:
            row.ended_at_s = None
            if before in ENDED:
                row.cause = row.remedy = None
            return
        if row.ended_at_s is None:
            row.ended_at_s = self._clock.utc_s()
        if isinstance(row, SubModelRow):
            self._keep_pause(row, paused=False)
            row.leaving = None
            if state is State.COMPLETED and before is not state:
                note_progress(session, row, None)
        if state in _FINAL and state is not before:
            self._settle_commands(session, row, state)
            if isinstance(row, SubModelRow):
                self.follow_in(session, run_of(session, row.run_id))

    def _settle_commands(self, session: Session, row: RunRow | SubModelRow, state: State) -> None:
        """Answer the open commands of a run or sub-model that has ended."""
        run_id, submodel = (row.id, None) if isinstance(row, RunRow) else (row.run_id, row.name)
        of_row = CommandRow.submodel.is_(None) if submodel is None else CommandRow.submodel == submodel
        asked = select(CommandRow).where(CommandRow.run_id == run_id, of_row, CommandRow.applied_at_s.is_(None))
        for command in session.scalars(asked):
            done = command.verb in (Event.STOP.value, Event.DISCARD.value) and state is State.STOPPED
            found = {} if done else {"name": row.name, "found": state.value}
            self.answer(session, command, Code.DONE if done else Code.OBSOLETE, verb=command.verb, **found)

    def answer(self, session: Session, command: CommandRow, code: Code, **fields: Any) -> None:
        """Close a command with the event that answers it, inside the caller's transaction."""
        command.applied_at_s, command.outcome = self._clock.utc_s(), code.value
        self.note(session, command.run_id, command.submodel, code, **fields)

    def _keep_pause(self, row: SubModelRow, *, paused: bool) -> None:
        """Count the seconds that a sub-model is paused, alone or with its run."""
        now_s = self._clock.utc_s()
        if paused and row.paused_since_s is None:
            row.paused_since_s = now_s
        elif not paused and row.paused_since_s is not None:
            row.paused_s, row.paused_since_s = row.paused_s + max(0.0, now_s - row.paused_since_s), None


def light_runs() -> Select[Any]:
    """Query for the light rows of runs, in no order; those that are being deleted are left out."""
    asked = select(*_LISTED).select_from(RunRow).outerjoin(HybridRow, HybridRow.id == RunRow.id)
    return asked.where(RunRow.removed_at_s.is_(None))


def with_light_parts(session: Session, runs: Sequence[Row[Any]]) -> list[tuple[Row[Any], list[Row[Any]]]]:
    """These light rows with those of their sub-models."""
    parts: dict[str, list[Row[Any]]] = {run.id: [] for run in runs}
    asked = select(*_OF_SUBMODEL).where(SubModelRow.run_id.in_(parts))
    for row in session.execute(asked.order_by(SubModelRow.run_id, SubModelRow.arrival)):
        parts[row.run_id].append(row)
    return [(run, parts[run.id]) for run in runs]


def run_of(session: Session, run_id: str) -> RunRow:
    """Row of a run; raises `NotFound`."""
    run = session.get(RunRow, run_id)
    if run is None or run.removed_at_s is not None:
        raise NotFound(f"There is no run '{run_id}'. List the known ones with: unifiednn runs")
    return run


def submodel_of(session: Session, run_id: str, name: str) -> SubModelRow:
    """Row of a sub-model; raises `NotFound`."""
    row = session.get(SubModelRow, (run_id, name))
    if row is None:
        known = ", ".join(session.scalars(select(SubModelRow.name).where(SubModelRow.run_id == run_id)))
        raise NotFound(f"Run '{run_id}' has no sub-model '{name}'. It has: {known or 'none'}.")
    return row


def _same_export(session: Session, row: SubModelRow) -> SubModelRow | None:
    """The row of a sub-model, unless it was exported again or is gone."""
    now = session.get(SubModelRow, (row.run_id, row.name))
    return now if now is not None and now.artifact_at_s == row.artifact_at_s else None


def row_of(session: Session, run_id: str, submodel: str | None) -> RunRow | SubModelRow:
    """Row of a sub-model, or of the run itself; raises `NotFound`."""
    return run_of(session, run_id) if submodel is None else submodel_of(session, run_id, submodel)


def _past_states(session: Session, run_id: str, submodel: str | None) -> list[str]:
    of_this = EventRow.submodel.is_(None) if submodel is None else EventRow.submodel == submodel
    states = select(EventRow.state).where(EventRow.run_id == run_id, of_this, EventRow.state.is_not(None))
    return [state or "" for state in reversed(list(session.scalars(states.order_by(EventRow.id.desc()).limit(5))))]


def submodels_of(run_id: str) -> Any:
    """Query for the sub-models of a run in order of arrival."""
    return select(SubModelRow).where(SubModelRow.run_id == run_id).order_by(SubModelRow.arrival)


class SeenRow(Base):
    """A failure that a person has seen."""

    __tablename__ = "seen_failures"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),)
    person: Mapped[str] = mapped_column(primary_key=True)
    """"" is the local operator."""
    run_id: Mapped[str] = mapped_column(primary_key=True, index=True)
    at_s: Mapped[float]
    dismissed: Mapped[bool] = mapped_column(default=False)


class Seen(Repository):
    """What people have seen."""

    def of(self, person: str) -> dict[str, tuple[float, bool]]:
        """By run, when a person last saw its failures, and whether they were dismissed then."""
        rows = self._rows(select(SeenRow).where(SeenRow.person == person))
        return {row.run_id: (row.at_s, row.dismissed) for row in rows}

    def note(self, person: str, run_id: str, *, dismissed: bool) -> None:
        """Record that a person has seen the failures of a run; raises `NotFound`."""
        with self._database.write() as session:
            run_of(session, run_id)
            row = session.get(SeenRow, (person, run_id)) or SeenRow(person=person, run_id=run_id, dismissed=False)
            row.at_s, row.dismissed = self._clock.utc_s(), row.dismissed or dismissed
            session.add(row)
