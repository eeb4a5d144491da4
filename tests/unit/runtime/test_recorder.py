from dataclasses import replace

import pytest
import torch

from tests.unit.store.test_store import add_run
from unifiednn_core.clock import SimulatedClock
from unifiednn_core.home import Home
from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.lifecycle import Event
from unifiednn_core.memory.samplers import MemorySample
from unifiednn_core.runtime.gauge import Gauge, Reading
from unifiednn_core.runtime.recorder import SEPARATION_S, STEP_ROWS_OF_RUN, Recorder
from unifiednn_core.store import Store
from unifiednn_core.store.telemetry import Batch
from unifiednn_core.training.events import Cost, Ended, EpochDone, Granted, Moved, Released, Stepped


@pytest.fixture
def store(home: Home) -> Store:
    store = Store.open(home, SimulatedClock(1.0))
    add_run(store, "r")
    return store


def recorder(store: Store, steps_total: int = 10) -> Recorder:
    record = Recorder(store, "r", SimulatedClock(1.0))
    for row in store.runs.get("r")[1]:
        row.steps_total = steps_total if row.name == "a" else 10
        record.admit(row, 1, steps_per_epoch=5, peers=2)
    return record


def reading(at_s: float, **sizes: int) -> Reading:
    """Figures of one instant, the main one first."""
    samples = tuple(MemorySample(source, size_bytes) for source, size_bytes in sizes.items())
    return Reading(at_s=at_s, samples=samples, source=next(iter(sizes)), strata=None, shared_bytes=None)


def stepped(step: int, loss: float) -> Stepped:
    return Stepped("a", step, torch.tensor(loss), torch.tensor(step % 3), 4)


def test_a_short_training_is_recorded_step_by_step(store: Store) -> None:
    record = recorder(store)
    for step in range(1, 6):
        record.record(stepped(step, loss=0.5 * step))
    record.record(EpochDone("a", EpochFigures(1, 5, 0.1, 1.5, 0.25, 1.0, 0.5)))
    record.flush(store.telemetry.write, 0.0)
    history = store.telemetry.history("r", None)
    assert [(row.step, row.epoch, row.loss) for row in history.steps["a"]] == [
        (step, step / 5, 0.5 * step) for step in range(1, 6)
    ]
    assert [row.accuracy for row in history.steps["a"]] == [0.25, 0.5, 0.0, 0.25, 0.5]
    assert [row.test_accuracy for row in history.epochs["a"]] == [0.5]
    [a, _] = store.runs.get("r")[1]
    assert (a.epochs_done, a.steps_done, a.test_loss) == (1, 5, 1.0)


