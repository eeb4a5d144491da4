"""Simulated finish times of the demo's networks beside the actual ones, under every policy.

Before each training every network trains alone for one epoch; from these, and nothing else, their finish under the
policy is simulated, as on the page Build. Then they train under it, with the product's own lanes. Wall time counts, so
other programs show as errors; so does a processor that is faster in one minute than in the next, which is why the
epochs come right before. The certificates of earlier models are made before anything is timed: an epoch of these
networks takes 40 to 350 ms, a certificate about a second.

A second table shows what the page Run foresees for each network once its first epoch in the very run is measured. No
threshold judges it.
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
from unifiednn_core.service.forecasts import RunChange
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec, RunSpec

AT_MOST = 0.15
EPOCHS = {"lenet": 80, "resnet": 50, "transformer": 60}
"""Of a measured training: about 25 s on two cores."""
PATIENCE_S = 600.0
REST_S, RESTING, MOST_REST_S = 1.0, 0.1, 10.0
"""The machine rests once it computed for at most this share of so many seconds; nobody waits longer than the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """One sub-model under one policy; seconds from the launch of the worker."""

    policy: str
    submodel: str
    predicted_s: float
    """Before the launch."""
    actual_s: float
    live_s: float | None = None
    """During the run; None if it ended too soon for that."""

    @property
    def off(self) -> float:
        """How far the prediction was off, as a share of the actual time."""
        return self.predicted_s / self.actual_s - 1

    @property
    def live_off(self) -> float | None:
        """The same of what was foreseen during the run."""
        return None if self.live_s is None else self.live_s / self.actual_s - 1


@dataclass(frozen=True, slots=True)
class Training:
    """A training; seconds count from the launch of its worker."""

    ends_s: Mapping[str, float]
    """By sub-model."""
    live_s: Mapping[str, float]
    """Ends as foreseen once the first epoch of each was measured; some may lack."""


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


def trained(service: Service, spec: RunSpec) -> Training:
    """Train a spec on a machine that rests."""
    rested(service)
    run_id = service.runs.submit(spec)
    deadline_s, live_s = time.monotonic() + PATIENCE_S, dict[str, float]()
    while True:
        run, rows = service.store.runs.get(run_id)
        if run.state in ENDED and not service.store.workers.held():
            break
        if time.monotonic() > deadline_s:
            raise ToolFailed(f"{spec.policy.name} did not end within {PATIENCE_S:g} s.")
        new = [row.name for row in rows if row.epochs_done and row.state not in ENDED and row.name not in live_s]
        if new and run.launched_at_s is not None and len(rows) > 1:
            seen_s, ends = time.time() - run.launched_at_s, service.runs.forecast_change(run_id, RunChange()).before
            live_s |= {name: seen_s + end.likely_s for name in new if (end := ends.get(name)) is not None}
        time.sleep(0.2)
    if run.state != State.COMPLETED or run.launched_at_s is None:
        raise ToolFailed(f"{spec.policy.name} ended {run.state}: {run.cause}.")
    return Training({row.name: (row.ended_at_s or 0.0) - run.launched_at_s for row in rows}, live_s)


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
    _alone(service, demo)  # uncounted: the first workers of a home find nothing in any cache
    found = []
    for policy in POLICIES:
        asked = shortened(demo, policy.name, epochs)
        report = service.runs.check(asked)
        _alone(service, demo)
        [forecast, *_] = service.runs.forecast(asked, report)
        if forecast.basis != "measured":
            raise ToolFailed(f"The seconds of the forecast are {forecast.basis}.")
        actual = trained(service, asked)
        found += [
            Finish(
                policy=policy.name,
                submodel=name,
                predicted_s=forecast.finish_s[name],
                actual_s=end_s,
                live_s=actual.live_s.get(name),
            )
            for name, end_s in actual.ends_s.items()
        ]
        whole_s = max(actual.ends_s.values())
        found.append(Finish(policy=policy.name, submodel="all", predicted_s=forecast.makespan_s, actual_s=whole_s))
    return found


def _alone(service: Service, demo: RunSpec) -> None:
    """Train each network for one epoch, by itself: the export of another one would slow it down."""
    for part in demo.submodels:
        trained(service, shortened(demo.model_copy(update={"submodels": (part,)}), demo.policy.name, {}))


ABOUT = (
    "Finish of each of the demo's networks under every policy, simulated before the launch from one epoch of each that "
    "was measured right before, beside the finish of the training that follows."
)


def described(found: Sequence[Finish]) -> dict[str, Any]:
    """Tables and figures; of several repeats the median error of each finish counts."""
    names, policies = (list(dict.fromkeys(getattr(one, key) for one in found)) for key in ("submodel", "policy"))

    def of(policy: str, name: str) -> list[Finish]:
        return [one for one in found if (one.policy, one.submodel) == (policy, name)]

    def cell(policy: str, name: str, said: str = "predicted_s", off: str = "off") -> str:
        ones = [one for one in of(policy, name) if getattr(one, said) is not None]
        if not ones:
            return "none"
        told, actual, error = (median(getattr(one, key) for one in ones) for key in (said, "actual_s", off))
        return f"{told:.1f} / {actual:.1f} s ({100 * error:+.0f} %)"

    def rows(shown: Sequence[str], *keys: str) -> list[tuple[str, ...]]:
        return [(policy, *(cell(policy, name, *keys) for name in shown)) for policy in policies]

    thresholds = [
        {
            "case": policy,
            "figure": "largest error of a finish time",
            "against": "the training",
            "at_most": AT_MOST,
            "median": round(worst, 4),
            "holds": worst <= AT_MOST,
        }
        for policy in policies
        for worst in [max(abs(median(one.off for one in of(policy, name))) for name in names)]
    ]
    return {
        "about": ABOUT,
        "passed": all(entry["holds"] for entry in thresholds),
        "thresholds": thresholds,
        "notes": [
            "Seconds count from the launch of the worker to the verified file, with lanes as the engine chooses them.",
            "The forecast is the one of the page Build; each network trained its measured epoch alone.",
            "Wall time: other programs on the machine lengthen the trainings, but not the forecasts.",
            f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        ],
        "tables": [
            {
                "title": "Simulated / actual finish (error), medians over the repeats:",
                "heads": ("policy", *names),
                "rows": rows(names),
            },
            {
                "title": "As the page Run foresaw it after the first epoch in the run / actual finish (error):",
                "heads": ("policy", *names[:-1]),
                "rows": rows(names[:-1], "live_s", "live_off"),
            },
        ],
        "measured": [asdict(one) for one in found],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
