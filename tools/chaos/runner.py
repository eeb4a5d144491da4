"""Runs exercises, several at a time, until enough processes were killed."""

import heapq
import itertools
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from tools.chaos import faults
from tools.chaos.audit import Promise, StoreAudit, kept_windows
from tools.chaos.fork_server import ForkServerClient, fork_server
from tools.chaos.judge import Outcome, Promises, check, judge
from tools.chaos.plan import EPOCHS, Errand, Exercise, Round, exercise
from tools.chaos.rows import NotOpenNow, asking
from tools.chaos.rows import rows as all_rows
from tools.chaos.scene import ForkRequest, JournalEntry, Scene, named, scene_of
from tools.machine import ToolFailed
from unifiednn_core.base.failpoints import Fault

POLL_S = 0.01
LOOK_S = 0.03
LIMIT_S = 300.0
LEFT_ALONE_S = 10.0
"""A run that is interrupted for so long waits for a person."""
ENDED = ("completed", "failed", "stopped")


class Watch(Protocol):
    """What can be seen of an exercise from outside."""

    state: str
    """Of the run; of several `completed` once all have ended, `stuck` if nothing goes on."""
    orders: str
    """Request that starts a process which gives orders."""
    run_id: str
    """Of the run, if there is one only."""
    errands: deque[Errand]
    """What a person would do, seeing this."""

    def look(self, workers: Iterable[int]) -> Iterator[JournalEntry]: ...  # noqa: D102


class RunWatch:
    """Watches one run: its states, and the first step of each worker that stands in the store."""

    orders = "commands"

    def __init__(self, scene: Scene, run_id: str):
        self._scene, self.run_id = scene, run_id
        self.state, self.errands = "queued", deque[Errand]()
        self._state_since_s, self._rows_before, self._stepped = time.monotonic(), 0, 0
        self._left_alone = False

    def look(self, workers: Iterable[int]) -> Iterator[JournalEntry]:
        """Notice what is new."""
        with asking(self._scene.url) as ask_store:
            [(state,)] = ask_store("SELECT state FROM runs WHERE id = ?", self.run_id)
            [(rows,)] = ask_store("SELECT coalesce(max(rowid), 0) FROM step_metrics")
        if state != self.state and self.state != "left alone":
            self.state, self._state_since_s = state, time.monotonic()
            if state == "paused":
                yield JournalEntry(what="paused", role="test", run_id=self.run_id)
        if state == "interrupted" and time.monotonic() - self._state_since_s > LEFT_ALONE_S:
            self.state = "left alone"
        worker = next(iter(workers), 0)
        if rows > self._rows_before and worker and self._stepped != worker:
            self._stepped = worker
            yield JournalEntry(what="stepped", role="test", run_id=self.run_id)
        self._rows_before = rows


