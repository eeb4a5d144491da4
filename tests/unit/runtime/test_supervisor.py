import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import replace

import psutil
import pytest

from tests.clock import SimulatedClock
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import berth
from unifiednn_core.machine.budget import Budget
from unifiednn_core.runtime import launchers
from unifiednn_core.runtime.supervisor import NODE_SILENT_S, PAUSE_S, REGISTRATION_PATIENCE_S, SILENT_S, Supervisor
from unifiednn_core.spec.devices import Device, on_host
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.devices import FRESH_S
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import WorkerIdentity

BEAT_S = 5.0
MACHINE = (
    *(
        Device(
            name=f"cuda:{at}", type="cuda", host="h", index=at, kind="H200", total_bytes=None, threads=1, uuid=str(at)
        )
        for at in range(2)
    ),
    Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC, AVX2, 1 thread", total_bytes=None, threads=1),
)


def unlimited(device: str) -> Budget:
    return Budget(2**40, 2**40)


def supervisor_of(
    store: Store, launcher: "Launcher", clock: SimulatedClock, budget: Callable[[str], Budget] = unlimited
) -> Supervisor:
    """A supervisor of a machine with two GPUs and plenty of memory."""

    def devices() -> list[Device]:
        return [replace(device, total_bytes=budget(device.name).total_bytes) for device in MACHINE]

    return Supervisor(store, launcher, clock, budget=budget, devices=devices)


class Launcher:
    def __init__(self) -> None:
        self.started: list[str] = []
        self.exit_codes: dict[str, int] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int:
        self.started.append(run_id)
        raise psutil.NoSuchProcess(0)

    def exit_code(self, run_id: str) -> int | None:
        return self.exit_codes.get(run_id)

    def last_mark(self, run_id: str) -> str | None:
        return None

    def forget_ended(self, held: Collection[str]) -> None: ...

    def close(self) -> None:
        raise NotImplementedError


def state(store: Store, run_id: str) -> str:
    return store.runs.get(run_id)[0].state


