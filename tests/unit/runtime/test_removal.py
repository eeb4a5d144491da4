"""Deletions: whatever was imported, trained and deleted in any order, files and rows stay together."""

import hashlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from tests.clock import SimulatedClock
from tests.unit.rows import part_of, row_of
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, HostileFile, NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import certify
from unifiednn_core.preflight.report import Certificate, CertifyJob
from unifiednn_core.runtime import removal
from unifiednn_core.runtime.certifier import Certifier
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.store import Store
from unifiednn_core.store.schema import Base, HybridRow, RunRow, SubModelRow
from unifiednn_core.store.telemetry import TelemetryRows

FILES, RUNS, PEOPLE = range(4), ("r0", "r1", "r2"), ("ann", "bob")
CERTIFICATE = Certificate(submodel="a", model="a.pt2", made_at_s=0.0, holds=True, compared=(), state_sha256="")
OPEN = {State.QUEUED.value, State.INTERRUPTED.value}


class Killed(BaseException):
    """The process ended here."""


def sha(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@dataclass
class House:
    """A home with a store, changed as the service does it."""

    home: Home
    store: Store

    def import_file(self, number: int, person: str) -> None:
        path = self.home.file(sha(number))
        columns = {"kind": "data", "format": "pt", "size_bytes": 1, "facts": {}}
        self.store.library.announce(sha(number), columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        self.store.library.add_file(sha256=sha(number), filename=f"{number}.pt", owner=person, **columns)

    def submit(self, run_id: str, number: int, person: str) -> None:
        part = {"name": "a", "model": f"sha256:{sha(number)}", "train_data": f"sha256:{sha(number)}"}
        run = row_of(run_id, submitter=person, spec={"submodels": [part]})
        self.store.runs.add((run, [part_of(run_id=run_id, name="a", owner=person)]))
        self.store.telemetry.write(run_id, TelemetryRows(memory=[{"at_s": 1.0, "source": "PSS", "size_bytes": 1}]))
        for folder in ("models", "checkpoints/a"):
            (self.home.run(run_id) / folder).mkdir(parents=True)
            (self.home.run(run_id) / folder / "file").write_bytes(b"x")

    def end(self, run_id: str) -> None:
        for event in (Event.STOP, Event.HALT):
            self.store.runs.transition(run_id, None, event)

    def consistent(self) -> None:
        """No file without a row, no row without a file, and nothing that an open run needs is gone."""
        files = {path.name for path in self.home.files.glob("*/*")}
        folders = {path.name for path in (self.home.root / "runs").glob("*")}
        with self.store._database.read() as session:
            rows = {table: list(session.execute(table.select())) for table in Base.metadata.sorted_tables}
        by_name = {table.name: found for table, found in rows.items()}
        assert {row.sha256 for row in by_name["files"]} == files
        assert {row.sha256 for row in by_name["file_owners"]} == files
        assert {row.id for row in by_name["runs"]} == folders == {row.id for row in by_name["hybrids"]}
        for table, found in rows.items():
            for column in {"run_id", "hybrid_id"} & set(table.c.keys()):
                assert {getattr(row, column) for row in found} <= folders, table.name
        for use in by_name["file_uses"]:
            assert self.store.runs.get(use.run_id)[0].state not in OPEN or use.sha256 in files


@pytest.fixture
def house(home: Home) -> Iterator[House]:
    """A house with a file of Ann's and a run of it."""
    store = Store.open(home.create(), SimulatedClock())
    made = House(home, store)
    made.import_file(0, "ann")
    made.submit("r0", 0, "ann")
    yield made
    store.close()


def attempt(call, *given, **named) -> bool:
    try:
        call(*given, **named)
    except (BadInput, NotFound):
        return False
    return True


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("import", "submit", "end", "delete run", "delete file", "delete for all")),
        st.sampled_from(FILES),
        st.sampled_from(RUNS),
        st.sampled_from(PEOPLE),
        st.integers(0, 2),
    ),
    max_size=24,
)


