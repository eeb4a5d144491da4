import errno
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sqlalchemy.exc import OperationalError

from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import take_up
from tests.waiting import wait_until
from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.base.paths import Home
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Answered
from unifiednn_core.engine.job import Standing
from unifiednn_core.engine.orders import Join
from unifiednn_core.runtime import worker as workers
from unifiednn_core.runtime.assembly import Workbench
from unifiednn_core.runtime.gauge import Reading
from unifiednn_core.runtime.launchers import WorkMark
from unifiednn_core.runtime.loader import SubModelLoader
from unifiednn_core.runtime.reporter import Reporter
from unifiednn_core.runtime.worker import DONE, MOST_DEFECTS, Worker
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.hybrids import Resident


class Gauge:
    """Fails as often as it is asked to."""

    def __init__(self) -> None:
        self.failures = 0
        self.reads = 0

    def read(self, *_: object) -> Reading:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise ValueError("smaps_rollup cannot be parsed")
        return Reading(at_s=0.0, samples=(), source="here", breakdown=None, shared_bytes=None)


class Sigterm:
    heard = False


@pytest.fixture
def worker(store: Store, home: Home) -> Worker:
    """A worker of a running run, without sub-models in its engine."""
    add_run(store, "r")
    take_up(store, "r")
    cpu = torch.device("cpu")
    bench = Workbench(home, "r", cpu)
    hybrid, _ = store.hybrids.get("r")
    engine = Engine(bench.hybrid, policy_named("fcfs", {}), device=cpu)
    reporter = Reporter(store, hybrid, bench, Clock())
    gauge: Any = Gauge()
    sigterm: Any = Sigterm()
    reads, mark = SubModelLoader(store, bench, reporter, Clock(), shared=False), WorkMark(home.at_work("r"))
    return Worker(reads, engine, gauge, mark, sigterm, threads=1, step_limit_s=60.0)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "TICK_S", 0.0)
    yield


