"""The store writes down what happens to its rows, on both databases alike, and what must not be is found there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.databases import BOTH, SQLITE
from tools.chaos.cluster import trace
from tools.chaos.cluster.audit import backward_checkpoints, double_claims, lost_checkpoints, two_workers
from tools.chaos.rows import change
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import Berth, WorkerIdentity

pytestmark = pytest.mark.parametrize("database", BOTH)

WORKER = WorkerIdentity(pid=11, started_at_s=1.0, boot_id="boot")
SPEC: dict[str, Any] = {"hybrid": "shared", "submodels": []}
A, B = (Berth(device=f"{host}/cpu", kind="", threads=1) for host in "ab")


@pytest.fixture
def url(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own, because triggers stay."""
    if database == SQLITE:
        yield f"sqlite:///{tmp_path}/store.db"
    else:
        with request.getfixturevalue("postgresql").new() as url:
            yield url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A shared run with one sub-model, and a store that writes down."""
    store = Store(url)
    trace.watch(url)
    run = RunRow(id="s1", name="s1", state="queued", device="cpu", shared=True, spec=SPEC, created_at_s=1.0)
    row = SubModelRow(
        run_id="s1",
        name="net",
        arrival=0,
        state="queued",
        priority=0,
        model_format="kit",
        parameters=1,
        epochs=2,
        steps_total=80,
    )
    store.runs.add((run, [row]))
    yield store
    store.close()


def begin(store: Store, hybrid: str, at: Berth, step: int, worker: WorkerIdentity = WORKER) -> None:
    assert store.workers.open_shared(hybrid, [("s1", "net")], at, HybridSettings())
    assert store.workers.register(hybrid, worker) == 1
    store.workers.begin(hybrid, {"s1/net": {"steps_done": step}})
    store.runs.transition("s1", "net", Event.BEGIN)


def report(store: Store, hybrid: str, attempt: int, step: int, **columns: Any) -> None:
    row = {"submodel": "s1/net", "attempt": attempt, "step": step, "steps": 1, "epoch": 0.1, "loss": 1.0}
    store.telemetry.write(hybrid, TelemetryRows(steps=[row], submodels={"s1/net": columns} if columns else {}))


def test_a_life_on_two_hosts_is_in_order(url: str, store: Store) -> None:
    begin(store, "h1", A, 0)
    report(store, "h1", 1, 1)
    report(store, "h1", 1, 8, checkpoint_step=8)
    store.workers.lose("h1", "the host is lost", "")
    store.workers.give_back("h1", dead=True)
    begin(store, "h2", B, 8)
    report(store, "h2", 2, 9)
    claims, marks = trace.claims(url), trace.marks(url)
    held = [(claim.hybrid_id, claim.devices) for claim in claims if claim.held]
    assert list(dict.fromkeys(held)) == [("h1", ("a/cpu",)), ("h2", ("b/cpu",))]
    assert [claim.held for claim in claims if claim.hybrid_id == "h1"][-1] is False
    assert [(mark.what, mark.attempt, mark.step) for mark in marks] == [
        ("attempt", 1, 0),
        ("checkpoint", 1, 8),
        ("attempt", 2, 8),
    ]
    assert marks[0].at_s <= marks[-1].at_s < marks[0].at_s + 60
    assert trace.late_writes(url) == double_claims(claims) == two_workers(claims) == []
    assert lost_checkpoints(marks) == backward_checkpoints(marks) == []


def test_a_step_of_an_attempt_that_is_over_is_found(url: str, store: Store) -> None:
    begin(store, "h1", A, 0)
    store.workers.lose("h1", "the host is lost", "")
    store.workers.give_back("h1", dead=True)
    begin(store, "h2", B, 0)
    report(store, "h1", 1, 5)
    assert trace.late_writes(url) == ["step 5 of net of s1 is of attempt 1, which is over"]


def test_two_claims_of_one_device_are_found(url: str, store: Store) -> None:
    begin(store, "h1", A, 0)
    change(
        url,
        "UPDATE hybrids SET device = 'b/cpu' WHERE id = 'h1'",
        "INSERT INTO chaos_claims (hybrid_id, device, also, held, attempt) VALUES ('h2', 'a/cpu', '[\"b/cpu\"]', 1, 0)",
    )
    assert double_claims(trace.claims(url)) == ["h1 and h2 held b/cpu at the same time"]
