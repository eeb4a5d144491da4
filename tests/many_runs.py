"""A store full of runs, written in bulk: ended ones, ones that wait, and hybrids that hold devices. No training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert

from unifiednn_core.runtime.launchers import own_identity
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.devices import DeviceRow, DeviceSampleRow
from unifiednn_core.store.people import AuditRow
from unifiednn_core.store.schema import (
    AttemptRow,
    Base,
    CommandRow,
    DraftRow,
    EpochRow,
    EventRow,
    FileOwnerRow,
    FileRow,
    FileUseRow,
    HybridRow,
    MemoryRow,
    RunRow,
    SliceRow,
    StepRow,
    StrataRow,
    SubModelRow,
)

NAMES = ("lenet", "resnet", "transformer")
KINDS = 50
"""Different networks; a run trains three of them."""
PEOPLE = 20
EVERY_S = 3600.0
"""Between two submissions."""
STEPS, EPOCHS, TURNS, SAMPLES = 200, 20, 60, 120
"""Recorded rows of a run in full: per sub-model, per sub-model, per run, per hybrid."""
MIB = 2**20
CHUNK = 1000
_STATES = ("completed",) * 17 + ("failed", "stopped", "interrupted")
SETTINGS = HybridSettings().model_dump(mode="json", exclude_none=True)
ON_GPU = {"device_kind": "H200", "attempt": 1, "memory_source": "process PSS", "peak_memory_bytes": 300 * MIB}
Columns = dict[str, Any]
Row = tuple[type[Base], Columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a store holds."""

    ended: int = 0
    in_full: int = 0
    """The newest so many of them with all that a worker records."""
    waiting: int = 0
    devices: int = 0
    """GPUs; each is held by a private hybrid that trains."""
    samples: int = 0
    """Samples of each device, two seconds apart."""


def fill(store: Store, size: Size, now_s: float) -> None:
    """Write it; a store is filled once. The last ended run ended a moment ago."""
    _write(store, _files(now_s))
    for first in range(0, size.ended, CHUNK):
        numbers = range(first, min(size.ended, first + CHUNK))
        whole = [number >= size.ended - size.in_full for number in numbers]
        _write(store, _ended(numbers, now_s - size.ended * EVERY_S, whole))
    _write(store, _fleet(size, now_s))


def run_id(number: int, kind: str = "r") -> str:
    """Id of an ended run (`r`), a waiting (`w`) or a training one (`t`); they sort by age within a kind."""
    return f"2026{kind}{number:06}-{number % 4096:03x}"


def device_name(place: int) -> str:
    """Name of a device."""
    return f"cuda:{place}"


def person(number: int) -> str:
    """Who submitted a run; every second is of the local operator."""
    return "" if number % 2 else f"p{number % PEOPLE:02}@example.org"


def key_of_kind(kind: int) -> str:
    """Memory key of a network."""
    return f"key-{kind % KINDS:02}"


def sha(kind: int, what: str) -> str:
    """Name by content of a file."""
    return f"{what}{kind % KINDS:02}".encode().hex().ljust(64, "0")


def spec(number: int) -> Columns:
    """A stored spec of three networks."""
    files = {"model": "model", "train_data": "train", "test_data": "test"}
    parts = [
        {
            "name": name,
            "hyperparameters": {"epochs": EPOCHS},
            **{entry: f"sha256:{sha(number * len(NAMES) + place, what)}" for entry, what in files.items()},
        }
        for place, name in enumerate(NAMES)
    ]
    return {"name": f"run {number}", "device": "auto", "policy": {"name": "round_robin"}, "submodels": parts}


def _write(store: Store, found: Iterator[Row]) -> None:
    """Insert rows, each table at once, in an order that keeps foreign keys."""
    rows: dict[type[Base], list[Columns]] = {}
    for table, columns in found:
        rows.setdefault(table, []).append(columns)
    first: tuple[type[Base], ...] = (RunRow, HybridRow, SubModelRow)
    with store._database.write() as session:
        for table in (*first, *(table for table in rows if table not in first)):
            if rows.get(table):
                session.execute(insert(table), rows[table])


