import pytest
import torch

from tests.unit.store.test_store import add_run
from unifiednn_core.clock import SimulatedClock
from unifiednn_core.home import Home
from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.lifecycle import Event
from unifiednn_core.memory.samplers import MemorySample
from unifiednn_core.runtime.recorder import STEP_ROWS_OF_RUN, Recorder
from unifiednn_core.store import Store
from unifiednn_core.store.telemetry import Batch
from unifiednn_core.training.events import EpochDone, Granted, Moved, Released, Stepped


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
    record.memory(0.0, [MemorySample("here", 50)], "here")
    record.record(Granted("a", 0.0, "It is first."))
    record.memory(0.5, [MemorySample("here", 70), MemorySample("there", 900)], "here")
    record.flush(store.telemetry.write, 0.75)
    [a, _] = store.runs.get("r")[1]
    assert (a.service_s, a.peak_memory_bytes) == (0.75, 70), "a long slice is told while it lasts"
    record.memory(1.5, [MemorySample("here", 60)], "here")  # taken before the reports of the switch are read
    record.record(Released("a", 0.0, 1.0, 3, "It is first.", None))
    record.record(Granted("b", 1.0, "It is next."))
    record.flush(store.telemetry.write, 2.0)
    run, (a, b) = store.runs.get("r")
    assert (run.peak_memory_bytes, run.memory_source) == (70, "here")
    assert (a.peak_memory_bytes, b.peak_memory_bytes) == (70, 60)
    assert (a.service_s, b.service_s) == (1.0, 1.0)
    assert (run.now_submodel, run.now_reason) == ("b", "It is next.")
    record.record(Released("b", 1.0, 2.5, 1, "It is next.", 999))
    record.record(Released("a", 2.5, 3.0, 1, "Again.", None))
    record.memory(4.0, [MemorySample("there", 30)], "there")
    record.flush(store.telemetry.write, 4.0)
    run, (a, b) = store.runs.get("r")
    assert (a.service_s, b.service_s, b.peak_memory_bytes) == (1.5, 1.5, 999)
    assert run.now_submodel is None
    assert (run.peak_memory_bytes, run.memory_source) == (30, "there"), "peaks of two sources are never mixed"
    assert len(store.telemetry.history("r", None, last_slices=2).slices) == 2
    assert [s.reason for s in store.telemetry.history("r", None, last_slices=1).slices] == ["Again."]


def test_a_report_that_the_table_does_not_allow_is_noted_and_costs_nothing(store: Store) -> None:
    record = recorder(store)
    record.record(Moved("a", Event.HOLD))
    record.flush(store.telemetry.write, 0.0)
    [note] = [event for event in store.telemetry.history("r", None).events if event.kind == "defect"]
    assert "does not allow 'hold'" in note.message
