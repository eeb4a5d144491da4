"""A run waits until there is memory for it, in words and figures, and holds up nobody on another device."""

from collections.abc import Callable

import pytest

from tests.clock import SimulatedClock
from tests.unit.preflight.estimate_kit import MIB, part
from tests.unit.runtime.test_supervisor import Launcher, state, supervisor_of
from tests.unit.store.test_store import add_run
from unifiednn_core.machine.allocator import of_workers
from unifiednn_core.machine.budget import Budget
from unifiednn_core.preflight.estimate import predict
from unifiednn_core.preflight.forecast import Forecast
from unifiednn_core.runtime.admission import now_needed_bytes
from unifiednn_core.runtime.supervisor import NOTE_AGAIN_S, Supervisor
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import PolicySpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.workers import WorkerIdentity

CONTEXT = 100 * MIB
PARTS = (part("a", weights=50, batch=8), part("b", batch=8))


class Devices:
    """Memory of the devices of a machine."""

    def __init__(self, total_mib: int, free_mib: int):
        self.total_mib, self.free = total_mib, {"cpu": free_mib, "cuda:0": free_mib, "cuda:1": free_mib}

    def __call__(self, device: str) -> Budget:
        return Budget(self.total_mib * MIB, self.free[device] * MIB)


def add_predicted(store: Store, run_id: str, at_s: float = 0.0, device: str = "cuda:0", mode: str = "hybrid") -> None:
    add_run(store, run_id, at_s, device=device)
    found = predict(PARTS, policy_named("fcfs", {}), device_type=device[:4].rstrip(":"), context_bytes=CONTEXT)
    store.runs.update(run_id, prediction=Forecast(found, PARTS).document, mode=mode)


def needed_mib(store: Store, run_id: str) -> float:
    run, parts = store.runs.get(run_id)
    needed_bytes = now_needed_bytes(run, parts, run.device.partition(":")[0], of_workers())
    assert needed_bytes is not None
    return needed_bytes / MIB


def waits_for(store: Store, run_id: str) -> str | None:
    return store.runs.get(run_id)[0].waits_for


Supervised = Callable[[Devices], tuple[Supervisor, Launcher]]


@pytest.fixture
def supervised(store: Store, clock: SimulatedClock) -> Supervised:
    def make(devices: Devices) -> tuple[Supervisor, Launcher]:
        launcher = Launcher()
        return supervisor_of(store, launcher, clock, devices), launcher

    return make


def test_a_run_waits_in_words_and_starts_by_itself_once_there_is_room(store: Store, supervised: Supervised) -> None:
    devices = Devices(2000, 150)
    supervisor, launcher = supervised(devices)
    add_predicted(store, "r")
    supervisor.tick()
    assert (launcher.started, state(store, "r")) == ([], "queued")
    needed = round(needed_mib(store, "r"))
    assert waits_for(store, "r") == f"{needed} MiB on cuda:0; cuda:0 has 150 MiB free"
    devices.free["cuda:0"] = needed + 1
    supervisor.tick()
    assert (launcher.started, state(store, "r"), waits_for(store, "r")) == (["r"], "starting", None)


def test_what_it_waits_for_is_told_anew_now_and_then(
    store: Store, supervised: Supervised, clock: SimulatedClock
) -> None:
    devices = Devices(2000, 150)
    supervisor, _ = supervised(devices)
    add_predicted(store, "r")
    supervisor.tick()
    devices.free["cuda:0"] = 120
    supervisor.tick()
    assert "150 MiB free" in (waits_for(store, "r") or "")
    clock.advance(NOTE_AGAIN_S)
    supervisor.tick()
    assert "120 MiB free" in (waits_for(store, "r") or "")


def test_it_holds_up_no_other_device_and_nobody_overtakes_it_on_its_own(store: Store, supervised: Supervised) -> None:
    devices = Devices(2000, 150)
    devices.free["cpu"] = 2000
    supervisor, launcher = supervised(devices)
    add_predicted(store, "large", 1)
    add_run(store, "small", 2, device="cuda:0")  # nothing is predicted of it: it could start at once
    add_predicted(store, "elsewhere", 3, device="cpu")
    for _ in range(3):
        supervisor.tick()
    assert launcher.started == ["elsewhere"]
    devices.free["cuda:0"] = 2000
    supervisor.tick()
    assert launcher.started == ["elsewhere", "large"]
    store.runs.transition("large", None, Event.FAIL)
    supervisor.tick()
    assert launcher.started[-1] == "small"


