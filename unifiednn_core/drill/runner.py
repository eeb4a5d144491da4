"""Carries out one exercise: brings processes up, kills them as planned, and waits until the run has come to its end."""

import heapq
import itertools
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from unifiednn_core.drill import clock
from unifiednn_core.drill.errands import Errand
from unifiednn_core.drill.journal import Entry
from unifiednn_core.drill.plan import Exercise, Round
from unifiednn_core.drill.requests import Request, named
from unifiednn_core.drill.scene import Scene
from unifiednn_core.drill.zygote_client import Zygote
from unifiednn_core.failpoints import Fault

POLL_S = 0.01
LOOK_S = 0.03
LIMIT_S = 300.0
LEFT_ALONE_S = 10.0
"""A run that is interrupted for so long waits for a person."""
ENDED = ("completed", "failed", "stopped")


class Runner:
    """One exercise."""

    def __init__(
        self,
        zygote: Zygote,
        scene: Scene,
        run_id: str,
        exercise: Exercise,
        abandoned: Callable[[], bool] = lambda: False,
    ):
        """`abandoned` says whether nobody waits for it any more."""
        self._abandoned = abandoned
        self._zygote, self._scene, self._run_id, self._exercise = zygote, scene, run_id, exercise
        self._journal = scene.journal
        self._deeds: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._worker = self._server = self._asking = 0
        """Process ids; 0 where there is none."""
        self._has_stepped = False
        self._rows_before = self._offset_s = 0
        self._server_fault: Fault | None = None
        self._errands: deque[tuple[int, Errand]] = deque()
        self._errand, self._first_open = Errand((), 0.0), 0
        self._downloads = deque((0, errand) for errand in exercise.downloads)
        self._server_back_s = 0.0
        self._next_look_s, self._state, self._state_since_s = 0.0, "queued", time.monotonic()

    def run(self) -> str:
        """Carry it out; returns the state in which the run was left."""
        clock.set_offset(self._scene.clock, 0.0)
        self._zygote.plan(self._exercise.rounds)
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s and not self._over() and not self._abandoned():
            for entry in self._journal.news():
                self._hear(entry)
            while self._deeds and self._deeds[0][0] <= time.monotonic():
                heapq.heappop(self._deeds)[2]()
            if time.monotonic() >= self._next_look_s:
                self._next_look_s = time.monotonic() + LOOK_S
                with suppress(sqlite3.OperationalError):  # nobody has it open just now
                    self._look()
            self._keep_serving()
            self._keep_asking()
            time.sleep(POLL_S)
        self._tell("over")
        for pid in (self._server, self._asking, self._worker):
            self._kill(pid)
        return self._state

    def _over(self) -> bool:
        if self._asking or self._errands:
            return False
        if self._state in ENDED:
            return not self._downloads and not self._worker
        return self._state == "interrupted" and time.monotonic() - self._state_since_s > LEFT_ALONE_S

    # -- what is planned

    def _hear(self, entry: Entry) -> None:
        match entry.what, entry.role:
            case "started", "worker":
                self._worker, self._has_stepped = entry.pid, False
                if 0 <= entry.number < len(self._exercise.rounds):
                    self._schedule(self._exercise.rounds[entry.number], entry.pid)
            case "ended", "worker":
                self._worker = 0 if self._worker == entry.pid else self._worker
            case "ended", "server":
                self._server = 0
            case "asked" | "refused", _:
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
        clock.set_offset(self._scene.clock, float(self._offset_s))
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
        """One process at a time asks for things; what was acknowledged can then be told apart."""
        if self._asking:
            return
        if self._errands:
            first, errand = self._errands.popleft()
        elif self._downloads and self._state in ENDED:
            first, errand = self._downloads.popleft()
        else:
            return
        self._errand, self._first_open, fault = errand, first, errand.fault
        self._asking = self._request(
            "commands",
            fault=named(fault),
            times=fault.times if fault else 1,
            asks=tuple((ask.verb, ask.submodel, ask.value) for ask in errand.asks[first:]),
            first=first,
        )
        if errand.kill_s is not None:
            asking = self._asking
            self._at(errand.kill_s, lambda: self._kill(asking))

    def _request(self, do: str, **fields: object) -> int:
        request = Request(do=do, folder=str(self._scene.folder), run_id=self._run_id, **fields)  # type: ignore[arg-type]
        return self._zygote.ask(request) or 0

    def _kill(self, pid: int) -> None:
        if pid:
            self._zygote.ask(Request(do="kill", pid=pid, signal=signal.SIGKILL))

    # -- what can be seen from outside

    def _look(self) -> None:
        """Notice states, and the first step of a worker that stands in the store."""
        with closing(sqlite3.connect(f"file:{self._scene.database}?mode=ro", uri=True)) as database:
            [(state,)] = database.execute("SELECT state FROM runs WHERE id = ?", (self._run_id,))
            [(rows,)] = database.execute("SELECT coalesce(max(rowid), 0) FROM step_metrics")
        if state != self._state:
            self._state, self._state_since_s = state, time.monotonic()
            if state == "paused":
                self._tell("paused")
        if rows > self._rows_before and self._worker and not self._has_stepped:
            self._has_stepped = True
            self._tell("stepped")
        self._rows_before = rows

    def _tell(self, what: str, text: str = "") -> None:
        self._scene.journal.write(Entry(what=what, role="drill", text=text))  # type: ignore[arg-type]
