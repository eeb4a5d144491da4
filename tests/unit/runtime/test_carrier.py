"""What the carrier of a host does for its workers, over a real store and a shared folder."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event

from tests.clock import SimulatedClock
from tests.unit.store.test_store import BERTH, add_run
from tests.waiting import wait_until
from unifiednn_core.base.errors import BlobsUnreachable
from unifiednn_core.base.paths import BLOBS_SETTING, Home
from unifiednn_core.runtime import spool
from unifiednn_core.runtime.carrier import LIVE_S, Carrier
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.store import Store
from unifiednn_core.store.blobs import FolderBlobs
from unifiednn_core.store.depot import settle

NAME = "checkpoints/a/step-000000001.safetensors"


@pytest.fixture
def store(home: Home, clock: SimulatedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A run that trains here; others share its files."""
    monkeypatch.setenv(BLOBS_SETTING, str(tmp_path / "shared"))
    store = Store.open(home, clock)
    settle(home, store.blobs, store.people)
    add_run(store, "r")
    assert store.workers.claim("r", BERTH)
    checkpoint = home.run("r") / NAME
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"weights")
    return store


def ask(home: Home) -> spool.Question:
    return spool.Question(home.spool("r"), {"do": "keep", "run": "r", "submodel": "a", "names": [NAME]})


def look(carrier: Carrier, clock: SimulatedClock) -> None:
    clock.advance(LIVE_S)
    carrier.tick()


def answered(question: spool.Question, carrier: Carrier, clock: SimulatedClock) -> dict[str, Any]:
    return wait_until(lambda: look(carrier, clock) or question.answer())  # type: ignore[func-returns-value]


