"""Where several hosts keep files: one contract over a home, a shared folder and an object store."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clock import SimulatedClock
from tests.places import Place
from tests.unit.rows import part_of, row_of
from tests.waiting import PATIENCE_S
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, BlobLost, BlobsUnreachable, NotFound
from unifiednn_core.base.files import move
from unifiednn_core.base.paths import BLOBS_SETTING, Home
from unifiednn_core.runtime import removal
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store, blob_rows, depot
from unifiednn_core.store.blob_rows import file_key
from unifiednn_core.store.blobs import MARK, BlobDamaged, FolderBlobs, blobs_at
from unifiednn_core.store.people import People

SLOW = pytest.mark.slow
KINDS = ["home", "folder", pytest.param("s3", marks=SLOW)]
SHARED = KINDS[1:]


class Killed(BaseException):
    """The process ended here."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def content_of(number: int) -> bytes:
    return f"content {number} ".encode() * 100


def open_hosts(place: Place, monkeypatch: pytest.MonkeyPatch, folder: Path | None = None) -> "Hosts":
    folder = folder or place.folder
    monkeypatch.setenv(BLOBS_SETTING, place.url)
    homes = [Home(folder / name).create() for name in ("a", "b")][: 2 if place.url else 1]
    clock = SimulatedClock()
    first = Store.open(homes[0], clock)
    depot.settle(homes[0], first.blobs, first.people)
    return Hosts(place, homes, [first, *(Store(homes[0].database, clock) for _ in homes[1:])], clock)


@dataclass
class Hosts:
    """The hosts, as the product changes them."""

    place: Place
    homes: list[Home]
    stores: list[Store]
    clock: SimulatedClock
    steps: int = 0
    known: dict[str, bytes] = field(default_factory=dict)
    """What the last checkpoint of each run holds."""

    def at(self, host: int) -> tuple[Home, Store, depot.Depot]:
        host %= len(self.homes)
        return self.homes[host], self.stores[host], self.stores[host].depot(self.homes[host])

    def import_file(self, host: int, number: int) -> None:
        home, store, files = self.at(host)
        content = content_of(number)
        columns = {"kind": "data", "format": "pt", "size_bytes": len(content), "facts": {}}
        store.library.announce(sha256(content), columns)
        waiting = home.quarantine / f"{number}"
        waiting.write_bytes(content)
        move(waiting, home.file(sha256(content)))
        files.keep_file(sha256(content))
        store.library.add_file(sha256=sha256(content), filename=f"{number}.pt", owner="", **columns)
        files.keep_file(sha256(content))

    def delete_file(self, host: int, number: int) -> None:
        home, store, _ = self.at(host)
        removal.remove_file(home, store, sha256(content_of(number)), "", for_all=True)

    def submit(self, host: int, run_id: str) -> None:
        run = row_of(run_id, spec={"submodels": [{"name": "n"}]})
        self.at(host)[1].runs.add((run, [part_of(run_id=run_id, name="n", owner="")]))

    def checkpoint(self, host: int, run_id: str) -> None:
        """As a worker on this host: it brings what there is, trains, writes, keeps the last two, and records."""
        home, store, files = self.at(host)
        if files.is_shared:
            [row] = store.runs.get(run_id)[1]
            files.bring_checkpoints(run_id, "n", row.checkpoint, row.attempt)
        self.steps += 1
        folder = home.checkpoints(run_id, "n")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"step-{self.steps:09d}.safetensors"
        content = f"{run_id} {self.steps}".encode() * 50
        (folder / name).write_bytes(content)
        for old in sorted(folder.glob("step-*"))[:-2]:
            old.unlink()
        names = [f"checkpoints/n/{path.name}" for path in sorted(folder.glob("step-*"))]
        blobs = files.keep(run_id, "n", names) if files.is_shared else None
        store.runs.record_checkpoint(run_id, "n", name=name, step=self.steps, size_bytes=len(content), blobs=blobs)
        self.known[run_id] = content

    def delete_run(self, host: int, run_id: str) -> None:
        home, store, _ = self.at(host)
        with suppress(Exception):
            for event in (Event.STOP, Event.HALT):
                store.runs.transition(run_id, None, event)
        removal.remove_run(home, store, run_id)
        self.known.pop(run_id, None)

    def heal(self) -> None:
        """As the next start, and as time does."""
        self.clock.advance(blob_rows.LOST_AFTER_S + 1)
        for host in range(len(self.homes)):
            home, store, files = self.at(host)
            removal.finish(home, store)
            files.keep_what_is_here()
        self.stores[0].blobs.leave_unnamed()
        for host in range(len(self.homes)):
            files = self.at(host)[2]
            files.sweep()
            files.tidy_cache(self.at(host)[1].removals.known_files(), now_s=4e9)

    def consistent(self) -> None:
        """No blob without a row, no row without a blob, and each host gets what the rows say."""
        store = self.stores[0]
        library = store.removals.known_files()
        runs = set(store.removals.known_ids())
        if self.place.url:
            rows = {row.key for run_id in ("", *runs) for row in store.blobs.of(run_id)}
            assert self.place.names() == rows
            assert {key.rpartition("/")[2] for key in rows if key.startswith("files/")} == library
        for host in range(len(self.homes)):
            home, _, files = self.at(host)
            assert {path.name for path in home.files.glob("*/*")} <= library
            for found in library:
                assert sha256(files.bring_file(found).read_bytes()) == found
            for run_id, content in self.known.items():
                newest = files.newest_checkpoint(run_id, "n")
                assert newest is not None and newest.read_bytes() == content


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("import", "import", "delete file", "submit", "checkpoint", "checkpoint", "delete run")),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 6),
    ),
    max_size=14,
)


