"""The shelf always has a whole checkpoint to go on from, whatever happened to the others."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unifiednn_core import failpoints
from unifiednn_core.checkpoints import file
from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.checkpoints.shelf import Shelf
from unifiednn_core.errors import BadCheckpoint

POINTS = [point for point in failpoints.POINTS if point.startswith("checkpoint.")]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "run" / "lenet")


def checkpoint(step: int, score: float | None = None) -> Checkpoint:
    state = {"model": {"w": torch.full((64,), float(step))}}
    return Checkpoint(submodel="lenet", step=step, epoch=step // 10, state=state, score=score, recipe={"seed": 1})


def steps(shelf: Shelf) -> list[int]:
    return [file.peek(path).step for path in shelf.paths()]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_shelf_without_folder_is_empty(shelf: Shelf) -> None:
    assert shelf.latest() == (None, ())
    assert shelf.paths() == [] and shelf.newest_path() is None
    shelf.clear()
    assert not shelf.folder.exists()


def test_the_newest_is_found_under_its_step(shelf: Shelf) -> None:
    assert shelf.put(checkpoint(120)) == shelf.folder / "step-000000120.safetensors"
    shelf.put(checkpoint(10_000_000_000))
    found, sentences = shelf.latest()
    assert found is not None and found.step == 10_000_000_000 and sentences == ()
    assert torch.equal(found.state["model"]["w"], torch.full((64,), 1e10))
    assert shelf.newest_path() == shelf.folder / "step-10000000000.safetensors"


def test_the_last_two_and_the_best_are_kept(shelf: Shelf) -> None:
    for step, score in [(10, None), (20, 0.9), (30, 0.1), (40, float("nan")), (50, 0.5), (60, 0.2)]:
        shelf.put(checkpoint(step, score))
    assert steps(shelf) == [60, 50, 20]
    shelf.put(checkpoint(70, 0.95))
    assert steps(shelf) == [70, 60]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scores=st.lists(st.none() | st.floats(), min_size=1, max_size=7))
def test_what_is_kept_is_what_was_promised(scores: list[float | None], shelf: Shelf) -> None:
    shelf.clear()
    for step, score in enumerate(scores):
        shelf.put(checkpoint(step, score))
    kept = steps(shelf)
    assert kept[:2] == list(range(len(scores)))[::-1][:2] and len(kept) <= 3
    real = [score for score in scores if score is not None and score == score and score > float("-inf")]
    if real:
        assert max(real) in [scores[step] for step in kept]


def test_a_checkpoint_of_an_earlier_step_is_not_thrown_away_at_once(shelf: Shelf) -> None:
    for step in (100, 110, 40):
        shelf.put(checkpoint(step))
    assert 40 in steps(shelf)


def test_one_that_cannot_be_removed_does_no_harm(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    for step in (1, 2, 3, 4):
        shelf.put(checkpoint(step))
    assert steps(shelf) == [4, 3, 2, 1]


def test_a_damaged_one_is_passed_over_and_said(shelf: Shelf) -> None:
    for step in (80, 120):
        shelf.put(checkpoint(step))
    damage(shelf.folder / "step-000000120.safetensors")
    found, sentences = shelf.latest()
    assert found is not None and found.step == 80
    assert sentences == (
        "The checkpoint of lenet at step 120 is damaged (step-000000120.safetensors has a tensor 'model.w' that was "
        "changed after it was written); the one at step 80 is used.",
    )
    assert sorted(path.name for path in shelf.folder.iterdir()) == [
        "step-000000080.safetensors",
        "step-000000120.safetensors.damaged",
    ]
    assert shelf.latest()[1] == ()


def test_a_damaged_one_stays_where_it_is_until_somebody_has_been_told(shelf: Shelf) -> None:
    for step in (80, 120):
        shelf.put(checkpoint(step))
    newest = shelf.newest_path()
    assert newest is not None
    damage(newest)

    def unable(_: object) -> None:
        raise RuntimeError("the store is locked")

    with pytest.raises(RuntimeError):
        shelf.latest(unable)
    assert shelf.newest_path() == newest
    told: list[str] = []
    found, said = shelf.latest(told.extend)
    assert found is not None and found.step == 80
    assert (tuple(told), shelf.latest()[1]) == (said, ())


def test_when_all_are_damaged_there_is_none(shelf: Shelf) -> None:
    for step in (80, 120):
        damage(shelf.put(checkpoint(step)))
    found, sentences = shelf.latest()
    assert found is None and len(sentences) == 2
    assert all(sentence.endswith("; there is no earlier one.") for sentence in sentences)
    assert shelf.paths() == []
    shelf.put(checkpoint(5))
    assert steps(shelf) == [5]


def test_an_unreadable_one_is_passed_over_and_stays(shelf: Shelf) -> None:
    for step in (80, 120):
        shelf.put(checkpoint(step))
    newest = shelf.folder / "step-000000120.safetensors"
    newest.unlink()
    newest.mkdir()  # reading a folder is an OSError for everybody, root included
    found, sentences = shelf.latest()
    assert found is not None and found.step == 80
    assert sentences == (
        "The checkpoint of lenet at step 120 cannot be read (Is a directory); the one at step 80 is used.",
    )
    assert newest.exists()


def test_a_damaged_one_that_cannot_be_set_aside_is_passed_over(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (80, 120):
        shelf.put(checkpoint(step))
    damage(shelf.folder / "step-000000120.safetensors")
    (shelf.folder / ".step.tmp").touch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    for _ in range(2):
        found, sentences = shelf.latest()
        assert found is not None and found.step == 80 and len(sentences) == 1


def test_clear_leaves_nothing_of_its_own(shelf: Shelf) -> None:
    for step in (80, 120):
        shelf.put(checkpoint(step))
    damage(shelf.folder / "step-000000120.safetensors")
    shelf.latest()
    (shelf.folder / ".step-000000130.safetensors.x.tmp").touch()
    (shelf.folder / "notes.txt").touch()
    shelf.clear()
    assert [path.name for path in shelf.folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("point", POINTS)
def test_a_full_disk_costs_at_most_the_new_one(point: str, shelf: Shelf) -> None:
    shelf.put(checkpoint(80))
    failpoints.arm(failpoints.Fault(point, "disk_full"))
    with pytest.raises(OSError):
        shelf.put(checkpoint(120))
    found, sentences = shelf.latest()
    assert found is not None and sentences == ()
    assert found.step == (120 if point == "checkpoint.after_rename" else 80)
    assert not [path for path in shelf.folder.iterdir() if path.suffix == ".tmp"]
    shelf.put(checkpoint(160))
    assert shelf.latest()[0] is not None and steps(shelf)[0] == 160


_WRITER = """
import sys
from pathlib import Path
import torch
from unifiednn_core import failpoints
from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.checkpoints.shelf import Shelf

