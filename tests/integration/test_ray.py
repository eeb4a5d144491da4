"""The whole product on two Ray nodes of this machine: the bits of home, and nothing is lost whatever is killed."""

import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import write_spec
from tests.integration.product import Product
from tests.integration.ray_kit import Cluster, RayNodes, ray_nodes
from unifiednn_core.base.paths import Home
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import load_run

pytestmark = [pytest.mark.slow, pytest.mark.new_interpreters]
EPOCHS = {"lenet": 6, "resnet": 2, "transformer": 2}
ATTEMPTS = "SELECT DISTINCT device FROM attempts WHERE run_id = ? ORDER BY attempt"


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_nodes("n1", "n2") as started:
        yield started


@pytest.fixture
def cluster(home: Home, nodes: RayNodes) -> Iterator[Cluster]:
    for name in ("n1", "n2"):
        if name not in nodes.nodes:
            nodes.add(name)
    cluster = Cluster(home, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def spec(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = {"every_steps": 5}
    return write_spec(samples, tmp_path_factory.mktemp("spec"), epochs=EPOCHS, lanes=1, checkpoint=checkpoint)


@pytest.fixture(scope="module")
def at_home(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """Hashes of what the spec gives on the server's own machine."""
    home = Home(tmp_path_factory.mktemp("alone") / "home").create()
    product = Product(home, "")
    product.run_id = product.service.runs.submit(load_run(spec), spec.parent)
    product.start()
    try:
        product.finish()
        return product.hashes()
    finally:
        product.close()


def finished(cluster: Cluster, run_id: str, at_home: dict[str, str | None]) -> list[str]:
    """Wait for the end of a run: same bits, no step twice or missing. Returns the devices that trained it."""
    product = cluster.run(run_id)
    assert product.finish().state is State.COMPLETED
    assert product.hashes() == at_home
    for name in at_home:
        product.lost_steps(name)
        assert product.checkpoints(name)
    with sqlite3.connect(cluster.home.database) as database:
        return [device for (device,) in database.execute(ATTEMPTS, (run_id,))]


def test_two_runs_train_on_two_nodes_with_the_bits_of_home(
    cluster: Cluster, spec: Path, at_home: dict[str, str | None]
) -> None:
    runs = [cluster.submit(spec, name=name) for name in ("one", "two")]
    assert {cluster.held_by(run_id) for run_id in runs} == {"n1", "n2"}
    for run_id in runs:
        finished(cluster, run_id, at_home)
        assert (cluster.home.run(run_id) / "models").is_dir()
        assert "Traceback" not in cluster.run(run_id).log()


def test_a_baseline_on_a_node_gives_the_same_bits(cluster: Cluster, spec: Path, at_home: dict[str, str | None]) -> None:
    run_id = cluster.submit(spec, device="n2")
    finished(cluster, run_id, at_home)
    baseline = cluster.run(cluster.service.comparisons.start_baseline(run_id, "sequential"))
    assert baseline.finish().state is State.COMPLETED, cluster.told(baseline)
    assert baseline.hashes() == at_home
    told = cluster.service.runs.document(baseline.run_id)["submodels"]
    assert all(Path(part["model_path"]).is_file() for part in told.values())


def test_a_killed_node_loses_nothing_but_steps_since_a_checkpoint(
    cluster: Cluster, spec: Path, at_home: dict[str, str | None]
) -> None:
    run_id = cluster.submit(spec)
    first = cluster.held_by(run_id)
    cluster.nodes.kill(first)
    devices = finished(cluster, run_id, at_home)
    assert set(devices) == {"n1/cpu", "n2/cpu"} and devices[0].startswith(first)
    assert not any(name.startswith(f"{first}/") for name in cluster.ready())


@pytest.mark.parametrize("victim", ["server", "driver", "actor", "worker"])
def test_no_report_is_lost_or_counted_twice_after_a_kill(
    cluster: Cluster, spec: Path, at_home: dict[str, str | None], victim: str
) -> None:
    run_id = cluster.submit(spec)
    host = cluster.held_by(run_id)
    worker = cluster.service.store.hybrids.get(run_id)[0].worker_pid or 0
    if victim == "server":
        cluster.kill_server()
        cluster.start()
    elif victim == "driver":
        cluster.driver().send_signal(signal.SIGKILL)
    else:
        cluster.nodes.process_of(worker, victim).send_signal(signal.SIGKILL)
    finished(cluster, run_id, at_home)
    attempts = cluster.service.store.hybrids.get(run_id)[0].attempt
    assert attempts == (1 if victim in ("server", "driver") else 2), host
    assert not cluster.nodes.is_alive(worker)


def test_a_cluster_without_its_head_is_named_and_local_work_goes_on(
    home: Home, spec: Path, at_home: dict[str, str | None]
) -> None:
    with ray_nodes("n9") as nodes:
        cluster = Cluster(home, nodes, devices="cpu")
        try:
            cluster.start()
            elsewhere = cluster.submit(spec, device="n9")
            assert cluster.held_by(elsewhere) == "n9"
            local = cluster.submit(spec, device="cpu")
            nodes.kill("head")
            finished(cluster, local, at_home)
            why = cluster.until(
                lambda: next((row.why for row in cluster.service.store.nodes.all() if row.state == "away"), None),
                "a sentence about the cluster",
            )
            assert why.startswith(f"The Ray cluster at {nodes.address} cannot be reached")
        finally:
            cluster.close()


def test_a_node_with_other_versions_is_named_and_not_used(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "safetensors-0.0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: safetensors\nVersion: 0.0.1\n")
    monkeypatch.setitem(cluster.nodes.environment, "PYTHONPATH", str(tmp_path))
    cluster.nodes.add("old")
    try:
        row = cluster.until(
            lambda: next((row for row in cluster.service.store.nodes.all() if row.state == "refused"), None),
            "the refusal of a node",
        )
        assert row.name == "old" and row.why.startswith("safetensors is 0.0.1 there, and ")
        assert "old/cpu" not in cluster.ready()
    finally:
        cluster.nodes.kill("old")
