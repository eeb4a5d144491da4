"""What a worker on another machine may ask the store: by name, with JSON, for its own hybrid alone.

A worker is confined but may be hostile: its calls are JSON that is checked against the signatures of the store.
The answers come from the server, which it trusts anyway, so they are pickles.
"""

import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from functools import cache
from typing import Any, NamedTuple

from pydantic import ConfigDict, validate_call
from pydantic_core import from_json, to_json
from sqlalchemy.exc import OperationalError

from unifiednn_core.base.errors import Fenced, NotFound, UnifiedNNError
from unifiednn_core.spec.devices import CUDA, host_of, type_named
from unifiednn_core.store import Store
from unifiednn_core.store.database import Fence
from unifiednn_core.store.hybrids import Resident, address
from unifiednn_core.store.schema import HYBRID, HybridRow
from unifiednn_core.store.workers import WorkerIdentity

_READS = """
commands.find_open commands.open commands.open_in devices.cpus_of hybrids.get hybrids.is_to_leave hybrids.open_members
library.facts people.tickets_of runs.get telemetry.epochs telemetry.last_turns
"""
_WRITES = """
commands.adopt commands.carry_out commands.decline hybrids.begin hybrids.record_environment hybrids.update
measured.remember runs.conclude runs.doubt runs.fail_run runs.fail_submodel runs.forget_checkpoint runs.hold
runs.record_checkpoint runs.record_export runs.transition runs.update runs.warn telemetry.write workers.begin
workers.begin_anew workers.close workers.give_back workers.left
"""
_COLUMNS = """
artifact artifact_bytes checkpoint checkpoint_bytes checkpoint_step cpu_s ended_at_s energy_j epochs_done gpu_s graph
lane launched_at_s memory_notes memory_source model_path not_learning now_reason peak_memory_bytes prediction service_s
started_at_s state_sha256 step_s steps_done test_accuracy test_loss train_accuracy train_loss turn_reason turn_since_s
"""
COLUMNS = frozenset(_COLUMNS.split())
"""What a worker may set of its hybrid, its runs and its sub-models."""
_IDS = {"id", "run_id", "hybrid_id"}
READS, WRITES = frozenset(_READS.split()), frozenset(_WRITES.split())
REGISTER, NOW = "workers.register", "now"
BRING, KEEP = "bring", "keep"
"""Calls about files, which the driver carries out itself."""


class Call(NamedTuple):
    """A call as it travels."""

    name: str
    arguments: list[Any]
    named: dict[str, Any]
    number: int = 0
    """Of a call that changes something: from 1 in each attempt. 0 for others."""

    def encoded(self) -> bytes:
        """As JSON; NaN stays NaN, and every float its value."""
        return to_json(self, inf_nan_mode="constants")

    @classmethod
    def decoded(cls, frame: bytes) -> "Call":
        """What a worker sent; a call of nothing for what is none."""
        try:
            name, arguments, named, number = from_json(frame, allow_inf_nan=True)
            return cls(str(name), list(arguments), dict(named), int(number))
        except (ValueError, TypeError, OverflowError):
            return cls("", [], {})


