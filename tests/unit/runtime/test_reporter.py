import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from tests.clock import SimulatedClock
from tests.unit.store.test_store import add_run
from tests.waiting import wait_until
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import SeparationCorrupt, SeparationFailed
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.base.paths import Home
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.events import Cost, Ended, EpochDone, Granted, Released, Report, Stepped
from unifiednn_core.engine.progress import EpochFigures, NotLearning
from unifiednn_core.engine.separator import Separated
from unifiednn_core.machine.host import MemorySample
from unifiednn_core.runtime import exporter as exporters
from unifiednn_core.runtime.assembly import Workbench
from unifiednn_core.runtime.exporter import Exported
from unifiednn_core.runtime.gauge import Reading, WorkerGauge
from unifiednn_core.runtime.remote_store import RemoteStore
from unifiednn_core.runtime.reporter import EXPORT_S, HEARTBEAT_S, SHARE_OF_TIME, Reporter
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.events import Code
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.store.telemetry import STEP_ROWS_OF_RUN, TelemetryRows
from unifiednn_core.views.event_text import event_text

CPU = torch.device("cpu")


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(1.0)


@pytest.fixture
def store(home: Home, clock: SimulatedClock) -> Store:
    store = Store.open(home, clock)
    add_run(store, "r")
    return store


def reporter(
    store: Store,
    home: Home,
    clock: SimulatedClock,
    *,
    steps_total: int = 10,
    courier: RemoteStore | None = None,
    **gauged: float,
) -> Reporter:
    """A reporter of both sub-models, with a gauge where CPU seconds of earlier attempts are `gauged`."""
    gauge = WorkerGauge(CPU, clock, earlier=gauged) if gauged else None
    hybrid, members = store.hybrids.get("r")
    made = Reporter(store, hybrid, Workbench(home, "r", CPU), clock, gauge, courier)
    for row in [member.row for member in members]:
        row.steps_total, row.memory_key = (steps_total if row.name == "a" else 10), f"key of {row.name}"
        row.epochs = row.steps_total // 5
        made.admit(row.name, row, 1, from_step=0, peers=2)
    return made


@pytest.fixture
def record(store: Store, home: Home, clock: SimulatedClock) -> Reporter:
    return reporter(store, home, clock)


def reading(at_s: float, **sizes: int) -> Reading:
    """Figures of one instant, the main one first."""
    samples = tuple(MemorySample(source, size_bytes) for source, size_bytes in sizes.items())
    return Reading(at_s=at_s, samples=samples, source=next(iter(sizes)), breakdown=None, shared_bytes=None)


def stepped(step: int, loss: float) -> Stepped:
    return Stepped("a", step, torch.tensor(loss), torch.tensor(step % 3), 4)


def test_a_short_training_is_recorded_step_by_step(store: Store, record: Reporter) -> None:
    for step in range(1, 6):
        record.report(stepped(step, loss=0.5 * step))
    record.report(EpochDone("a", EpochFigures(1, 5, 0.1, 1.5, 0.25, 1.0, 0.5), 0.125))
    record.write(0.0)
    history = store.telemetry.history("r", None)
    assert [(row.step, row.epoch, row.loss) for row in history.steps["a"]] == [
        (step, step / 5, 0.5 * step) for step in range(1, 6)
    ]
    assert [row.accuracy for row in history.steps["a"]] == [0.25, 0.5, 0.0, 0.25, 0.5]
    assert [row.test_accuracy for row in history.epochs["a"]] == [0.5]
    [a, _] = store.runs.get("r")[1]
    assert (a.epochs_done, a.steps_done, a.test_loss, a.step_s) == (1, 5, 1.0, 0.125)


def test_samples_of_data_that_another_person_lent_do_not_leave_with_the_model(store: Store, record: Reporter) -> None:
    with store._database.write() as session:
        session.execute(update(SubModelRow).where(SubModelRow.name == "a").values(lenders=["bob"]))
    assert [record._ships_probes(name) for name in ("a", "b")] == [False, True]


