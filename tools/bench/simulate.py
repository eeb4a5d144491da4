"""What each policy would do to jobs drawn from fitted statistics of public traces. Simulated: no training, no data."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.outcome import Outcome, outcome
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.scheduling.simulator import simulate
from unifiednn_core.scheduling.workloads import HOUR_S, STATISTICS, Statistics, by_time, draw, with_deadlines

JOBS, LOAD, TURN_S, SLACK = 300, 0.9, 60.0, 5.0
MOST_OF_FCFS, MOST_OFF = 0.6, 0.05
HEADS = ("policy", "mean turnaround", "of fcfs", "median", "p95", "slowdown", "makespan", "in time", "Jain", "off by")


@dataclass(frozen=True, slots=True)
class Simulated:
    """One policy on the job sets of one trace's statistics, one for each repeat."""

    statistics: str
    policy: str
    text: str
    outcomes: tuple[Outcome, ...]

    def middle(self, figure: Callable[[Outcome], float]) -> float:
        """Median of a figure over the job sets."""
        return median(map(figure, self.outcomes))


def measure(*, repeats: int, jobs: int = JOBS) -> tuple[Simulated, ...]:
    """Simulate each policy on `repeats` job sets of each statistics; the seeds are 0, 1, 2, ..."""
    policies = [by_time(known.name, TURN_S) for known in POLICIES]
    return tuple(_simulated(fitted, policy, repeats, jobs) for fitted in STATISTICS.values() for policy in policies)


def _simulated(fitted: Statistics, policy: Policy, repeats: int, jobs: int) -> Simulated:
    sets = [with_deadlines(draw(fitted, jobs=jobs, load=LOAD, seed=seed), SLACK) for seed in range(repeats)]
    found = tuple(outcome(asked, simulate(asked, policy)) for asked in sets)
    return Simulated(fitted.name, policy.name, str(policy), found)


def described(found: Sequence[Simulated]) -> dict[str, Any]:
    """Tables and figures of a result document."""
    means = {(one.statistics, one.policy): one.middle(lambda seen: seen.mean_turnaround_s) for one in found}
    kept = [
        *(means[name, "srtf"] <= MOST_OF_FCFS * means[name, "fcfs"] for name, _ in means),
        *(one.middle(lambda seen: seen.share_error) <= MOST_OFF for one in found if one.policy == "fair"),
    ]
    return {
        "about": "What each policy would do on one device, simulated on jobs of public traces. Nothing is trained.",
        "passed": all(kept),
        "thresholds": [],
        "notes": [
            f"Promised: `srtf` needs at most {MOST_OF_FCFS} of the mean turnaround of `fcfs`; under `fair` no owner's "
            f"share is off by more than {100 * MOST_OFF:.0f} % of the device.",
            f"{len(found[0].outcomes)} sets of jobs from fitted statistics (`unifiednn_core/scheduling/workloads.py` "
            f"names the sources), at a load of {LOAD}; turns by time last {TURN_S:.0f} s; each job is due after "
            f"{SLACK:.0f} times its duration. Medians over the sets.",
            "Slowdown: mean of turnaround by duration alone. In time: deadlines that hold. Jain: Jain's index over "
            "owners, of service by service due. Off by: the most that an owner's share of the device is off.",
            "Time is conserved: no policy trains faster here, so all makespans are equal. `las` and `fair` do not look "
            "at durations; `srtf`, `sjf` and `finish_time` measure them; `fcfs` and `priority` know nothing.",
        ],
        "tables": [
            {"title": f"Statistics of {name}:", "heads": HEADS,
             "rows": [_row(one, means) for one in found if one.statistics == name]}
            for name in dict.fromkeys(one.statistics for one in found)
        ],
        "measured": [asdict(one) for one in found],
    }  # fmt: skip


def _row(one: Simulated, means: Mapping[tuple[str, str], float]) -> Sequence[str]:
    mean_s = means[one.statistics, one.policy]
    return (
        one.policy,
        _hours(mean_s),
        f"{mean_s / means[one.statistics, 'fcfs']:.2f}",
        _hours(one.middle(lambda seen: seen.median_turnaround_s)),
        _hours(one.middle(lambda seen: seen.p95_turnaround_s)),
        f"{one.middle(lambda seen: seen.mean_slowdown):,.1f}",
        _hours(one.middle(lambda seen: seen.makespan_s)),
        f"{100 * one.middle(lambda seen: seen.deadlines_met or 0.0):.0f} %",
        f"{one.middle(lambda seen: seen.jain):.2f}",
        f"{100 * one.middle(lambda seen: seen.share_error):.1f} %",
    )


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.2f} h" if seconds < 10 * HOUR_S else f"{seconds / HOUR_S:.0f} h"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))))
