"""A hybrid starts only if the people in it may share a process at that moment."""

import pytest

from tests.clock import SimulatedClock
from tests.unit.rows import part_of
from tests.unit.runtime.test_supervisor import MACHINE, Launcher, supervisor_of
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import take_up
from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime.supervisor import NOTE_AGAIN_S, Supervisor
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.sharing import PERMISSION, Sharing
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.people import SHARING, parties_of
from unifiednn_core.store.schema import SubModelRow


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def supervisor(store: Store, clock: SimulatedClock, launcher: Launcher) -> Supervisor:
    return supervisor_of(store, launcher, clock)


def joined(name: str, owner: str) -> SubModelRow:
    return part_of(run_id="r", name=name, owner=owner, arrival=9)


def add(store: Store, owner: str) -> None:
    arguments = {"submodel": {"name": "c", "hyperparameters": {}}, "files": {}}
    store.commands.issue("r", None, Verb.ADD, arguments, row=joined("c", owner))


def test_a_run_of_strangers_waits_is_overtaken_and_starts_once_they_are_of_one_team(
    store: Store, supervisor: Supervisor, launcher: Launcher, clock: SimulatedClock
) -> None:
    for place in range(3):
        add_run(store, f"strangers-{place}", place, owners=("alice", "bob"))
    add_run(store, "hers", 5, owners=("alice", "alice"))
    supervisor.tick()
    assert launcher.started == ["hers"], "however many wait before it"
    waits_for = store.runs.get("strangers-0")[0].waits_for or ""
    assert waits_for.startswith(PERMISSION) and "alice (no team), bob (no team)" in waits_for
    store.runs.transition("hers", None, Event.FAIL)
    for person in ("alice", "bob"):
        store.people.give(person, "ada", team="red")
    clock.advance(NOTE_AGAIN_S)
    supervisor.tick()
    run, _ = store.runs.get("strangers-0")
    assert (launcher.started[1:], run.waits_for) == (["strangers-0"], None)


@pytest.mark.parametrize("sharing", Sharing)
def test_the_setting_at_the_start_counts(
    store: Store, supervisor: Supervisor, launcher: Launcher, sharing: Sharing
) -> None:
    for person in ("alice", "bob"):
        store.people.give(person, "ada", team="red")
    add_run(store, "team", 1, "cpu", owners=("alice", "bob"))
    add_run(store, "all", 2, "cuda:0", owners=("alice", "carol"))
    add_run(store, "own", 3, "cuda:1", owners=("carol", "carol"))
    store.people.set_setting(SHARING, sharing.value, "ada")
    supervisor.tick()
    expected = {Sharing.OWN: {"own"}, Sharing.TEAM: {"own", "team"}, Sharing.EVERYONE: {"own", "team", "all"}}
    assert set(launcher.started) == expected[sharing]


@pytest.mark.parametrize(("device", "threads"), [("cpu", 3), ("cuda:0", MACHINE[0].threads)])
def test_a_shared_hybrid_on_a_gpu_steps_with_the_threads_of_its_device(
    store: Store, supervisor: Supervisor, device: str, threads: int
) -> None:
    add_run(store, "s", device=device, shared=True)
    store.runs.update("s", threads=3)
    supervisor.tick()
    [(hybrid, members)] = store.hybrids.listed()
    assert (hybrid.device, hybrid.threads, len(members)) == (device, threads, 1)


def test_whoever_lends_a_file_counts(store: Store, supervisor: Supervisor, launcher: Launcher) -> None:
    add_run(store, "r", owners=("alice", "alice"), lenders=["bob"])
    supervisor.tick()
    assert launcher.started == []


def test_a_baseline_trains_each_by_itself_and_may_start(
    store: Store, supervisor: Supervisor, launcher: Launcher
) -> None:
    add_run(store, "r", owners=("alice", "bob"))
    store.runs.update("r", mode="concurrent")
    supervisor.tick()
    assert launcher.started == ["r"]


@pytest.mark.parametrize(
    ("ends", "starts"),
    [
        ({"b": Event.FAIL}, True),
        ({"b": Event.STOP}, False),  # it would be saved beside one that trains
        ({"a": Event.STOP, "b": Event.STOP}, True),  # nothing trains
    ],
)
def test_whoever_is_not_in_the_process_or_sees_nobody_train_there_does_not_count(
    store: Store, supervisor: Supervisor, launcher: Launcher, ends: dict[str, Event], starts: bool
) -> None:
    add_run(store, "r", owners=("alice", "bob"))
    for name, event in ends.items():
        store.runs.transition("r", name, event)
    supervisor.tick()
    assert launcher.started == ["r"] * starts


def test_a_living_worker_holds_the_memory_of_what_has_ended_in_it(store: Store) -> None:
    add_run(store, "r", owners=("alice", "bob"))
    store.people.set_setting(SHARING, Sharing.EVERYONE.value, "ada")
    take_up(store, "r")
    for name in ("a", "b"):
        store.runs.transition("r", name, Event.FAIL)
    store.people.set_setting(SHARING, Sharing.TEAM.value, "ada")
    with pytest.raises(BadInput, match="may not share a process"):
        add(store, "carol")
    assert {party.person for party in parties_of(*store.runs.get("r"))} == {"alice", "bob"}


def test_an_addition_and_a_retry_are_refused_in_the_same_transaction(store: Store) -> None:
    """Whatever happened since the service looked."""
    for person in ("alice", "bob"):
        store.people.give(person, "ada", team="red")
    add_run(store, "r", owners=("alice", "bob"))
    store.runs.fail_submodel("r", "b", "Its loss is infinite.", "Retry it.")
    store.people.set_setting(SHARING, Sharing.OWN.value, "ada")
    before = [row.state for row in store.runs.get("r")[1]]
    for join in (lambda: store.commands.issue("r", "b", Verb.RETRY), lambda: add(store, "bob")):
        with pytest.raises(BadInput, match="may not share a process") as raised:
            join()
        assert "alice" not in str(raised.value) and "bob" not in str(raised.value), "a submitter may read it"
    assert [row.state for row in store.runs.get("r")[1]] == before and store.commands.open("r") == []
    add(store, "alice")
    store.people.set_setting(SHARING, Sharing.TEAM.value, "ada")
    store.commands.issue("r", "b", Verb.RETRY)
    assert [row.state for row in store.runs.get("r")[1]] == ["queued"] * 3