def test_one_that_does_not_learn_is_told_once_until_it_learns(
    store: Store, home: Home, clock: SimulatedClock, record: Reporter
) -> None:
    def tell(record: Reporter, epoch: int, doubt: NotLearning | None) -> dict[str, Any] | None:
        record.report(EpochDone("a", EpochFigures(epoch, 60 * epoch, 0.1, 2.3, 0.1, 2.31, 0.09), doubt=doubt))
        record.write(0.0)
        return store.runs.get("r")[1][0].not_learning

    doubt = NotLearning("chance", 2.3026, 0.1)
    first = tell(record, 1, doubt)
    clock.advance(5.0)
    second = tell(reporter(store, home, clock), 2, doubt)
    assert first is not None and second == {**first, "epoch": 2, "step": 120}, "it is as old as its first epoch"
    assert tell(reporter(store, home, clock), 3, None) is None
    events = [event for event in store.telemetry.history("r", None).events if event.code == Code.NOT_LEARNING]
    assert [event_text(event) for event in events] == [
        "a does not learn: after 1 epoch the loss on the test data is 2.310, the accuracy 9.0 %; one answer for all "
        "samples gets 2.303, the accuracy 10.0 %.",
        "a learns, as of epoch 3.",
    ]


def test_numbers_of_another_stream_are_read_once_they_are_ready(store: Store, record: Reporter) -> None:
    loss = torch.tensor(float("nan"))

    class Ready:
        def synchronize(self) -> None:
            loss.fill_(2.0)

    record.report(replace(stepped(1, 0.0), loss=loss, ready=Ready()))  # type: ignore[arg-type]
    record.write(0.0)
    assert [row.loss for row in store.telemetry.history("r", None).steps["a"]] == [2.0]


