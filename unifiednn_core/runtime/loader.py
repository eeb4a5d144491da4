"""Reads the sub-models of a hybrid for its worker: files, progress, attempt, place in line, room in memory."""

import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.exc import OperationalError

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.engine.device import preserved
from unifiednn_core.engine.job import Job, Standing, reasons
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.machine.budget import budget_of
from unifiednn_core.preflight.forecast import memory_room
from unifiednn_core.runtime.admission import shared_prediction
from unifiednn_core.runtime.assembly import Ingredients, Workbench
from unifiednn_core.runtime.launchers import WorkMark
from unifiednn_core.runtime.remote_store import RemoteStore
from unifiednn_core.runtime.reporter import Reporter
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.spec.devices import own_name
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.spec.split import waits_for
from unifiednn_core.store import Store
from unifiednn_core.store.hybrids import Resident, address
from unifiednn_core.store.schema import RunRow, SubModelRow


@dataclass(frozen=True, slots=True)
class SubModelLoader:
    """Prepares sub-models for training. One that cannot be read or restored fails alone."""

    store: Store
    bench: Workbench
    reporter: Reporter
    clock: Clock
    shared: bool
    courier: RemoteStore | None = None
    """Brings files from the server; None on its machine."""
    coming: dict[tuple[str, int], Future[None]] = field(default_factory=dict)
    """Files that come for sub-models that are to join, by key and attempt: another machine may have had it since."""
    bringing: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 4, "courier"))
    waiting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Sub-models that wait for the parts of their network, and the names of these parts."""
    rooms: list[MemoryRoom] = field(default_factory=lambda: [MemoryRoom()])
    """What the newest prediction of the hybrid allows; its only entry."""

    def jobs(
        self, members: Sequence[Resident], mark: WorkMark, last_turns: Mapping[str, float], elapsed_s: float
    ) -> list[Job]:
        """Sub-models that are ready to train, in order of arrival, in a hybrid that goes on after `elapsed_s`."""
        alive = [member for member in members if State(member.row.state) not in ENDED and member.row.leaving is None]
        # The line is sorted by the end of the last turn; without one, or if it was cut short, a sub-model goes first.
        line = sorted((member.key for member in alive), key=lambda name: last_turns.get(name, -1.0))
        jobs: dict[str, Job] = {}
        for member in alive:
            key, row = member.key, member.row
            if self.waits(member):
                continue
            mark.set(1, key, "loading")
            if not self._brought(member):
                continue
            read = self.read(member, members)
            if read is None:
                continue
            try:
                with preserved(self.bench.device), ProcessState(self.bench.device):
                    submodel = self.bench.add(read)
                jobs[key] = Job(
                    submodel,
                    in_line_since=line.index(key),
                    service_s=row.service_s,
                    paused_s=row.paused_s,
                    state=State.PAUSED if row.state == State.PAUSED.value else State.QUEUED,
                    captured_step=read.columns.get("checkpoint_step", 0),
                )
            except Exception as error:
                self._fail(member, error)
        mark.clear()
        began_at_s = self.clock.utc_s() - elapsed_s  # the engine's clock begins with this, right after the last reading
        for member in alive:
            if member.key in jobs:
                jobs[member.key].standing = self.standing(member, began_at_s)
        return list(jobs.values())

    def waits(self, member: Resident) -> bool:
        """Whether a sub-model has to wait for parts of its network, which may train elsewhere."""
        if member.key not in self.waiting:
            asked = next(part for part in member.run.spec["submodels"] if part["name"] == member.row.name)
            if not (names := waits_for(SubModelSpec.model_validate(asked))):
                return False
            self.waiting[member.key] = names
        rows = {row.name: row for row in self.store.runs.get(member.run.id)[1]}
        parts = [rows.get(name) for name in self.waiting[member.key]]
        if any(part is not None and State(part.state) not in ENDED for part in parts):
            return True
        lost = [name for name, part in zip(self.waiting[member.key], parts, strict=True) if not _has_file(part)]
        if lost:
            cause = f"{lost[0]} ended without weights, and {member.row.name} is joined of its parts."
            self.store.runs.fail_submodel(member.run.id, member.row.name, cause, f"Retry {lost[0]}, then this one.")
        self.waiting.pop(member.key)
        return bool(lost)

    def memory(self) -> MemoryRoom:
        """What the prediction of the hybrid allows now. Safe in any thread."""
        return self.rooms[0]

    def standing(self, member: Resident, began_at_s: float) -> Standing:
        """What a sub-model may count on, in a hybrid whose clock began at `began_at_s` (UTC)."""
        run, row = member
        submitted_at_s = run.created_at_s if row.joined_at_s is None else row.joined_at_s
        return Standing(
            owner=row.owner,
            tickets=self.store.people.tickets_of(row.owner),
            submitted_s=submitted_at_s - began_at_s,
            deadline_s=row.deadline_s,
            joined_s=max(0.0, submitted_at_s - began_at_s),
        )

    def read(self, member: Resident, members: Sequence[Resident]) -> Ingredients | None:
        """Read one of the members and open its attempt; None if it could not be read, and has failed."""
        run, row = member
        try:
            spec, files = RunSpec.model_validate(run.spec), run.environment.get("files", {}).get(row.name, {})
            if State(row.state) is State.STOPPING:  # it is only saved, which gives the same bits anywhere
                spec = spec.model_copy(update={"moves": "any"})
            self.rooms[:] = [self._room(run, members)]
            read = self.bench.read(member.key, spec, files, partial(self.store.runs.warn, run.id, row.name))
        except OperationalError:
            raise
        except Exception as error:
            self._fail(member, error)
            return None
        columns, peers = read.columns, sum(State(one.row.state) not in ENDED for one in members)
        [attempt] = self.store.workers.begin(self.bench.hybrid_id, {member.key: columns}).values()
        self.reporter.admit(member.key, row, attempt, from_step=columns["steps_done"], peers=peers)
        return read

    def forget_checkpoints(self, key: str) -> None:
        """Delete the checkpoints of a sub-model that starts from the beginning. Raises `OSError`."""
        self.bench.checkpoints(key).clear()
        if self.courier is not None:  # the server has none either
            self.courier.keep(key, ())
            self.store.runs.forget_checkpoint(*address(self.bench.hybrid_id, key))

    def has_brought(self, member: Resident) -> bool | None:
        """Whether the files of a sub-model are on this machine; None if one is lost, and it has failed."""
        if self.courier is None:
            return True
        asked = member.key, member.row.attempt
        if asked not in self.coming:
            self.coming[asked] = self.bringing.submit(self.courier.bring, member.key)
        if not self.coming[asked].done():
            return False
        try:
            self.coming.pop(asked).result()
        except (OSError, NotFound):  # it is asked again, if it still belongs here
            return False
        except BadInput as error:
            self._fail(member, error)
            return None
        return True

    def _brought(self, member: Resident) -> bool:
        """Wait for the files of a sub-model; False if it has left, or failed because one is lost. Raises `OSError`."""
        try:
            if self.courier is not None:
                self.courier.bring(member.key)
        except NotFound:  # it has left
            return False
        except BadInput as error:
            self._fail(member, error)
            return False
        return True

    def _room(self, run: RunRow, members: Sequence[Resident]) -> MemoryRoom:
        """What the prediction allows; that of a shared hybrid is made of those of its members."""
        if not self.shared:
            return memory_room(run.prediction)
        hybrid = self.store.hybrids.get(self.bench.hybrid_id)[0]
        still = [one for one in members if State(one.row.state) not in ENDED]
        predicted = shared_prediction(hybrid, still, budget_of(own_name(hybrid.device or "cpu")).total_bytes)
        self.store.hybrids.update(hybrid.id, prediction=predicted)
        return memory_room(predicted)

    def _fail(self, member: Resident, error: Exception) -> None:
        traceback.print_exception(error)
        self.reporter.open.discard(member.key)
        self.store.runs.fail_submodel(member.row.run_id, member.row.name, *reasons(error))


def _has_file(part: SubModelRow | None) -> bool:
    """Whether the trained weights of a part are on disk."""
    return part is not None and part.model_path is not None and State(part.state) in (State.COMPLETED, State.STOPPED)