class ExerciseRunner:
    """One exercise."""

    def __init__(
        self,
        forks: ForkServerClient,
        scene: Scene,
        watch: Watch,
        exercise: Exercise,
        abandoned: Callable[[], bool] = lambda: False,
    ):
        """`abandoned` says whether the result is no longer wanted."""
        self._abandoned = abandoned
        self._forks, self._scene, self._watch, self._exercise = forks, scene, watch, exercise
        self._journal = scene.journal
        self._deeds: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._workers: set[int] = set()
        """Process ids."""
        self._server = self._asking = 0
        """Process ids; 0 if there is none."""
        self._second_servers: list[int] = []
        self._offset_s = 0
        self._server_fault: Fault | None = None
        self._errands: deque[tuple[int, Errand]] = deque()
        self._errand, self._first_open = Errand((), 0.0), 0
        self._downloads = deque((0, errand) for errand in exercise.downloads)
        self._to_come = len(exercise.arrivals)
        self._server_back_s, self._next_look_s = 0.0, 0.0

    def run(self) -> str:
        """Carry it out; returns the state in which the run was left."""
        faults.set_offset(self._scene.clock, 0.0)
        self._forks.plan(self._exercise.rounds)
        for errand in self._exercise.arrivals:
            self._at(errand.after_s, partial(self._arrive, errand))
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s and not self._over() and not self._abandoned():
            for entry in self._journal.news():
                self._hear(entry)
            while self._deeds and self._deeds[0][0] <= time.monotonic():
                heapq.heappop(self._deeds)[2]()
            if time.monotonic() >= self._next_look_s:
                self._next_look_s = time.monotonic() + LOOK_S
                with suppress(NotOpenNow):  # the store is not open now
                    for entry in self._watch.look(self._workers):
                        self._journal.write(entry)
                while self._watch.errands:
                    self._errands.append((0, self._watch.errands.popleft()))
            self._keep_serving()
            self._keep_asking()
            time.sleep(POLL_S)
        self._tell("over")
        for pid in (self._server, self._asking, *self._second_servers, *self._workers):
            self._kill(pid)
        return self._watch.state

    def _over(self) -> bool:
        if self._watch.state in ("stuck", "left alone"):
            return True
        if self._asking or self._errands or self._to_come:
            return False
        return self._watch.state in ENDED and not self._downloads and not self._workers

    def _arrive(self, errand: Errand) -> None:
        self._to_come -= 1
        self._errands.append((0, errand))

    # -- what is planned

    def _hear(self, entry: JournalEntry) -> None:
        match entry.what, entry.role:
            case "started", "worker":
                self._workers.add(entry.pid)
                if 0 <= entry.number < len(self._exercise.rounds):
                    self._schedule(self._exercise.rounds[entry.number], entry.pid)
            case "ended", "worker":
                self._workers.discard(entry.pid)
            case "ended", "server" if entry.pid == self._server:
                self._server = 0
            case "asked" | "refused" | "done", _:
                self._first_open = entry.number + 1
            case "ended", "commands":
                self._asking = 0
                if entry.code < 0 and self._first_open < len(self._errand.asks):  # a person would ask again
                    rest = replace(self._errand, fault=None, kill_s=None, after_s=0.0)
                    self._errands.appendleft((self._first_open, rest))

    def _schedule(self, plan: Round, worker: int) -> None:
        together = plan.kill_s is not None and plan.kill_s == plan.kill_server_s
        if plan.kill_s is not None and not together:
            self._at(plan.kill_s, lambda: self._kill(worker))
        if plan.kill_server_s is not None:
            self._at(plan.kill_server_s, lambda: self._kill_server(plan, worker if together else 0))
        if plan.second_server_s is not None:
            fault = named(plan.server_fault)
            self._at(plan.second_server_s, lambda: self._second_servers.append(self._request("server", fault=fault)))
        if plan.jump_s is not None:
            jump_s = plan.jump_s
            self._at(plan.jump_at_s, lambda: self._jump(jump_s))
        if plan.errand is not None:
            errand = plan.errand
            self._at(errand.after_s, lambda: self._errands.append((0, errand)))

    def _kill_server(self, plan: Round, worker: int) -> None:
        self._kill(worker)
        self._kill(self._server)
        self._server_back_s, self._server_fault = time.monotonic() + plan.server_down_s, plan.server_fault

    def _jump(self, seconds: float) -> None:
        self._offset_s += round(seconds)
        faults.set_offset(self._scene.clock, float(self._offset_s))
        self._tell("jumped", text=f"{seconds:+.0f} s")

    def _at(self, after_s: float, deed: Callable[[], None]) -> None:
        heapq.heappush(self._deeds, (time.monotonic() + after_s, next(self._order), deed))

    # -- processes

    def _keep_serving(self) -> None:
        """Bring up a server where there is none, as an operator does; one comes up with what was planned for it."""
        if self._server or time.monotonic() < self._server_back_s:
            return
        fault, self._server_fault = self._server_fault, None
        self._server = self._request("server", fault=named(fault))

    def _keep_asking(self) -> None:
        """Keep one process giving orders, so that each acknowledgement has one origin."""
        if self._asking:
            return
        if self._errands:
            first, errand = self._errands.popleft()
        elif self._downloads and self._watch.state in ENDED:
            first, errand = self._downloads.popleft()
        else:
            return
        self._errand, self._first_open, fault = errand, first, errand.fault
        self._asking = self._request(
            self._watch.orders,
            fault=named(fault),
            times=fault.times if fault else 1,
            asks=tuple((ask.verb, ask.submodel, ask.value) for ask in errand.asks[first:]),
            first=first,
        )
        if errand.kill_s is not None:
            asking = self._asking
            self._at(errand.kill_s, lambda: self._kill(asking))

    def _request(self, do: str, **fields: object) -> int:
        request = ForkRequest(do=do, folder=str(self._scene.folder), run_id=self._watch.run_id, **fields)  # type: ignore[arg-type]
        return self._forks.ask(request) or 0

    def _kill(self, pid: int) -> None:
        if pid:
            self._forks.ask(ForkRequest(do="kill", pid=pid, signal=signal.SIGKILL))

    def _tell(self, what: str, text: str = "") -> None:
        self._journal.write(JournalEntry(what=what, role="test", text=text))  # type: ignore[arg-type]