@pytest.mark.parametrize("place", KINDS, indirect=True)
@given(steps=STEPS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_rows_and_blobs_stay_together_on_two_hosts_and_kills_heal(
    place: Place,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Any],
) -> None:
    folder = tmp_path_factory.mktemp("hosts")
    place = place.another(folder)
    left = [0]

    def passing(point: str) -> None:
        if point.startswith(("blob.", "removal.")) and left[0]:
            left[0] -= 1
            if not left[0]:
                raise Killed

    hosts, open_runs = open_hosts(place, monkeypatch, folder), set[str]()
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "passing", passing)
        for what, host, number, dies in steps:
            left[0], run_id = dies, f"r{number}"
            try:
                match what:
                    case "import":
                        hosts.import_file(host, number)
                    case "delete file":
                        with suppress(NotFound):
                            hosts.delete_file(host, number)
                    case "submit" if run_id not in open_runs:
                        hosts.submit(host, run_id)
                        open_runs.add(run_id)
                    case "checkpoint" if run_id in open_runs:
                        hosts.checkpoint(host, run_id)
                    case "delete run" if run_id in open_runs:
                        open_runs.discard(run_id)
                        hosts.delete_run(host, run_id)
            except Killed:
                left[0] = 0
                hosts.known = {run: content for run, content in hosts.known.items() if run in open_runs}
            left[0] = 0
            hosts.heal()
            hosts.consistent()
    for store in hosts.stores:
        store.close()


