import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.chaos.faults import checkpoints, set_offset, spoil
from tools.chaos.scene import Journal, JournalEntry, Scene
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.paths import Home
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import RunRow, SubModelRow

READ_CLOCK = """
import sys, time
from pathlib import Path
from unifiednn_core.base.clock import RealClock
from tools.chaos.faults import follow
follow(Path(sys.argv[1]))
for line in sys.stdin:
    print(RealClock().utc_s() - time.time(), flush=True)
"""
WRITE_LINES = """
import sys
from pathlib import Path
from tools.chaos.scene import JournalEntry, Journal
journal = Journal(Path(sys.argv[1]))
for number in range(300):
    journal.write(JournalEntry(what="asked", role="commands", pid=int(sys.argv[2]), number=number, text="x" * 300))
"""


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_LINES, str(path), str(pid)]) for pid in (1, 2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    entries = Journal(path).news()
    for pid in (1, 2):
        assert [entry.number for entry in entries if entry.pid == pid] == list(range(300))


def test_a_reader_gets_each_line_once_and_no_half_ones(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.news() == []
    journal.write(JournalEntry(what="over", role="test"))
    with journal.path.open("ab") as file:
        file.write(b'{"what": "half')
    [entry] = journal.news()
    assert entry.what == "over"
    assert entry.at_s > 0
    assert journal.news() == []


def test_all_processes_follow_a_clock_that_is_set(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    set_offset(scene.clock, 0.0)
    command = [sys.executable, "-c", READ_CLOCK, str(scene.clock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for offset_s in (0.0, 7200.0, -3600.0):
            set_offset(scene.clock, offset_s)
            process.stdin.write("\n")
            process.stdin.flush()
            assert float(process.stdout.readline()) == pytest.approx(offset_s, abs=1.0)
        process.stdin.close()
    assert RealClock().utc_s() > 0


@pytest.fixture
def home_with_checkpoints(home: Home) -> Home:
    database = Database(home.database_url)
    with database.write() as session:
        session.add(RunRow(id="run", name="chaos", state="queued", device="cpu", spec={}, created_at_s=0.0))
        session.flush()
        for name, state in (("lenet", "completed"), ("resnet", "queued"), ("transformer", "queued")):
            columns = {
                "arrival": 0,
                "hybrid_id": "run",
                "priority": 0,
                "model_format": "kit",
                "parameters": 1,
                "epochs": 1,
                "steps_total": 1,
            }
            session.add(SubModelRow(run_id="run", name=name, state=state, **columns))
    database.close()
    for name, steps in (("lenet", (8, 16)), ("resnet", (8, 16)), ("transformer", (8,))):
        folder = home.checkpoints("run", name)
        folder.mkdir(parents=True)
        for step in steps:
            (folder / f"step-{step:09d}.safetensors").write_bytes(os.urandom(1000))
    return home


@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_only_the_newest_checkpoint_of_one_with_two_that_still_trains_is_spoilt(
    home_with_checkpoints: Home, how: str
) -> None:
    home = home_with_checkpoints
    before = {
        path: path.read_bytes()
        for name in ("lenet", "resnet", "transformer")
        for path in checkpoints(home, "run", name)
    }
    spoilt = spoil(home, "run", how, 0.4)
    assert spoilt == home.checkpoints("run", "resnet") / "step-000000016.safetensors"
    changed = [path for path, content in before.items() if path.read_bytes() != content]
    assert changed == [spoilt]
    assert (spoilt.stat().st_size == 1000) == (how == "flip")


def test_without_two_checkpoints_nothing_is_spoilt(home_with_checkpoints: Home) -> None:
    for path in home_with_checkpoints.checkpoints("run", "resnet").iterdir():
        path.unlink()
    assert spoil(home_with_checkpoints, "run", "flip", 0.0) is None