def _files(now_s: float) -> Iterator[Row]:
    for kind in range(KINDS):
        for what in ("model", "train", "test"):
            one = {"sha256": sha(kind, what), "filename": f"{what}-{kind:02}", "created_at_s": now_s}
            kept = {"kind": "model" if what == "model" else "data", "format": "pt2", "size_bytes": MIB, "facts": {}}
            yield FileRow, {**one, **kept}
            yield FileOwnerRow, {**one, "owner": ""}


def _run(number: int, kind: str, at_s: float, **columns: Any) -> Row:
    run = run_id(number, kind)
    who = {"id": run, "name": f"run {number}", "submitter": person(number), "fingerprint": f"print-{run}"}
    asked = {"device": "auto", "mode": "hybrid", "spec": spec(number), "threads": 1, "created_at_s": at_s}
    return RunRow, {**who, **asked, "prediction": {}, "environment": {}, **columns}


def _hybrid(run: str, **columns: Any) -> Row:
    return HybridRow, {"id": run, "settings": SETTINGS, **columns}


def _part(number: int, place: int, run: str, **columns: Any) -> Row:
    who = {"run_id": run, "name": NAMES[place], "owner": person(number), "arrival": place, "priority": place}
    size = {"model_format": "pt2", "parameters": 10_000, "epochs": EPOCHS, "steps_total": EPOCHS * 100}
    key = key_of_kind(number * len(NAMES) + place)
    return SubModelRow, {**who, **size, "memory_key": key, "hybrid_id": run, **columns}


def _event(run: str, name: str | None, at_s: float, state: str) -> Row:
    told = {"kind": "state", "code": "entered", "state": state, "fields": {"name": name or run}}
    return EventRow, {"run_id": run, "submodel": name, "at_s": at_s, **told}


def _ended(numbers: range, zero_s: float, whole: Sequence[bool]) -> Iterator[Row]:
    for number, in_full in zip(numbers, whole, strict=True):
        at_s, run = zero_s + number * EVERY_S, run_id(number)
        state, who = _STATES[number % len(_STATES)], person(number)
        mode = "concurrent" if number % 10 == 9 else "hybrid"  # every tenth is a baseline of the run before it
        of = run_id(number - 1) if mode != "hybrid" else run
        times = {"launched_at_s": at_s + 10.0, "started_at_s": at_s + 12.0}
        ends = {"mode": mode, "fingerprint": f"print-{of}", "ended_at_s": at_s + 400.0}
        yield _run(number, "r", at_s, state=state, **times, **ends)
        yield _hybrid(run, mode=mode, **ON_GPU, **times, device=device_name(number % 8), graph="n -> m;\n" * 150)
        command = {"submodel": None, "verb": "save", "arguments": {}, "issued_at_s": at_s}
        yield CommandRow, {"run_id": run, **command, "applied_at_s": at_s, "outcome": "applied"}
        yield DraftRow, {"id": f"d{number:07}", "owner": who, "document": {}, "changed_at_s": at_s, "run_id": run}
        for line, action in enumerate(("submit", "save", "artifact")):
            did = {"person": who or "local operator", "role": "operator", "action": action, "outcome": "allowed"}
            yield AuditRow, {"at_s": at_s + line, "subject": run, **did}
        for entered in ("queued", "starting", "running", state):
            yield _event(run, None, at_s, entered)
        for place in range(len(NAMES)):
            yield from _ended_part(number, place, state, at_s + 400.0)
        if in_full:
            yield from _recorded(run)


def _ended_part(number: int, place: int, state: str, ended_s: float) -> Iterator[Row]:
    run, name = run_id(number), NAMES[place]
    own = state if place == 0 or state == "interrupted" else "completed"
    done = {"epochs_done": EPOCHS, "steps_done": EPOCHS * 100, "service_s": 100.0 + place, "step_s": 0.05}
    figures = {"train_loss": 0.1, "test_loss": 0.2, "test_accuracy": 0.8 + (number % 100) / 1000}
    kept: Columns = {"checkpoint": "step", "checkpoint_step": EPOCHS * 100, "checkpoint_at_s": ended_s}
    if own == "completed":
        kept |= {"artifact": f"{name}.zip", "artifact_at_s": ended_s}
    sizes = {"checkpoint_bytes": MIB, "artifact_bytes": MIB, "peak_memory_bytes": 60 * MIB}
    kind = {"device_kind": "H200", "attempt": 1}
    yield _part(number, place, run, state=own, ended_at_s=ended_s, **kind, **done, **figures, **kept, **sizes)
    begun = {"from_step": 0, "at_s": ended_s - 300.0, "hybrid_id": run, "device": "cuda:0", **kind}
    yield AttemptRow, {"run_id": run, "submodel": name, **begun}
    for entered in ("running", own):
        yield _event(run, name, ended_s, entered)
    for entry, what in (("model", "model"), ("train_data", "train"), ("test_data", "test")):
        use = {"sha256": sha(number * len(NAMES) + place, what), "run_id": run, "submodel": name, "entry": entry}
        yield FileUseRow, use