@pytest.mark.parametrize("place", SHARED, indirect=True)
@pytest.mark.parametrize("damage", [b"other bytes", None], ids=["damaged", "missing"])
def test_a_damaged_or_missing_file_is_found_and_the_checkpoint_before_it_is_used(
    place: Place, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    hosts = open_hosts(place, monkeypatch)
    hosts.import_file(0, 1)
    hosts.submit(0, "r0")
    for _ in range(2):
        hosts.checkpoint(0, "r0")
    older, newest = hosts.stores[0].blobs.of("r0", "n")
    for key in (newest.key, file_key(sha256(content_of(1)))):
        place.write(key, damage)
    home, _, files = hosts.at(1)
    with pytest.raises(BlobLost, match="missing" if damage is None else "damaged"):
        files.bring_file(sha256(content_of(1)))
    [said] = files.bring_checkpoints("r0", "n", Path(newest.name).name, 0)
    assert "step 2" in said and "the one at step 1 is used" in said
    assert [path.name for path in home.checkpoints("r0", "n").glob("step-*")] == [Path(older.name).name]
    hosts.import_file(1, 1)  # what the remedy says
    hosts.homes[0].file(sha256(content_of(1))).unlink()
    assert sha256(hosts.at(0)[2].bring_file(sha256(content_of(1))).read_bytes()) == sha256(content_of(1))


class Sick(FolderBlobs):
    """A shared folder as a host with a bad disk, or a bad mount, finds it."""

    def __init__(self, root: Path, said: type[BlobLost]):
        super().__init__(root)
        self.said = said

    def fetch(self, key: str, to: Path) -> None:
        raise self.said(f"The file {key} is not what it should be.")


@pytest.mark.parametrize("said", [BlobLost, BlobDamaged])
def test_a_host_that_reads_badly_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: type[BlobLost]
) -> None:
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    hosts.import_file(0, 1)
    hosts.submit(0, "r0")
    for _ in range(2):
        hosts.checkpoint(0, "r0")
    kept = hosts.place.names()
    home, store, healthy = hosts.at(1)
    sick = depot.Depot(home, store.blobs, healthy._place, Sick(tmp_path / "shared", said))
    for _ in range(3):
        with pytest.raises(BlobLost):
            sick.bring_file(sha256(content_of(1)))
        with pytest.raises(BlobLost, match="as this host reads it, and there is no earlier one"):
            sick.bring_checkpoints("r0", "n", "step-000000002.safetensors", 0)
        with pytest.raises(BlobLost):
            sick.newest_checkpoint("r0", "n")
    assert sick.sweep() == 0 and hosts.place.names() == kept
    hosts.consistent()
    assert store.blobs.files_without() == [sha256(content_of(1))], "who has it puts it again"
    hosts.heal()
    assert store.blobs.files_without() == []
    hosts.consistent()


@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_imports_and_deletions_of_the_same_bytes_race_without_harm(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = open_hosts(place, monkeypatch)
    barrier = threading.Barrier(2)

    def repeatedly(call: Callable[[int, int], None], host: int) -> None:
        for _ in range(8):
            barrier.wait(PATIENCE_S)
            with suppress(NotFound, BlobsUnreachable):
                call(host, 1)

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(repeatedly, *how) for how in ((hosts.import_file, 0), (hosts.delete_file, 1))]
        for call in calls:
            call.result()
    hosts.heal()
    hosts.consistent()
    for store in hosts.stores:
        store.close()


