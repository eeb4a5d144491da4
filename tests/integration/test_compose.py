"""The commands of docker-compose.yml, run as processes of this machine: only names of hosts and ports are others.

The object store is moto's, PostgreSQL that of the tests; bucket, server and agents are as the file says.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.composing import Composition
from tests.integration.product import Template
from tests.ports import free_port
from tests.waiting import wait_until
from tools.machine import ToolFailed
from unifiednn_core.base.paths import BLOBS_SETTING, DATABASE_SETTING, Home
from unifiednn_core.service.facade import Service

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PROGRAM = "from unifiednn_core.cli.main import main; main()"
INSIDE = {"unifiednn": [sys.executable, "-c", PROGRAM], "python": [sys.executable]}
OUTSIDE = ("UNIFIEDNN_", "AWS_", "STREAMLIT_")
"""First letters of variables that the file alone sets."""


class Processes:
    """Services of the file as processes, each with a home of its own."""

    def __init__(self, folder: Path, places: dict[str, str], port: int):
        self._folder, self._places, self._port = folder, places, port
        self.composition = Composition.read(ROOT / "docker-compose.yml")
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, name: str) -> dict[str, str]:
        outside = {key: value for key, value in os.environ.items() if not key.startswith(OUTSIDE)}
        given = {key: self._placed(value) for key, value in self.composition.environment(name).items()}
        return outside | given | {"UNIFIEDNN_HOME": str(self._folder / name), "PYTHONPATH": str(ROOT)}

    def start(self, name: str) -> None:
        words = self.composition.command(name)
        port = ["--port", str(self._port)] if name == "server" else []
        with (self._folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*INSIDE[words[0]], *words[1:], *port],
                env=self.environment(name),
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    def check(self, name: str) -> bool:
        """Whether a service is healthy, as the file asks it."""
        _, program, *words = self.composition.services[name]["healthcheck"]["test"]
        asked = [*INSIDE[program], *map(self._placed, words)]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def run(self, *words: str) -> str:
        """Output of a command in the server's container."""
        done = subprocess.run(
            [*INSIDE["unifiednn"], *words], env=self.environment("server"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def end(self) -> dict[str, int]:
        """End all as `docker compose stop` does; returns their exit codes."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self.running.items():
            with suppress(subprocess.TimeoutExpired):
                codes[name] = process.wait(90)
            process.kill()
        self.running.clear()
        return codes

    def _placed(self, text: str) -> str:
        for place, other in self._places.items():
            text = text.replace(place, other)
        return text


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    pytest.importorskip("moto")
    try:
        from tools.postgres import serving
    except ImportError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    objects, pages = free_port(), free_port()
    try:
        with serving() as postgres:
            postgres.create("unifiednn")
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(objects)]
            moto = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            made = Processes(
                tmp_path,
                {
                    "@postgres:5432": f"@127.0.0.1:{postgres.port}",
                    "objects:8333": f"127.0.0.1:{objects}",
                    "0.0.0.0": "127.0.0.1",
                    "127.0.0.1:8501": f"127.0.0.1:{pages}",
                },
                pages,
            )
            try:
                yield made
            finally:
                made.end()
                moto.kill()
                moto.wait()
    except ToolFailed as error:
        pytest.skip(f"no PostgreSQL: {error}")


@pytest.mark.new_interpreters
def test_each_command_of_the_file_runs_and_a_network_trains_on_each_agent(
    processes: Processes, template: Template, alone: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def bucket() -> bool:
        processes.start("bucket")
        return processes.running.pop("bucket").wait(60) == 0

    wait_until(bucket, told=lambda: processes.log("bucket"))  # `restart: on-failure`, until the object store answers
    processes.start("server")
    wait_until(lambda: processes.check("server"))
    processes.start("agent-1")
    processes.start("agent-2")
    network = json.loads(template.spec_path.read_text())["submodels"][0]
    (tmp_path / "net.json").write_text(json.dumps(network))
    for name in (
        "UNIFIEDNN_HOME",
        DATABASE_SETTING,
        BLOBS_SETTING,
        *filter(lambda key: key.startswith("AWS_"), os.environ),
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in processes.environment("server").items():
        if name.startswith(OUTSIDE):
            monkeypatch.setenv(name, value)
    with closing(Service.open(Home(tmp_path / "server"))) as service:
        wait_until(lambda: {"agent-1/cpu", "agent-2/cpu"} <= {row.name for row in service.store.devices.all()})
        runs = {}
        for host in ("agent-1", "agent-2"):
            words = ("submit", str(tmp_path / "net.json"), "--device", f"{host}/cpu", "--json")
            runs[host] = json.loads(processes.run(*words))["run_id"]
        wait_until(lambda: all(service.runs.observe(run_id).ended_at_s is not None for run_id in runs.values()))
        for host, run_id in runs.items():
            [part] = service.runs.document(run_id)["submodels"].values()
            assert part["state_sha256"] == alone(network["name"])
            [row] = service.store.runs.get(run_id)[1]
            hybrid, _ = service.store.hybrids.get(row.hybrid_id or "")
            assert hybrid.device == f"{host}/cpu"
        assert service.runs.artifact(runs["agent-2"], network["name"]), "the server has it from the object store"
    codes = processes.end()
    assert {name: codes[name] for name in ("agent-1", "agent-2")} == {"agent-1": 0, "agent-2": 0}, processes.log(
        "agent-1"
    )
