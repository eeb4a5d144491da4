"""Simulations of a cluster: one at a time, in a process of its own, with results that are kept. For operators."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.files import write_text
from unifiednn_core.base.paths import Home
from unifiednn_core.scheduling.cluster_run import ClusterRequest, check, cluster_for
from unifiednn_core.scheduling.cluster_trace import read_jobs
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import Role
from unifiednn_core.views.fleet import FleetSimulation

MODULE = "unifiednn_core.scheduling.cluster_run"
VERSION = 1
"""Of simulations; another one makes kept results anew."""
KEPT = 20
"""Newest results on the disk."""
MOST_TRACE_CHARACTERS = 5_000_000
PATIENCE_S = 5.0
FOLDER = "simulations"
"""Of a home."""
_PASSED_ON = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "HOME", "SYSTEMROOT")


class FleetService:
    """Starts, shows and cancels simulations. All who watch see the newest one."""

    def __init__(self, guard: Guard, home: Home):
        self.guard = guard
        self._bench = _bench_of(home.root / FOLDER)

    @permission(Role.OPERATOR, about="{request.gpus} GPUs, {request.jobs} jobs")
    def simulate_fleet(self, request: ClusterRequest, trace: str = "") -> None:
        """Simulate a cluster in the background, with the jobs of `trace` (our CSV as text) if it is not empty.

        A kept result is shown again. Raises `BadInput` for a request or jobs that make no sense, and while another
        simulation runs.
        """
        request = replace(request, trace=None)
        check(request)
        if trace:
            if len(trace) > MOST_TRACE_CHARACTERS:
                message = f"These jobs have more than {MOST_TRACE_CHARACTERS:,} characters."
                raise BadInput.of(
                    "Trace", "trace", message, "Simulate them with: unifiednn simulate --gpus --trace FILE"
                )
            request = replace(request, trace=str(self._bench.keep_trace(trace)))
            read_jobs(Path(str(request.trace)), cluster_for(request), most=request.jobs)
        self._bench.start(request)

    @permission(Role.OPERATOR, audited=False)
    def fleet_simulation(self) -> FleetSimulation | None:
        """The simulation that was asked for last, as far as it is; None before the first one."""
        return self._bench.newest()

    @permission(Role.OPERATOR)
    def cancel_fleet(self) -> None:
        """End the simulation that runs, if one does."""
        self._bench.cancel()


class _SimulationBench:
    """The simulations of a home."""

    def __init__(self, folder: Path):
        self._folder, self._lock = folder, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._newest: str | None = None
        self._read: tuple[tuple[object, ...], FleetSimulation] | None = None

    def keep_trace(self, text: str) -> Path:
        """A file of these jobs, kept by content."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"jobs-{hashlib.sha256(text.encode()).hexdigest()[:12]}.csv"
        write_text(path, text)
        return path

    def start(self, request: ClusterRequest) -> None:
        """Start a request, unless its result is kept."""
        asked = json.dumps([VERSION, request.document], sort_keys=True)
        key = hashlib.sha256(asked.encode()).hexdigest()[:16]
        with self._lock:
            if self._process is not None and _is_whole(self._folder / f"{self._newest}.jsonl"):
                self._process.wait(PATIENCE_S)
            if self._runs():
                raise BadInput.of("Simulation", "simulation", "Another one runs.", "Wait until it ends, or cancel it.")
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{key}.jsonl"
            self._newest = key
            if _is_whole(path):
                os.utime(path)
                return
            self._tidy()
            path.unlink(missing_ok=True)  # that of an earlier server may write into the old one for a while
            environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            with path.open("wb") as out:
                command = [sys.executable, "-m", MODULE, str(os.getpid())]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL,
                    start_new_session=True, env=environment | {"OMP_NUM_THREADS": "1"},
                )  # fmt: skip
            if self._process.stdin is not None:
                self._process.stdin.write(json.dumps(request.document).encode())
                self._process.stdin.close()

    def cancel(self) -> None:
        """End what runs; what has been simulated stays."""
        with self._lock:
            if self._process is not None and self._runs():
                self._process.kill()
                self._process.wait(PATIENCE_S)

    def newest(self) -> FleetSimulation | None:
        """The newest simulation, of this server or an earlier one."""
        with self._lock:
            runs, key = self._runs(), self._newest
            if key is None:
                kept = sorted(self._folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
                key = self._newest = kept[-1].stem if kept else None
            path = self._folder / f"{key}.jsonl"
            if key is None or not path.is_file():
                return None
            known = key, path.stat().st_size, runs
            if self._read is None or self._read[0] != known:
                self._read = known, _shown(_lines(path), runs=runs)
            return self._read[1]

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _tidy(self) -> None:
        for pattern in ("*.jsonl", "jobs-*.csv"):
            kept = sorted(self._folder.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in kept[KEPT:]:
                path.unlink(missing_ok=True)


def end_simulation(home: Home) -> None:
    """End the simulation that this process started in a home, if one runs."""
    _bench_of(home.root / FOLDER).cancel()


@cache
def _bench_of(folder: Path) -> _SimulationBench:
    """One for all people of a server."""
    return _SimulationBench(folder)


def _is_whole(path: Path) -> bool:
    return path.is_file() and _lines(path)[-1:] == [{"done": True}]


def _lines(path: Path) -> list[Mapping[str, Any]]:
    """Whole lines of a result, up to the first that is damaged."""
    found = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            found.append(json.loads(line))
        except ValueError:  # a power cut leaves NULs
            break
    return found


def _shown(lines: list[Mapping[str, Any]], *, runs: bool) -> FleetSimulation:
    refused = next((str(line["refused"]) for line in lines if "refused" in line), "")
    workload = next((line for line in lines if "request" in line), None)
    arms = tuple(line for line in lines if "arm" in line)
    done = any("done" in line for line in lines)
    state = "refused" if refused else "done" if done else "runs" if runs else "ended"
    return FleetSimulation(state, workload, arms, refused)  # type: ignore[arg-type]