def test_a_process_killed_in_the_middle_leaves_nothing_that_counts(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "shared")
    blobs.write_mark("x")
    (tmp_path / "file").write_bytes(content_of(1))
    key = file_key(sha256(content_of(1)))
    code = (
        "import sys; from pathlib import Path; from unifiednn_core.base import failpoints;"
        "from unifiednn_core.store.blobs import FolderBlobs; failpoints.arm_from_environment();"
        "FolderBlobs(Path(sys.argv[1])).put(Path(sys.argv[2]), sys.argv[3])"
    )
    command = [sys.executable, "-c", code, str(blobs.root), str(tmp_path / "file"), key]
    fault = {failpoints.VARIABLE: "blob.before_rename=sigkill"}
    assert subprocess.run(command, env={**os.environ, **fault}, check=False).returncode == -signal.SIGKILL
    assert [path.suffix for path in (blobs.root / "files").iterdir()] == [".part"]
    with pytest.raises(BlobLost, match="missing"):
        blobs.fetch(key, tmp_path / "fetched")
    blobs.put(tmp_path / "file", key)
    blobs.fetch(key, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == content_of(1)
    blobs.delete(key)
    assert [path.name for path in blobs.root.iterdir()] == [MARK], "what the kill left went, too"


def test_on_one_machine_nothing_is_copied_and_no_row_is_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("", home.root)
    hosts = open_hosts(place, monkeypatch, home.root)
    hosts.import_file(0, 1)
    hosts.submit(0, "r0")
    hosts.checkpoint(0, "r0")
    _, store, files = hosts.at(0)
    assert not files.is_shared and not store.blobs.any()
    assert files.bring("r0", "n", "models/n.zip") == hosts.homes[0].run("r0") / "models" / "n.zip"
    assert not hosts.homes[0].fetched.exists()


def test_a_link_that_a_worker_made_in_place_of_a_model_is_not_served(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = open_hosts(Place("", home.root), monkeypatch, home.root)
    hosts.submit(0, "r0")
    hosts.checkpoint(0, "r0")
    own, _, files = hosts.at(0)
    (home.root / "secret").write_bytes(b"a key")
    (own.run("r0") / "models").mkdir()
    checkpoint = files.newest_checkpoint("r0", "n")
    assert checkpoint is not None
    checkpoint.unlink()
    for path in (own.run("r0") / "models" / "n.zip", checkpoint):
        path.symlink_to(home.root / "secret")
    with pytest.raises(NotFound, match="is a link"):
        files.bring("r0", "n", "models/n.zip")
    with pytest.raises(NotFound, match="is a link"):
        files.newest_checkpoint("r0", "n")


def test_a_host_goes_on_from_the_rows_unless_the_last_attempt_was_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    hosts.submit(0, "r0")
    hosts.checkpoint(0, "r0")
    folder = hosts.homes[0].checkpoints("r0", "n")
    newer = folder / "step-000000009.safetensors"
    newer.write_bytes(b"written, and its worker died before it was kept")
    _, store, files = hosts.at(0)
    for begun, stays in ((2, True), (1, False)):  # attempt 2 was the last one; somebody else may have begun it
        files.begun("r0", "n", begun)
        assert files.bring_checkpoints("r0", "n", "step-000000001.safetensors", 2) == []
        assert newer.exists() == stays
    store.runs.forget_checkpoint("r0", "n")  # it starts from the beginning
    assert files.bring_checkpoints("r0", "n", None, 2) == [] and not list(folder.glob("step-*"))
    files.sweep()
    assert not hosts.place.names()


def test_a_worker_gets_the_trained_parts_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    hosts.submit(0, "r0")
    home, store, files = hosts.at(0)
    name, there = "models/n.safetensors", hosts.homes[1].run("r0") / "models" / "n.safetensors"
    for content in (b"first", b"trained again"):
        path = home.run("r0") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        store.runs.record_export("r0", "n", Event.COMPLETE, blobs=files.keep("r0", "n", [name]))
        hosts.at(1)[2].bring_to_folder("r0", "n", name)
        assert there.read_bytes() == content
        assert hosts.at(1)[2].bring("r0", "n", name) == there
    files.sweep()
    assert hosts.place.names() == {f"runs/r0/n/{sha256(b'trained again')}"}


def test_what_a_deleter_that_died_has_left_goes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    hosts.import_file(0, 1)
    _, store, files = hosts.at(0)
    store.removals.mark_file(sha256(content_of(1)), "", for_all=True)
    store.blobs.leave_file(sha256(content_of(1)))
    assert store.blobs.take_leaving() == [file_key(sha256(content_of(1)))]
    with pytest.raises(BlobsUnreachable, match="just being deleted"):
        hosts.import_file(1, 1)
    assert files.sweep() == 0, "nobody else deletes it meanwhile"
    hosts.clock.advance(blob_rows.STUCK_AFTER_S + 1)
    assert files.sweep() == 1
    hosts.import_file(1, 1)
    hosts.heal()
    hosts.consistent()


def test_what_a_deleter_that_died_has_left_goes_also_if_its_run_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    hosts.submit(0, "r0")
    hosts.checkpoint(0, "r0")
    store = hosts.stores[1]
    store.runs.forget_checkpoint("r0", "n")
    assert len(store.blobs.take_leaving()) == 1  # and this host dies
    hosts.delete_run(0, "r0")
    assert hosts.place.names(), "the control: they are still there"
    hosts.clock.advance(blob_rows.STUCK_AFTER_S + 1)
    assert hosts.at(0)[2].sweep() == 1
    assert not hosts.place.names() and not store.blobs.any()


@pytest.mark.parametrize("what", ["run", "file"])
def test_what_is_put_while_it_is_deleted_goes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """As the zip with a certificate, or a file that the server puts again."""
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    home, store, files = hosts.at(0)
    hosts.submit(0, "r0")
    hosts.import_file(0, 1)
    store.blobs.doubt(file_key(sha256(content_of(1))))
    (home.quarantine / "n.zip").write_bytes(b"model")
    put = FolderBlobs.put

    def late(self: FolderBlobs, path: Path, key: str, *, again: bool = False) -> None:
        opened = path.read_bytes()
        monkeypatch.setattr(FolderBlobs, "put", put)
        hosts.delete_run(0, "r0") if what == "run" else hosts.delete_file(0, 1)
        assert key not in hosts.place.names() or again
        (tmp_path / "opened").write_bytes(opened)
        put(self, tmp_path / "opened", key, again=again)

    monkeypatch.setattr(FolderBlobs, "put", late)
    if what == "run":
        files.keep_copy("r0", "n", "models/n.zip", home.quarantine / "n.zip")
    else:
        files.keep_what_is_here()
    before = hosts.place.names()
    hosts.heal()
    assert len(before - hosts.place.names()) == 1, "the control: it was there"
    hosts.consistent()
    assert {row.key for row in store.blobs.of("")} == hosts.place.names()


def test_a_folder_that_is_not_mounted_is_unreachable_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(tmp_path / "shared"), tmp_path)
    hosts = open_hosts(place, monkeypatch)
    hosts.import_file(0, 1)
    (tmp_path / "shared").rename(tmp_path / "elsewhere")
    (tmp_path / "shared").mkdir()  # the mount point itself
    _, store, files = hosts.at(1)
    with pytest.raises(BlobsUnreachable, match="not mounted"):
        files.bring_file(sha256(content_of(1)))
    with pytest.raises(BlobsUnreachable, match="not mounted"):
        hosts.import_file(1, 2)
    hosts.delete_file(0, 1)  # it is said, and done later
    assert store.removals.marked_files() and not list((tmp_path / "shared").iterdir())
    (tmp_path / "shared").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "shared")
    hosts.heal()
    hosts.consistent()


