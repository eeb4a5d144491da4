from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from tests.clock import SimulatedClock
from unifiednn_core.base.paths import Home
from unifiednn_core.spec.devices import Device, on_host
from unifiednn_core.store import Store
from unifiednn_core.store.devices import FRESH_S, GONE_S, SEEN_AGAIN_S
from unifiednn_core.store.nodes import NodeRow

CPU = Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC, AVX2, 2 threads", total_bytes=2**35, threads=2)
GPUS = tuple(
    Device(
        name=f"cuda:{at}",
        type="cuda",
        host="h",
        index=at,
        kind="H200",
        total_bytes=None,
        threads=4,
        uuid=f"G{at}",
        cpus=(at, at + 2),
    )
    for at in range(2)
)
ALL = (*GPUS, CPU)


def states(store: Store) -> dict[str, str]:
    return {row.name: row.state for row in store.devices.all()}


def test_devices_are_kept_as_they_are_gpus_first(home: Home, store: Store) -> None:
    store.devices.write(reversed(ALL))
    assert tuple(row.device for row in Store.open(home).devices.all()) == ALL
    assert {(row.state, row.limit_bytes) for row in store.devices.all()} == {("ready", None)}


STEPS = st.one_of(
    st.sets(st.sampled_from(ALL)),
    st.tuples(st.sampled_from(ALL), st.sampled_from(("ready", "draining"))),
    st.tuples(st.sampled_from(ALL), st.sampled_from((None, 2**40))),
)


@given(steps=st.lists(STEPS, max_size=8))
def test_what_a_person_decided_outlasts_what_the_machine_does(steps: list[Any], shared: Store) -> None:
    """Against a model: a device is away if it is gone and nobody drains it; limits change by people alone."""
    store = shared
    store.devices.write(ALL)
    for one in ALL:
        store.devices.set_state(one.name, "ready")
        store.devices.set_limit(one.name, None)
    expected = {one.name: ("ready", None) for one in ALL}
    for step in steps:
        if isinstance(step, set):
            store.devices.write(step)
            there = {one.name for one in step}
            for name, (state, limit) in expected.items():
                if state != "draining":
                    expected[name] = ("ready" if name in there else "away"), limit
        elif step[1] in ("ready", "draining"):
            store.devices.set_state(step[0].name, step[1])
            expected[step[0].name] = step[1], expected[step[0].name][1]
        else:
            store.devices.set_limit(step[0].name, step[1])
            expected[step[0].name] = expected[step[0].name][0], step[1]
        assert {row.name: (row.state, row.limit_bytes) for row in store.devices.all()} == expected


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with closing(Store(tmp_path_factory.mktemp("store") / "store.db", SimulatedClock(1.0))) as store:
        yield store


def test_facts_follow_the_machine(store: Store) -> None:
    store.devices.write(ALL)
    store.devices.set_limit("cpu", 2**30)
    changed = replace(CPU, threads=7, kind="other", host="renamed", cpus=(1,))
    store.devices.write((*GPUS, changed))
    row = store.devices.all()[-1]
    assert (row.device, row.limit_bytes, row.state) == (changed, 2**30, "ready")
    known = (changed.name, GPUS[1].name, "cpu:7", None)
    assert [store.devices.cpus_of(name) for name in known] == [[1], [1, 3], [], []]


def test_devices_of_a_node_are_away_while_nobody_writes_them(store: Store, clock: SimulatedClock) -> None:
    there = [on_host(one, "node7") for one in ALL]
    store.devices.write(ALL)
    store.devices.write(there, "node7", {"node7/cuda:0": 5})
    store.devices.set_state("node7/cpu", "draining")
    assert {row.name: row.free_bytes for row in store.devices.all() if row.free_bytes} == {"node7/cuda:0": 5}
    clock.advance(FRESH_S)
    own, away = {one.name: "ready" for one in ALL}, {one.name: "away" for one in there}
    assert states(store) == own | away
    assert len(store.devices.of_others()) == 3, "they may return in a moment"
    store.devices.write(there, "node7")
    assert states(store) == own | dict.fromkeys(away, "ready") | {"node7/cpu": "draining"}
    assert not any(row.free_bytes for row in store.devices.all())
    store.devices.write([], "node7")
    assert states(store) == own | away | {"node7/cpu": "draining"}, "each host writes its own alone"
    clock.advance(GONE_S)
    assert store.devices.of_others() == []


def test_nodes_are_kept_and_forgotten(store: Store) -> None:
    two = [NodeRow(name=name, state="ready", why="", facts={"torch": "2"}, seen_at_s=1.0) for name in ("b", "a")]
    store.nodes.write(two)
    store.nodes.write([NodeRow(name="a", state="refused", why="Its torch is 1.", facts={}, seen_at_s=2.0)])
    assert [(row.name, row.state, row.why, row.facts, row.seen_at_s) for row in store.nodes.all()] == [
        ("a", "refused", "Its torch is 1.", {}, 2.0),
        ("b", "ready", "", {"torch": "2"}, 1.0),
    ]
    store.nodes.clear()
    assert store.nodes.all() == []


def test_a_machine_that_stays_as_it_is_costs_no_write(store: Store, clock: SimulatedClock) -> None:
    store.devices.write(ALL)
    seen_at_s, writes = clock.utc_s(), []
    engine = store._database._engine
    event.listen(engine, "commit", lambda connection: writes.append(connection.get_execution_options().get("write")))
    clock.advance(SEEN_AGAIN_S / 2)
    store.devices.write(ALL)
    assert True not in writes
    clock.advance(SEEN_AGAIN_S)
    store.devices.write(ALL)
    assert True in writes
    assert {row.seen_at_s for row in store.devices.all()} == {seen_at_s + 1.5 * SEEN_AGAIN_S}


def test_a_command_with_other_settings_leaves_the_devices_of_the_server_alone(
    home: Home, store: Store, clock: SimulatedClock
) -> None:
    halves = tuple(replace(CPU, name=f"cpu:{at}", index=at) for at in range(2))
    command = Store.open(home, clock)
    served = {"cuda:0": "ready", "cuda:1": "ready", "cpu:0": "ready", "cpu:1": "ready"}
    for _ in range(20):
        store.devices.write((*GPUS, *halves))
        command.devices.write((GPUS[0], CPU))
        assert states(store) == served
        clock.advance(SEEN_AGAIN_S / 2)
    clock.advance(FRESH_S)  # the server has ended
    command.devices.write((GPUS[0], CPU))
    assert states(store) == dict.fromkeys(served, "away") | {"cuda:0": "ready", "cpu": "ready"}
    again = Store.open(home, clock)
    again.devices.write((*GPUS, *halves))
    assert states(store) == dict.fromkeys(served, "away") | {"cuda:0": "ready", "cuda:1": "ready", "cpu": "ready"}
    clock.advance(FRESH_S)  # the command has ended
    again.devices.write((*GPUS, *halves))
    assert states(store) == served | {"cpu": "away"}
