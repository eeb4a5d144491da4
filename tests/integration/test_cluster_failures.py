"""What dies on a cluster, and what then happens, as the table in docs/CLUSTER.md says: one test for each row."""

import signal
from collections.abc import Iterator

import pytest

from tests.databases import Databases
from tests.integration.cluster_kit import Cluster, Template
from tools.chaos.cluster.plan import Strike
from tools.chaos.fork_server import fork_server
from tools.chaos.judge import Outcome
from tools.chaos.pool_plan import LONG
from unifiednn_core.runtime.worker import FENCED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SHARED, PRIVATE = (one.name for one in LONG)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    folder = tmp_path_factory.mktemp("cluster")
    with fork_server(folder / "fork-server.log") as forks:
        yield Template.prepared(forks, folder, SHARED, PRIVATE)


def on_a(cluster: Cluster, name: str = SHARED) -> str:
    """Submit, and let it train on host a; host b waits for work."""
    cluster.start("a")
    run_id = cluster.submit(name)
    cluster.until_training(run_id)
    cluster.start("b")
    cluster.until("both hosts are there", lambda: len(cluster.ask("SELECT 1 FROM hosts WHERE state = 'ready'")) == 2)
    assert cluster.attempts(run_id) == [(1, "a/cpu")]
    return run_id


def test_a_worker_dies_and_the_next_one_goes_on_in_its_place(template: Template) -> None:
    with template.cluster("worker") as cluster:
        run_id = on_a(cluster)
        cluster.kill(cluster.worker("a"))
        cluster.ends_as_alone(run_id)
        assert cluster.attempts(run_id) == [(1, "a/cpu"), (2, "a/cpu")]


def test_a_device_is_lost_and_its_work_goes_on_elsewhere(template: Template) -> None:
    with template.cluster("device") as cluster:
        run_id = on_a(cluster)
        (cluster.scene.folder / "host-a" / "no-devices").touch()
        away = "SELECT 1 FROM devices WHERE name = 'a/cpu' AND state = 'away'"
        cluster.until("the device is away", lambda: cluster.ask(away))
        cluster.kill(cluster.worker("a"))
        cluster.ends_as_alone(run_id)
        assert [device for _, device in cluster.attempts(run_id)] == ["a/cpu", "b/cpu"]


def test_an_agent_dies_and_its_worker_does_not_notice(template: Template) -> None:
    with template.cluster("agent") as cluster:
        run_id = on_a(cluster)
        cluster.kill(cluster.agents["a"])
        cluster.until_training(run_id)
        cluster.start("a")
        cluster.ends_as_alone(run_id)
        assert cluster.attempts(run_id) == [(1, "a/cpu")]