def test_a_long_training_is_recorded_in_means(store: Store, home: Home, clock: SimulatedClock) -> None:
    stride = 4
    record = reporter(store, home, clock, steps_total=stride * STEP_ROWS_OF_RUN // 2)
    for step in range(1, 10):
        record.report(stepped(step, loss=float(step)))
    record.write(0.0)
    history = store.telemetry.history("r", None)
    assert [(row.step, row.loss) for row in history.steps["a"]] == [(4, 2.5), (8, 6.5)]
    assert store.runs.get("r")[1][0].steps_done == 9, "progress is exact to the step"


def test_what_could_not_be_written_is_written_the_next_time(store: Store, record: Reporter) -> None:
    record.report(stepped(1, loss=1.0))
    failpoints.arm(Fault("store.before_commit", "disk_full"))
    try:
        with pytest.raises((OperationalError, OSError)):
            record.write(0.0)
    finally:
        failpoints.arm(None)
    record.report(stepped(2, loss=2.0))
    record.write(0.0)
    record.write(0.0)
    assert [row.step for row in store.telemetry.history("r", None).steps["a"]] == [1, 2]


@pytest.mark.usefixtures("full_log")
def test_rows_that_the_store_refuses_are_dropped_and_noted(
    store: Store, record: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    record.report(stepped(1, loss=1.0))
    record.write(0.0)
    record.report(stepped(1, loss=1.0))  # the same key again
    record.write(0.0)
    record.report(stepped(2, loss=2.0))
    record.write(0.0)
    history = store.telemetry.history("r", None)
    assert [row.step for row in history.steps["a"]] == [1, 2]
    assert [event.fields for event in history.events if event.kind == "defect"] == [{"error": "IntegrityError"}]
    assert "UNIQUE" in caplog.text


def test_nothing_is_committed_when_nothing_moves_but_a_heartbeat(
    store: Store, record: Reporter, clock: SimulatedClock
) -> None:
    commits: list[object] = []
    sqlalchemy_event.listen(store._database._engine, "commit", commits.append)

    def written(*reports: Report, ticks: int = 1) -> int:
        before = len(commits)
        for report in reports:
            record.report(report)
        for _ in range(ticks):
            clock.advance(0.125)
            record.memory(reading(clock.utc_s(), here=7))
            record.write(clock.utc_s())
        return len(commits) - before

    assert written() == 1
    assert written(ticks=int(HEARTBEAT_S / 0.125)) == 1
    assert written(Granted("a", 3.0, "")) == 1
    assert written(stepped(1, 1.0)) == 1
    assert written(ticks=4) == 0


def test_a_report_that_comes_while_a_producer_ends_is_not_missed(record: Reporter) -> None:
    """The exporter reports and ends between two looks: the inbox has to be read last."""

    class Ending:
        looks = 0
        paused = frozenset[str]()

        @property
        def idle(self) -> bool:
            self.looks += 1
            record.report(Exported("a", Event.COMPLETE))
            return True

    ending = Ending()
    record.exporter = ending  # type: ignore[assignment]
    assert not record.idle
    assert ending.looks == 1


def checkpointed(name: str) -> Checkpoint:
    return Checkpoint(submodel=name, step=3, epoch=1, recipe={}, state={"model": {"w": torch.ones(2)}})


def complete(store: Store, record: Reporter, spec_of: Callable[[str], dict[str, object]] = lambda name: {}) -> None:
    """Sub-model "a" has trained to its end and is to be exported."""
    record.exporter._spec_of = spec_of
    record._bench.definitions["a"] = object()  # type: ignore[assignment]
    store.runs.transition("r", "a", Event.BEGIN)
    record.report(Ended("a", Event.COMPLETE, checkpointed("a")))


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Exports fail until the event is set."""
    room = threading.Event()

    def separate(name: str, *_: object, folder: Path, **__: object) -> Separated:
        if not room.is_set():
            raise SeparationFailed(f"'{name}' could not be written: No space left on device.")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.zip").touch()
        return Separated(folder / f"{name}.zip", 0, folder / f"{name}.zip", "hash")

    monkeypatch.setattr(exporters, "separate", separate)
    monkeypatch.setattr(exporters, "TRIES", 2)
    monkeypatch.setattr(exporters, "RETRY_S", 0.0)
    yield room
    room.set()


def until(record: Reporter, done: Callable[[], bool]) -> None:
    wait_until(lambda: done() or record.write(1.0))  # type: ignore[func-returns-value]


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_pauses_a_trained_sub_model_and_a_resume_exports_it(
    store: Store, record: Reporter, full_disk: threading.Event
) -> None:
    complete(store, record)
    until(record, lambda: record.idle and bool(record.exporter.paused))
    [a, _] = store.runs.get("r")[1]
    assert (a.state, record.open) == ("paused", {"a", "b"})
    texts = [event_text(event) for event in store.telemetry.history("r", None).events if event.kind == "warning"]
    assert "weights wait in memory: make room, then resume a" in texts[-1]
    full_disk.set()
    store.commands.issue("r", "a", Verb.RESUME)
    record.exporter.retry("a")
    until(record, lambda: record.idle and "a" not in record.open)
    [a, _] = store.runs.get("r")[1]
    assert (a.state, a.artifact) == ("completed", "a.zip")


class Kept:
    """A courier to a server that takes so many files."""

    def __init__(self, store: Store, takes: int):
        self._store, self._takes, self.rows = store, takes, dict[str, SubModelRow]()

    def bring(self, key: str) -> None:
        """All is here."""

    def keep(self, key: str, names: Sequence[str]) -> None:
        self.rows |= dict.fromkeys(names, self._store.runs.get("r")[1][0])
        if len(self.rows) > self._takes:
            raise OSError(errno.ECONNRESET, "The server is away")


def test_the_server_has_the_files_of_a_sub_model_before_rows_tell_of_them(
    store: Store, home: Home, clock: SimulatedClock, full_disk: threading.Event
) -> None:
    full_disk.set()
    courier, name = Kept(store, takes=2), "step-000000003.safetensors"
    record = reporter(store, home, clock, courier=courier)
    complete(store, record)
    until(record, lambda: record.idle and "a" not in record.open)
    assert courier.rows[f"checkpoints/a/{name}"].checkpoint is None
    assert courier.rows["models/a.zip"].artifact is None
    [a, _] = store.runs.get("r")[1]
    assert (len(courier.rows), a.checkpoint, a.artifact, a.state) == (2, name, "a.zip", "completed")


def test_a_model_that_the_server_cannot_take_waits_in_memory(
    store: Store, home: Home, clock: SimulatedClock, full_disk: threading.Event
) -> None:
    full_disk.set()
    record = reporter(store, home, clock, courier=Kept(store, takes=0))
    complete(store, record)
    until(record, lambda: store.runs.get("r")[1][0].state == "paused")
    [a, _] = store.runs.get("r")[1]
    assert (a.artifact, a.checkpoint) == (None, None)
    texts = [event_text(event) for event in store.telemetry.history("r", None).events if event.kind == "warning"]
    assert any("could not be given to the server: The server is away" in text for text in texts)


def test_a_model_is_exported_at_the_second_try_if_the_store_could_not_be_read(
    store: Store, record: Reporter, full_disk: threading.Event
) -> None:
    full_disk.set()
    answers: Iterator[Exception | dict[str, object]] = iter([OperationalError("", None, Exception()), {}])

    def spec_of(key: str) -> dict[str, object]:
        if isinstance(found := next(answers), Exception):
            raise found
        return found

    record.exporter._spec_of = spec_of
    complete(store, record, record.exporter._spec_of)
    until(record, lambda: record.idle and "a" not in record.open)
    [a, _] = store.runs.get("r")[1]
    assert (a.state, a.artifact) == ("completed", "a.zip")


def test_what_a_killed_export_left_goes_and_that_of_another_sub_model_stays(home: Home, record: Reporter) -> None:
    folder = home.run("r") / "models"
    for name in (".a-h5k_2x9z", ".a-b-h5k_2x9z", ".b-h5k_2x9z"):
        (folder / name).mkdir(parents=True)
    record.exporter.tidy("a")
    assert sorted(path.name for path in folder.iterdir()) == [".a-b-h5k_2x9z", ".b-h5k_2x9z"]


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_the_end_of_a_model_is_told_once_although_a_write_of_it_fails(
    store: Store, record: Reporter, full_disk: threading.Event, fails_at: int
) -> None:
    full_disk.set()
    store.runs.transition("r", "a", Event.BEGIN)
    record.report(Exported("a", Event.COMPLETE, Separated(Path("a.zip"), 0, Path("a.zip"), "hash")))
    record.report(Granted("b", 1.0, ""))
    failpoints.arm(Fault("store.before_commit", "disk_full", hit=fails_at))
    try:
        for _ in range(fails_at):
            with suppress(OperationalError, OSError):
                record.write(1.0)
    finally:
        failpoints.arm(None)
    record.write(1.0)
    told = [event.code for event in store.telemetry.history("r", None).events if event.submodel == "a"]
    assert told == ["entered", "separated", "entered"]
    assert (store.runs.get("r")[1][0].state, record.open) == ("completed", {"b"})


def test_a_file_that_reads_back_differently_fails_at_once_with_its_own_cause(
    store: Store, record: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def separate(name: str, *_: object, **__: object) -> Separated:
        calls.append(name)
        raise SeparationCorrupt("The file a.pt2 of 'a' reads back differently from what was written.")

    monkeypatch.setattr(exporters, "separate", separate)
    complete(store, record)
    until(record, lambda: record.idle and "a" not in record.open)
    [a, _] = store.runs.get("r")[1]
    assert (a.state, a.artifact, calls) == ("failed", None, ["a"])
    assert "reads back differently" in (a.cause or "")
    assert "disk" in (a.remedy or "")


def test_service_belongs_to_who_held_the_device_and_a_peak_is_a_sub_models_own(store: Store, record: Reporter) -> None:
    record.memory(reading(0.0, here=50))
    record.report(Granted("a", 0.0, "It is first."))
    record.memory(replace(reading(0.5, here=70, there=900), own_bytes={"a": 20}))
    record.write(0.75)
    [a, _] = store.runs.get("r")[1]
    assert (a.service_s, a.peak_memory_bytes) == (0.75, 20), "a long turn is recorded while it lasts"
    record.memory(reading(1.5, here=60))  # taken before the reports of the switch are read
    record.report(Released("a", 0.0, 1.0, 3, "It is first.", Cost(cpu_s=0.25, own_bytes=15)))
    record.report(Granted("b", 1.0, "It is next."))
    record.write(2.0)
    (hybrid, _), (_, (a, b)) = store.hybrids.get("r"), store.runs.get("r")
    assert (hybrid.peak_memory_bytes, hybrid.memory_source) == (70, "here")
    assert (a.peak_memory_bytes, b.peak_memory_bytes) == (20, None)
    assert (a.service_s, b.service_s) == (1.0, 1.0)
    assert (a.lane, b.lane, b.turn_reason, hybrid.now_reason) == (None, 1, "It is next.", "It is next.")
    record.report(Released("b", 1.0, 2.5, 1, "It is next.", Cost(peak_bytes=999, own_bytes=30)))
    record.report(Released("a", 2.5, 3.0, 1, "Again.", Cost(cpu_s=0.5)))
    record.write(3.0)
    record.memory(reading(4.0, there=30))
    record.write(4.0)
    (hybrid, _), (_, (a, b)) = store.hybrids.get("r"), store.runs.get("r")
    assert (a.service_s, b.service_s, b.peak_memory_bytes) == (1.5, 1.5, 30)
    assert (a.cpu_s, b.cpu_s) == (0.75, 0.0)
    assert (b.lane, hybrid.now_reason) == (None, None)
    assert (hybrid.peak_memory_bytes, hybrid.memory_source) == (30, "there"), "peaks of two sources are never mixed"
    assert len(store.telemetry.history("r", None, last_slices=2).slices) == 2
    assert [s.reason for s in store.telemetry.history("r", None, last_slices=1).slices] == ["Again."]


@pytest.mark.parametrize(("last", "known"), [(Event.COMPLETE, {"key of b": 25}), (Event.FAIL, {})])
def test_the_memory_of_a_turn_is_remembered_unless_it_failed_or_an_export_shared_the_process(
    store: Store, home: Home, clock: SimulatedClock, last: Event, known: dict[str, int]
) -> None:
    record = reporter(store, home, clock, cpu_s=0.0)
    record.report(Released("a", 0.0, 1.0, 3, "", Cost(transient_bytes=300)))
    record.report(Released("b", 1.0, 2.0, 3, "", Cost(transient_bytes=20)))
    record.report(Released("a", 2.0, 3.0, 3, "", Cost(transient_bytes=200)))
    record.report(Ended("a", Event.COMPLETE, None))
    record.report(Released("b", 3.5, 4.0, 3, "", Cost(transient_bytes=9000)))
    record.report(Released("b", 3.5 + EXPORT_S, 15.0, 3, "", Cost(transient_bytes=25)))
    record.report(Ended("b", last, None))
    record.write(15.0)
    assert store.measured.recall(["key of a", "key of b"]) == {"key of a": 300} | known


def test_a_peak_between_two_samples_is_not_lost_and_shared_pages_do_not_count(store: Store, record: Reporter) -> None:
    record.memory(replace(reading(0.5, here=700), shared_bytes=100))
    record.report(Released("a", 0.0, 1.0, 3, "", Cost(peak_bytes=1000)))
    record.write(1.0)
    (hybrid, _), (_, (a, b)) = store.hybrids.get("r"), store.runs.get("r")
    assert (hybrid.peak_memory_bytes, a.peak_memory_bytes, b.peak_memory_bytes) == (900, None, None)


def test_each_write_records_what_the_run_has_used(store: Store, home: Home, clock: SimulatedClock) -> None:
    record = reporter(store, home, clock, cpu_s=500.0)
    record.write(1.0)
    assert (store.hybrids.get("r")[0].cpu_s or 0.0) > 500.0


def test_a_report_that_the_table_does_not_allow_is_noted_and_costs_nothing(store: Store, record: Reporter) -> None:
    for _ in range(2):
        record.report(Granted("a", 0.0, "Next.", begins=True))
    record.write(0.0)
    [note] = [event for event in store.telemetry.history("r", None).events if event.kind == "defect"]
    assert "does not allow 'begin'" in note.fields["text"]


def test_a_store_that_is_slow_is_written_less_often_but_the_end_at_once(
    store: Store, record: Reporter, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    took_s, write, written = 0.3, store.telemetry.write, list[float]()

    def slow(hybrid_id: str, batch: TelemetryRows) -> None:
        clock.advance(took_s)
        written.append(clock.monotonic_s())
        write(hybrid_id, batch)

    monkeypatch.setattr(store.telemetry, "write", slow)

    def train(first: int, last: int) -> list[float]:
        """Take a step and tell it, five times a second; returns the seconds between writes."""
        written.clear()
        for step in range(first, last):
            record.report(stepped(step, loss=0.5))
            record.write(0.0, at_once=False)
            clock.advance(0.2)
        return [later - earlier for earlier, later in pairwise(written)]

    assert all(gap_s >= took_s / SHARE_OF_TIME for gap_s in train(1, 100))
    before = len(written)
    record.report(stepped(100, loss=0.5))
    record.write(0.0)
    assert len(written) == before + 1, "nothing is left over at the end"
    assert len(store.telemetry.history("r", None).steps["a"]) == 100
    took_s = 0.001
    train(101, 130)
    assert max(train(130, 160)) < 0.25, "the control: a fast store is written at every look"
