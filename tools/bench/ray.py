"""Two Ray nodes on one machine, one core and one thread each, as in the drill: what they save, cost and send."""

import json
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, closing, suppress
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from safetensors.numpy import save_file

from tools.chaos.audit import rows
from tools.chaos.processes import NODES, SERVER, Processes, kill
from tools.machine import until
from unifiednn_core.base.units import MIB
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import RunSpec

EPOCHS, SAMPLES, LARGE_BYTES, IDLE_S = 200, 300 * 2**12, 300 * MIB, 10.0
KINDS = (SERVER, "driver", "actor")
_STEPS = "SELECT 1 FROM step_metrics WHERE run_id = ? AND attempt = ? AND step > ?"
_MAKESPAN = "SELECT max(ended_at_s) - min(created_at_s) FROM runs WHERE id IN (?, ?)"
_WEIGHTS = "SELECT DISTINCT ifnull(state_sha256, state) FROM submodels WHERE state != 'stopped'"
Series = defaultdict[str, list[float]]


class _Cluster:
    """A server with two nodes, and what is measured on it."""

    def __init__(self, processes: Processes, service: Service, found: Series):
        self._processes, self._service, self._found = processes, service, found
        self.ask = partial(rows, service.home.database)
        [part, *_] = service.library.prepare_samples().submodels
        hyperparameters = part.hyperparameters.model_copy(update={"epochs": EPOCHS})
        self._part = part.model_copy(update={"hyperparameters": hyperparameters})

    def repeat(self) -> None:
        """Train on two nodes and on one, and kill one of two."""
        until(self._has_nodes, "both nodes")
        time.sleep(2 * IDLE_S)  # a node that has just started makes processes for later
        for name, devices in {"two_s": ("auto", "auto"), "one_s": ("node1", "node1")}.items():
            ids = [self._submit(device) for device in devices]
            self._await_end()
            self._found[name] += self.ask(_MAKESPAN, *ids)[0]
        run_id = self._submit("auto")
        until(lambda: bool(self.ask(_STEPS, run_id, 1, EPOCHS)), "steps")
        kill(next(one for one in self._processes.targets() if one.kind == "node" and run_id in one.hybrids))
        killed_s = time.monotonic()
        until(lambda: bool(self.ask(_STEPS, run_id, 2, 0)), "steps of the next attempt")
        self._found["recovery_s"].append(time.monotonic() - killed_s)
        self._await_end()

    def send(self) -> int:
        """Let two runs on a node use a large file; returns how often it came, and samples memory until their steps."""
        chance, path, inodes = np.random.default_rng(0), self._processes.folder / "large.safetensors", set[int]()
        inputs = chance.random((SAMPLES, 1, 8, 8), dtype=np.float32)
        save_file({"inputs": inputs, "targets": chance.integers(0, 10, SAMPLES)}, path)
        until(self._has_nodes, "both nodes")
        self._sample()
        for run_id in (self._submit("node1", train_data=str(path), test_data=str(path), scale=None) for _ in range(2)):
            while not self.ask(_STEPS, run_id, 1, 0):
                self._sample()
            self._service.runs.stop(run_id)
            files = [one.stat() for one in (self._processes.folder / NODES[0]).rglob("files/*/*")]
            inodes |= {facts.st_ino for facts in files if facts.st_size > LARGE_BYTES}  # a file anew has another one
        return len(inodes)

    def _has_nodes(self) -> bool:
        self._processes.keep_nodes()
        return len(self._service.store.devices.all()) == len(NODES)

    def _sample(self) -> None:
        for one in self._processes.targets():
            sizes = self._found[one.kind]
            with suppress(psutil.Error):
                sizes[1:] = [max([*sizes, one.process.memory_full_info().uss / MIB])]  # the first, and the largest

    def _submit(self, device: str, **changes: Any) -> str:
        part = self._part.model_copy(update=changes)
        return self._service.runs.submit(RunSpec(name="ray", device=device, threads=1, submodels=(part,)))

    def _await_end(self) -> None:
        until(lambda: not self.ask("SELECT 1 FROM runs WHERE ended_at_s IS NULL"), "the end of all runs")


def measure(repeats: int) -> dict[str, Any]:
    """Everything so many times; the large file once."""
    found = Series(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)))
        alone, on_ray = Processes(folder / "alone", ray=False), Processes(folder / "ray", ray=True)
        stack.callback(alone.close)
        stack.callback(on_ray.close)
        on_ray.keep_nodes()
        time.sleep(2 * IDLE_S)
        for processes in (alone, on_ray) * repeats:
            begun_s = time.monotonic()
            processes.serve()
            until(processes.answers, "the server")
            found[f"start {processes.folder.name}, s"].append(time.monotonic() - begun_s)
            time.sleep(IDLE_S)
            [server] = [one for one in processes.targets() if one.kind == SERVER]
            found[f"memory {processes.folder.name}, MiB"].append(server.process.memory_full_info().uss / MIB)
            kill(server)
        on_ray.serve()
        cluster = _Cluster(on_ray, stack.enter_context(closing(Service.open(on_ray.home))), found)
        for _ in range(repeats):
            cluster.repeat()
        return {"weights": cluster.ask(_WEIGHTS), "times": cluster.send(), **found}


def described(found: dict[str, Any]) -> dict[str, Any]:
    """Table and figures."""
    held = {
        "two runs on two nodes, makespan / on one node": (median(found["two_s"]) / median(found["one_s"]), 0.65),
        "death of a node to the next known step, s": (median(found["recovery_s"]), 30),
        "a file of 300 MiB for two runs comes to a node, times": (found["times"], 1),
        **{f"growth of {one} meanwhile, MiB": (max(found[one]) - found[one][0], 200) for one in KINDS},
        "different weights": (len(found["weights"]), 1),
        **{f"server: {name}": (median(found[name]), inf) for name in found if name.startswith(("start", "memory"))},
    }
    table = [(name, f"{value:.2f}", f"{most:g}".replace("inf", "")) for name, (value, most) in held.items()]
    return {
        "about": "Two Ray nodes on one machine, one core and one thread each.",
        "passed": all(value <= most for value, most in held.values()),
        "notes": ["Memory is what a process shares with no other."],
        "tables": [{"title": "Medians:", "heads": ("what", "measured", "promised at most"), "rows": table}],
        "measured": found,
    }


if __name__ == "__main__":
    json.dump(described(measure(int(sys.argv[1]))), sys.stdout)
