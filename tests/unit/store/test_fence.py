"""A worker that has lost its hybrid can write nothing; with the fence down it could write everything."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.clock import SimulatedClock
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import berth
from unifiednn_core.base.errors import Fenced
from unifiednn_core.base.paths import Home
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.database import Fence
from unifiednn_core.store.events import Code
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import WorkerIdentity

FIRST, SECOND = WorkerIdentity(1, 1.0, "boot"), WorkerIdentity(2, 2.0, "boot")
WRITES: dict[str, Callable[[Store], object]] = {
    "telemetry": lambda store: store.telemetry.write("r", TelemetryRows(hybrid={"now_reason": "forged"})),
    "checkpoint": lambda store: store.runs.record_checkpoint("r", "a", name="x", step=7, size_bytes=1),
    "columns": lambda store: store.hybrids.update("r", graph="forged"),
    "environment": lambda store: store.hybrids.record_environment("r", {"forged": 1}),
    "end": lambda store: store.runs.fail_submodel("r", "a", "forged", ""),
    "memory": lambda store: store.measured.remember("key", 1),
    "give back": lambda store: store.workers.give_back("r"),
    "register": lambda store: store.workers.register("r", FIRST),
}


Worker = Callable[[WorkerIdentity, int | None], Store]


@pytest.fixture
def worker(home: Home, clock: SimulatedClock) -> Iterator[Worker]:
    """Opens the store of a worker with its fence, by its identity and its attempt."""
    with ExitStack() as stack:

        def opened(identity: WorkerIdentity, attempt: int | None) -> Store:
            fence = Fence("r", attempt or 0, (identity.pid, identity.started_at_s))
            return stack.enter_context(closing(Store(home.database, clock, fence)))

        yield opened


def rows(store: Store) -> object:
    run, parts = store.runs.get("r")
    hybrid = run.hybrid
    assert hybrid is not None
    columns = [{name: value for name, value in vars(row).items() if name[0] != "_"} for row in (run, hybrid, *parts)]
    return (
        [{name: value for name, value in row.items() if name != "hybrid"} for row in columns],
        str(store.telemetry.history("r", None).events).count("EventRow"),
        store.measured.recall(["key"]),
    )


@pytest.mark.parametrize("then", ["lost", "claimed", "launched", "registered"])
@pytest.mark.parametrize("write", WRITES)
def test_a_worker_that_lost_its_hybrid_writes_nothing(store: Store, worker: Worker, write: str, then: str) -> None:
    add_run(store, "r")
    assert store.workers.claim("r", berth())
    old = worker(FIRST, store.workers.register("r", FIRST))
    store.runs.transition("r", None, Event.BEGIN)
    old.telemetry.write("r", TelemetryRows())
    store.workers.lose("r", "it died", "")
    if then != "lost":
        assert store.workers.claim("r", berth())
    if then in ("launched", "registered"):
        store.workers.launched("r", SECOND)
    new = None
    if then == "registered":
        new = worker(SECOND, store.workers.register("r", SECOND))
    before = rows(store)
    with pytest.raises(Fenced, match="writes nothing more"):
        WRITES[write](old)
    assert rows(store) == before
    if new is not None:
        new.telemetry.write("r", TelemetryRows(events=[]))
    old._database.fence = None  # the control: what the fence holds back
    if (then, write) in (
        ("registered", "telemetry"),
        ("registered", "columns"),
        ("lost", "end"),
        ("claimed", "memory"),
    ):
        WRITES[write](old)
        assert rows(store) != before


def test_the_fence_is_one_place_that_no_write_passes_by(store: Store, worker: Worker) -> None:
    """Whatever opens a write transaction meets it, and what has been begun in it is undone."""
    add_run(store, "r")
    fenced = worker(FIRST, 1)
    with pytest.raises(Fenced), fenced._database.write():
        raise AssertionError("the transaction must not begin")
    with fenced._database.read() as session:
        assert session is not None, "it may still read"
    assert store.runs.get("r")[0].name and Code.ENTERED


def test_a_worker_may_write_until_it_has_ended_its_hybrid(store: Store, worker: Worker) -> None:
    add_run(store, "r")
    store.workers.claim("r", berth())
    own = worker(FIRST, store.workers.register("r", FIRST))
    own.runs.transition("r", None, Event.BEGIN)
    own.workers.give_back("r")
    with pytest.raises(Fenced):
        own.telemetry.write("r", TelemetryRows())