@pytest.mark.parametrize(
    ("url", "said"),
    [("relative/folder", "not absolute"), ("s3://me:word@bucket", "credentials"), ("s3://b?secret=1", "credentials")],
)
def test_a_place_that_cannot_be_is_refused(url: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        blobs_at(url)


@pytest.mark.parametrize("dies", range(1, 4))
def test_a_place_that_was_marked_by_a_server_that_died_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: int
) -> None:
    place, left = Place(str(tmp_path / "shared"), tmp_path), [dies]
    home = Home(tmp_path / "a").create()
    store = Store.open(home)

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise Killed
            return method(*args, **named)

        return call

    monkeypatch.setenv(BLOBS_SETTING, place.url)
    with monkeypatch.context() as patch:
        patch.setattr(FolderBlobs, "write_mark", dying(FolderBlobs.write_mark))
        patch.setattr(People, "set_setting", dying(People.set_setting))
        with pytest.raises(Killed):
            depot.settle(home, store.blobs, store.people)
    assert not depot.Depot.of(home, store.blobs, store.people).is_shared, "nobody uses it before it is marked"
    depot.settle(home, store.blobs, store.people)
    settled = depot.Depot.of(home, store.blobs, store.people)
    settled.require_place()
    assert settled.is_shared
    other = Store(tmp_path / "other.sqlite3")
    with pytest.raises(BadInput, match="another database"):
        depot.settle(home, other.blobs, other.people)
    for one in (store, other):
        one.close()


def test_a_database_stays_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = open_hosts(Place(str(tmp_path / "shared"), tmp_path), monkeypatch)
    home, store, _ = hosts.at(0)
    hosts.import_file(0, 1)
    monkeypatch.setenv(BLOBS_SETTING, str(tmp_path / "other"))
    with pytest.raises(BadInput, match="another place"):
        depot.settle(home, store.blobs, store.people)
    (tmp_path / "shared").rename(tmp_path / "other")
    depot.settle(home, store.blobs, store.people)
    assert depot.Depot.of(home, store.blobs, store.people).url == str(tmp_path / "other")
    monkeypatch.setenv(BLOBS_SETTING, str(home.root / "shared"))
    with pytest.raises(BadInput, match="in the home"):
        depot.settle(home, store.blobs, store.people)
    monkeypatch.setenv(BLOBS_SETTING, str(tmp_path / "other"))
    other = Store(tmp_path / "other.sqlite3")
    with pytest.raises(BadInput, match="another database"):
        depot.settle(home, other.blobs, other.people)
    other.close()
