"""Simulations of a cluster in the background: one at a time, kept, cancelled, refused."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.scheduling.cluster_run import ClusterRequest
from unifiednn_core.service.facade import Service
from unifiednn_core.views import fleet
from unifiednn_core.views.fleet import FleetSimulation

SMALL = ClusterRequest(gpus=4, jobs=20, policies=("sjf",))
LARGE = ClusterRequest(gpus=1000, jobs=100_000)


@pytest.fixture
def desk(home: Home) -> Iterator[Service]:
    with closing(Service.open(home)) as service:
        yield service
        service.fleet.cancel_fleet()


def wait(desk: Service, ready: Callable[[FleetSimulation], bool]) -> FleetSimulation:
    def found() -> FleetSimulation | None:
        one = desk.fleet.fleet_simulation()
        return one if one is not None and ready(one) else None

    return wait_until(found, told=desk.fleet.fleet_simulation)


def result(desk: Service) -> Path:
    """File of the newest simulation, whose process has ended."""
    bench = desk.fleet._bench
    assert bench._process is not None
    bench._process.wait(60)
    return bench._folder / f"{bench._newest}.jsonl"


def turnarounds(found: FleetSimulation) -> list[float]:
    return [arm["mean_turnaround_s"] for arm in found.arms]


def test_a_simulation_runs_in_the_background_and_is_kept(desk: Service) -> None:
    assert desk.fleet.fleet_simulation() is None
    desk.fleet.simulate_fleet(SMALL)
    found = wait(desk, lambda one: one.state == "done")
    assert [fleet.title(arm) for arm in found.arms] == ["exclusive, fcfs", "hybrids, sjf"]
    assert found.workload is not None and "on 4 GPUs of 1 host" in fleet.told_of(found.workload)
    assert len(fleet.csv_text(found.arms).splitlines()) == 3
    assert [len(chart.figure["data"][0]["y"]) > 1 for chart in fleet.charts(found.workload, found.arms)] == [True] * 3
    desk.fleet.simulate_fleet(replace(SMALL, seed=1), "submitted_s,duration_s\n0,60\n5,30\n")
    assert wait(desk, lambda one: one.state == "done" and one.arms[0]["jobs"] == 2)
    desk.fleet.simulate_fleet(SMALL)
    again = desk.fleet.fleet_simulation()
    assert again is not None and again.state == "done" and again.arms == found.arms, "made once"


def test_another_waits_and_the_first_can_be_cancelled(desk: Service) -> None:
    desk.fleet.simulate_fleet(LARGE)
    with pytest.raises(BadInput, match="Another one runs"):
        desk.fleet.simulate_fleet(SMALL)
    wait(desk, lambda one: one.state == "runs")
    desk.fleet.cancel_fleet()
    assert wait(desk, lambda one: one.state == "ended").arms == ()
    desk.fleet.simulate_fleet(SMALL)
    assert wait(desk, lambda one: one.state == "done").arms


def test_a_simulation_of_an_earlier_server_does_not_damage_the_next_ones_file(desk: Service) -> None:
    desk.fleet.simulate_fleet(SMALL)
    found, path = wait(desk, lambda one: one.state == "done"), result(desk)
    path.write_bytes(path.read_bytes()[:100])  # as if that server had ended in the middle of it
    writer = "import sys; sys.stdout.flush(); input(); print(' ' * 100_000)"
    with path.open("ab") as out:
        earlier = subprocess.Popen([sys.executable, "-c", writer], stdin=subprocess.PIPE, stdout=out)
    desk.fleet.simulate_fleet(SMALL)
    earlier.communicate(b"\n", 60)
    assert turnarounds(wait(desk, lambda one: one.state == "done")) == turnarounds(found)


def test_a_damaged_line_ends_a_result_and_it_is_made_again(desk: Service) -> None:
    desk.fleet.simulate_fleet(SMALL)
    found, path = wait(desk, lambda one: one.state == "done"), result(desk)
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + bytes(20) + b"\xff" + b"".join(others))
    damaged = desk.fleet.fleet_simulation()
    assert damaged is not None and (damaged.state, damaged.arms) == ("ended", ())
    desk.fleet.simulate_fleet(SMALL)
    assert turnarounds(wait(desk, lambda one: one.state == "done")) == turnarounds(found)


def test_the_end_of_a_server_ends_its_simulation(home: Home) -> None:
    with closing(Service.open(home)) as service:
        service.fleet.simulate_fleet(LARGE)
        process = service.fleet._bench._process
        assert process is not None and process.poll() is None
    assert process.poll() == -signal.SIGKILL


def test_a_wrong_request_starts_nothing(desk: Service) -> None:
    for request, trace in ((replace(SMALL, gpus=0), ""), (SMALL, "submitted_s\n1\n"), (SMALL, "x" * 6_000_000)):
        with pytest.raises(BadInput):
            desk.fleet.simulate_fleet(request, trace)
    with pytest.raises(BadInput):  # no path of a page is read
        desk.fleet.simulate_fleet(replace(SMALL, trace="/etc/passwd", gpus=0))
    assert desk.fleet.fleet_simulation() is None


def test_a_simulation_ends_with_a_server_that_is_killed(home: Home) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.unit.service.test_fleet_service import LARGE\n"
        "from unifiednn_core.base.paths import Home\n"
        "from unifiednn_core.service.facade import Service\n"
        "service = Service.open(Home(Path(sys.argv[1])))\n"
        "service.fleet.simulate_fleet(LARGE)\n"
        "print(service.fleet._bench._process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(home.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert psutil.pid_exists(pid)
        server.kill()
    wait_until(lambda: not psutil.pid_exists(pid), "the end of the simulation")
