"""Two hosts with homes of their own over one database: what one began the other goes on with, from shared files."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pooled import ALICE, BOB, CAROL, Net, Pool
from tests.integration.product import EPOCHS, STEPS_PER_EPOCH, Product, Template
from tests.places import Place
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.paths import BLOBS_SETTING, DATABASE_SETTING, Home
from unifiednn_core.machine import forks
from unifiednn_core.runtime import spool, supervisor
from unifiednn_core.runtime.carrier import Carrier
from unifiednn_core.runtime.confinement import trial
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.porter import Porter
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store import Store, depot

NAMES = tuple(EPOCHS)


class Hosts:
    """Host A with the server, in which a run waits; and host B."""

    def __init__(self, place: Place, template: Template):
        self.place, self.run_id = place, template.run_id
        self.a, self.b = (Home(place.folder / name) for name in ("a", "b"))
        shutil.copytree(template.home.root, self.a.root)
        self.b.create()
        with closing(Store.open(self.a)) as store:
            depot.settle(self.a, store.blobs, store.people)
        self.open: list[Product] = []

    def product(self, home: Home) -> Product:
        made = Product(home, self.run_id)
        made._database = self.a.database
        self.open.append(made)
        return made


@pytest.fixture
def hosts(place: Place, template: Template, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setenv(DATABASE_SETTING, f"sqlite:///{place.folder}/a/store/unifiednn.sqlite3")
    monkeypatch.setenv(BLOBS_SETTING, place.url)
    made = Hosts(place, template)
    yield made
    for product in made.open:
        product.close()


@pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.slow)], indirect=True)
def test_a_run_goes_on_elsewhere_with_its_bits_and_its_models_come_back(
    hosts: Hosts, alone: Callable[..., str]
) -> None:
    first = hosts.product(hosts.a)
    first.start_and_hold("transformer", 8)
    first.until(lambda: first.row("transformer").checkpoint_step == 5, "a checkpoint")
    first.signal_worker()
    first.until(lambda: first.worker() is None, "its death")
    first.service.close()
    hosts.open.remove(first)
    shutil.rmtree(hosts.a.run(hosts.run_id))  # nothing of it is left on that host

    second = hosts.product(hosts.b)
    hosts.b.run(hosts.run_id).mkdir()
    hosts.b.log(hosts.run_id).write_text("said on host b\n")  # its worker has nothing to say
    second.start()
    assert second.finish().state is State.COMPLETED, second.log()
    assert second.hashes() == {name: alone(name) for name in NAMES}
    assert second.lost_steps("transformer") == [2], "it went on from its checkpoint"
    for name in NAMES:
        assert second.row(name).steps_done == EPOCHS[name] * STEPS_PER_EPOCH[name]
    assert second.messages("warning") == []
    trained = {name: (hosts.b.run(hosts.run_id) / "models" / f"{name}.zip").read_bytes() for name in NAMES}

    server = hosts.product(hosts.a)
    for name in NAMES:
        assert server.service.runs.artifact(hosts.run_id, name).read_bytes() == trained[name]
    newest = server.service.runs.checkpoint(hosts.run_id, "lenet")
    assert hashlib.sha256(newest.read_bytes()).digest() in {
        hashlib.sha256(path.read_bytes()).digest() for path in hosts.b.checkpoints(hosts.run_id, "lenet").glob("step-*")
    }
    assert [line.text for line in server.service.logs.worker_log(hosts.run_id).lines] == ["said on host b"]
    server.service.settle_certificates(hosts.run_id)
    assert server.row("lenet").certificate is not None
    assert len(server.service.runs.artifact(hosts.run_id, "lenet").read_bytes()) > len(trained["lenet"])

    kept = {name for name in hosts.place.names() if name.startswith("runs/")}
    assert kept
    server.service.runs.delete_run(hosts.run_id)
    assert not {name for name in hosts.place.names() if name.startswith("runs/")}
    second.service.close()
    hosts.open.remove(second)
    with closing(Store.open(hosts.b)) as store:
        Carrier(hosts.b, store, RealClock()).tidy()
        assert not store.blobs.of(hosts.run_id)
    assert not hosts.b.run(hosts.run_id).exists(), "its copy on the other host went, too"
    with pytest.raises(NotFound):
        server.service.runs.artifact(hosts.run_id, "lenet")
    for file in server.service.library.files():
        server.service.library.delete_file(file.sha256)
    assert not hosts.place.names()


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_nothing_is_carried_for_who_has_left_a_hybrid(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-model may fail, or leave, while its worker waits for an answer."""
    asked = Porter(depot.Depot(hosts.a, None, None), hosts.run_id)  # type: ignore[arg-type]
    with closing(Store.open(hosts.a)) as store:
        carrier = Carrier(hosts.a, store, RealClock())

        def at_once(self: spool.Question) -> dict[str, Any]:
            [(name, question)] = spool.questions(hosts.a.spool(hosts.run_id)).items()
            carrier._serve(hosts.run_id, name, question)
            found = self.answer()
            assert found is not None
            return found

        monkeypatch.setattr(spool.Question, "wait", at_once)
        for act in (lambda: asked.keep("who left", ["checkpoints/x"]), lambda: asked.bring("who left")):
            with pytest.raises(NotFound, match="does not train that"):
                act()
        store.hybrids.update(hosts.run_id, device="elsewhere/cpu")
        with pytest.raises(NotFound, match="is not on this host"):
            asked.bring(NAMES[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_training_goes_on_while_files_cannot_be_kept(hosts: Hosts, alone: Callable[..., str]) -> None:
    """The shared folder goes away in the middle and comes back: no step is lost, and the last checkpoint gets there."""
    first = hosts.product(hosts.a)
    first.start_and_hold("transformer", 8)
    first.until(lambda: first.row("transformer").checkpoint_step == 5, "a checkpoint")
    shared, away = Path(hosts.place.url), Path(hosts.place.url).with_name("away")
    shared.rename(away)
    first.go_on()
    first.until(lambda: first.row("transformer").steps_done >= 20, "more steps")
    first.until(lambda: any("could not be written" in text for text in first.messages("warning")), "a warning")
    assert first.row("transformer").checkpoint_step == 5, "no row says more than what other hosts can have"
    away.rename(shared)
    assert first.finish().state is State.COMPLETED, first.log()
    assert first.hashes() == {name: alone(name) for name in NAMES}
    assert all(first.lost_steps(name) == [] for name in NAMES)
    names = {name.rpartition("/")[0] for name in hosts.place.names()}
    assert names >= {f"runs/{hosts.run_id}/{name}" for name in NAMES}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_checkpoint_that_only_one_host_has_is_used_there_and_promised_to_nobody(
    hosts: Hosts, alone: Callable[..., str]
) -> None:
    first = hosts.product(hosts.a)
    first.start_and_hold("transformer", 8)
    first.until(lambda: first.row("transformer").checkpoint_step == 5, "a checkpoint")
    shared, away = Path(hosts.place.url), Path(hosts.place.url).with_name("away")
    shared.rename(away)
    first.go_on()
    folder = hosts.a.checkpoints(hosts.run_id, "transformer")
    first.until(lambda: len(list(folder.glob("step-*.safetensors"))) > 1, "a checkpoint of this host alone")
    first.signal_worker()
    first.until(lambda: first.row("transformer").attempt == 2, "the next attempt")
    assert first.row("transformer").checkpoint_step == 5, "others cannot have what this host began with"
    assert first.row("transformer").steps_done > 5
    away.rename(shared)
    assert first.finish().state is State.COMPLETED, first.log()
    assert first.hashes() == {name: alone(name) for name in NAMES}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_newcomer_to_a_worker_gets_its_files_or_fails_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the home of the host before the carrier brings it."""
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setenv(BLOBS_SETTING, place.url)
    home, bring_file, lost = Home(place.folder / "a").create(), depot.Depot.bring_file, set[str]()

    def from_elsewhere(self: depot.Depot, sha256: str) -> Path:
        if threading.current_thread().name.startswith("carrier"):  # the server has what it checks
            self.home.file(sha256).unlink(missing_ok=True)
            if sha256 in lost:
                place.write(f"files/{sha256}", None)
        return bring_file(self, sha256)

    with closing(Store.open(home)) as store:
        depot.settle(home, store.blobs, store.people)
    pool = Pool(home)
    try:
        alpha, bravo, charlie = (Net(name, seed, data=seed) for seed, name in enumerate(("alpha", "bravo", "charlie")))
        hers = pool.submit(ALICE, alpha)
        pool.start_and_hold("alpha", 5, 9)
        pool.until(lambda: not pool.store.blobs.files_without(), "blobs of what was there before")
        his, third = (pool.spec(person, net) for person, net in ((BOB, bravo), (CAROL, charlie)))
        pool.service._carrier.tidy()
        lost.add(third.submodels[0].train_data.removeprefix("sha256:"))
        monkeypatch.setattr(depot.Depot, "bring_file", from_elsewhere)
        his, third = pool.submit(BOB, bravo), pool.submit(CAROL, charlie)
        pool.until(lambda: pool.row(his).attempt and pool.state(third) is State.FAILED, "newcomer")
        pool.go_on(5)
        pool.go_on(9)
        pool.finish()
        assert pool.wrong().keys() == {third} and "is missing in" in (pool.row(third).cause or "")
        assert pool.row(hers).attempt == 1
        [hybrid] = pool.hybrids()
        assert (hybrid.attempt, hybrid.recoveries) == (1, 0)
    finally:
        pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_confined_worker_has_its_files_kept_and_no_way_to_the_place(
    place: Place, warm: forks.Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BLOBS_SETTING, place.url)
    home = Home(place.folder / "a").create()
    with closing(Store.open(home)) as store:
        depot.settle(home, store.blobs, store.people)
    if trial(home):
        pytest.skip("workers cannot be confined here")
    pool = Pool(home, launcher=LocalLauncher)
    try:
        run_id = pool.submit(ALICE, Net("alpha", epochs=400))
        pool.start()
        pool.until(lambda: pool.row(run_id).steps_done, "a step")
        [pid] = [hybrid.worker_pid for hybrid in pool.store.workers.held()]
        sees = Path(f"/proc/{pid}/root")
        assert (sees / home.files.relative_to("/")).exists() and not (sees / place.url.lstrip("/")).exists()
        pool.finish()
        assert pool.wrong() == {}
        assert {row.name for row in pool.store.blobs.of(run_id)} >= {"models/alpha.zip"}
    finally:
        pool.close()
