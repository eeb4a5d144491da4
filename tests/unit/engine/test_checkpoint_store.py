"""The store always finds a whole checkpoint to resume from, whatever happened to the others."""

import errno
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import checkpoint_file as file
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_file import CheckpointStore

POINTS = [point for point in failpoints.POINTS if point.startswith("checkpoint.")]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "lenet")


def checkpoint(step: int, score: float | None = None) -> Checkpoint:
    state = {"model": {"w": torch.full((64,), float(step))}}
    return Checkpoint(submodel="lenet", step=step, epoch=step // 10, state=state, score=score, recipe={"seed": 1})


def steps(store: CheckpointStore) -> list[int]:
    return [file.peek(path).step for path in store.paths()]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_store_without_folder_is_empty(store: CheckpointStore) -> None:
    assert store.latest() == (None, ())
    assert store.paths() == [] and store.newest_path() is None
    store.clear()
    assert not store.folder.exists()


def test_the_newest_is_found_under_its_step(store: CheckpointStore) -> None:
    assert store.put(checkpoint(120)) == store.folder / "step-000000120.safetensors"
    store.put(checkpoint(10_000_000_000))
    found, sentences = store.latest()
    assert found is not None and found.step == 10_000_000_000 and sentences == ()
    assert torch.equal(found.state["model"]["w"], torch.full((64,), 1e10))
    assert store.newest_path() == store.folder / "step-10000000000.safetensors"


def test_the_last_two_and_the_best_are_kept(store: CheckpointStore) -> None:
    for step, score in [(10, None), (20, 0.9), (30, 0.1), (40, float("nan")), (50, 0.5), (60, 0.2)]:
        store.put(checkpoint(step, score))
    assert steps(store) == [60, 50, 20]
    store.put(checkpoint(70, 0.95))
    assert steps(store) == [70, 60]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scores=st.lists(st.none() | st.floats(), min_size=1, max_size=7))
def test_what_is_kept_is_what_was_promised(scores: list[float | None], store: CheckpointStore) -> None:
    store.clear()
    for step, score in enumerate(scores):
        store.put(checkpoint(step, score))
    kept = steps(store)
    assert kept[:2] == list(range(len(scores)))[::-1][:2] and len(kept) <= 3
    real = [score for score in scores if score is not None and score == score and score > float("-inf")]
    if real:
        assert max(real) in [scores[step] for step in kept]


def test_a_checkpoint_of_an_earlier_step_is_not_thrown_away_at_once(store: CheckpointStore) -> None:
    for step in (100, 110, 40):
        store.put(checkpoint(step))
    assert 40 in steps(store)