@given(steps=STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_rows_stay_together_whatever_happens_and_a_kill_heals(tmp_path_factory, monkeypatch, steps) -> None:
    home = Home(tmp_path_factory.mktemp("home")).create()
    store, submitted, ended = Store.open(home, SimulatedClock()), set(), set()
    house, left = House(home, store), [0]

    def passing(point: str) -> None:
        if point.startswith("removal.") and left[0]:
            left[0] -= 1
            if not left[0]:
                raise Killed

    monkeypatch.setattr(failpoints, "passing", passing)
    for what, number, run_id, person, dies in steps:
        left[0] = dies if what.startswith("delete") else 0
        try:
            match what:
                case "import":
                    house.import_file(number, person)
                case "submit" if run_id not in submitted and attempt(house.submit, run_id, number, person):
                    submitted.add(run_id)
                case "end" if run_id in submitted - ended:
                    house.end(run_id)
                    ended.add(run_id)
                case "delete run":
                    gone = attempt(removal.remove_run, home, store, run_id)
                    assert gone == (run_id in ended), "exactly a run that has ended goes"
                case "delete file" | "delete for all":
                    attempt(removal.remove_file, home, store, sha(number), person, for_all=what.endswith("all"))
        except Killed:
            left[0] = 0
            if what == "delete run":
                with pytest.raises(NotFound):  # from the mark on nobody sees it
                    store.runs.get(run_id)
                gone = True
            removal.finish(home, store)
        if what == "delete run" and run_id in ended:
            ended.discard(run_id)
            submitted.discard(run_id)
        left[0] = 0
        house.consistent()
    store.close()


@pytest.mark.parametrize("point", ["removal.after_mark", "removal.after_files", "store.after_commit"])
def test_a_process_that_is_killed_in_the_middle_leaves_what_the_next_start_finishes(house: House, point: str) -> None:
    home = house.home
    house.end("r0")
    house.store.close()
    child = os.fork()
    if not child:
        failpoints.arm(failpoints.Fault(point, "sigkill"))
        removal.remove_run(home, Store.open(home), "r0")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    again = Store.open(home, SimulatedClock())
    removal.finish(home, again)
    House(home, again).consistent()
    assert [run.id for run, _ in again.runs.listed()] in ([], ["r0"])
    again.close()


def test_a_file_that_an_open_run_needs_stays_also_for_its_last_owner(house: House) -> None:
    home = house.home
    house.import_file(0, "bob")
    with pytest.raises(BadInput, match="has not ended"):
        removal.remove_file(home, house.store, sha(0), "ann", for_all=False)
    removal.remove_file(home, house.store, sha(0), "bob", for_all=False)  # who learns nothing of ann's run
    house.end("r0")
    removal.remove_file(home, house.store, sha(0), "ann", for_all=False)
    assert not home.file(sha(0)).exists() and house.store.library.files() == []
    with pytest.raises(BadInput, match="no file"):
        house.submit("r1", 0, "ann")


def test_a_hybrid_of_several_runs_goes_with_the_last_of_them(house: House) -> None:
    home, store, hybrid_id = house.home, house.store, "h20260101-000000-aaaa"
    house.submit("r1", 0, "ann")
    for run_id in ("r0", "r1"):
        house.end(run_id)
    with store._database.write() as session:
        session.add(HybridRow(id=hybrid_id, shared=True, ended_at_s=5.0))
        session.execute(text(f"UPDATE submodels SET hybrid_id = '{hybrid_id}'"))
    log = Path(home.log(hybrid_id))
    log.parent.mkdir(parents=True)
    log.write_text("said")
    removal.remove_run(home, store, "r0")
    assert log.exists() and store.hybrids.get(hybrid_id)
    removal.remove_run(home, store, "r1")
    assert not log.parent.exists()
    with pytest.raises(NotFound):
        store.hybrids.get(hybrid_id)


def test_checkpoints_and_their_rows_go_together_and_a_kill_heals(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry comes before, and then is refused, or after, and then writes into a folder of its own."""
    home, store, folder = house.home, house.store, house.home.run("r0") / "checkpoints"
    with pytest.raises(BadInput):
        removal.remove_checkpoints(home, store, "r0")
    assert folder.is_dir()
    house.end("r0")

    def passing(point: str) -> None:
        if point == "removal.after_mark":
            (folder / "a").mkdir(parents=True)
            (folder / "a" / "new").write_bytes(b"x")
            raise Killed

    monkeypatch.setattr(failpoints, "passing", passing)
    with pytest.raises(Killed):
        removal.remove_checkpoints(home, store, "r0")
    monkeypatch.undo()
    removal.finish(home, store)
    assert [path.name for path in folder.rglob("*")] == ["a", "new"]
    assert {path.name for path in home.run("r0").iterdir()} == {"checkpoints", "models"}


def test_a_run_that_is_being_deleted_is_not_counted_nor_certified_and_is_erased_at_a_second_try(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, store, later_s = house.home, house.store, 1e12
    house.end("r0")
    store.runs.record_export("r0", "a", Event.COMPLETE, model={"artifact": "a.zip"})
    assert store.monitoring.counts().submodels and store.runs.uncertified(later_s)
    store.removals.mark_run("r0")
    assert not store.monitoring.counts().submodels and not store.runs.uncertified(later_s)
    rmtree, tries = removal.shutil.rmtree, []

    def meets_a_certifier(path: Path) -> None:
        tries.append(path)
        if len(tries) == 1:
            raise OSError("Directory not empty")
        rmtree(path)

    monkeypatch.setattr(removal.shutil, "rmtree", meets_a_certifier)
    removal.finish(home, store)
    assert len(tries) == 2 and not home.run("r0").exists()


def test_an_unexpected_error_delays_one_certificate_and_what_is_due_is_read_under_the_lock(house: House) -> None:
    home, store = house.home, house.store
    house.submit("r1", 0, "ann")
    for run_id in ("r0", "r1"):
        store.runs.record_export(run_id, "a", Event.COMPLETE, model={"artifact": "file"})
    certifier, asked = Certifier(home, store, store.runs._clock), list[str]()

    def job(run: RunRow, row: SubModelRow) -> CertifyJob:
        with certifier._alone(wait=False) as free:
            assert not free
        asked.append(run.id)
        raise ZeroDivisionError

    certifier._job = job  # type: ignore[method-assign]
    certifier.tick()
    certifier.tick()
    assert sorted(asked) == ["r0", "r1"]


def test_an_older_zip_never_replaces_a_newer_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export comes while the zip with the certificate is flushed to disk."""
    archive, work, fsync = tmp_path / "models" / "a.zip", tmp_path / "work", os.fsync
    archive.parent.mkdir()
    work.mkdir()
    archive.write_bytes(b"old")

    def meanwhile(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        newer = tmp_path / "newer"
        newer.write_bytes(b"new")
        newer.replace(archive)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(HostileFile):
        certify._put_in(archive, work, CERTIFICATE, archive.stat().st_ino)
    assert archive.read_bytes() == b"new"