PREPARATION_S = 180.0
LIMIT_S_PER_KILL, LEAST_LIMIT_S = 10.0, 900.0


class References:
    """What the demo comes out as without faults, trained as soon as an exercise asks for it."""

    def __init__(self, folder: Path, template: Path, run_id: str):
        self._folder, self._template, self._run_id = folder, template, run_id
        self._promises: dict[tuple[str, int], Promise] = {}
        self._lock = threading.Lock()

    def promises(self, forks: ForkServerClient, epochs: Mapping[str, int]) -> Promises:
        """Promises for these sub-models, each of its epochs or of one more, which is ordered before the start."""
        with self._lock:
            if not self._promises.keys() >= set(epochs.items()):
                scene = Scene(self._folder / f"reference-{len(self._promises)}")
                scene.folder.mkdir()
                shutil.copytree(self._template, scene.home.root)
                more = tuple(("epochs", name, count) for name, count in epochs.items() if count != EPOCHS[name])
                if more:
                    await_end(forks, scene, ask(forks, "commands", scene, run_id=self._run_id, asks=more, first=0))
                self._promises |= _promises(forks, scene, epochs)
            return dict(self._promises)


Planned = TypeVar("Planned")
Taken = TypeVar("Taken", contravariant=True)


class Drill(Protocol[Planned]):
    """What exercises are made of."""

    settings: Mapping[str, str]
    """Environment of all processes."""

    def plan(self, seed: int, number: int, rounds: int) -> Planned: ...  # noqa: D102

    def prepare(self, forks: ForkServerClient, folder: Path) -> "Setting[Planned]": ...  # noqa: D102


class Setting(Protocol[Taken]):
    """What all exercises of a drill begin with."""

    def one(self, forks: ForkServerClient, planned: Taken, abandoned: Callable[[], bool]) -> Outcome: ...  # noqa: D102


def run_exercises(
    folder: Path,
    drill: Drill[Planned],
    *,
    seed: int,
    kills: int,
    rounds: int,
    lanes: int,
    on_progress: Callable[[Outcome], None],
    limit_s: float | None = None,
) -> Outcome:
    """Kill at least `kills` processes, in exercises of `rounds` workers. Raises `ToolFailed`.

    Calls `on_progress` with the sums after each exercise. With `limit_s`, no exercise begins after so long; fewer kills
    are no failure then.
    """
    total, lock, numbers = Outcome(), threading.Lock(), itertools.count()
    enough, abandoned = threading.Event(), threading.Event()
    deadline_s = time.monotonic() + (limit_s or max(LEAST_LIMIT_S, LIMIT_S_PER_KILL * kills))

    def lane(forks: ForkServerClient, setting: Setting[Planned]) -> None:
        while not enough.is_set() and not abandoned.is_set():
            outcome = setting.one(forks, drill.plan(seed, next(numbers), rounds), abandoned.is_set)
            with lock:
                if abandoned.is_set():
                    return
                total.add(outcome)
                on_progress(total)
                if total.kills >= kills or time.monotonic() > deadline_s:
                    enough.set()

    with ExitStack() as stack:
        logs = [folder / f"fork-server-{place}.log" for place in range(lanes)]
        servers = [stack.enter_context(fork_server(log, settings=drill.settings)) for log in logs]
        setting = drill.prepare(servers[0], folder)
        pool = stack.enter_context(ThreadPoolExecutor(lanes, thread_name_prefix="lane"))
        try:
            for done in as_completed([pool.submit(lane, forks, setting) for forks in servers]):
                done.result()
        except BaseException:  # one lane failed, or Ctrl-C: stop all
            abandoned.set()
            raise
    if total.kills < kills and limit_s is None:
        total.problems.append(f"time ran out after {total.kills} of {kills} kills")
    return total


