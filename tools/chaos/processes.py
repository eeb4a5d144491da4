"""The processes of a drill: the server, on request a Ray cluster of two nodes, and whom one can kill."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

import psutil

from tools.machine import answers, free_port
from unifiednn_core.base.failpoints import VARIABLE
from unifiednn_core.base.paths import DEVICES_SETTING, Home

WORKER, DRIVER = "unifiednn_core.runtime.worker", "unifiednn_core.runtime.driver"
RELAY, RELAYED = "ray::Relay", " --relayed"
HEAD, NODES = "127.0.0.4", ("127.0.0.2", "127.0.0.3")
"""Addresses of the cluster. Ray replaces 127.0.0.1 by an address of the machine that others can reach."""
SERVER, END_S, POLL_S = "server", 15.0, 0.1
Answer = TypeVar("Answer")


class Seen(NamedTuple):
    """A process with its command line; who can be killed has a kind, and the hybrids whose workers die with it."""

    process: psutil.Process
    line: str
    kind: str = ""
    hybrids: tuple[str, ...] = ()

    @property
    def own_kind(self) -> str:
        """What it is by its command line; bubblewrap and raylets name other programs there, too."""
        program = self.line.split()[0]
        if program.endswith("/raylet"):
            return "node" * any(f"--node_ip_address={one} " in self.line for one in NODES)
        if program.endswith("bwrap"):
            return ""
        known = {RELAY: "actor", WORKER: "worker", DRIVER: "driver"}
        return next((kind for word, kind in known.items() if word in self.line), "")


class Processes:
    """Starts what a drill needs, finds whom it can kill, and ends everything."""

    def __init__(self, folder: Path, *, ray: bool):
        self.home, self.folder = Home(folder / "home"), folder
        self._port, port = free_port(), free_port()
        self._options, self._devices = (["--ray", f"{HEAD}:{port}"], "none") if ray else ([], "cpu:0,cpu:1")
        head = ["--head", f"--port={port}", f"--temp-dir={folder / 'ray'}", "--num-cpus=0", "--include-dashboard=false"]
        node = [f"--address={HEAD}:{port}", "--num-cpus=1", "--num-gpus=0"]
        self._nodes = {HEAD: head} | dict.fromkeys(NODES, node) if ray else {}
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token_hex())
        self._cluster = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._children: set[psutil.Process] = set()
        """All that the servers started, as far as it was seen."""
        self.fault = ""
        """Armed in the server that runs, and in its workers."""

    def serve(self, fault: str = "") -> None:
        """Start the server, which passes its fault on to its workers, once the one before it has ended."""
        if SERVER in self._started:
            self._started[SERVER].wait()
        self.fault, command = fault, ["unifiednn", "app", "--port", str(self._port), *self._options]
        settings = {"UNIFIEDNN_HOME": str(self.home.root), DEVICES_SETTING: self._devices, VARIABLE: fault}
        self._start(SERVER, command, settings)

    def keep_nodes(self) -> None:
        """Start the nodes that do not run, on one core each. Ray ends what is left of one whose raylet was killed."""
        cores = sorted(os.sched_getaffinity(0))
        for at, (address, options) in enumerate(self._nodes.items()):
            if address not in self._started or self._started[address].poll() is not None:
                command = ["ray", "start", "--block", f"--node-ip-address={address}", "--disable-usage-stats", *options]
                command += [f"--node-name=node{at}", "--object-store-memory=100000000"]
                self._start(address, command, {"UNIFIEDNN_HOME": str(self.folder / address)}, cores[at % len(cores)])

    def answers(self) -> bool:
        """Whether the server listens."""
        return answers(self._port)

    def ended(self) -> int | None:
        """Exit code of the server; None while it lives."""
        return self._started[SERVER].poll()

    def targets(self) -> list[Seen]:
        """Everybody that can be killed now. What the server has started is remembered, as it may outlive it."""
        own, found = self._own(), []
        above = {one: [one.process, *(_ask(one.process.parents) or [])] for one in own if one.own_kind == "worker"}
        for one in own:
            hybrids = tuple(of.line.removesuffix(RELAYED).split()[-1] for of, up in above.items() if one.process in up)
            if one.process.pid == self._started[SERVER].pid:
                self._children.update([one.process, *(_ask(partial(one.process.children, recursive=True)) or [])])
                found.append(one._replace(kind=SERVER))
            elif one.own_kind:
                found.append(one._replace(kind=one.own_kind, hybrids=hybrids))
        return found

    def close(self) -> list[str]:
        """End server and cluster; returns who is left a while later, which is then killed."""
        self.targets()
        for name in sorted(self._started, key=HEAD.__eq__):  # nodes take leave of their head
            self._started[name].terminate()
            with suppress(subprocess.TimeoutExpired):
                self._started[name].wait(END_S)
        until_s = time.monotonic() + END_S
        while (left := {*self._own(), *filter(None, map(_seen, self._children))}) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        found = [f"process {one.process.pid} is left: {one.line[:120]}" for one in left if kill(one)]
        for process in self._started.values():
            process.wait()
        return found

    def _own(self) -> list[Seen]:
        """All but children of the server: they have the folder in their command line or environment."""
        mark, seen = str(self.folder), filter(None, map(_seen, psutil.process_iter()))
        return [one for one in seen if mark in f"{one.line} {_ask(one.process.environ)}"]

    def _start(self, name: str, command: list[str], settings: dict[str, str], core: int | None = None) -> None:
        """Start a program of this environment, in a session of its own."""
        environment = {**os.environ, "TMPDIR": str(self.folder), **self._cluster, **settings}
        command = [str(Path(sys.executable).parent / command[0]), *command[1:]]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        if core is not None:
            os.sched_setaffinity(self._started[name].pid, [core])


def kill(one: Seen) -> bool:
    """Send SIGKILL; whether it still lived."""
    with suppress(psutil.Error):
        one.process.kill()
        return True
    return False


def _seen(process: psutil.Process) -> Seen | None:
    """A process that lives; not a kernel thread, nor the drill itself."""
    line = " ".join(filter(None, _ask(process.cmdline) or []))
    alive = process.is_running() and _ask(process.status) not in (None, psutil.STATUS_ZOMBIE)
    return Seen(process, line) if alive and line and process.pid != os.getpid() else None


def _ask(call: Callable[[], Answer]) -> Answer | None:
    """Ask about a process; None if it is gone, or not ours."""
    with suppress(psutil.Error):
        return call()
    return None
