"""How long a run waits for its first step: workers that load torch themselves, beside forks of the template.

Both start as the product starts them, confined where that works, one after another in turns, by one server that has a
template for its files anyhow. Seconds that pass include what the supervisor waits between two looks.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.bench.report import memory
from tools.machine import ToolFailed, until
from unifiednn_core.base.paths import Home
from unifiednn_core.machine.host import rollup
from unifiednn_core.preflight import client
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import RunSpec

MOST_RATIO = 0.5
_POLL_S = 0.005
_WAYS = {"cold": False, "warm": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One run of one network for one epoch."""

    start: str
    """As the run records it."""
    submit_to_step_s: float
    launch_to_step_s: float
    cpu_s: float
    """Processor seconds of the worker until its first step."""
    peak_memory_bytes: int
    """Of the whole run; of a warm one with the template."""
    state_sha256: str


def measure(repeats: int) -> tuple[list[Start], int]:
    """Start so many workers each way, in turns; returns them, and the memory of an idle template."""
    with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder:
        service = Service.open(Home(Path(folder)))
        try:
            demo = service.library.prepare_samples()
            [part] = demo.submodels[:1]
            hyperparameters = part.hyperparameters.model_copy(update={"epochs": 1})
            part = part.model_copy(update={"hyperparameters": hyperparameters})
            spec = demo.model_copy(update={"device": "cpu", "threads": 1, "submodels": (part,)})
            client.start()
            until(client.template.ready, "the template")
            idle = rollup(client.template.pid or 0)
            service.start_supervisor()
            found = [_started(service, spec, way) for _ in range(repeats) for way in _WAYS]
        finally:
            service.close()
            client.stop()
    return found, 0 if idle is None else idle.pss_bytes


def _started(service: Service, spec: RunSpec, way: str) -> Start:
    LocalLauncher.warm = _WAYS[way]
    until(client.template.ready, "the template")
    run_id, runs = service.runs.submit(spec), service.store.runs
    until(lambda: runs.get(run_id)[0].started_at_s is not None, "the first step", _POLL_S)
    run, _ = runs.get(run_id)
    times = psutil.Process(service.store.hybrids.get(run_id)[0].worker_pid).cpu_times()
    until(lambda: runs.get(run_id)[0].state in ENDED, "the end of the run")
    run, [part] = runs.get(run_id)
    hybrid, _ = service.store.hybrids.get(run_id)
    if part.state_sha256 is None or run.started_at_s is None or run.launched_at_s is None:
        raise ToolFailed(f"The run ended {run.state}: {run.cause or part.cause}.")
    return Start(
        start=str(hybrid.environment["start"]),
        submit_to_step_s=run.started_at_s - run.created_at_s,
        launch_to_step_s=run.started_at_s - run.launched_at_s,
        cpu_s=times.user + times.system,
        peak_memory_bytes=hybrid.peak_memory_bytes or 0,
        state_sha256=part.state_sha256,
    )


_FIGURES: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "submit_to_step_s": ("submission to first step", "{:.2f} s".format),
    "launch_to_step_s": ("launch to first step", "{:.2f} s".format),
    "cpu_s": ("CPU until then", "{:.2f} s".format),
    "peak_memory_bytes": ("peak memory of the run", lambda size: memory([size])),
}


def described(found: list[Start], idle_bytes: int) -> dict[str, Any]:
    """Tables and figures."""
    ways = {way: [one for one in found if one.start == way] for way in _WAYS}
    if any(len(ones) * len(ways) != len(found) for ones in ways.values()):
        raise ToolFailed("A worker did not start the way it should; the log above says why.")

    medians = {
        way: {name: median(float(getattr(one, name)) for one in ones) for name in _FIGURES}
        for way, ones in ways.items()
    }
    rows = [(way, *(form(found[name]) for name, (_, form) in _FIGURES.items())) for way, found in medians.items()]
    ratios = {name: medians["warm"][name] / medians["cold"][name] for name in _FIGURES}
    same = len({one.state_sha256 for one in found}) == 1
    return {
        "about": "How long a run waits for its first step: a worker that loads torch itself, and a fork of a template.",
        "passed": same and max(ratios["submit_to_step_s"], ratios["cpu_s"]) <= MOST_RATIO,
        "notes": [
            f"Promised: warm at most {MOST_RATIO:g} of cold, from submission to first step and in CPU seconds.",
            f"An idle template holds {idle_bytes / 2**20:.0f} MiB; the peak of a warm run counts it.",
            "All weights have the same bits." if same else "**The weights differ.**",
        ],
        "tables": [
            {
                "title": "Medians over the repeats:",
                "heads": ("start", *(title for title, _ in _FIGURES.values())),
                "rows": [*rows, ("warm / cold", *(f"{ratio:.2f}" for ratio in ratios.values()))],
            }
        ],
        "measured": [asdict(one) for one in found],
    }


if __name__ == "__main__":
    json.dump(described(*measure(int(sys.argv[1]))), sys.stdout)
