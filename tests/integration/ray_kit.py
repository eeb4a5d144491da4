"""A Ray cluster of two nodes on this machine, and the whole product on it."""

import itertools
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.integration.product import Product
from tests.ports import free_port
from tests.waiting import Found, wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.devices import host_of
from unifiednn_core.spec.run import load_run

STARTS_WITHIN_S = 90.0


class RayNodes:
    """Nodes as processes of their own, as `ray start` makes them, each with an address and one core of its own."""

    def __init__(self, folder: Path, port: int):
        self.folder, self.address = folder, f"127.0.0.2:{port}"
        self._port, self._numbers = port, itertools.count()
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        self.environment = {**os.environ, **token}
        """Of nodes and servers."""
        (folder / "token").write_text(secrets.token_hex(32))
        self.nodes: dict[str, psutil.Process] = {}
        """Their raylets, by name."""

    def start(self, *names: str) -> None:
        """Start the head, which trains nothing, and nodes."""
        for name in ("head", *names):
            self.add(name)

    def add(self, name: str) -> None:
        """Start a node, on the next core."""
        at = next(self._numbers)
        where = (
            ["--head", f"--port={self._port}", f"--temp-dir={self.folder}", "--num-cpus=0", "--include-dashboard=false"]
            if name == "head"
            else [f"--address={self.address}", "--num-cpus=1"]
        )
        options = [f"--node-ip-address=127.0.0.{2 + at}", f"--node-name={name}", "--num-gpus=0"]
        cores = sorted(os.sched_getaffinity(0))
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", *where, *options]
        environment = {**self.environment, "UNIFIEDNN_HOME": str(self.folder / name)}
        with (self.folder / f"{name}.log").open("wb") as log:
            subprocess.run(
                ["taskset", "--cpu-list", str(cores[at % len(cores)]), *ray, "--object-store-memory=100000000"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                timeout=STARTS_WITHIN_S,
            )
        self.nodes[name] = next(one for one in _raylets() if self._has(one, f"127.0.0.{2 + at}"))

    def _has(self, raylet: psutil.Process, address: str) -> bool:
        words = raylet.cmdline()
        return f"--node_ip_address={address}" in words and any(self.address in word for word in words)

    def kill(self, name: str) -> None:
        """Kill a node, as a machine dies."""
        _kill(self.nodes.pop(name))
        for process in psutil.process_iter(["name", "cmdline"]) if name == "head" else ():
            if process.info["name"] == "gcs_server" and f"--gcs_server_port={self._port}" in process.info["cmdline"]:
                _kill(process)

    def process_of(self, worker: int, what: str) -> psutil.Process:
        """A worker by its process id, or the actor that runs it."""
        process = psutil.Process(worker)
        if what == "worker":
            return process
        return next(one for one in process.parents() if one.name().startswith("ray::"))

    def is_alive(self, pid: int) -> bool:
        """Whether a process still runs."""
        return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE

    def stop(self) -> None:
        """End all that was started."""
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.folder) in word or self.address in word for word in process.info["cmdline"] or ()):
                _kill(process)


def _raylets() -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "raylet":
            yield process


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.Error):
        process.send_signal(signal.SIGKILL)


@contextmanager
def ray_nodes(*names: str) -> Iterator[RayNodes]:
    """A cluster with these nodes beside its head."""
    with TemporaryDirectory(prefix="ray") as folder:  # Ray's sockets need a short path
        nodes = RayNodes(Path(folder), free_port())
        try:
            nodes.start(*names)
            yield nodes
        finally:
            nodes.stop()


class Cluster:
    """A server of a home in a process of its own, with a Ray cluster, and a service that looks at the same home."""

    def __init__(self, home: Home, nodes: RayNodes, devices: str = "none"):
        """`devices` are those that the server's machine offers itself."""
        self.home, self.nodes = home, nodes
        self.service = Service.open(home)
        self._environment = {**nodes.environment, "UNIFIEDNN_DEVICES": devices}
        self.server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait for the devices of the nodes."""
        command = [
            sys.executable,
            "-m",
            "tests.integration.ray_server",
            str(self.home.root),
            "--ray",
            self.nodes.address,
        ]
        with (self.home.root / "server.log").open("ab") as log:
            self.server = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        names = {f"{name}/cpu" for name in self.nodes.nodes if name != "head"}
        self.until(lambda: names <= self.ready(), "the devices of the nodes")

    def ready(self) -> set[str]:
        """Names of the devices that can be used."""
        return {row.name for row in self.service.store.devices.all() if row.state == "ready"}

    def kill_server(self) -> None:
        """Kill the server; its driver ends with it."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def driver(self) -> psutil.Process:
        """The driver of the server."""

        def found() -> psutil.Process | None:
            children = psutil.Process(self.server.pid).children() if self.server is not None else []
            return next((one for one in children if "unifiednn_core.runtime.driver" in one.cmdline()), None)

        return self.until(found, "a driver")

    def submit(self, spec: Path, **changes: Any) -> str:
        """Submit a spec with some of its fields changed."""
        asked = load_run(spec).model_copy(update=changes)
        return self.service.runs.submit(asked, spec.parent)

    def run(self, run_id: str) -> Product:
        """A run of this home, as `Product` looks at it."""
        return Product(self.home, run_id, self.service)

    def held_by(self, run_id: str) -> str:
        """The node that trains a run, once it has trained some steps."""
        product = self.run(run_id)

        def host() -> str | None:
            hybrid, members = self.service.store.hybrids.get(run_id)
            trains = hybrid.worker_pid is not None and any(member.row.steps_done > 5 for member in members)
            return host_of(hybrid.device) if trains else None

        return wait_until(host, f"steps of {run_id}", told=lambda: self.told(product))

    def until(self, done: Callable[[], Found | None], what: str) -> Found:
        """Wait for something that other processes do."""
        return wait_until(done, what, told=self.told)

    def told(self, product: Product | None = None) -> str:
        """The logs, for a wait that fails."""
        logs = [self.home.root / "driver.log", self.home.root / "server.log"]
        texts = [path.read_text(errors="replace")[-4000:] for path in logs if path.exists()]
        return "\n".join([*texts, "" if product is None else product._told()])

    def close(self) -> None:
        """End the server."""
        self.kill_server()
        self.service.close()
