import threading
from pathlib import Path

import pytest
import torch

from tests.waiting import wait_until
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_file import CheckpointStore
from unifiednn_core.runtime import checkpoint_writer as writers
from unifiednn_core.runtime.checkpoint_writer import CheckpointWriter


def checkpoint(step: int, submodel: str = "a") -> Checkpoint:
    return Checkpoint(submodel=submodel, step=step, epoch=0, recipe={}, state={"model": {"w": torch.ones(2) * step}})


class Desk:
    """A writer with everything that it reports."""

    def __init__(self, folder: Path):
        self.recorded: list[tuple[str, int]] = []
        self.complaints: list[str] = []
        self.folder = folder
        self.settled: list[str] = []
        self.writer = CheckpointWriter(
            self.shelf, self.record, self.settled.append, lambda name, said: self.complaints.append(said)
        )

    def shelf(self, name: str) -> CheckpointStore:
        return CheckpointStore(self.folder / name)

    def record(self, kept: Checkpoint, _: CheckpointStore) -> None:
        self.recorded.append((kept.submodel, kept.step))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(writers, "RETRY_S", 0.01)
    return Desk(tmp_path)


def test_everything_is_done_in_order(desk: Desk) -> None:
    seen: list[int] = []
    desk.writer.put(checkpoint(1))
    desk.writer.after(lambda: seen.append(len(desk.recorded)))
    desk.writer.put(checkpoint(2, "b"))
    desk.writer.after(lambda: seen.append(len(desk.recorded)))
    wait_until(lambda: desk.writer.idle)
    assert (desk.recorded, seen) == ([("a", 1), ("b", 2)], [1, 2])


@pytest.mark.usefixtures("full_log")
def test_a_full_disk_is_waited_for_and_said_once(desk: Desk) -> None:
    failpoints.arm(Fault("checkpoint.before_fsync", "disk_full", times=5))
    try:
        desk.writer.put(checkpoint(1))
        wait_until(lambda: desk.writer.idle)
    finally:
        failpoints.arm(None)
    assert desk.recorded == [("a", 1)]
    [said] = desk.complaints
    assert "No space left" in said
    latest, notes = desk.shelf("a").latest()
    assert latest is not None and (latest.step, notes) == (1, ())


def test_only_a_newer_one_of_the_same_takes_the_place_of_one_that_waits(desk: Desk) -> None:
    gate = threading.Event()
    desk.writer.after(gate.wait)
    failpoints.arm(Fault("checkpoint.before_write", "read_only", times=1))
    try:
        for kept in (checkpoint(1), checkpoint(2, "b"), checkpoint(3)):
            desk.writer.put(kept)
        gate.set()
        wait_until(lambda: desk.writer.idle)
    finally:
        failpoints.arm(None)
    assert desk.recorded == [("b", 2), ("a", 3)]


@pytest.mark.usefixtures("full_log")
def test_a_defect_does_not_silence_it(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.writer.after(lambda: 1 / 0)
    desk.writer.put(checkpoint(1))
    wait_until(lambda: desk.writer.idle)
    assert desk.recorded == [("a", 1)]
    assert "ZeroDivisionError" in caplog.text


def test_one_whose_sub_model_has_left_is_skipped_in_silence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(kept: Checkpoint, found: CheckpointStore) -> None:
        if kept.submodel == "a":
            raise NotFound("The hybrid does not train that.")
        Desk.record(desk, kept, found)

    monkeypatch.setattr(desk.writer, "_record", gone)
    desk.writer.put(checkpoint(1))
    desk.writer.put(checkpoint(2, "b"))
    wait_until(lambda: desk.writer.idle)
    assert (desk.recorded, desk.settled, desk.complaints) == ([("b", 2)], ["a", "b"], [])
    assert caplog.text == ""
