"""The drill on a cluster: a store for each exercise, two hosts with homes of their own, and the judgement."""

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

from tools.chaos import pool
from tools.chaos.cluster import trace
from tools.chaos.cluster.copying import copy_store
from tools.chaos.cluster.judge import judge_history, tally
from tools.chaos.cluster.network import LocalFile, Network, Server, ToServer
from tools.chaos.cluster.plan import HOSTS, LEASE, STRIKES, ClusterExercise, DatabaseName, Lease, cluster_exercise
from tools.chaos.cluster.roles import LEASE_SETTING, WITHOUT_SETTING
from tools.chaos.cluster.runner import ClusterRunner
from tools.chaos.fork_server import ForkServerClient
from tools.chaos.judge import Outcome, begin_judging, end_judging
from tools.chaos.pool import Alone, PoolWatch
from tools.chaos.pool_plan import ON_CLUSTER
from tools.chaos.runner import ask, await_end
from tools.chaos.scene import Scene
from tools.machine import ToolFailed
from unifiednn_core.base.paths import BLOBS_SETTING, DATABASE_SETTING, DEVICES_SETTING


class OfManyHosts:
    """The drill with two hosts."""

    settings: Mapping[str, str] = MappingProxyType({})

    def __init__(self, database: DatabaseName, lease: Lease = LEASE, without: tuple[str, ...] = ()):
        """`without` names defences that are switched off: `fence`, `scopes`."""
        self._database, self._lease, self._without = database, lease, without
        self._stack = ExitStack()

    def close(self) -> None:
        """End the servers."""
        self._stack.close()

    def _serve(self) -> Server:
        from tools.postgres import serving  # a drill on SQLite does without

        return self._stack.enter_context(serving(autovacuum="off"))

    def plan(self, seed: int, number: int, rounds: int = STRIKES) -> ClusterExercise:
        """Plan an exercise of so many strikes."""
        return cluster_exercise(seed, number, self._database, rounds, self._lease)

    def prepare(self, forks: ForkServerClient, folder: Path) -> "SettingOfManyHosts":
        """Make the home with which all exercises begin."""
        scene = Scene(folder / "template")
        scene.folder.mkdir(parents=True)
        await_end(
            forks, scene, ask(forks, "prepare_pool", scene, asks=tuple((one.name, None, None) for one in ON_CLUSTER))
        )
        alone = Alone(folder, scene.home.root)
        return SettingOfManyHosts(
            folder, scene.home.root, alone, self._database, self._lease, self._without, self._serve
        )


@dataclass(frozen=True, slots=True)
class SettingOfManyHosts:
    """A home with people and checked submissions, what their networks come out as alone, and servers for the stores."""

    folder: Path
    template: Path
    alone: Alone
    database: DatabaseName
    lease: Lease
    without: tuple[str, ...]
    serve: Callable[[], Server]
    """Starts a PostgreSQL server that ends with the drill."""
    servers: dict[str, Server] = field(default_factory=dict)
    """One for each thread that carries out exercises, so that a crash meets one exercise."""

    def one(self, forks: ForkServerClient, planned: ClusterExercise, abandoned: Callable[[], bool]) -> Outcome:
        """Carry out an exercise, and judge it."""
        scene = Scene(self.folder / f"exercise-{planned.number:05d}")
        scene.folder.mkdir()
        shutil.copytree(self.template, scene.home.root)
        with closing(self._network(scene, planned.number)) as network:
            lay_out(scene, network, self.lease, self.without)
            await_end(forks, scene, ask(forks, "share_files", scene))
            pool.set_pooling(scene, planned.mode)
            trace.watch(scene.url)
            watch = PoolWatch(scene)
            runner = ClusterRunner(forks, scene, network, watch, planned, abandoned)
            state = runner.run()
            return self._judge(forks, scene, planned, state, watch, runner.left)

    def _network(self, scene: Scene, number: int) -> Network:
        if self.database is DatabaseName.SQLITE:
            return LocalFile(scene.database)
        lane = threading.current_thread().name
        if lane not in self.servers:
            self.servers[lane] = self.serve()
        name = f"exercise_{number}"
        copy_store(scene.database, self.servers[lane].create(name))
        return ToServer(self.servers[lane], name, self.lease)

    def _judge(
        self,
        forks: ForkServerClient,
        scene: Scene,
        planned: ClusterExercise,
        state: str,
        watch: PoolWatch,
        left: list[str],
    ) -> Outcome:
        entries, outcome, can_be_read = begin_judging(scene, tally)
        if can_be_read:
            pool.judge_rows(outcome, scene, state, watch)
            judge_history(outcome, scene, entries)
            pool.judge_runs(outcome, forks, scene, entries, self.alone)
        outcome.left_over += len(left)
        outcome.problems += [f"{one} did not end" for one in left]
        if can_be_read and not _all_pages_open(forks, scene):
            outcome.unreadable_pages += 1
            outcome.problems.append(f"what pages show cannot be read; {scene.log('read_pages')} says why")
        return end_judging(scene, planned.number, outcome)


def lay_out(scene: Scene, network: Network, lease: Lease, without: tuple[str, ...] = ()) -> None:
    """Give each host a folder of its own, settings, and a place for the files that all share."""
    scene.blobs.mkdir()
    common = {LEASE_SETTING: json.dumps(asdict(lease)), WITHOUT_SETTING: " ".join(without)}
    for host in ("", *HOSTS):
        there = Scene(scene.folder, host)
        there.place.mkdir(exist_ok=True)
        offered = {} if host else {DEVICES_SETTING: "none"}  # the server's machine trains nothing
        settings = {**common, **offered, DATABASE_SETTING: network.url(host), BLOBS_SETTING: str(scene.blobs)}
        there.environment.write_text(json.dumps(settings), encoding="utf-8")


def _all_pages_open(forks: ForkServerClient, scene: Scene) -> bool:
    try:
        await_end(forks, scene, ask(forks, "read_pages", scene))
    except ToolFailed:
        return False
    return True