def test_who_asks_again_during_a_transfer_does_not_start_another(
    home: Home, store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, puts, go_on = FolderBlobs.put, list[str](), threading.Event()

    def slow(self: FolderBlobs, path: Path, key: str, *, again: bool = False) -> None:
        puts.append(key)
        assert go_on.wait(60)
        put(self, path, key, again=again)

    monkeypatch.setattr(FolderBlobs, "put", slow)
    carrier = Carrier(home, store, clock)
    ask(home).forget()
    first = ask(home)
    look(carrier, clock)
    first.forget()  # its worker died; the next one asks, many times
    questions = [ask(home) for _ in range(6)]
    for _ in range(3):
        look(carrier, clock)
    assert len(carrier._under_way) == 1, "the other threads are free"
    go_on.set()
    answers = dict[int, object]()

    def all_answered() -> bool:
        look(carrier, clock)
        found = {number: one.answer() for number, one in enumerate(questions) if number not in answers}
        answers.update({number: answer for number, answer in found.items() if answer is not None})
        return len(answers) == len(questions)

    wait_until(all_answered)
    assert len({str(answer) for answer in answers.values()}) == 1 and len(puts) == 1, "it was put once"
    carrier.stop()


def test_a_file_that_was_put_is_not_put_again_because_another_one_failed(
    home: Home, store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = NAME.replace("1", "2")
    (home.run("r") / second).write_bytes(b"newer weights")
    put, puts, refused = FolderBlobs.put, list[str](), [True]

    def away_once(self: FolderBlobs, path: Path, key: str, *, again: bool = False) -> None:
        if path.name in second and refused.pop():
            refused.append(False)
            raise BlobsUnreachable("away")
        puts.append(path.name)
        put(self, path, key, again=again)

    monkeypatch.setattr(FolderBlobs, "put", away_once)
    files = store.depot(home)
    with pytest.raises(BlobsUnreachable):
        files.keep("r", "a", [NAME, second])
    kept = files.keep("r", "a", [NAME, second])
    assert sorted(puts) == [Path(NAME).name, Path(second).name], "each once"
    store.runs.record_checkpoint("r", "a", name=Path(second).name, step=2, size_bytes=1, blobs=kept)
    assert [row.name for row in store.blobs.of("r", "a")] == [NAME, second]


def test_a_start_after_many_runs_asks_the_database_no_more_than_after_one(
    home: Home, store: Store, clock: SimulatedClock, tmp_path: Path
) -> None:
    asked = list[str]()

    def note(*facts: Any) -> None:
        asked.append(facts[2])

    def started() -> list[str]:
        carrier = Carrier(home, store, clock)
        asked.clear()
        carrier._tell_logs_of_the_dead()
        carrier.stop()
        return list(asked)

    for number in range(10):
        add_run(store, f"old{number}")
        home.spool(f"old{number}").mkdir(parents=True)
        home.log(f"old{number}").write_text(f"{number}\n")
        if not number:
            started()
            sqlalchemy_event.listen(store._database._engine, "before_cursor_execute", note)
            few = started()
    assert len(started()) > len(few), "logs that were not reported before are reported"
    assert len(store.worker_logs.of(f"old{number}" for number in range(10))) == 10
    assert len(few) == len(started()) and not any("worker_logs.text" in statement for statement in few)


def test_logs_that_are_links_are_not_told(home: Home, store: Store, clock: SimulatedClock, tmp_path: Path) -> None:
    secrets, folder = tmp_path / "secrets", home.run("r")
    secrets.mkdir()
    (secrets / "key.log").write_text("a key of the server's user\n")
    home.spool("r").mkdir()
    home.log("r").symlink_to(secrets / "key.log")
    (folder / "baseline").symlink_to(secrets, target_is_directory=True)
    carrier = Carrier(home, store, clock)
    look(carrier, clock)
    (folder / "baseline").unlink()
    (folder / "baseline").mkdir()
    (folder / "baseline" / "a.log").symlink_to(secrets / "key.log")
    os.mkfifo(folder / "baseline" / "b.log")
    (folder / "baseline" / "c.log").write_text("said\n")
    look(carrier, clock)
    look(carrier, clock)
    carrier.stop()
    assert [(row.place, row.text) for row in store.worker_logs.of(["r"])] == [("/baseline/c.log", "said\n")]


def test_a_spool_full_of_traps_harms_nobody(home: Home, store: Store, clock: SimulatedClock, tmp_path: Path) -> None:
    """Pipes that nobody writes, and links to files of others, which must neither be read nor written."""
    folder, others = home.spool("r"), tmp_path / "others.ask"
    others.write_text(json.dumps({"do": "keep", "run": "r", "submodel": "a", "names": [NAME]}))
    before, asked = others.stat(), ask(home)
    os.mkfifo(folder / "pipe.ask")
    (folder / "link.ask").symlink_to(others)
    (folder / "deep.ask").write_text("[" * 100_000)
    [question] = spool.questions(folder)
    for name in ("alive", f"{question}.part"):
        (folder / name).symlink_to(others)
    carrier = Carrier(home, store, clock)
    for _ in range(3):
        look(carrier, clock)
        wait_until(lambda: all(future.done() for future in carrier._under_way.values()))
    assert asked.answer() is None and others.stat().st_mtime_ns == before.st_mtime_ns, "no file of others was written"
    for trap in folder.glob("*.part"):
        trap.unlink()
    answered(asked, carrier, clock)
    carrier.stop()


def test_nothing_is_brought_through_a_link(
    home: Home, store: Store, clock: SimulatedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SubModelSpec, "model_validate", lambda part: SubModelSpec.model_construct(**part))  # not whole
    mine, theirs = home.checkpoints("r", "a"), tmp_path / "theirs"
    mine.rename(theirs)
    mine.symlink_to(theirs, target_is_directory=True)
    carrier = Carrier(home, store, clock)
    asked = spool.Question(home.spool("r"), {"do": "bring", "run": "r", "submodel": "a"})
    answer = answered(asked, carrier, clock)
    carrier.stop()
    assert list(theirs.iterdir()), "checkpoints of others are not deleted"
    assert "failed" in answer, answer