class OfOneRun:
    """The drill with one run, the demo."""

    settings: Mapping[str, str] = MappingProxyType({})

    def plan(self, seed: int, number: int, rounds: int) -> Exercise:
        """Plan an exercise."""
        return exercise(seed, number, rounds)

    def prepare(self, forks: ForkServerClient, folder: Path) -> "SettingOfOneRun":
        """Submit the demo; its home is the template of all others."""
        scene = Scene(folder / "template")
        scene.folder.mkdir(parents=True)
        await_end(forks, scene, ask(forks, "prepare", scene))
        run_id = _run_id(scene.url)
        return SettingOfOneRun(folder, scene.home.root, run_id, References(folder, scene.home.root, run_id))


@dataclass(frozen=True, slots=True)
class SettingOfOneRun:
    """A home in which the demo waits, and what it comes out as without faults."""

    folder: Path
    template: Path
    run_id: str
    references: References

    def one(self, forks: ForkServerClient, planned: Exercise, abandoned: Callable[[], bool]) -> Outcome:
        """Carry out an exercise, and judge it."""
        scene = scene_of(self.folder, self.template, planned.number)
        state = ExerciseRunner(forks, scene, RunWatch(scene, self.run_id), planned, abandoned).run()
        return judge(forks, scene, self.run_id, planned, state, partial(self.references.promises, forks))


def _promises(forks: ForkServerClient, scene: Scene, epochs: Mapping[str, int]) -> dict[tuple[str, int], Promise]:
    """Train uninterrupted, by the local launcher as an operator does, and note what comes out."""
    run_id = _run_id(scene.url)
    server = ask(forks, "baseline", scene, run_id=run_id)
    audit, deadline_s = StoreAudit(scene.url, run_id), time.monotonic() + PREPARATION_S
    while (state := audit.states()[None]) not in ("completed", "failed") and time.monotonic() < deadline_s:
        time.sleep(0.1)
    forks.ask(ForkRequest(do="kill", pid=server, signal=9))
    hashes = check(forks, scene, run_id)
    if state != "completed" or set(hashes) != set(epochs):
        raise ToolFailed(f"The uninterrupted training was left as {state}; {scene.folder} has its logs.")
    losses = {
        name: {window.step: window.loss for window in kept_windows(audit.windows(name), audit.begun_at(name))}
        for name in epochs
    }
    return {(name, epochs[name]): Promise(hashes[name], losses[name]) for name in epochs}


def ask(forks: ForkServerClient, do: str, scene: Scene, **fields: object) -> int:
    """Have a process forked for a scene; returns its id."""
    return forks.ask(ForkRequest(do=do, folder=str(scene.folder), **fields)) or 0  # type: ignore[arg-type]


def await_end(forks: ForkServerClient, scene: Scene, pid: int) -> None:
    """Wait until a process has ended well. Raises `ToolFailed`."""
    deadline_s = time.monotonic() + PREPARATION_S
    while (code := forks.ask(ForkRequest(do="code", pid=pid))) is None:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.05)
    if code != 0:
        raise ToolFailed(f"The demo could not be submitted; the logs in {scene.folder} say why.")


def _run_id(url: str) -> str:
    [(run_id,)] = all_rows(url, "SELECT id FROM runs")
    return str(run_id)
