"""What writing costs: telemetry of many workers at once, claims of several supervisors, submissions, commands."""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from tests.counted import counted
from tests.many_runs import MIB, NAMES, Size, fill, prediction, run_id, spec, strata
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import removal
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import Berth

POINTS = 20
"""Points of a curve in a batch: a worker writes about one batch a second."""
BATCHES, CLAIMS, SUPERVISORS, SUBMISSIONS = 60, 50, 4, 100
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What several processes did at once."""

    processes: int
    done: int
    wall_s: float
    """From the first begin to the last end."""
    cpu_ms: float
    """Of a process, for each one done."""
    server_cpu_ms: float | None
    """Of PostgreSQL, for each one done."""
    lost: int = 0
    """Attempts that another process was faster at."""

    @property
    def per_s(self) -> float:
        """Done in a second by all of them."""
        return self.done / self.wall_s


def batch(step: int) -> TelemetryRows:
    """What a worker writes in a second of training: a piece of a curve, a turn, memory, progress."""
    name = NAMES[step % len(NAMES)]
    own = {"submodel": name, "attempt": 1}
    steps = [
        {**own, "step": step * POINTS + at, "steps": 1, "epoch": 0.1, "loss": 0.5, "accuracy": 0.5}
        for at in range(POINTS)
    ]
    turn = {
        **own,
        "start_s": float(step),
        "end_s": step + 0.9,
        "steps": POINTS,
        "from_step": step * POINTS,
        "lane": 1,
        "reason": f"{name} has been in line longest of 3.",
    }
    at = {"at_s": float(step), "source": "process PSS"}
    return TelemetryRows(
        steps=steps,
        slices=[turn],
        memory=[{**at, "size_bytes": 300 * MIB}],
        strata=[{**at, "total_bytes": 300 * MIB, "strata": strata()}],
        submodels={name: {"steps_done": step * POINTS, "service_s": float(step), "lane": 1}},
        hybrid={"now_reason": turn["reason"], "cpu_s": float(step)},
    )


def writers(home: Home, processes: int, server: int | None, batches: int = BATCHES) -> Rate:
    """So many workers, each writing into a hybrid of its own as fast as it can."""

    def write(store: Store, place: int) -> tuple[int, int]:
        for step in range(1, batches + 1):
            store.telemetry.write(run_id(place, "t"), batch(step))
        return batches, 0

    _prepared(home, Size(devices=processes))
    return _at_once(home, processes, write, server)


def claims(home: Home, server: int | None, count: int = CLAIMS) -> Rate:
    """Supervisors that claim runs for devices of their own as fast as they can; each sees the devices of all."""

    def claim(store: Store, place: int) -> tuple[int, int]:
        done = 0
        for number in range(place * count, (place + 1) * count):
            done += store.workers.claim(run_id(number, "w"), Berth(device=f"cuda:{number}", kind="H200", threads=1))
        return done, count - done

    _prepared(home, Size(waiting=SUPERVISORS * count))
    return _at_once(home, SUPERVISORS, claim, server)


def single(home: Home) -> dict[str, dict[str, float]]:
    """Processor time and statements of what one process writes: submissions, commands from click to row, deletions."""
    store = _prepared(home, Size(devices=1), keep=True)
    training, found = run_id(0, "t"), {}

    def submit(number: int) -> None:
        parts = [
            SubModelRow(
                run_id=f"new{number}",
                name=name,
                arrival=place,
                state="queued",
                priority=0,
                model_format="pt2",
                parameters=1,
                epochs=2,
                steps_total=20,
            )
            for place, name in enumerate(NAMES)
        ]
        run = RunRow(
            id=f"new{number}",
            name="new",
            state="queued",
            device="auto",
            spec=spec(number),
            threads=1,
            created_at_s=time.time(),
            prediction=prediction(number),
            environment={},
        )
        store.runs.add((run, parts))

    def command(number: int) -> None:
        store.commands.issue(training, NAMES[0], Verb.PRIORITY, {"priority": number % 100})

    def answer(_number: int) -> None:
        [asked] = store.commands.open_in(training)
        store.commands.carry_out(asked.id)

    def both(number: int) -> None:
        command(number)
        answer(number)

    for name, call in {"submission (rows)": submit, "command, click to row": command}.items():
        found[name] = _each(store, call, 1 if call is command else SUBMISSIONS)
    answer(0)
    found["command, click to effect in the row"] = _each(store, both, SUBMISSIONS)
    store.close()
    return found


def removals(home: Home, count: int) -> dict[str, float]:
    """Deletion of ended runs with their files, as the retention does it."""
    store = Store.open(home, RealClock())
    found = _each(store, lambda number: removal.remove_run(home, store, run_id(number)), count)
    store.close()
    return found


def _each(store: Store, call: Callable[[int], object], count: int) -> dict[str, float]:
    begun_s, begun_wall_s = time.process_time(), time.perf_counter()
    with counted(store._database._engine) as sent:
        for number in range(count):
            call(number)
    spent_s, wall_s = time.process_time() - begun_s, time.perf_counter() - begun_wall_s
    return {"cpu_ms": 1e3 * spent_s / count, "wall_ms": 1e3 * wall_s / count, "statements": sent.statements / count}


def _prepared(home: Home, size: Size, *, keep: bool = False) -> Any:
    store = Store.open(home.create(), RealClock())
    fill(home, store, size, time.time())
    if keep:
        return store
    store.close()
    return None


def _at_once(home: Home, processes: int, work: Callable[[Store, int], tuple[int, int]], server: int | None) -> Rate:
    """Do it in processes that begin together; each opens the store first."""
    ready, told = _FORK.Barrier(processes), _FORK.Queue()

    def run(place: int) -> None:
        store = Store.open(home, RealClock())
        store.hybrids.pooling()
        ready.wait()
        begun_s, cpu_s = time.monotonic(), time.process_time()
        done, lost = work(store, place)
        told.put((begun_s, time.monotonic(), time.process_time() - cpu_s, done, lost))
        told.close()
        told.join_thread()
        os._exit(0)

    before_s = server_cpu_s(server)
    children = [_FORK.Process(target=run, args=(place,)) for place in range(processes)]
    for child in children:
        child.start()
    found = [told.get(timeout=600) for _ in children]
    for child in children:
        child.join()
    done = sum(one[3] for one in found)
    spent_s = server_cpu_s(server) - before_s
    return Rate(
        processes=processes,
        done=done,
        wall_s=max(one[1] for one in found) - min(one[0] for one in found),
        cpu_ms=1e3 * sum(one[2] for one in found) / done,
        server_cpu_ms=None if server is None else 1e3 * spent_s / done,
        lost=sum(one[4] for one in found),
    )


def server_cpu_s(server: int | None) -> float:
    """Processor seconds of a database server and its processes, also of those that have ended; 0 without one."""
    if server is None:
        return 0.0
    process = psutil.Process(server)
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    return sum(
        one.user + one.system + getattr(one, "children_user", 0) + getattr(one, "children_system", 0) for one in times
    )