def test_a_run_that_waits_can_be_stopped(store: Store, supervised: Supervised) -> None:
    supervisor, launcher = supervised(Devices(2000, 150))
    add_predicted(store, "r")
    supervisor.tick()
    store.commands.issue("r", None, Verb.STOP)
    supervisor.tick()
    assert (launcher.started, state(store, "r")) == ([], "stopped")


def test_one_that_had_begun_gets_a_worker_to_be_stopped_by(store: Store, supervised: Supervised) -> None:
    devices = Devices(2000, 1000)
    supervisor, launcher = supervised(devices)
    add_predicted(store, "r")
    supervisor.tick()
    store.workers.register("r", WorkerIdentity(1, 1.0, "another boot"))
    store.runs.transition("r", None, Event.BEGIN)
    devices.free["cuda:0"] = 150
    supervisor.tick()  # its worker is dead: it is queued again, and waits
    assert state(store, "r") == "queued"
    assert waits_for(store, "r") is not None
    store.commands.issue("r", None, Verb.STOP)
    supervisor.tick()
    assert launcher.started == ["r", "r"]


def test_what_has_ended_needs_nothing_any_more_and_edits_count(store: Store) -> None:
    add_predicted(store, "r")
    before = needed_mib(store, "r")
    store.runs.update("r", spec=store.runs.get("r")[0].spec | {"policy": PolicySpec(name="round_robin").model_dump()})
    assert needed_mib(store, "r") > before
    spec = store.runs.get("r")[0].spec
    parts = [entry | {"hyperparameters": {"batch_split": 4}} for entry in spec["submodels"]]
    turns = needed_mib(store, "r")
    store.runs.update("r", spec=spec | {"submodels": parts})
    assert needed_mib(store, "r") < turns
    in_parts, techniques = needed_mib(store, "r"), [{"name": "virtual_nodes", "nodes": 4, "devices": 2}]
    cut = [entry | {"hyperparameters": {"techniques": techniques}} for entry in spec["submodels"]]
    store.runs.update("r", spec=spec | {"submodels": cut})
    assert needed_mib(store, "r") == in_parts, "devices in turn need no more than one"
    store.runs.update("r", spec=spec)
    store.runs.transition("r", None, Event.CLAIM)
    store.runs.transition("r", "a", Event.FAIL)
    alone = predict(PARTS[1:], policy_named("fcfs", {}), device_type="cuda", context_bytes=CONTEXT)
    assert needed_mib(store, "r") == alone.peak_bytes / MIB


def test_baselines_wait_for_the_sum_or_the_largest_and_a_hopeless_concurrent_one_is_started(
    store: Store, supervised: Supervised
) -> None:
    modes = ("hybrid", "concurrent", "sequential")
    for mode in modes:
        add_predicted(store, mode, mode=mode)
    needed = {mode: needed_mib(store, mode) for mode in modes}
    assert needed["concurrent"] > needed["hybrid"] >= needed["sequential"]

    def started(mode: str, total_mib: int, free_mib: int) -> bool:
        supervisor, launcher = supervised(Devices(total_mib, free_mib))
        run_id = f"{mode}-{total_mib}-{free_mib}"
        add_predicted(store, run_id, mode=mode, device="cuda:0")
        for other, _ in store.runs.listed():
            if other.id != run_id and State(other.state) not in ENDED:
                store.runs.transition(other.id, None, Event.FAIL)
        supervisor.tick()
        return launcher.started == [run_id]

    both = round(needed["concurrent"])
    assert not started("concurrent", both + 1, both - 1)
    assert started("concurrent", both + 2, both + 1)
    assert started("concurrent", both - 10, 100), "that it never fits is its result"
    assert not started("sequential", both - 10, 100)


@pytest.mark.parametrize("prediction", [{}, {"parts": [{"name": "a"}]}, {"parts": 7}, {"context_bytes": 1}])
def test_a_run_with_no_prediction_or_one_in_other_words_waits_for_nothing(
    store: Store, supervised: Supervised, prediction: dict[str, object]
) -> None:
    supervisor, launcher = supervised(Devices(1, 0))
    add_run(store, "r", device="cuda:0")
    store.runs.update("r", prediction=prediction)
    supervisor.tick()
    assert launcher.started == ["r"]


def test_a_device_that_cannot_be_asked_holds_nobody_back(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    add_predicted(store, "r")
    supervisor_of(store, launcher, clock, lambda device: Budget(None, None)).tick()
    assert launcher.started == ["r"]
