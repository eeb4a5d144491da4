"""Carries out one exercise on a cluster: keeps the agents up, gives orders, and strikes as planned."""

import heapq
import itertools
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.chaos.cluster.network import Network
from tools.chaos.cluster.plan import HOSTS, ClusterExercise, Strike
from tools.chaos.fork_server import ForkServerClient
from tools.chaos.plan import Errand
from tools.chaos.pool import PoolWatch
from tools.chaos.rows import NotOpenNow
from tools.chaos.scene import ForkRequest, JournalEntry, Scene, named
from tools.machine import ToolFailed

POLL_S, LOOK_S = 0.01, 0.25
LIMIT_S = 300.0
TRIES = 100
MEETS_WITHIN_S = 3.0
"""A strike waits so long for somebody whom it can meet."""
PARKS_WITHIN_S = 30.0


class ClusterRunner:
    """One exercise."""

    def __init__(
        self,
        forks: ForkServerClient,
        scene: Scene,
        network: Network,
        watch: PoolWatch,
        exercise: ClusterExercise,
        abandoned: Callable[[], bool] = lambda: False,
    ):
        """`abandoned` says whether the result is no longer wanted."""
        self._forks, self._scene, self._network, self._watch = forks, scene, network, watch
        self._exercise, self._abandoned = exercise, abandoned
        self._journal = scene.journal
        self._deeds: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._agents: dict[str, int] = {}
        """Process ids by host."""
        self._back_at_s = dict.fromkeys(HOSTS, 0.0)
        self._faults = deque(exercise.agent_faults)
        self._workers: dict[int, str] = {}
        """Hosts of the workers, by process id."""
        self._strikes = deque(exercise.strikes)
        self._next_strike_s = 0.0
        self._struck = 0
        self._arrivals, self._orders = deque(exercise.arrivals), deque(exercise.errands)
        self._errands: deque[tuple[int, Errand]] = deque()
        self._asking, self._errand, self._first_open = 0, Errand((), 0.0), 0
        self._ends: dict[str, Callable[[], object]] = {}
        """What ends the faults that last, by what they meet."""
        self.left: list[str] = []
        """What did not end by itself when all was done."""

    def run(self) -> str:
        """Carry it out; returns the state in which the submissions were left."""
        self._forks.plan(self._exercise.fates)
        begun_s = time.monotonic()
        self._next_strike_s = begun_s + 1.0
        next_look_s = 0.0
        while time.monotonic() < begun_s + LIMIT_S and not self._over() and not self._abandoned():
            self._hear()
            while self._deeds and self._deeds[0][0] <= time.monotonic():
                heapq.heappop(self._deeds)[2]()
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + LOOK_S
                self._look()
            self._keep_agents()
            self._keep_busy()
            self._keep_asking()
            self._strike_if_due()
            time.sleep(POLL_S)
        state = self._watch.state
        self._end_faults()
        self._part()
        self._tell("over")
        return state

    def _over(self) -> bool:
        if self._watch.state == "stuck":
            return True
        busy = self._asking or self._errands or self._arrivals or self._workers
        return self._watch.state == "completed" and not busy

    def _hear(self) -> None:
        for entry in self._journal.news():
            match entry.what, entry.role:
                case "started", "worker":
                    self._workers[entry.pid] = entry.host
                case "ended", "worker":
                    self._workers.pop(entry.pid, None)
                case "ended", "agent" if self._agents.get(entry.host) == entry.pid:
                    self._agents[entry.host] = 0
                case "asked" | "refused" | "done", _:
                    self._first_open = entry.number + 1
                case "ended", "commands":
                    self._asking = 0
                    if entry.code != 0 and self._first_open < len(self._errand.asks):  # a person would ask again
                        rest = replace(self._errand, fault=None, kill_s=None, after_s=0.0)
                        self._errands.appendleft((self._first_open, rest))

    def _look(self) -> None:
        with suppress(NotOpenNow):
            for entry in self._watch.look(()):
                self._journal.write(entry)
            while self._watch.errands:
                self._errands.append((0, self._watch.errands.popleft()))

    # -- people and agents

    def _keep_agents(self) -> None:
        """Bring up an agent where there is none, as an operator's service does."""
        for host in HOSTS:
            is_back = time.monotonic() >= self._back_at_s[host] and f"home {host}" not in self._ends
            if is_back and not self._agents.get(host):
                fault = self._faults.popleft() if host in self._agents and self._faults else None
                times = fault.times if fault else 1
                self._agents[host] = self._request("agent", host=host, fault=named(fault), times=times)

    def _keep_busy(self) -> None:
        """Let submissions arrive and orders come in step with the strikes; sooner if nothing is left to train."""
        share = self._struck / max(1, len(self._exercise.strikes))
        arrived = len(self._exercise.arrivals) - len(self._arrivals)
        due = arrived <= share * len(self._exercise.arrivals) or self._watch.state == "completed"
        if self._arrivals and due and not self._errands and not self._asking:
            self._errands.append((0, self._arrivals.popleft()))
        ordered = len(self._exercise.errands) - len(self._orders)
        if self._orders and ordered < share * len(self._exercise.errands):
            self._errands.append((0, self._orders.popleft()))

    def _keep_asking(self) -> None:
        """Keep one process giving orders, so that each acknowledgement has one origin."""
        if self._asking or not self._errands:
            return
        first, errand = self._errands.popleft()
        self._errand, self._first_open, fault = errand, first, errand.fault
        asks = tuple((ask.verb, ask.submodel, ask.value) for ask in errand.asks[first:])
        self._asking = self._request("people", fault=named(fault), times=1, asks=asks, first=first)

    def _request(self, do: str, **fields: Any) -> int:
        return self._forks.ask(ForkRequest(do=do, folder=str(self._scene.folder), **fields)) or 0  # type: ignore[arg-type]

    # -- strikes

    def _strike_if_due(self) -> None:
        if not self._strikes or time.monotonic() < self._next_strike_s:
            return
        strike = self._strikes[0]
        found = self._carry_out(strike)
        if found is None and time.monotonic() < self._next_strike_s + MEETS_WITHIN_S:
            return
        self._strikes.popleft()
        self._struck += 1
        after_s = self._strikes[0].after_s if self._strikes else 0.0
        self._next_strike_s = time.monotonic() + after_s
        if found is not None:
            self._tell("fault", host=strike.host, action=strike.kind, text=found)

    def _carry_out(self, strike: Strike) -> str | None:
        """Strike; returns whom it met in words, or None if there is nobody."""
        match strike.kind:
            case "worker":
                pids = sorted(self._workers)
                return self._kill(pids[int(strike.share * len(pids))]) if pids else None
            case "people":
                return self._kill(self._asking)
            case "agent":
                self._back_at_s[strike.host] = time.monotonic() + strike.lasts_s
                return self._kill(self._agents.get(strike.host, 0))
            case "host":
                return self._kill_host(strike)
            case "stop":
                return self._stop_host(strike)
            case "files":
                return self._lose_files(strike)
            case _:
                return self._between(strike)

    def _kill(self, pid: int) -> str | None:
        killed = pid and self._forks.ask(ForkRequest(do="kill", pid=pid, signal=signal.SIGKILL))
        return f"process {pid}" if killed else None

    def _signal_host(self, host: str, number: int) -> int:
        return self._request("signal_host", host=host, signal=number)

    def _kill_host(self, strike: Strike) -> str | None:
        """All its processes at once; its home cannot be reached until it is back."""
        count = self._signal_host(strike.host, signal.SIGKILL)
        if not count:
            return None
        self._ends.pop(f"stop {strike.host}", None)
        self._back_at_s[strike.host] = time.monotonic() + strike.lasts_s
        if strike.lasts_s and f"home {strike.host}" not in self._ends:
            home = Scene(self._scene.folder, strike.host).home.root
            away = home.with_name("home.away")
            home.rename(away)
            self._last(f"home {strike.host}", strike.lasts_s, lambda: self._bring_home(strike.host, away, home))
        return f"{count} processes, for {strike.lasts_s:.1f} s"

    def _bring_home(self, host: str, away: Path, home: Path) -> None:
        """Let the home of a dead host be reached again, without a worker that was on its way when it died."""
        self._signal_host(host, signal.SIGKILL)
        for _ in range(TRIES):
            shutil.rmtree(home, ignore_errors=True)
            with suppress(OSError):
                away.rename(home)
                return
            time.sleep(POLL_S)
        raise ToolFailed(f"{home} is in the way of {away}.")

    def _stop_host(self, strike: Strike) -> str | None:
        key = f"stop {strike.host}"
        if key in self._ends or not self._agents.get(strike.host):
            return None
        count = self._signal_host(strike.host, signal.SIGSTOP)
        self._last(key, strike.lasts_s, lambda: self._signal_host(strike.host, signal.SIGCONT))
        return f"{count} processes, for {strike.lasts_s:.1f} s"

    def _lose_files(self, strike: Strike) -> str | None:
        """The blob store cannot be reached."""
        folder, away = self._scene.blobs, self._scene.blobs.with_name("blobs.away")
        if "files" in self._ends or not folder.is_dir():
            return None
        folder.rename(away)
        self._last("files", strike.lasts_s, lambda: away.rename(folder))
        return f"for {strike.lasts_s:.1f} s"

    def _between(self, strike: Strike) -> str | None:
        key = f"{strike.kind} {strike.host}" if strike.kind == "split" else strike.kind
        if key in self._ends or "database" in self._ends:
            return None
        try:
            end = self._network.strike(strike)
        except NotOpenNow:
            return None
        if end is None:
            return None
        self._last(key, strike.lasts_s, end)
        if strike.kind == "split":
            sides = " and ".join(
                [*(["to the server"] if strike.to_server else []), *(["to the host"] if strike.to_client else [])]
            )
            return f"{sides} for {strike.lasts_s:.1f} s{', then reset' if strike.reset else ''}"
        return f"for {strike.lasts_s:.1f} s"

    def _last(self, key: str, lasts_s: float, end: Callable[[], object]) -> None:
        """Let a fault last for a while."""
        self._ends[key] = end
        self._at(lasts_s, lambda: self._end(key))

    def _end(self, key: str) -> None:
        end = self._ends.pop(key, None)
        if end is not None:
            end()

    def _end_faults(self) -> None:
        for key in list(self._ends):
            self._end(key)

    def _at(self, after_s: float, deed: Callable[[], None]) -> None:
        heapq.heappush(self._deeds, (time.monotonic() + after_s, next(self._order), deed))

    # -- the end

    def _part(self) -> None:
        """End the agents as an operator does; whoever does not end is killed, and told of."""
        for pid in self._agents.values():
            if pid:
                self._forks.ask(ForkRequest(do="kill", pid=pid, signal=signal.SIGTERM))
        deadline_s = time.monotonic() + PARKS_WITHIN_S
        while (any(self._agents.values()) or self._workers) and time.monotonic() < deadline_s:
            self._hear()
            time.sleep(POLL_S)
        self.left = [f"agent of {host}" for host, pid in self._agents.items() if pid]
        self.left += [f"worker {pid} on {host}" for pid, host in self._workers.items()]
        for pid in (*self._agents.values(), *self._workers, self._asking):
            self._kill(pid)

    def _tell(self, what: str, **fields: Any) -> None:
        self._journal.write(JournalEntry(what=what, role="test", **fields))  # type: ignore[arg-type]