def test_a_long_training_is_recorded_in_means(store: Store) -> None:
    stride = 4
    record = recorder(store, steps_total=stride * STEP_ROWS_OF_RUN // 2)
    for step in range(1, 10):
        record.record(stepped(step, loss=float(step)))
    record.flush(store.telemetry.write, 0.0)
    history = store.telemetry.history("r", None)
    assert [(row.step, row.loss) for row in history.steps["a"]] == [(4, 2.5), (8, 6.5)]
    assert store.runs.get("r")[1][0].steps_done == 9, "progress is told to the step"


def test_what_could_not_be_written_is_written_the_next_time(store: Store) -> None:
    record = recorder(store)
    record.record(stepped(1, loss=1.0))

    def full(run_id: str, batch: Batch) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        record.flush(full, 0.0)
    record.record(stepped(2, loss=2.0))
    record.flush(store.telemetry.write, 0.0)
    record.flush(store.telemetry.write, 0.0)
    assert [row.step for row in store.telemetry.history("r", None).steps["a"]] == [1, 2]


def test_service_and_peaks_belong_to_who_held_the_device(store: Store) -> None:
    record = recorder(store)
    record.memory(reading(0.0, here=50))
    record.record(Granted("a", 0.0, "It is first."))
    record.memory(reading(0.5, here=70, there=900))
    record.flush(store.telemetry.write, 0.75)
    [a, _] = store.runs.get("r")[1]
    assert (a.service_s, a.peak_memory_bytes) == (0.75, 70), "a long slice is told while it lasts"
    record.memory(reading(1.5, here=60))  # taken before the reports of the switch are read
    record.record(Released("a", 0.0, 1.0, 3, "It is first.", Cost(cpu_s=0.25)))
    record.record(Granted("b", 1.0, "It is next."))
    record.flush(store.telemetry.write, 2.0)
    run, (a, b) = store.runs.get("r")
    assert (run.peak_memory_bytes, run.memory_source) == (70, "here")
    assert (a.peak_memory_bytes, b.peak_memory_bytes) == (70, 60)
    assert (a.service_s, b.service_s) == (1.0, 1.0)
    assert (run.now_submodel, run.now_reason) == ("b", "It is next.")
    record.record(Released("b", 1.0, 2.5, 1, "It is next.", Cost(peak_bytes=999)))
    record.record(Released("a", 2.5, 3.0, 1, "Again.", Cost(cpu_s=0.5)))
    record.memory(reading(4.0, there=30))
    record.flush(store.telemetry.write, 4.0)
    run, (a, b) = store.runs.get("r")
    assert (a.service_s, b.service_s, b.peak_memory_bytes) == (1.5, 1.5, 999)
    assert (a.cpu_s, b.cpu_s) == (0.75, 0.0)
    assert run.now_submodel is None
    assert (run.peak_memory_bytes, run.memory_source) == (30, "there"), "peaks of two sources are never mixed"
    assert len(store.telemetry.history("r", None, last_slices=2).slices) == 2
    assert [s.reason for s in store.telemetry.history("r", None, last_slices=1).slices] == ["Again."]


def test_what_a_turn_took_is_remembered_unless_somebody_else_was_being_separated(store: Store) -> None:
    record = recorder(store)
    record.gauge = Gauge(torch.device("cpu"), SimulatedClock(1.0))
    for row, key in zip(store.runs.get("r")[1], "xy", strict=True):
        row.memory_key, row.steps_total = key, 10
        record.admit(row, 1, steps_per_epoch=5, peers=2)
    record.record(Released("a", 0.0, 1.0, 3, "", Cost(transient_bytes=300)))
    record.record(Released("b", 1.0, 2.0, 3, "", Cost(transient_bytes=20)))
    record.record(Released("a", 2.0, 3.0, 3, "", Cost(transient_bytes=200)))
    record.record(Ended("a", Event.COMPLETE, None))
    record.record(Released("b", 3.5, 4.0, 3, "", Cost(transient_bytes=9000)))
    record.record(Released("b", 3.5 + SEPARATION_S, 15.0, 3, "", Cost(transient_bytes=25)))
    record.record(Ended("b", Event.COMPLETE, None))
    assert store.measured.recall("xy") == {"x": 300, "y": 25}


def test_what_failed_is_not_taken_for_what_it_needs(store: Store) -> None:
    record = recorder(store)
    record.gauge = Gauge(torch.device("cpu"), SimulatedClock(1.0))
    [a, _] = store.runs.get("r")[1]
    a.memory_key = "x"
    record.admit(a, 1, steps_per_epoch=5, peers=2)
    record.record(Released("a", 0.0, 1.0, 3, "", Cost(transient_bytes=300)))
    record.record(Ended("a", Event.FAIL, None, cause="Out of memory.", remedy="Split its batches."))
    assert store.measured.recall("x") == {}


def test_a_peak_between_two_samples_is_not_lost_and_shared_pages_do_not_count(store: Store) -> None:
    record = recorder(store)
    record.memory(replace(reading(0.5, here=700), shared_bytes=100))
    record.record(Released("a", 0.0, 1.0, 3, "", Cost(peak_bytes=1000)))
    record.flush(store.telemetry.write, 1.0)
    run, (a, b) = store.runs.get("r")
    assert (run.peak_memory_bytes, a.peak_memory_bytes, b.peak_memory_bytes) == (900, 900, None)


def test_each_flush_says_what_the_run_has_used(store: Store) -> None:
    record = recorder(store)
    record.gauge = Gauge(torch.device("cpu"), SimulatedClock(1.0), earlier={"cpu_s": 500.0})
    record.flush(store.telemetry.write, 1.0)
    assert (store.runs.get("r")[0].cpu_s or 0.0) > 500.0


def test_a_report_that_the_table_does_not_allow_is_noted_and_costs_nothing(store: Store) -> None:
    record = recorder(store)
    record.record(Moved("a", Event.HOLD))
    record.flush(store.telemetry.write, 0.0)
    [note] = [event for event in store.telemetry.history("r", None).events if event.kind == "defect"]
    assert "does not allow 'hold'" in note.message
