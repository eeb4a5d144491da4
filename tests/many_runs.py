"""A store full of runs, written in bulk: ended ones, ones that wait, and hybrids that hold devices. No training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert

from unifiednn_core.runtime.launchers import own_identity
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.device_samples import DeviceSampleRow
from unifiednn_core.store.devices import DeviceRow
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
LINES = 3
"""Of the audit log, per run."""
MIB = 2**20
CHUNK = 1000
_STATES = ("completed",) * 17 + ("failed", "stopped", "interrupted")
Columns = dict[str, Any]


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
    _files(store, now_s)
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
    parts = []
    for place, name in enumerate(NAMES):
        kind = number * len(NAMES) + place
        parts.append(
            {
                "name": name,
                "model": f"sha256:{sha(kind, 'model')}",
                "train_data": f"sha256:{sha(kind, 'train')}",
                "test_data": f"sha256:{sha(kind, 'test')}",
                "priority": place,
                "hyperparameters": {
                    "epochs": EPOCHS,
                    "batch_size": 64,
                    "optimizer": "sgd",
                    "learning_rate": 0.01,
                    "criterion": "cross_entropy",
                    "optimizer_args": {"momentum": 0.9},
                    "seed": number,
                },
            }
        )
    asked = {"name": f"run {number}", "seed": number, "device": "auto", "policy": {"name": "round_robin"}}
    return {**asked, "profile": "exact", "submodels": parts}


def prediction(number: int) -> Columns:
    """A stored prediction of its memory."""
    need = {
        "weights_bytes": 4 * MIB,
        "gradients_bytes": 4 * MIB,
        "optimizer_bytes": 4 * MIB,
        "transient_bytes": 40 * MIB,
        "data": {sha(number, "train"): 10 * MIB},
        "batch_size": 64,
        "whole": {64: 40 * MIB, 32: 20 * MIB},
        "parts": {64: 40 * MIB, 32: 20 * MIB},
    }
    parts = [
        {"name": name, "need": need, "priority": 0, "parameters": 10_000, "epochs": EPOCHS, "steps_per_epoch": 100}
        for name in NAMES
    ]
    shown = [
        {
            "name": name,
            "weights_bytes": 4 * MIB,
            "gradients_bytes": 4 * MIB,
            "optimizer_bytes": 4 * MIB,
            "transient_bytes": 40 * MIB,
            "data_bytes": 10 * MIB,
            "measured": True,
            "paper_bytes": 60 * MIB,
        }
        for name in NAMES
    ]
    totals = {"peak_bytes": 300 * MIB, "context_bytes": 200 * MIB, "company_bytes": 0, "paper_bytes": 260 * MIB}
    return {
        **totals,
        "budget_bytes": 2**36,
        "budget_text": "",
        "by_policy": {"fcfs": 300 * MIB},
        "submodels": shown,
        "parts": parts,
    }


def _write(store: Store, found: Iterator[tuple[type[Base], Columns]]) -> None:
    """Insert rows, each table at once, in an order that keeps foreign keys."""
    rows: dict[type[Base], list[Columns]] = {}
    for table, columns in found:
        rows.setdefault(table, []).append(columns)
    first: tuple[type[Base], ...] = (RunRow, HybridRow, SubModelRow)
    with store._database.write() as session:
        for table in (*first, *(table for table in rows if table not in first)):
            if rows.get(table):
                session.execute(insert(table), rows[table])


def _files(store: Store, now_s: float) -> None:
    def made() -> Iterator[tuple[type[Base], Columns]]:
        for kind in range(KINDS):
            for what in ("model", "train", "test"):
                name = f"{what}-{kind:02}.{'pt2' if what == 'model' else 'safetensors'}"
                yield (
                    FileRow,
                    {
                        "sha256": sha(kind, what),
                        "kind": "model" if what == "model" else "data",
                        "filename": name,
                        "format": "pt2" if what == "model" else "safetensors",
                        "size_bytes": MIB,
                        "created_at_s": now_s,
                        "facts": {"parameters": 10_000, "samples": 6400},
                    },
                )
                yield FileOwnerRow, {"sha256": sha(kind, what), "owner": "", "filename": name, "created_at_s": now_s}

    _write(store, made())


def _run(number: int, kind: str, now_s: float, **columns: Any) -> Columns:
    run = run_id(number, kind)
    return {
        "id": run,
        "name": f"run {number}",
        "submitter": person(number),
        "device": "auto",
        "mode": "hybrid",
        "fingerprint": f"print-{run}",
        "spec": spec(number),
        "threads": 1,
        "created_at_s": now_s,
        "prediction": prediction(number),
        "environment": _environment(number),
        **columns,
    }


def _environment(number: int) -> Columns:
    names = {name: {f"sha256:{sha(number, 'model')}": "model.pt2"} for name in NAMES}
    facts = {"cpu": "x" * 40, "torch": "2.13.0+cpu", "python": "3.11", "os": "Linux" * 8}
    return {"files": names, "asked_sha256": "0" * 64, "measured_on": facts, "start": "warm"}


def _part(number: int, place: int, run: str, **columns: Any) -> Columns:
    return {
        "run_id": run,
        "name": NAMES[place],
        "owner": person(number),
        "arrival": place,
        "priority": place,
        "model_format": "pt2",
        "parameters": 10_000,
        "epochs": EPOCHS,
        "steps_total": EPOCHS * 100,
        "memory_key": key_of_kind(number * len(NAMES) + place),
        **columns,
    }


def _ended(numbers: range, zero_s: float, whole: Sequence[bool]) -> Iterator[tuple[type[Base], Columns]]:
    for number, in_full in zip(numbers, whole, strict=True):
        created_s, run = zero_s + number * EVERY_S, run_id(number)
        state, ended_s = _STATES[number % len(_STATES)], created_s + 400.0
        mode = "concurrent" if number % 10 == 9 else "hybrid"  # every tenth is a baseline of the run before it
        of = run_id(number - 1) if mode != "hybrid" else run
        times = {"launched_at_s": created_s + 10.0, "started_at_s": created_s + 12.0, "ended_at_s": ended_s}
        yield RunRow, _run(number, "r", created_s, state=state, mode=mode, fingerprint=f"print-{of}", **times)
        yield (
            HybridRow,
            {
                "id": run,
                "mode": mode,
                "device": device_name(number % 8),
                "device_kind": "H200",
                "attempt": 1,
                "settings": HybridSettings().model_dump(mode="json", exclude_none=True),
                "cpu_s": 300.0,
                "launched_at_s": created_s + 10.0,
                "started_at_s": created_s + 12.0,
                "memory_source": "process PSS",
                "peak_memory_bytes": 300 * MIB,
                "graph": "digraph{" + "n -> m;\n" * 150 + "}",
                "environment": {"a": "b"},
            },
        )
        yield (
            CommandRow,
            {
                "run_id": run,
                "submodel": None,
                "verb": "save",
                "issued_at_s": created_s,
                "applied_at_s": created_s,
                "outcome": "applied",
                "arguments": {},
            },
        )
        yield (
            DraftRow,
            {
                "id": f"d{number:07}",
                "owner": person(number),
                "document": {},
                "changed_at_s": created_s,
                "run_id": run,
            },
        )
        for line in range(LINES):
            yield (
                AuditRow,
                {
                    "at_s": created_s + line,
                    "person": person(number) or "local operator",
                    "role": "operator",
                    "action": ("submit", "save", "artifact")[line],
                    "subject": run,
                    "outcome": "allowed",
                },
            )
        for state_of_run in ("queued", "starting", "running", state):
            yield EventRow, _event(run, None, created_s, state_of_run)
        for place, name in enumerate(NAMES):
            yield from _ended_part(number, place, name, state, ended_s)
        if in_full:
            yield from _recorded(run)


def _ended_part(number: int, place: int, name: str, state: str, ended_s: float) -> Iterator[tuple[type[Base], Columns]]:
    run = run_id(number)
    own = state if place == 0 or state == "interrupted" else "completed"
    yield (
        SubModelRow,
        _part(
            number,
            place,
            run,
            state=own,
            hybrid_id=run,
            device_kind="H200",
            attempt=1,
            epochs_done=EPOCHS,
            steps_done=EPOCHS * 100,
            service_s=100.0 + place,
            ended_at_s=ended_s,
            train_loss=0.1,
            train_accuracy=0.9,
            test_loss=0.2,
            test_accuracy=0.8 + (number % 100) / 1000,
            peak_memory_bytes=60 * MIB,
            cpu_s=99.0,
            step_s=0.05,
            checkpoint=f"step-{EPOCHS * 100}.safetensors",
            checkpoint_step=EPOCHS * 100,
            checkpoint_bytes=MIB,
            checkpoint_at_s=ended_s,
            artifact=f"{name}.zip" if own == "completed" else None,
            artifact_bytes=MIB,
            artifact_at_s=ended_s if own == "completed" else None,
            model_path=f"{name}.pt2",
            state_sha256="0" * 64,
            cause="It failed." if own == "failed" else None,
            certificate={"holds": True, "compared": [{"what": "weights", "outcome": "equal"}]},
        ),
    )
    yield (
        AttemptRow,
        {
            "run_id": run,
            "submodel": name,
            "attempt": 1,
            "from_step": 0,
            "at_s": ended_s - 300.0,
            "hybrid_id": run,
            "device": "cuda:0",
            "device_kind": "H200",
        },
    )
    for state_of_part in ("running", own):
        yield EventRow, _event(run, name, ended_s, state_of_part)
    for entry, what in (("model", "model"), ("train_data", "train"), ("test_data", "test")):
        use = {"sha256": sha(number * len(NAMES) + place, what), "run_id": run, "submodel": name, "entry": entry}
        yield FileUseRow, use


def _event(run: str, name: str | None, at_s: float, state: str) -> Columns:
    return {
        "run_id": run,
        "submodel": name,
        "at_s": at_s,
        "kind": "state",
        "code": "entered",
        "state": state,
        "fields": {"name": name or run},
    }


def _recorded(run: str) -> Iterator[tuple[type[Base], Columns]]:
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
        yield (
            SliceRow,
            {
                "run_id": run,
                "submodel": NAMES[turn % len(NAMES)],
                "attempt": 1,
                "start_s": turn * 5.0,
                "end_s": turn * 5.0 + 4.9,
                "steps": 100,
                "from_step": turn // len(NAMES) * 100,
                "reason": f"{NAMES[turn % len(NAMES)]} has been in line longest of {len(NAMES)}.",
            },
        )
    for sample in range(SAMPLES):
        at = {"hybrid_id": run, "at_s": sample * 2.0, "source": "process PSS"}
        yield MemoryRow, {**at, "size_bytes": 300 * MIB}
        yield StrataRow, {**at, "total_bytes": 300 * MIB, "strata": strata()}


def strata() -> Columns:
    """One memory breakdown."""
    own = {use: dict.fromkeys(NAMES, 4 * MIB) for use in ("weights", "gradients", "optimizer", "transient")}
    return {"context": 200 * MIB, "slack": MIB, "data": 10 * MIB, **own}


def _fleet(size: Size, now_s: float) -> Iterator[tuple[type[Base], Columns]]:
    worker, cores = own_identity(), max(1, size.devices)
    for place in range(size.devices):
        yield (
            DeviceRow,
            {
                "name": device_name(place),
                "type": "cuda",
                "host": "h",
                "index": place,
                "uuid": f"GPU-{place}",
                "kind": "H200",
                "total_bytes": 2**37,
                "threads": 1,
                "cpus": [place % cores],
                "driver": "1",
                "state": "ready",
                "seen_at_s": now_s,
            },
        )
        for at in range(size.samples):
            yield (
                DeviceSampleRow,
                {
                    "at_s": now_s - 2.0 * at,
                    "device": device_name(place),
                    "total_bytes": 2**37,
                    "own_bytes": MIB,
                    "free_bytes": 2**36,
                    "utilisation": 0.5,
                    "others": [],
                },
            )
    for place in range(size.devices):
        run = run_id(place, "t")
        begun = {"launched_at_s": now_s - 50.0, "started_at_s": now_s - 49.0}
        yield RunRow, _run(place, "t", now_s - 60.0, state="running", **begun)
        yield (
            HybridRow,
            {
                "id": run,
                "device": device_name(place),
                "device_kind": "H200",
                "attempt": 1,
                **begun,
                "settings": HybridSettings().model_dump(mode="json", exclude_none=True),
                "memory_source": "process PSS",
                "peak_memory_bytes": 300 * MIB,
                "heartbeat_at_s": now_s,
                "worker_pid": worker.pid,
                "worker_started_at_s": worker.started_at_s,
                "worker_boot_id": worker.boot_id,
                "graph": "digraph{}",
            },
        )
        for at in range(10):
            yield MemoryRow, {"hybrid_id": run, "at_s": at * 2.0, "source": "process PSS", "size_bytes": 300 * MIB}
        for part in range(len(NAMES)):
            done = EPOCHS * 50 + place % 100
            yield (
                SubModelRow,
                _part(
                    place,
                    part,
                    run,
                    state="running",
                    hybrid_id=run,
                    device_kind="H200",
                    attempt=1,
                    steps_done=done,
                    service_s=done * 0.05,
                    step_s=0.05,
                    lane=1 if part == 0 else None,
                ),
            )
    for place in range(size.waiting):
        run, submitted_s = run_id(place, "w"), now_s - size.waiting + place
        yield RunRow, _run(place, "w", submitted_s, state="queued")
        yield HybridRow, {"id": run, "settings": HybridSettings().model_dump(mode="json", exclude_none=True)}
        for part in range(len(NAMES)):
            yield SubModelRow, _part(place, part, run, state="queued", hybrid_id=run, memory_key=key_of_kind(part))