failpoints.arm_from_environment()
{before}
shelf = Shelf(Path(sys.argv[1]))
for step in (80, 120):
    state = {{"model": {{"w": torch.full(({elements},), float(step))}}}}
    shelf.put(Checkpoint(submodel="lenet", step=step, epoch=0, state=state, recipe={{}}))
"""


def run_writer(shelf: Shelf, fault: str, *, before: str = "", elements: int = 64) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WRITER.format(before=before, elements=elements), str(shelf.folder)],
        env=os.environ | {failpoints.VARIABLE: fault},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_writer_leaves_a_whole_checkpoint(point: str, shelf: Shelf) -> None:
    assert run_writer(shelf, f"{point}=sigkill@2").returncode == -signal.SIGKILL
    found, sentences = shelf.latest()
    assert found is not None and sentences == ()
    assert found.step == (120 if point == "checkpoint.after_rename" else 80)
    assert torch.equal(found.state["model"]["w"], torch.full((64,), float(found.step)))
    assert not [path for path in shelf.folder.iterdir() if path.suffix == ".tmp"]


def test_a_write_that_the_system_cuts_off_is_an_os_error(shelf: Shelf) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    done = run_writer(shelf, "", before=limit, elements=10_000)
    assert done.returncode == 1 and "OSError: [Errno 27]" in done.stderr
    assert list(shelf.folder.iterdir()) == []


def test_readers_beside_a_writer_see_whole_checkpoints(shelf: Shelf) -> None:
    """Each read gives a whole checkpoint, or finds that the file is gone; never a half one."""
    shelf.put(checkpoint(0))
    done, wrong, seen = threading.Event(), [], []

    def look() -> None:
        while not done.is_set() or not seen:
            path = shelf.newest_path()
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
        shelf.put(checkpoint(step))
    done.set()
    reader.join()
    assert wrong == [] and seen


@pytest.mark.parametrize("name", ["step-12.safetensors", "model.safetensors", "step-000000001.safetensors.damaged"])
def test_other_files_are_left_alone(name: str, shelf: Shelf) -> None:
    shelf.put(checkpoint(1))
    (shelf.folder / name).write_text("mine")
    for step in (2, 3, 4):
        shelf.put(checkpoint(step))
    assert steps(shelf) == [4, 3]
    assert (shelf.folder / name).read_text() == "mine"
