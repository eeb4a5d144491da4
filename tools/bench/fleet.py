"""A cluster of 1,000 GPUs under each placement and policy. Simulated with the server's own objects: no training."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from unifiednn_core.scheduling.cluster_run import ClusterRequest, document
from unifiednn_core.views import fleet

GPUS, JOBS, MOST_CPU_S = 1000, 30_000, 60.0
PHILLY, HELIOS = (ClusterRequest(gpus=GPUS, jobs=JOBS, statistics=name, load=1.2) for name in ("philly", "helios"))
WRONG = replace(PHILLY, estimates_off=1.0, policies=("sjf",))
REQUESTS: Mapping[str, tuple[ClusterRequest, ...]] = {
    "Philly, durations known, failures of a GPU each 200 h and of a host each 2,000 h": (
        replace(PHILLY, failure_h=200.0, host_failure_h=2000.0),
    ),
    "Philly, placement wrong about durations (a factor of 2.7 or more in a third of all cases)": (
        WRONG, replace(WRONG, moves=True),
    ),
    "Philly, durations known, a load of 0.8": (replace(PHILLY, load=0.8, policies=("sjf",)),),
    "Helios, durations known": (replace(HELIOS, load=2.0, policies=("sjf", "las")),),
}  # fmt: skip


def measure(*, repeats: int, gpus: int = GPUS, jobs: int = JOBS) -> dict[str, list[dict[str, Any]]]:
    """Simulate each request; the seeds are 0, 1, 2, ..."""
    return {
        title: [
            _arms_of([replace(one, gpus=gpus, jobs=jobs, seed=seed) for one in requests]) for seed in range(repeats)
        ]
        for title, requests in REQUESTS.items()
    }


def _arms_of(requests: Sequence[ClusterRequest]) -> dict[str, Any]:
    """The arms of requests on one set of jobs as one document; each arm once."""
    found = [document(one) for one in requests]
    arms = {arm["name"]: arm for one in found for arm in one["arms"]}
    return {**found[0], "arms": list(arms.values())}


def described(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Tables and figures of a result document."""
    slowest = [
        max((arm["cpu_s"], arm["name"]) for arm in one["arms"]) for several in found.values() for one in several
    ]  # fmt: skip
    cpu_s, name = max(slowest)
    notes = [f"{title.partition(',')[0]}, table {place}: {line}"
             for place, (title, several) in enumerate(found.items(), 1) for line in _read(several[0])]  # fmt: skip
    return {
        "about": "What a cluster would do, with the server's own placement and policies on simulated time. Nothing is "
        "trained.",
        "passed": cpu_s <= MOST_CPU_S,
        "thresholds": [],
        "notes": [
            f"Promised: {GPUS:,} GPUs and {JOBS:,} jobs in {MOST_CPU_S:.0f} CPU seconds at most for each arm. The "
            f"slowest took {cpu_s:.1f}: {name}.",
            "Plans are those of `placement.decide`, made on columns (`scheduling/quick.py`); tests hold that both plan "
            "alike. Each hybrid asks the policy itself.",
            "Medians over sets of jobs where there are several. A wait ends with the first turn, a slowdown is "
            "turnaround by duration. GPUs busy: while jobs are submitted.",
            *notes,
            *fleet.assumed(next(iter(found.values()))[0]["workload"]),
        ],
        "tables": [
            {"title": f"Table {place}: {title}. {fleet.told_of(several[0]['workload'])}",
             "heads": ("arm", *fleet.HEADS.values()), "rows": _rows(several)}
            for place, (title, several) in enumerate(found.items(), 1)
        ],
        "measured": {
            title: [{**one, "arms": [{**arm, "busy": _thinned(arm["busy"])} for arm in one["arms"]]} for one in several]
            for title, several in found.items()
        },
    }  # fmt: skip


def _read(one: Mapping[str, Any]) -> list[str]:
    """What its table says, without what all of them assume."""
    assumed = set(fleet.assumed(one["workload"]))
    return [line for line in fleet.reading(one["workload"], one["arms"]) if line not in assumed]


def _rows(several: Sequence[Mapping[str, Any]]) -> list[Sequence[str]]:
    names = [arm["name"] for arm in several[0]["arms"]]
    rows: list[Sequence[str]] = []
    for place, name in enumerate(names):
        arms = [one["arms"][place] for one in several]
        middle = {figure: median(arm[figure] for arm in arms) for figure in fleet.HEADS}
        middle |= {figure: int(middle[figure]) for figure in ("moves", "decisions")}
        rows.append((name, *(fleet.cell(figure, middle) for figure in fleet.HEADS)))
    return rows


def _thinned(busy: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    return [(round(at_s), round(share, 3)) for at_s, share in busy[::5]]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))))
