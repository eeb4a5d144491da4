"""Three people of two teams, and the operator who arranges their networks: who meets in one process, and when."""

import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.unit.formats import kit
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import client
from unifiednn_core.runtime import supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, SubModelSpec, parse_run
from unifiednn_core.spec.sharing import SharingRule

TEAMS = {"alice": "red", "bob": "red", "carol": "blue"}
OTTO = Actor(id="otto", name="Otto", role=Role.OPERATOR)


@pytest.fixture
def waiting(home: Home) -> Iterator[Service]:
    """A service that starts nothing; each of the three people has a network and a data set."""
    service = Service.open(home)
    data = home.root / "data.npz"
    for seed, (person, team) in enumerate(TEAMS.items()):
        service.people.give_team(person, team)
        np.savez(data, inputs=np.random.default_rng(seed).random((8, 16), dtype=np.float32), targets=np.arange(8) % 3)
        keep(service, f"{person}-model", "model", model(seed))
        keep(service, f"{person}-data", "data", data.read_bytes())
    yield service
    for run in service.runs.runs():
        if service.supervisor_alive and run.ended_at_s is None:
            service.runs.discard(run.run_id)
    service.close()


def model(seed: int) -> bytes:
    return kit.file_of(lambda: kit.linear(16, 3), seed)


def keep(service: Service, filename: str, kind: str, content: bytes) -> None:
    """Put a file into the library of the person whose name it begins with."""
    sha256, owner = hashlib.sha256(content).hexdigest(), filename.partition("-")[0]
    place = service.home.file(sha256)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    service.store.library.add_file(
        sha256=sha256, kind=kind, filename=filename, format="", size_bytes=len(content), facts={}, owner=owner
    )


def part(
    service: Service, person: str, *, data_of: str = "", owner: str | None = None, epochs: int = 1
) -> SubModelSpec:
    held = {file.filename: f"sha256:{file.sha256}" for file in service.acting_as(OTTO).library.files()}
    return SubModelSpec.model_validate(
        {
            "name": person,
            "owner": owner,
            "model": held[f"{person}-model"],
            "train_data": held[f"{data_of or person}-data"],
            "hyperparameters": {"epochs": epochs, "batch_size": 8, "learning_rate": 0.1},
        }
    )


def together(*parts: SubModelSpec) -> RunSpec:
    submodels = [part.model_dump(mode="json", exclude_none=True) for part in parts]
    return parse_run({"device": "cpu", "threads": 1, "submodels": submodels})


def refused(call: Callable[[], object], *fields: str) -> None:
    """Fails unless a call is refused because of these entries, before any file is opened."""
    with pytest.raises(BadInput) as raised, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "check", lambda *asked: pytest.fail("strangers were tried in one process"))
        call()
    findings = raised.value.findings
    assert [finding.field for finding in findings] == [f"submodels.{field}" for field in fields]
    assert all("carol (team blue)" in finding.message and "ask an admin" in finding.remedy for finding in findings)


def test_whoever_may_not_share_a_process_is_refused_by_name_whatever_brings_them_in(waiting: Service) -> None:
    otto = waiting.acting_as(OTTO).runs
    alice, bob, carol = (part(waiting, person) for person in TEAMS)
    given_away = part(waiting, "carol", data_of="alice", owner="alice")
    for call in (otto.check, otto.submit):
        refused(lambda call=call: call(together(alice, carol, bob)), "carol.owner")
        refused(lambda call=call: call(together(alice, part(waiting, "bob", data_of="carol"))), "bob.train_data")
        refused(lambda call=call: call(together(given_away)), "carol.model")
    assert waiting.runs.runs() == ()
    run_id = otto.submit(together(alice, bob))
    refused(lambda: otto.add_submodel(run_id, carol), "carol.owner")
    keep(waiting, "otto-copy", "model", model(2))
    otto.submit(together(alice, given_away.model_copy(update={"train_data": alice.train_data})))  # his own, lent
    waiting.people.set_sharing("everyone")
    run_id = otto.submit(together(alice, part(waiting, "bob", data_of="carol")))
    kept = {row.name: (row.owner, row.lenders) for row in waiting.store.runs.get(run_id)[1]}
    assert kept == {"alice": ("alice", []), "bob": ("bob", ["carol"])}, "to be asked again before the start"


def test_a_rule_that_refuses_nobody_is_noticed(waiting: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    monkeypatch.setattr(SharingRule, "may_share", lambda rule, people: True)
    parts = [part(waiting, person) for person in ("alice", "carol")]
    with pytest.raises(pytest.fail.Exception, match="strangers were tried"):
        refused(lambda: waiting.acting_as(OTTO).runs.submit(together(*parts)), "carol.owner")


def test_a_setting_that_changes_before_the_start_counts_and_a_live_addition_obeys_it(
    waiting: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setattr(supervisor, "NOTE_AGAIN_S", 0.2)
    otto = waiting.acting_as(OTTO).runs
    run_id = otto.submit(together(*(part(waiting, person, epochs=10**6) for person in ("alice", "bob"))))
    waiting.people.set_sharing("own")
    carols = otto.submit(together(part(waiting, "carol")))
    waiting.start_supervisor()
    wait_until(lambda: otto.observe(carols).state is State.COMPLETED)
    view = otto.observe(run_id)
    assert (view.state, view.started_at_s) == (State.QUEUED, None)
    assert "between alice, bob: an admin" in (view.waits_for or "")
    waiting.people.set_sharing("team")
    wait_until(lambda: otto.observe(run_id).state is State.RUNNING)
    refused(lambda: otto.add_submodel(run_id, part(waiting, "carol")), "carol.owner")
    otto.add_submodel(run_id, part(waiting, "bob").model_copy(update={"name": "more"}))
    otto.stop(run_id, "alice")
    otto.stop(run_id, "bob")
    wait_until(lambda: otto.observe(run_id).ended_at_s is not None)
    assert {one.name: one.state for one in otto.observe(run_id).submodels} == {
        "alice": State.STOPPED,
        "bob": State.STOPPED,
        "more": State.COMPLETED,
    }