def test_one_that_cannot_be_removed_does_no_harm(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    for step in (1, 2, 3, 4):
        store.put(checkpoint(step))
    assert steps(store) == [4, 3, 2, 1]


def test_a_damaged_one_is_passed_over_and_said(store: CheckpointStore) -> None:
    for step in (80, 120):
        store.put(checkpoint(step))
    damage(store.folder / "step-000000120.safetensors")
    found, sentences = store.latest()
    assert found is not None and found.step == 80
    assert sentences == (
        "The checkpoint of lenet at step 120 is damaged (step-000000120.safetensors has a tensor 'model.w' that was "
        "changed after it was written); the one at step 80 is used.",
    )
    assert sorted(path.name for path in store.folder.iterdir()) == [
        "step-000000080.safetensors",
        "step-000000120.safetensors.damaged",
    ]
    assert store.latest()[1] == ()


def test_a_damaged_one_stays_where_it_is_until_it_is_reported(store: CheckpointStore) -> None:
    for step in (80, 120):
        store.put(checkpoint(step))
    newest = store.newest_path()
    assert newest is not None
    damage(newest)

    def unable(_: object) -> None:
        raise RuntimeError("the store is locked")

    with pytest.raises(RuntimeError):
        store.latest(unable)
    assert store.newest_path() == newest
    reported: list[str] = []
    found, said = store.latest(reported.extend)
    assert found is not None and found.step == 80
    assert (tuple(reported), store.latest()[1]) == (said, ())


def test_when_all_are_damaged_there_is_none(store: CheckpointStore) -> None:
    for step in (80, 120):
        damage(store.put(checkpoint(step)))
    found, sentences = store.latest()
    assert found is None and len(sentences) == 2
    assert all(sentence.endswith("; there is no earlier one.") for sentence in sentences)
    assert store.paths() == []
    store.put(checkpoint(5))
    assert steps(store) == [5]


def test_an_unreadable_one_is_passed_over_and_stays(store: CheckpointStore) -> None:
    for step in (80, 120):
        store.put(checkpoint(step))
    newest = store.folder / "step-000000120.safetensors"
    newest.unlink()
    newest.mkdir()  # reading a folder is an OSError, for root too
    found, sentences = store.latest()
    assert found is not None and found.step == 80
    assert sentences == (
        "The checkpoint of lenet at step 120 cannot be read (Is a directory); the one at step 80 is used.",
    )
    assert newest.exists()


def test_a_damaged_one_that_cannot_be_set_aside_is_passed_over(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (80, 120):
        store.put(checkpoint(step))
    damage(store.folder / "step-000000120.safetensors")
    (store.folder / ".step.tmp").touch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    for _ in range(2):
        found, sentences = store.latest()
        assert found is not None and found.step == 80 and len(sentences) == 1


def test_clear_leaves_nothing_of_its_own(store: CheckpointStore) -> None:
    for step in (80, 120):
        store.put(checkpoint(step))
    damage(store.folder / "step-000000120.safetensors")
    store.latest()
    (store.folder / ".step-000000130.safetensors.x.tmp").touch()
    (store.folder / "notes.txt").touch()
    store.clear()
    assert [path.name for path in store.folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("point", POINTS)
def test_a_full_disk_costs_at_most_the_new_one(point: str, store: CheckpointStore) -> None:
    store.put(checkpoint(80))
    failpoints.arm(failpoints.Fault(point, "disk_full"))
    with pytest.raises(OSError):
        store.put(checkpoint(120))
    found, sentences = store.latest()
    assert found is not None and sentences == ()
    assert found.step == (120 if point == "checkpoint.after_rename" else 80)
    assert not [path for path in store.folder.iterdir() if path.suffix == ".tmp"]
    store.put(checkpoint(160))
    assert store.latest()[0] is not None and steps(store)[0] == 160


def run_writer(store: CheckpointStore, fault: str = "", *, elements: int = 64, most_bytes: int | None = None) -> int:
    """Write two checkpoints in a process of its own; minus the signal that killed it, or the number of its error."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        if fault:
            failpoints.arm(failpoints.Fault.parse(fault))
        for step in (80, 120):
            state = {"model": {"w": torch.full((elements,), float(step))}}
            store.put(Checkpoint(submodel="lenet", step=step, epoch=0, state=state, recipe={}))
    except OSError as error:
        os._exit(error.errno or 1)
    finally:
        os._exit(0)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_writer_leaves_a_whole_checkpoint(point: str, store: CheckpointStore) -> None:
    assert run_writer(store, f"{point}=sigkill@2") == -signal.SIGKILL
    found, sentences = store.latest()
    assert found is not None and sentences == ()
    assert found.step == (120 if point == "checkpoint.after_rename" else 80)
    assert torch.equal(found.state["model"]["w"], torch.full((64,), float(found.step)))
    assert not [path for path in store.folder.iterdir() if path.suffix == ".tmp"]


def test_a_write_that_the_system_cuts_off_is_an_os_error(store: CheckpointStore) -> None:
    assert run_writer(store, elements=10_000, most_bytes=30_000) == errno.EFBIG
    assert list(store.folder.iterdir()) == []


def test_readers_beside_a_writer_see_whole_checkpoints(store: CheckpointStore) -> None:
    """Each read gives a whole checkpoint, or finds that the file is gone; never a half one."""
    store.put(checkpoint(0))
    done, wrong, seen = threading.Event(), [], []

    def look() -> None:
        for _ in iter(lambda: done.is_set() and bool(seen), True):
            path = store.newest_path()
            try:
                found = file.read(path) if path is not None else None
            except FileNotFoundError:
                continue
            except BadCheckpoint as error:
                wrong.append(str(error))
                return
            if found is None or not torch.equal(found.state["model"]["w"], torch.full((64,), float(found.step))):
                wrong.append("another value")
                return
            seen.append(found.step)

    reader = threading.Thread(target=look)
    reader.start()
    for step in range(1, 60):
        store.put(checkpoint(step))
    done.set()
    reader.join()
    assert wrong == [] and seen


@pytest.mark.parametrize("name", ["step-12.safetensors", "model.safetensors", "step-000000001.safetensors.damaged"])
def test_other_files_are_left_alone(name: str, store: CheckpointStore) -> None:
    store.put(checkpoint(1))
    (store.folder / name).write_text("mine")
    for step in (2, 3, 4):
        store.put(checkpoint(step))
    assert steps(store) == [4, 3]
    assert (store.folder / name).read_text() == "mine"