def test_one_run_for_each_device_is_started(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    add_run(store, "a", 1)
    add_run(store, "b", 2)
    add_run(store, "c", 3, device="cuda:0")
    supervisor = supervisor_of(store, launcher, clock)
    supervisor.tick()
    supervisor.tick()
    assert sorted(launcher.started) == ["a", "c"]
    store.runs.transition("a", None, Event.FAIL)
    supervisor.tick()
    assert launcher.started[-1] == "b"


def test_a_worker_ends_a_run_whose_sub_models_have_all_ended(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    add_run(store, "r")
    for part in store.runs.get("r")[1]:
        store.runs.transition("r", part.name, Event.FAIL)
    supervisor_of(store, launcher, clock).tick()
    assert launcher.started == ["r"]


def test_a_worker_that_never_registers_is_given_up(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    add_run(store, "quick", 1, recovery="ask")
    supervisor = supervisor_of(store, launcher, clock)
    supervisor.tick()
    launcher.exit_codes["quick"] = 1
    supervisor.tick()
    assert state(store, "quick") == "interrupted"
    assert "exit code 1" in (store.runs.get("quick")[0].cause or "")
    add_run(store, "slow", 2, recovery="ask")
    supervisor.tick()
    supervisor.tick()
    clock.advance(REGISTRATION_PATIENCE_S - 1)
    supervisor.tick()
    assert state(store, "slow") == "starting"
    clock.advance(2)
    supervisor.tick()
    assert state(store, "slow") == "interrupted"


def test_life_and_death_of_a_real_process_are_told_apart(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    add_run(store, "r", recovery="ask")
    supervisor = supervisor_of(store, launcher, clock)
    supervisor.tick()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = launchers.identity_of(process.pid)
    assert store.workers.register("r", worker) == 1
    store.runs.transition("r", None, Event.BEGIN)
    supervisor.tick()
    assert state(store, "r") == "running"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but still a zombie
    assert not launchers.is_alive(worker)
    supervisor.tick()
    assert state(store, "r") == "interrupted"
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    assert not launchers.is_alive(worker)


def test_a_reused_pid_or_another_boot_is_not_the_same_worker() -> None:
    me = launchers.own_identity()
    assert launchers.is_alive(me)
    assert not launchers.is_alive(WorkerIdentity(me.pid, me.started_at_s - 100, me.boot_id))
    assert not launchers.is_alive(WorkerIdentity(me.pid, me.started_at_s, "another boot"))


def test_a_worker_in_another_container_is_judged_by_its_heartbeat(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")
    server, command = (supervisor_of(store, Launcher(), clock) for _ in range(2))
    server.tick()
    there = WorkerIdentity(999_999_999, 1.0, f"{launchers.machine_of(launchers.boot_id())}/1")  # no such process here
    store.workers.launched("r", there)
    for _ in range(int(REGISTRATION_PATIENCE_S / BEAT_S) - 1):
        clock.advance(BEAT_S)
        command.tick()
    assert store.workers.register("r", there) == 1, "torch may take long to load"
    store.runs.transition("r", None, Event.BEGIN)
    for _ in range(20):
        clock.advance(BEAT_S)
        store.telemetry.write("r", TelemetryRows())
        command.tick()
    assert state(store, "r") == "running"
    for _ in range(int(SILENT_S / BEAT_S)):
        clock.advance(BEAT_S)
        command.tick()
    assert state(store, "r") == "running"
    clock.advance(BEAT_S)
    command.tick()
    assert store.hybrids.get("r")[0].recoveries == 1 and store.hybrids.get("r")[0].deaths == 0


def test_after_a_sleep_of_the_machine_silence_counts_anew(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")
    supervisor = supervisor_of(store, Launcher(), clock)
    supervisor.tick()
    there = WorkerIdentity(999_999_999, 1.0, f"{launchers.machine_of(launchers.boot_id())}/1")
    store.workers.register("r", there)
    store.runs.transition("r", None, Event.BEGIN)
    supervisor.tick()
    supervisor._looked_at_s = clock.monotonic_s()
    clock.advance(SILENT_S + PAUSE_S)
    supervisor.tick()
    assert state(store, "r") == "running", "it slept as well"
    clock.advance(SILENT_S + 1)
    supervisor._looked_at_s = clock.monotonic_s()
    supervisor.tick()
    assert state(store, "r") != "running", "the control: now it counts"


NODE = tuple(on_host(device, "node7") for device in (MACHINE[0], MACHINE[2]))


def device_of(store: Store, run_id: str) -> str | None:
    hybrid, _ = store.hybrids.get(run_id)
    return None if hybrid.heartbeat_at_s is None else hybrid.device


def test_what_is_placed_on_a_node_is_left_to_a_driver(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    store.devices.write(NODE, "node7")
    add_run(store, "one", 1, device="node7/cpu")
    add_run(store, "two", 2, device="node7/cpu")
    add_run(store, "here", 3)
    supervisor = supervisor_of(store, launcher, clock)
    supervisor.tick()
    assert launcher.started == ["here"] and device_of(store, "one") == "node7/cpu"
    assert store.runs.get("two")[0].waits_for is not None
    store.workers.register("one", WorkerIdentity(999_999_999, 1.0, "boot of node7"))
    store.runs.transition("one", None, Event.BEGIN)
    for _ in range(3):
        clock.advance(NODE_SILENT_S / 2)
        supervisor.tick()
    assert state(store, "one") == "running", "its driver judges it"
    store.devices.write(NODE, "node7")
    store.devices.set_state("node7/cpu", "draining")
    supervisor.tick()
    assert store.hybrids.get("one")[0].leaving == "node7/cpu is drained."


def test_the_memory_of_a_node_is_read_from_its_rows(store: Store, clock: SimulatedClock) -> None:
    store.devices.write(NODE, "node7", {"node7/cuda:0": 7})
    supervisor = supervisor_of(store, Launcher(), clock, lambda device: Budget(2**40, 5))
    supervisor.tick()
    devices = {one.name: one for one in supervisor.fleet().view.devices}
    free = {name: one.free_bytes for name, one in devices.items()}
    assert free == {"cuda:0": 5, "cuda:1": 5, "cpu": 5, "node7/cuda:0": 7, "node7/cpu": None}
    assert devices["cpu"].pool != devices["node7/cpu"].pool, "the memory of two machines is not common"


def test_a_shared_hybrid_on_a_node_goes_on_there_or_is_given_back(store: Store, clock: SimulatedClock) -> None:
    launcher = Launcher()
    store.devices.write(NODE, "node7")
    add_run(store, "r", shared=True, device="node7/cuda:0")
    supervisor = supervisor_of(store, launcher, clock)
    supervisor.tick()
    [(hybrid, _)] = store.hybrids.listed()
    store.workers.lose(hybrid.id, "Its actor died.", "Again.")
    supervisor.tick()
    assert device_of(store, hybrid.id) == "node7/cuda:0" and launcher.started == []
    store.workers.lose(hybrid.id, "Its actor died.", "Again.")
    clock.advance(FRESH_S + 1)
    supervisor.tick()
    assert store.hybrids.get(hybrid.id)[0].ended_at_s is not None and state(store, "r") == "queued"
    assert "node7/cuda:0 is away" in (store.runs.get("r")[0].waits_for or "")


def test_processes_in_another_pid_namespace_are_told_from_dead_ones() -> None:
    me = launchers.own_identity()
    program = (
        "from dataclasses import asdict; from unifiednn_core.runtime import launchers as it; import json; "
        f"me = it.WorkerIdentity({me.pid}, {me.started_at_s}, {me.boot_id!r}); "
        "print(json.dumps([asdict(it.own_identity()), it.is_elsewhere(me), it.is_alive(it.own_identity())]))"
    )
    container = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    try:
        subprocess.run([*container, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces here")
    done = subprocess.run([*container, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    identity, sees_me_elsewhere, lives = json.loads(done.stdout)
    there = WorkerIdentity(**identity)
    assert there.pid < 10 and lives, "the control: it is in a namespace of its own, and knows itself"
    assert sees_me_elsewhere and launchers.is_elsewhere(there)
    assert not launchers.is_elsewhere(me) and not launchers.is_elsewhere(WorkerIdentity(me.pid, 1.0, "another boot"))


def test_a_run_claimed_again_by_another_supervisor_gets_the_whole_patience(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")
    first, second = (supervisor_of(store, Launcher(), clock) for _ in range(2))
    first.tick()
    second.tick()  # it sees the claim of the first one
    clock.advance(REGISTRATION_PATIENCE_S - 1)
    store.workers.lose("r", "The worker did not register.", "Again.")
    assert store.workers.claim("r", berth(), launchers.own_identity())
    clock.advance(2)
    second.tick()
    assert state(store, "r") == "starting"
    clock.advance(REGISTRATION_PATIENCE_S + 1)
    second.tick()
    assert state(store, "r") == "queued"


def test_a_death_that_two_supervisors_see_counts_once(
    store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one has read of the dead worker when the faster one has already started the next."""
    dead = WorkerIdentity(os.getpid(), launchers.own_identity().started_at_s - 100, launchers.boot_id())
    add_run(store, "r")
    assert store.workers.claim("r", berth(), launchers.own_identity())
    store.workers.register("r", dead)
    faster, slower = (supervisor_of(store, Launcher(), clock) for _ in range(2))
    stale = store.workers.held()
    clock.advance(1)
    faster.tick()
    assert (store.hybrids.get("r")[0].recoveries, state(store, "r")) == (1, "starting")
    monkeypatch.setattr(store.workers, "held", lambda: stale)
    slower.tick()
    hybrid, _ = store.hybrids.get("r")
    assert (hybrid.recoveries, hybrid.deaths, state(store, "r")) == (1, 1, "starting")
    assert store.workers.register("r", launchers.own_identity()) == 2, "the worker that the faster one started"
