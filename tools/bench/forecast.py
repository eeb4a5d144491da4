"""Simulated finish times of the demo's networks beside the actual ones, under every policy.

Before each training every network trains alone for one epoch; from these, and nothing else, their finish under the
policy is simulated, as on the page Build. Then they train under it, with the product's own lanes. Wall time counts, so
other programs show as errors; so does a processor that is faster in one minute than in the next, which is why the
epochs come right before. The certificates of earlier models are made before anything is timed: an epoch of these
networks takes 40 to 350 ms, a certificate about a second.
"""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.machine import ToolFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec, RunSpec

AT_MOST = 0.15
EPOCHS = {"lenet": 80, "resnet": 50, "transformer": 60}
"""Of a measured training: about 25 s on two cores."""
PATIENCE_S = 600.0
REST_S, RESTING, MOST_REST_S = 1.0, 0.1, 30.0
"""The machine rests once it computed for at most this share of so many seconds; nobody waits longer than the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """One sub-model under one policy; seconds from the launch of the worker."""

    policy: str
    submodel: str
    predicted_s: float
    actual_s: float

    @property
    def off(self) -> float:
        """How far the prediction was off, as a share of the actual time."""
        return self.predicted_s / self.actual_s - 1


def shortened(spec: RunSpec, policy: str, epochs: Mapping[str, int]) -> RunSpec:
    """The spec with so many epochs of each network, under a policy with its defaults."""
    parts = []
    for part in spec.submodels:
        given = {"epochs": epochs.get(part.name, 1), "lr_scheduler": None}
        parts.append(part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update=given)}))
    return spec.model_copy(update={"submodels": tuple(parts), "policy": PolicySpec(name=policy)})


def rested(service: Service) -> None:
    """Wait until nothing is left to do of earlier trainings; of what other programs do, not for ever."""
    until_s = time.monotonic() + MOST_REST_S
    busy = 1.0
    while (busy > RESTING or service.store.runs.uncertified(math.inf)) and time.monotonic() < until_s:
        busy = psutil.cpu_percent(interval=REST_S) / 100


def trained(service: Service, spec: RunSpec) -> tuple[dict[str, float], float]:
    """Train a spec; returns the finish of each sub-model and of all, in seconds since the launch of the worker."""
    rested(service)
    run_id = service.runs.submit(spec)
    deadline_s = time.monotonic() + PATIENCE_S
    while service.store.runs.get(run_id)[0].state not in ENDED or service.store.workers.held():
        if time.monotonic() > deadline_s:
            raise ToolFailed(f"{spec.policy.name} did not end within {PATIENCE_S:g} s.")
        time.sleep(0.2)
    run, rows = service.store.runs.get(run_id)
    if run.state != State.COMPLETED or run.launched_at_s is None:
        raise ToolFailed(f"{spec.policy.name} ended {run.state}: {run.cause}.")
    ends = {row.name: (row.ended_at_s or 0.0) - run.launched_at_s for row in rows}
    return ends, max(ends.values())


def measure(repeats: int = 1, epochs: Mapping[str, int] = EPOCHS) -> list[Finish]:
    """Forecast after one epoch, then train under each policy; so often, each time in a new home."""
    found = list[Finish]()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder:
            service = Service.open(Home(Path(folder)))
            try:
                service.start_supervisor()
                found += _measured(service, epochs)
            finally:
                service.close()
    return found


def _measured(service: Service, epochs: Mapping[str, int]) -> list[Finish]:
    demo = service.library.prepare_samples()
    found = []
    for policy in POLICIES:
        asked = shortened(demo, policy.name, epochs)
        report = service.runs.check(asked)
        for part in demo.submodels:  # by itself: the export of another one would slow it down
            trained(service, shortened(demo.model_copy(update={"submodels": (part,)}), demo.policy.name, {}))
        [forecast, *_] = service.runs.forecast(asked, report)
        if forecast.basis != "measured":
            raise ToolFailed(f"The seconds of the forecast are {forecast.basis}.")
        ends, whole_s = trained(service, asked)
        pairs = {
            **{name: (forecast.finish_s[name], ends[name]) for name in ends},
            "all": (forecast.makespan_s, whole_s),
        }
        found += [
            Finish(policy=policy.name, submodel=name, predicted_s=predicted, actual_s=actual)
            for name, (predicted, actual) in pairs.items()
        ]
    return found


ABOUT = (
    "Finish of each of the demo's networks under every policy: simulated after one measured epoch, beside the training."
)


def described(found: Sequence[Finish]) -> dict[str, Any]:
    """Tables and figures; of several repeats the median error of each finish counts."""
    names, policies = (list(dict.fromkeys(getattr(one, key) for one in found)) for key in ("submodel", "policy"))

    def of(policy: str, name: str) -> list[Finish]:
        return [one for one in found if (one.policy, one.submodel) == (policy, name)]

    def cell(policy: str, name: str) -> str:
        ones = of(policy, name)
        predicted, actual, off = (
            median(getattr(one, key) for one in ones) for key in ("predicted_s", "actual_s", "off")
        )
        return f"{predicted:.1f} / {actual:.1f} s ({100 * off:+.0f} %)"

    thresholds = [
        {"case": policy, "figure": "largest error of a finish time", "against": "the training", "at_most": AT_MOST,
         "median": round(worst, 4), "holds": worst <= AT_MOST}
        for policy in policies
        for worst in [max(abs(median(one.off for one in of(policy, name))) for name in names)]
    ]  # fmt: skip
    return {
        "about": ABOUT,
        "passed": all(entry["holds"] for entry in thresholds),
        "thresholds": thresholds,
        "notes": [
            "Seconds count from the launch of the worker to the verified file, with lanes as the engine chooses them.",
            "The forecast is the one of the page Build: made before the launch, from one epoch of each network alone.",
            "Wall time: other programs on the machine lengthen the trainings, but not the forecasts.",
            f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        ],
        "tables": [
            {
                "title": "Simulated / actual finish (error), medians over the repeats:",
                "heads": ("policy", *names),
                "rows": [(policy, *(cell(policy, name) for name in names)) for policy in policies],
            }
        ],
        "measured": [asdict(one) for one in found],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
