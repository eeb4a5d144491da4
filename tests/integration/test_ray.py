"""Two nodes of Ray on this machine, each with its CPU as device; PostgreSQL between them, and a shared folder.

One cluster serves all tests, in the order in which they stand here: the last two end a node, and then everything.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.databases import Databases
from tests.integration.product import Template
from tests.waiting import wait_until
from tools.bench.result import environment
from unifiednn_core.base.paths import BLOBS_SETTING, DATABASE_SETTING, Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import load_run
from unifiednn_core.store.devices import AWAY, READY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # the first one waits for the cluster
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
ROOT = Path(__file__).parents[2]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1", "include_dashboard": False}
COMMAND = "from unifiednn_core.cli.main import main; main()"
RESULT = "UNIFIEDNN_RAY_RESULT"
"""File into which the times of a lost node are written."""


class Cluster:
    """Nodes `a` and `b`, a head with two made-up GPUs and no CPU, and `unifiednn ray` over them."""

    def __init__(self, folder: Path, url: str):
        self._folder = folder
        self.environment = {
            **os.environ,
            DATABASE_SETTING: url,
            BLOBS_SETTING: str(folder / "blobs"),
            "PYTHONPATH": str(ROOT),
            "UNIFIEDNN_HOME": str(folder / "nodes"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # what it also does on Linux: only the loopback address is used
        }
        os.environ.update(self.environment)  # Ray's processes get it from this one
        from ray.cluster_utils import Cluster as RayTestCluster

        self.ray = RayTestCluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "num_gpus": 2})
        self.nodes = {name: self.ray.add_node(**NODE, node_name=name) for name in ("a", "b")}
        self.service = Service.open(Home(folder / "server").create())
        self.watch = self.command("--cpus", "--idle-minutes", "0.2")

    def command(self, *options: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-c", COMMAND, "ray", "--address", self.ray.address, *options]
        with (self._folder / "watch.log").open("ab") as log:
            return subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)

    def submit(self, spec: Path) -> str:
        return self.service.runs.submit(load_run(spec))

    def finish(self, run_id: str) -> dict[str, str]:
        """Hashes of the weights of a run, once it has ended."""
        wait_until(lambda: self.service.runs.observe(run_id).ended_at_s is not None)
        parts = self.service.runs.document(run_id)["submodels"]
        return {name: part["state_sha256"] for name, part in parts.items()}

    def host(self, name: str) -> Any:
        return next((row for row in self.service.store.hosts.all() if row.name == name), None)

    def hybrid(self, run_id: str) -> Any:
        return self.service.store.hybrids.get(run_id)[0]

    def close(self) -> None:
        """End all processes."""
        mine = [one for one in psutil.Process().children(recursive=True) if is_of_ray(one)]
        workers = [hybrid.worker_pid for hybrid in self.service.store.workers.held() if hybrid.worker_pid]
        self.service.close()
        self.watch.kill()
        self.watch.wait()
        with suppress(Exception):
            self.ray.shutdown()
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in mine:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def is_of_ray(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return line.startswith("ray::") or "site-packages/ray/" in line
    return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    before = dict(os.environ)
    databases = Databases()
    with databases.new() as url:
        made = Cluster(tmp_path_factory.mktemp("ray"), url)
        try:
            yield made
        finally:
            made.close()
            os.environ.clear()
            os.environ.update(before)
    databases.close()


@pytest.fixture(autouse=True)
def _forked_workers() -> None:
    """Workers start as the product starts them; the server here has none."""


@pytest.fixture(scope="module")
def here(finished: Template) -> dict[str, str]:
    """Hashes of the weights of the short demo, trained on this machine alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(DATABASE_SETTING, raising=False)
        patch.delenv(BLOBS_SETTING, raising=False)
        with closing(Service.open(finished.home)) as service:
            parts = service.runs.document(finished.run_id)["submodels"]
    return {name: part["state_sha256"] for name, part in parts.items()}


def ready(cluster: Cluster) -> set[str]:
    return {row.name for row in cluster.service.store.devices.all() if row.state == READY and "/" in row.name}


def test_the_demo_through_ray_has_the_bits_of_the_demo_here(
    here: dict[str, str], template: Template, cluster: Cluster
) -> None:
    assert ready(cluster) == set()
    run_id = cluster.submit(template.spec_path)
    assert cluster.finish(run_id) == here
    assert cluster.hybrid(run_id).device in ("a/cpu", "b/cpu")
    wait_until(lambda: ready(cluster) == set(), 60)  # both were idle for a while, so Ray has them back


def test_gpus_are_reserved_as_ray_counts_them(cluster: Cluster) -> None:
    import ray

    from unifiednn_core.runtime.ray_cluster import RayCluster
    from unifiednn_core.runtime.ray_plan import TrainingNode

    with closing(RayCluster(cluster.ray.address)) as connection:
        wait_until(lambda: not [name for name in connection.groups() if name.startswith("unifiednn")])
        [head] = [node for node in connection.nodes() if node.gpus]
        node = TrainingNode(id=head.id, host=head.host, resource="GPU", units=2)
        connection.reserve("x/0", node)
        wait_until(lambda: connection.granted("x/0") is not None)
        assert ray.available_resources()["GPU"] == 1
        connection.reserve("x/1", node)
        wait_until(lambda: connection.granted("x/1") is not None)
        first, second = connection.granted("x/0"), connection.granted("x/1")
        assert first and second and sorted(first + second) == ["0", "1"]
        assert ray.available_resources().get("GPU", 0) == 0
        connection.request("GPU", 1, more=3)
        assert told_to_the_autoscaler() == [{"GPU": 1}] * 5, "room for what is taken, and for three more"
        connection.request("GPU", 1, more=0)
        assert told_to_the_autoscaler() == []
        connection.reserve("x/2", node)
        time.sleep(1.0)
        assert connection.granted("x/2") is None
        connection.release("x/2")
        connection.release("x/0")
        wait_until(lambda: ray.available_resources().get("GPU", 0) == 1)
        connection._asked.clear()  # as another watch would find it
        wait_until(lambda: connection.granted("x/1") == second)
        connection.release("x/1")
        wait_until(lambda: ray.available_resources().get("GPU", 0) == 2)