@pytest.mark.usefixtures("full_log")
def test_a_failing_memory_sample_costs_that_sample(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    gauge: Any = worker._gauge
    for _ in range(3):  # never so many in a row
        gauge.failures = MOST_DEFECTS - 1
        for _ in range(MOST_DEFECTS):
            worker._sample()
    assert worker._gauge is gauge
    assert caplog.text.count("ValueError: smaps_rollup") == 1, "once a minute"


def test_sampling_ends_after_many_failures_in_a_row(worker: Worker) -> None:
    gauge: Any = worker._gauge
    gauge.failures = 10 * MOST_DEFECTS
    for _ in range(2 * MOST_DEFECTS):
        worker._sample()
    assert gauge.reads == MOST_DEFECTS


@pytest.mark.usefixtures("full_log")
def test_a_tick_that_fails_now_and_then_fails_no_training(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [OperationalError("COMMIT", None, sqlite3.OperationalError("full")), OSError(errno.ENOSPC, "full")]
    few = [ValueError("a defect")] * (MOST_DEFECTS - 1)
    outcomes = [*few, None, *full * MOST_DEFECTS, *few, DONE]

    def tick() -> int | None:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(worker, "_tick", tick)
    assert worker._telemetry() == DONE


def test_a_tick_that_always_fails_is_given_up(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        raise ValueError("a defect")

    monkeypatch.setattr(worker, "_tick", tick)
    with pytest.raises(ValueError, match="a defect"):
        worker._telemetry()
    assert len(ticks) == MOST_DEFECTS


def test_a_thread_that_dies_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(workers, "_leave", left.append)
    monkeypatch.setattr(threading, "excepthook", workers._end_with)
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join(30)
    assert left == [workers.FAILED]


def test_a_stop_right_before_the_pause_takes_effect_is_obeyed(
    worker: Worker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commands.issue("r", None, Verb.PAUSE)
    [pause] = store.commands.open("r")
    carry_out = store.commands.carry_out

    def stopped_before(command_id: int, step: int | None = None) -> bool:
        store.commands.issue("r", None, Verb.STOP)
        return carry_out(command_id, step)

    monkeypatch.setattr(store.commands, "carry_out", stopped_before)
    assert worker._paused(Answered(pause.id, None)) is None, "the worker goes on, to carry out the stop"
    assert store.runs.get("r")[0].state == "stopping"
    assert worker._trainer.is_training
    assert [command.verb for command in store.commands.open("r")] == [Verb.STOP]


def test_a_pause_that_nothing_overtakes_ends_the_worker(worker: Worker, store: Store) -> None:
    store.commands.issue("r", None, Verb.PAUSE)
    assert worker._paused(Answered(store.commands.open("r")[0].id, None)) == DONE
    assert store.runs.get("r")[0].state == "paused"


@pytest.fixture
def fails_once() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Does something twice, the first time while the database cannot be written."""

    def do(work: Callable[[], object]) -> None:
        failpoints.arm(Fault("store.before_commit", "disk_full"))
        with pytest.raises((OperationalError, OSError)):
            work()
        failpoints.arm(None)
        work()

    yield do
    failpoints.arm(None)


FailsOnce = Callable[[Callable[[], object]], None]


def test_one_that_has_begun_is_posted_although_the_store_could_not_be_read(
    worker: Worker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([OperationalError("", None, Exception()), 1])

    def tickets_of(owner: str) -> int:
        if isinstance(found := next(answers), Exception):
            raise found
        return found

    def read(reads: SubModelLoader, member: Resident, members: object) -> Any:
        reads.reporter.open.add(member.key)
        return SimpleNamespace(columns={})

    monkeypatch.setattr(store.people, "tickets_of", tickets_of)
    monkeypatch.setattr(SubModelLoader, "waits", lambda *_: False)
    monkeypatch.setattr(SubModelLoader, "read", read)
    with pytest.raises(OperationalError):
        worker._bring("a")
    assert worker._bring("a")
    [order] = worker._engine.orders
    assert isinstance(order, Join) and order.submodel == "a"


class Slow:
    """A courier that brings once it `may`, and says what its answer is."""

    def __init__(self, answer: Exception | None = None):
        self.may, self.answer, self.asked = threading.Event(), answer, list[str]()

    def bring(self, key: str) -> None:
        self.asked.append(key)
        assert self.may.wait(30)
        if self.answer is not None:
            raise self.answer

    def keep(self, key: str, names: Sequence[str]) -> None:
        """The server takes all."""


def courier_of(worker: Worker, answer: Exception | None = None) -> Slow:
    courier = Slow(answer)
    worker._reads = replace(worker._reads, courier=courier)
    return courier


def test_nobody_waits_while_the_files_of_a_newcomer_come(worker: Worker, store: Store) -> None:
    """It may have left before it began, and trained elsewhere: what came for that attempt is old."""
    courier, [a, _] = courier_of(worker), store.hybrids.get("r")[1]
    assert not worker._reads.has_brought(a) and not worker._reads.has_brought(a)
    courier.may.set()
    a.row.attempt += 1
    wait_until(lambda: worker._reads.has_brought(a))
    assert courier.asked == ["a", "a"]


@pytest.mark.parametrize(
    ("answer", "found", "state"),
    [
        (BadInput.of("File lost", "a", "It is gone.", "Import it again."), None, "failed"),
        (NotFound("It has left."), False, "queued"),
        (OSError("The server is away."), False, "queued"),
    ],
)
def test_a_sub_model_whose_files_do_not_come_fails_alone_or_is_asked_for_again(
    worker: Worker, store: Store, answer: Exception, found: bool | None, state: str
) -> None:
    courier, [a, _] = courier_of(worker, answer), store.hybrids.get("r")[1]
    assert worker._reads.has_brought(a) is False
    courier.may.set()
    wait_until(lambda: all(coming.done() for coming in worker._reads.coming.values()))
    assert worker._reads.has_brought(a) is found
    assert [row.state for row in store.runs.get("r")[1]] == [state, "queued"]


def test_one_that_waits_for_its_parts_is_stopped_at_the_second_try(
    worker: Worker, store: Store, fails_once: FailsOnce
) -> None:
    store.commands.issue("r", "a", Verb.STOP)
    worker._reads.waiting["a"] = ("b",)
    fails_once(worker._bring_waiting)
    assert (store.runs.get("r")[1][0].state, worker._reads.waiting) == ("stopped", {})


def test_one_whose_parts_have_come_is_brought_at_the_second_try(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(reads: SubModelLoader, member: Resident) -> bool:
        reads.waiting.pop(member.key)
        raise OperationalError("", None, Exception())

    monkeypatch.setattr(SubModelLoader, "waits", waits)
    worker._reads.waiting["a"] = ("b",)
    with pytest.raises(OperationalError):
        worker._bring_waiting()
    assert worker._reads.waiting == {"a": ()}


def test_a_command_in_a_shared_hybrid_is_answered_at_the_second_try(
    worker: Worker, store: Store, fails_once: FailsOnce
) -> None:
    store.commands.issue("r", None, Verb.MOVES, {"moves": "any"})
    worker._reporter.open.add("a")
    fails_once(lambda: worker._carry_shared(*store.commands.open("r")))
    assert store.commands.open("r") == []


def test_a_paused_export_is_resumed_and_that_is_answered_at_the_second_try(
    worker: Worker, store: Store, fails_once: FailsOnce
) -> None:
    store.runs.transition("r", "a", Event.BEGIN)
    assert store.runs.hold("r", "a")
    store.commands.issue("r", "a", Verb.RESUME)
    paused, exporter = {"a"}, worker._reporter.exporter
    worker._reporter.exporter = SimpleNamespace(paused=paused, retry=paused.remove)  # type: ignore[assignment]
    fails_once(lambda: worker._carry_to_exporter(*store.commands.open("r")))
    assert (store.commands.open("r"), paused) == ([], set())
    worker._reporter.exporter = exporter


def test_deadlines_and_joins_are_on_the_clock_of_the_run_and_tickets_are_the_owners(
    worker: Worker, store: Store
) -> None:
    store.people.give("ann", "admin", tickets=3)
    store.runs.update("r", created_at_s=100.0)
    _, members = store.hybrids.get("r")
    first, late = (member.row for member in members)
    first.owner, first.deadline_s, late.joined_at_s, late.deadline_s = "ann", 60.0, 150.0, 5.0
    standing = worker._reads.standing
    assert standing(members[0], 130.0) == Standing(
        owner="ann", tickets=3, submitted_s=-30.0, deadline_s=60.0, joined_s=0.0
    )
    assert standing(members[1], 130.0) == Standing(owner="", tickets=1, submitted_s=20.0, deadline_s=5.0, joined_s=20.0)