def _recorded(run: str) -> Iterator[Row]:
    """Everything that the worker of such a run records."""
    for name in NAMES:
        of_part = {"run_id": run, "submodel": name, "attempt": 1}
        for step in range(1, STEPS + 1):
            figures = {"epoch": step / 10, "loss": 1 / step, "accuracy": 1 - 1 / step}
            yield StepRow, {**of_part, "step": step * 10, "steps": 10, **figures}
        for epoch in range(1, EPOCHS + 1):
            figures = dict.fromkeys(("train_loss", "train_accuracy", "test_loss", "test_accuracy"), 0.5)
            yield EpochRow, {**of_part, "epoch": epoch, "step": epoch * 100, "learning_rate": 0.01, **figures}
    for turn in range(TURNS):
        of_part = {"run_id": run, "submodel": NAMES[turn % len(NAMES)], "attempt": 1, "reason": "It was first in line."}
        took = {"start_s": turn * 5.0, "end_s": turn * 5.0 + 4.9, "steps": 100}
        yield SliceRow, {**of_part, **took, "from_step": turn // len(NAMES) * 100}
    own = {use: dict.fromkeys(NAMES, 4 * MIB) for use in ("weights", "gradients", "optimizer", "transient")}
    for sample in range(SAMPLES):
        at = {"hybrid_id": run, "at_s": sample * 2.0, "source": "process PSS"}
        yield MemoryRow, {**at, "size_bytes": 300 * MIB}
        yield StrataRow, {**at, "total_bytes": 300 * MIB, "strata": {"context": 200 * MIB, "data": 10 * MIB, **own}}


def _fleet(size: Size, now_s: float) -> Iterator[Row]:
    worker, cores = own_identity(), max(1, size.devices)
    pid = {"worker_pid": worker.pid, "worker_started_at_s": worker.started_at_s, "worker_boot_id": worker.boot_id}
    for place in range(size.devices):
        name, run = device_name(place), run_id(place, "t")
        card = {"name": name, "type": "cuda", "host": "h", "index": place, "uuid": f"GPU-{place}", "kind": "H200"}
        facts = {"total_bytes": 2**37, "threads": 1, "cpus": [place % cores]}
        yield DeviceRow, {**card, **facts, "state": "ready", "seen_at_s": now_s}
        for at in range(size.samples):
            used = {"total_bytes": 2**37, "own_bytes": MIB, "free_bytes": 2**36, "utilisation": 0.5, "others": []}
            yield DeviceSampleRow, {"at_s": now_s - 2.0 * at, "device": name, **used}
        begun = {"launched_at_s": now_s - 50.0, "started_at_s": now_s - 49.0}
        yield _run(place, "t", now_s - 60.0, state="running", **begun)
        yield _hybrid(run, device=name, **ON_GPU, **begun, heartbeat_at_s=now_s, **pid, graph="[]")
        for at in range(10):
            yield MemoryRow, {"hybrid_id": run, "at_s": at * 2.0, "source": "process PSS", "size_bytes": 300 * MIB}
        done = {"device_kind": "H200", "attempt": 1, "steps_done": EPOCHS * 50, "service_s": 50.0, "step_s": 0.05}
        for part in range(len(NAMES)):
            yield _part(place, part, run, state="running", lane=1 if part == 0 else None, **done)
    for place in range(size.waiting):
        run, submitted_s = run_id(place, "w"), now_s - size.waiting + place
        yield _run(place, "w", submitted_s, state="queued")
        yield _hybrid(run)
        for part in range(len(NAMES)):
            yield _part(place, part, run, state="queued", memory_key=key_of_kind(part))
