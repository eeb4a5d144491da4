"""A cluster of two hosts on this machine, as a test plays with it: real agents, workers and people, forked."""

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.waiting import wait_until
from tools.chaos import pool
from tools.chaos.cluster import trace
from tools.chaos.cluster.audit import backward_checkpoints, double_claims, lost_checkpoints, two_workers
from tools.chaos.cluster.copying import copy_store
from tools.chaos.cluster.drill import lay_out
from tools.chaos.cluster.network import LocalFile, Network, Server, ToServer
from tools.chaos.cluster.plan import Lease, Strike
from tools.chaos.fork_server import ForkServerClient
from tools.chaos.judge import Outcome
from tools.chaos.pool import Alone
from tools.chaos.rows import NotOpenNow, Row, is_sqlite, rows
from tools.chaos.runner import ask, await_end
from tools.chaos.scene import ForkRequest, JournalEntry, Scene
from unifiednn_core.base.paths import DEVICES_SETTING
from unifiednn_core.spec.pooling import PoolMode

SETTLES_S = 0.5
LEASE = Lease()
Found = TypeVar("Found")


@dataclass
class Cluster:
    """Two hosts, `a` and `b`, whose agents a test starts and ends."""

    forks: ForkServerClient
    scene: Scene
    network: Network
    alone: Alone
    agents: dict[str, int] = field(default_factory=dict)
    journal: list[JournalEntry] = field(default_factory=list)

    def start(self, host: str) -> None:
        """Start the agent of a host."""
        self.agents[host] = self._ask("agent", host=host)

    def serve(self, *, trains: bool = False) -> int:
        """Start a server, which offers the devices of its own machine if it `trains`; returns its process id."""
        if trains:
            settings = {name: value for name, value in self.scene.settings.items() if name != DEVICES_SETTING}
            self.scene.environment.write_text(json.dumps(settings), encoding="utf-8")
        return self._ask("server")

    def submit(self, name: str) -> str:
        """Submit as a person does; returns the id of the run."""
        self.order("submit", name)
        return str(self.ask("SELECT id FROM runs WHERE name = ?", name)[0][0])

    def order(self, verb: str, whom: str, value: Any = None) -> None:
        """Give an order, and wait until it is acknowledged."""
        await_end(self.forks, self.scene, ask(self.forks, "people", self.scene, asks=((verb, whom, value),), first=0))
        assert not [one for one in self.news() if one.what == "refused"]

    def kill(self, pid: int) -> None:
        """Kill a process."""
        assert self._ask("kill", pid=pid, signal=signal.SIGKILL)

    def signal(self, host: str, number: int) -> None:
        """Send a signal to all processes of a host."""
        assert self._ask("signal_host", host=host, signal=number)

    def sleep(self, host: str) -> None:
        """Stop a host, but not while it holds the lock of a SQLite file: nobody could go on then."""
        self.until("it sleeps", lambda: self._sleeps(host))

    def _sleeps(self, host: str) -> bool:
        self.signal(host, signal.SIGSTOP)
        for _ in range(2):  # a process may stop a little after its signal, with a lock that it took meanwhile
            end = self.network.strike(Strike(kind="locked", after_s=0.0)) if is_sqlite(self.scene.url) else _nothing
            if end is None:
                self.signal(host, signal.SIGCONT)
                return False
            end()
            time.sleep(SETTLES_S)
        return True

    def worker(self, host: str) -> int:
        """Process id of the newest worker of a host."""
        return [one.pid for one in self.all_news() if (one.what, one.role, one.host) == ("started", "worker", host)][-1]

    def code(self, pid: int) -> int:
        """Exit code of a process, once it has ended."""
        return self.until("the process has ended", lambda: self._ended(pid))[0]

    def ask(self, query: str, *values: object) -> list[Row]:
        """Read the store with SQL."""
        return rows(self.scene.url, query, *values)

    def attempts(self, run_id: str) -> list[tuple[int, str]]:
        """Number and device of each attempt so far."""
        return [
            (number, device)
            for number, device in self.ask(
                "SELECT attempt, device FROM attempts WHERE run_id = ? ORDER BY attempt", run_id
            )
        ]

    def steps(self, run_id: str) -> int:
        """Number of rows of steps so far."""
        return int(self.ask("SELECT count(*) FROM step_metrics WHERE run_id = ?", run_id)[0][0])

    def state(self, run_id: str) -> str:
        """State of a run."""
        return str(self.ask("SELECT state FROM runs WHERE id = ?", run_id)[0][0])

    def until_training(self, run_id: str, more: int = 20) -> None:
        """Wait until so many more steps are recorded, of which some belong to a checkpoint."""
        before = self.steps(run_id)
        self.until("it trains", lambda: self.steps(run_id) >= before + more)
        saved = "SELECT 1 FROM submodels WHERE run_id = ? AND checkpoint_step > 0"
        self.until("a checkpoint is recorded", lambda: self.ask(saved, run_id))

    def until(self, what: str, seen: Callable[[], Found]) -> Found:
        """Wait until something is true; returns it."""

        def found() -> Found | None:
            with suppress(NotOpenNow):
                return seen()
            return None

        return wait_until(found, what, told=lambda: f"{self.scene.folder} has the logs")

    def ends_as_alone(self, run_id: str) -> None:
        """Wait for the end of a run; nothing may be lost, doubled or different from a training without faults."""
        self.until("the run has ended", lambda: self.state(run_id) in ("completed", "failed", "interrupted"))
        self.until(
            "the hybrids have ended", lambda: not self.ask("SELECT 1 FROM hybrids WHERE heartbeat_at_s IS NOT NULL")
        )
        outcome = Outcome()
        pool.judge_runs(outcome, self.forks, self.scene, self.all_news(), self.alone)
        assert outcome.problems == []
        assert self.disorders() == []

    def disorders(self) -> list[str]:
        """Double claims, lost checkpoints and late writes, by what the store wrote down."""
        claims, marks = trace.claims(self.scene.url), trace.marks(self.scene.url)
        return [
            *double_claims(claims),
            *two_workers(claims),
            *lost_checkpoints(marks),
            *backward_checkpoints(marks),
            *trace.late_writes(self.scene.url),
        ]

    def news(self) -> list[JournalEntry]:
        """What was written into the journal since the last look."""
        seen = len(self.journal)
        self.journal = self.scene.journal.news()
        return self.journal[seen:]

    def all_news(self) -> list[JournalEntry]:
        """The whole journal."""
        self.news()
        return self.journal

    def _ended(self, pid: int) -> list[int]:
        return [one.code for one in self.all_news() if one.what == "ended" and one.pid == pid]

    def _ask(self, do: str, **fields: Any) -> int:
        return self.forks.ask(ForkRequest(do=do, folder=str(self.scene.folder), **fields)) or 0  # type: ignore[arg-type]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Template:
    """A home in which submissions have been checked."""

    forks: ForkServerClient
    folder: Path
    alone: Alone

    @classmethod
    def prepared(cls, forks: ForkServerClient, folder: Path, *names: str) -> "Template":
        """Check these submissions."""
        scene = Scene(folder / "template")
        scene.folder.mkdir()
        await_end(forks, scene, ask(forks, "prepare_pool", scene, asks=tuple((name, None, None) for name in names)))
        return cls(forks, folder, Alone(folder, scene.home.root))

    @contextmanager
    def cluster(
        self, name: str, server: Server | None = None, *, without: tuple[str, ...] = (), mode: PoolMode = "pooled"
    ) -> Iterator[Cluster]:
        """A cluster over SQLite, or over a database of a server of PostgreSQL; nothing runs in it yet."""
        scene = Scene(self.folder / name)
        scene.folder.mkdir()
        shutil.copytree(self.folder / "template" / "home", scene.home.root)
        self.forks.plan(())
        if server is not None:
            copy_store(scene.database, server.create(name))
        with closing(LocalFile(scene.database) if server is None else ToServer(server, name, LEASE)) as network:
            lay_out(scene, network, LEASE, without)
            await_end(self.forks, scene, ask(self.forks, "share_files", scene))
            pool.set_pooling(scene, mode)
            trace.watch(scene.url)
            cluster = Cluster(self.forks, scene, network, self.alone)
            try:
                yield cluster
            finally:
                for host in ("a", "b", ""):
                    self.forks.ask(
                        ForkRequest(do="signal_host", folder=str(scene.folder), host=host, signal=signal.SIGKILL)
                    )