@pytest.mark.parametrize("name", [SHARED, PRIVATE], ids=["shared", "private"])
def test_a_host_dies_and_the_other_one_finishes(template: Template, name: str, request: pytest.FixtureRequest) -> None:
    with template.cluster(f"host-{request.node.callspec.id}") as cluster:
        run_id = on_a(cluster, name)
        cluster.signal("a", signal.SIGKILL)
        home = cluster.scene.folder / "host-a" / "home"
        home.rename(home.with_name("gone"))
        cluster.ends_as_alone(run_id)
        assert [device for _, device in cluster.attempts(run_id)] == ["a/cpu", "b/cpu"]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_host_that_sleeps_longer_than_its_lease_is_fenced_when_it_wakes(
    template: Template, database: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgresql").server if database == "postgres" else None
    with template.cluster(f"sleep_{database}", server) as cluster:
        run_id = on_a(cluster)
        worker = cluster.worker("a")
        cluster.sleep("a")
        cluster.until("it goes on elsewhere", lambda: len(cluster.attempts(run_id)) == 2)
        cluster.signal("a", signal.SIGCONT)
        assert cluster.code(worker) == FENCED
        cluster.ends_as_alone(run_id)
        assert [device for _, device in cluster.attempts(run_id)] == ["a/cpu", "b/cpu"]


def test_the_database_crashes_and_training_goes_on_in_the_same_attempt(
    template: Template, postgresql: Databases
) -> None:
    with template.cluster("database", postgresql.server) as cluster:
        run_id = on_a(cluster)
        before = cluster.steps(run_id)
        postgresql.server.restart(signal.SIGQUIT)
        cluster.order("save", SHARED)
        cluster.until("it trains", lambda: cluster.steps(run_id) > before)
        cluster.ends_as_alone(run_id)
        assert cluster.attempts(run_id) == [(1, "a/cpu")]


def test_a_server_dies_and_nobody_notices(template: Template) -> None:
    with template.cluster("server") as cluster:
        server = cluster.serve()
        run_id = on_a(cluster)
        cluster.kill(server)
        cluster.until_training(run_id)
        cluster.order("save", SHARED)
        cluster.ends_as_alone(run_id)
        assert cluster.attempts(run_id) == [(1, "a/cpu")]


def test_the_shared_files_are_away_and_training_goes_on(template: Template) -> None:
    with template.cluster("files") as cluster:
        run_id = on_a(cluster)
        away = cluster.scene.blobs.rename(cluster.scene.blobs.with_name("away"))
        before = cluster.steps(run_id)
        cluster.until("it trains on", lambda: cluster.steps(run_id) > before + 40)
        away.rename(cluster.scene.blobs)
        cluster.ends_as_alone(run_id)
        assert cluster.attempts(run_id) == [(1, "a/cpu")]


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (False, True)], ids=["both ways", "no answers"])
def test_a_host_that_is_split_off_stops_and_the_other_one_finishes(
    template: Template, postgresql: Databases, to_server: bool, to_client: bool, request: pytest.FixtureRequest
) -> None:
    with template.cluster(f"split_{to_server}", postgresql.server) as cluster:
        run_id = on_a(cluster)
        worker = cluster.worker("a")
        split = Strike(kind="split", after_s=0.0, host="a", to_server=to_server, to_client=to_client)
        heal = cluster.network.strike(split)
        assert heal is not None
        cluster.until("it goes on elsewhere", lambda: len(cluster.attempts(run_id)) == 2)
        heal()
        assert cluster.code(worker) == FENCED
        cluster.ends_as_alone(run_id)
        assert [device for _, device in cluster.attempts(run_id)] == ["a/cpu", "b/cpu"]


def test_without_the_fence_a_host_that_wakes_does_harm(template: Template) -> None:
    """The control: what the tests above look at would show it."""
    with template.cluster("no_fence", without=("fence", "lease")) as cluster:
        run_id = on_a(cluster)
        cluster.sleep("a")
        cluster.until("it goes on elsewhere", lambda: len(cluster.attempts(run_id)) == 2)
        cluster.signal("a", signal.SIGCONT)
        cluster.until("harm is found", lambda: cluster.disorders() or _problems(cluster, run_id))


@pytest.mark.parametrize(
    "locks", [True, pytest.param(False, marks=pytest.mark.long)], ids=["with scopes", "without scopes"]
)  # on a quick machine the control may need several tries
def test_two_supervisors_of_a_host_never_take_the_same_work_because_writes_exclude_each_other(
    template: Template, postgresql: Databases, locks: bool
) -> None:
    """With the control: without the locks of scopes both take what was submitted. Two hosts would decide alike."""
    without = ("haste",) if locks else ("scopes", "haste")
    with template.cluster(f"scopes_{locks}", postgresql.server, without=without) as cluster:
        for _ in range(2):
            cluster.serve(trains=True)
        cluster.until("a device is there", lambda: cluster.ask("SELECT 1 FROM devices"))
        run_id = cluster.submit(SHARED)
        if locks:
            cluster.ends_as_alone(run_id)
        else:
            cluster.until("harm is found", cluster.disorders)


def _problems(cluster: Cluster, run_id: str) -> list[str]:
    if cluster.state(run_id) not in ("completed", "failed", "interrupted"):
        return []
    from tools.chaos import pool

    outcome = Outcome()
    pool.judge_runs(outcome, cluster.forks, cluster.scene, cluster.all_news(), cluster.alone)
    return outcome.problems