class Desk:
    """Answers the calls of the worker of one attempt on a hybrid, in the driver."""

    def __init__(self, store: Store, hybrid_id: str, attempt: int):
        self._store, self._fence = store, Fence(hybrid_id, attempt)
        self._begun_at_s = store.clock.utc_s()

    def answer(self, call: Call) -> bytes:
        """Carry a call out. Errors are answers, too, except those that pass by themselves: `OperationalError`."""
        try:
            if call.name == NOW:
                return answered(self._store.clock.utc_s())
            if call.name == REGISTER:
                return answered(self._registered(WorkerIdentity(*call.arguments)))
            if call.name in READS:
                return answered(self._called(call))
            if call.name in WRITES:
                return self._store.calls.answer(self._fence, call.number, lambda: answered(self._called(call)))
            raise NotFound(f"A worker may not call {call.name}.")
        except OperationalError:
            raise
        except Exception as error:
            return failed(error)

    def _registered(self, worker: WorkerIdentity) -> int | None:
        """The attempt of a worker; None if its hybrid was given up, or belongs to another one."""
        hybrid, _ = self._store.hybrids.get(self._fence.hybrid_id)
        known = (hybrid.worker_pid, hybrid.worker_started_at_s, hybrid.worker_boot_id)
        if hybrid.attempt == self._fence.attempt and known == astuple(worker):  # the answer was lost
            return hybrid.attempt
        if hybrid.attempt + 1 != self._fence.attempt:
            return None
        began_s = self._begun_at_s if hybrid.mode == HYBRID else None
        return self._store.workers.register(hybrid.id, worker, began_s)

    def _called(self, call: Call) -> Any:
        part, _, name = call.name.partition(".")
        method = getattr(getattr(self._store, part), name)
        self._require_own(inspect.signature(method).bind(*call.arguments, **call.named).arguments)
        found = checked(method.__func__)(method.__self__, *call.arguments, **call.named)
        if isinstance(found, Iterator):
            return list(found)
        return _as_seen_there(found) if call.name == "hybrids.get" else found

    def _require_own(self, given: Mapping[str, Any]) -> None:
        """Raise `Fenced` for what is not in this hybrid, and for columns that are no worker's."""
        hybrid_id, run_id = self._fence.hybrid_id, given.get("run_id")
        if "command_id" in given:
            command = self._store.commands.find_open(int(given["command_id"]))
            run_id = None if command is None else command.run_id
        columns, keys = _named_in(given)
        ours = given.get("hybrid_id", hybrid_id) == hybrid_id and columns <= COLUMNS
        runs = {address(hybrid_id, str(key))[0] for key in keys} | {run_id}
        if runs - {None, hybrid_id}:
            ours = ours and runs - {None} <= {member.run.id for member in self._store.hybrids.get(hybrid_id)[1]}
        if not ours:
            raise Fenced(hybrid_id, self._fence.attempt)


def _named_in(given: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Columns that a call would set, and keys of sub-models that it names."""
    batch = given.get("batch") or {}
    parts = {**given.get("starts", {}), **batch.get("submodels", {})}
    rows = [row for table in ("steps", "epochs", "slices", "events") for row in batch.get(table, ())]
    columns = {*given.get("values", {}), *(given.get("model") or {}), *batch.get("hybrid", {})}
    columns |= {name for part in parts.values() for name in part}
    columns |= {name for row in (*rows, *batch.get("memory", ()), *batch.get("strata", ())) for name in row} & _IDS
    keys = {*parts, *(row["submodel"] for row in rows if row.get("submodel") is not None)}
    return columns, keys | ({given["key"]} if "key" in given and "hybrid_id" in given else set())


def _as_seen_there(found: tuple[HybridRow, list[Resident]]) -> tuple[HybridRow, list[Resident]]:
    """The hybrid with the names that its devices have in its worker: Ray shows it its own GPUs alone, from 0 on."""
    hybrid, members = found
    if type_named(hybrid.device or "") == CUDA:
        host = host_of(hybrid.device)
        hybrid.device, *hybrid.also = [f"{host}/{CUDA}:{index}" for index in range(1 + len(hybrid.also))]
    return hybrid, members


@cache
def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a repository, which checks and converts its arguments by its annotations."""
    return validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)


def opened(answer: bytes) -> Any:
    """What a call gave; raises what it raised."""
    raised, value = pickle.loads(answer)  # noqa: S301  (from the server, whose program this is)
    if raised:
        raise value
    return value


def failed(error: Exception) -> bytes:
    """The answer that raises an error in the worker."""
    try:
        answer = pickle.dumps((True, error))
        pickle.loads(answer)  # noqa: S301  (made one line above)
    except Exception:  # an error that cannot travel
        return pickle.dumps((True, UnifiedNNError(f"{type(error).__name__}: {error}")))
    return answer


def answered(value: Any) -> bytes:
    """The answer that gives a value."""
    return pickle.dumps((False, value))