def test_children_of_an_actor_outlive_it_by_our_setting_alone(cluster: Cluster) -> None:
    import ray

    from unifiednn_core.runtime import ray_cluster

    class Parent:
        def child(self) -> int:
            return subprocess.Popen(["sleep", "60"], start_new_session=True).pid

    def outlives(environment: dict[str, str]) -> bool:
        actor = ray.remote(Parent).options(num_cpus=0, runtime_env={"env_vars": environment}).remote()
        child = psutil.Process(ray.get(actor.child.remote()))
        ray.kill(actor)
        with suppress(psutil.TimeoutExpired):
            child.wait(5)
        alive = child.is_running() and child.status() != psutil.STATUS_ZOMBIE
        if alive:
            child.kill()
        return alive

    with closing(ray_cluster.RayCluster(cluster.ray.address)):
        assert outlives(ray_cluster._ENVIRONMENT)
        assert not outlives({}), "control: Ray's own default"


def told_to_the_autoscaler() -> Any:
    from ray.autoscaler._private.commands import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    return json.loads(_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL))


def begin(cluster: Cluster, spec: Path) -> tuple[str, str]:
    """Submit a run and wait for its first checkpoint; returns its id and the host that it is on."""
    run_id = cluster.submit(spec)
    wait_until(lambda: any(row.checkpoint_step for row in cluster.service.store.runs.get(run_id)[1]))
    return run_id, cluster.hybrid(run_id).device.partition("/")[0]


def test_a_worker_outlives_the_actor_of_its_agent(here: dict[str, str], template: Template, cluster: Cluster) -> None:
    import ray

    from unifiednn_core.runtime.ray_cluster import RayCluster

    run_id, name = begin(cluster, template.spec_path)
    agent, worker = cluster.host(name).agent_pid, cluster.hybrid(run_id).worker_pid
    with closing(RayCluster(cluster.ray.address)) as connection:
        [node] = [node.id for node in connection.nodes() if node.host == name]
        ray.kill(connection._agent(node), no_restart=False)  # Ray ends the actor, and by default all its children
        wait_until(lambda: cluster.host(name).agent_pid != agent)
    assert cluster.finish(run_id) == here
    assert cluster.hybrid(run_id).attempt == 1, f"another worker than {worker} trained on"


def test_what_a_lost_node_trained_goes_on_elsewhere_with_the_same_bits(
    here: dict[str, str], template: Template, cluster: Cluster
) -> None:
    run_id, name = begin(cluster, template.spec_path)
    other = {"a": "b", "b": "a"}[name]
    begun_s = time.monotonic()
    for pid in (cluster.hybrid(run_id).worker_pid, cluster.host(name).agent_pid):
        os.kill(pid, signal.SIGKILL)
    cluster.ray.remove_node(cluster.nodes.pop(name), allow_graceful=False)
    moments: dict[str, float] = {}

    def when(what: str, done: Callable[[], bool]) -> None:
        wait_until(done)
        moments[what] = round(time.monotonic() - begun_s, 1)

    when("declared_lost_s", lambda: cluster.host(name).state == AWAY)
    when("placed_again_s", lambda: cluster.hybrid(run_id).device == f"{other}/cpu")
    when("trains_again_s", lambda: cluster.hybrid(run_id).attempt == 2)
    assert cluster.finish(run_id) == here
    if RESULT in os.environ:
        command = f"{RESULT}=FILE pytest -m slow tests/integration/test_ray.py"
        about = "Seconds from the death of a node (raylet, agent and worker killed) of two nodes on one machine."
        document = {"about": about, **environment(command, "cpu"), "nodes": 2, **moments}
        Path(os.environ[RESULT]).write_text(json.dumps(document, indent=2) + "\n")


def test_at_the_end_everything_is_given_back(template: Template, cluster: Cluster, tmp_path: Path) -> None:
    spec = json.loads(template.spec_path.read_text())
    spec["submodels"][0]["hyperparameters"]["epochs"] = 500  # it is not done when it is asked to leave
    (tmp_path / "long.json").write_text(json.dumps(spec))
    run_id, _ = begin(cluster, tmp_path / "long.json")
    cluster.watch.send_signal(signal.SIGTERM)
    assert cluster.watch.wait(60) == 0
    assert cluster.hybrid(run_id).worker_pid is not None, "the watch has gone, the worker has not"
    assert cluster.command("--end").wait(120) == 0
    assert cluster.service.runs.observe(run_id).ended_at_s is None, "it waits for another host"
    assert cluster.service.store.workers.held() == []
    assert {row.state for row in cluster.service.store.hosts.all() if row.name in "ab"} == {AWAY}
